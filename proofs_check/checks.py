"""All checks of the ledger, and how they are run: in parallel, each in one process, its entries as they come."""

from __future__ import annotations

import fnmatch
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module

from proofs_check.ledger import Budget, Check, Entry
from simulator.errors import InvalidInput

# Each exports CHECKS.
MODULES = (
    "proved",
    "chain",
    "graph",
    "refutations",
    "exhaustive",
    "necessity",
    "reach",
    "sampling_dominance",
    "any_order",
    "any_order_scheduler",
    "any_order_law",
    "any_order_limits",
    "any_order_dominance",
    "properties",
    "smt",
    "state_space",
    "lemmas",
    "structure",
    "statistics",
    "rocq_tie",
    "barrier_bound",
)


def all_checks() -> list[Check]:
    """Every check, module by module."""
    return [check for name in MODULES for check in import_module(f"proofs_check.{name}").CHECKS]


def select(patterns: Sequence[str] = (), claims: Sequence[str] = ()) -> list[Check]:
    """The checks whose name matches one of the shell patterns and that are about one of the claims; all without either.

    Raises InvalidInput for a pattern or a claim that selects nothing.
    """
    checks = all_checks()
    for pattern in patterns:
        if not fnmatch.filter([check.name for check in checks], pattern):
            groups = sorted({check.name.split("/")[0] + "/*" for check in checks})
            raise InvalidInput(f"no check is called {pattern!r}; allowed: a name in the ledger, or {', '.join(groups)}")
    for claim in claims:
        if not any(claim in check.claims for check in checks):
            known = sorted({id for check in checks for id in check.claims})
            raise InvalidInput(f"no check is about {claim!r}; allowed: {', '.join(known)}")
    selected = [
        check
        for check in checks
        if (not patterns or any(fnmatch.fnmatchcase(check.name, pattern) for pattern in patterns))
        and (not claims or set(claims) & set(check.claims))
    ]
    if not selected:
        raise InvalidInput(f"no check called {' or '.join(patterns)} is about {' or '.join(claims)}")
    return selected


def run(checks: Sequence[Check], budget: Budget, workers: int = 1) -> Iterator[tuple[list[Entry], int]]:
    """The entries of each check as it finishes, with the peak memory of the process that ran it, in bytes."""
    from joblib import Parallel, delayed

    tasks = (delayed(_run_one)(check, budget) for check in checks)
    yield from Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)(tasks)


def _run_one(check: Check, budget: Budget) -> tuple[list[Entry], int]:
    begun = time.perf_counter()
    try:
        entries = list(check.run(budget))
    except Exception as error:  # a check that breaks has shown nothing, and must not take the others with it
        broke = f"broke: {type(error).__name__}: {error}"
        entries = [Entry(claim, "nothing", "measured", "none", "not run", broke) for claim in check.claims]
    share = (time.perf_counter() - begun) / max(1, len(entries))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return [replace(entry, check=check.name, seconds=share) for entry in entries], peak
