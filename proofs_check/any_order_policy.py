"""An order policy by itself: is it a pure permutation of its window, and does it look at what sampling must keep from it?

It is shown made-up situations, then the same ones with one thing changed. An order that changes with the draft tokens that were
drawn, their laws being the same, leaves greedy decoding right and sampling wrong (ANY-ORDER-ADAPTIVE).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proofs_check.findings import Report
from proofs_check.runner import run_battery
from proofs_check.system import NotReached, found
from simulator.any_order import Drafted, Known
from simulator.any_order.orders import Order, check
from simulator.errors import ContractError, InvalidInput
from simulator.laws import RationalLaw

_SITUATIONS = 300
_WIDEST = 16  # positions of a window


@dataclass(frozen=True)
class Policy:
    """What is checked."""

    order: Order
    source: str
    seed: int

    def __call__(self, known: Known) -> tuple[int, ...]:
        try:
            return check(self.order(known), known.window)
        except ContractError as error:
            found("contract", str(error), _shown(known))
        except Exception as error:
            found("contract", f"it raises {type(error).__name__}: {error}", _shown(known))

    def situations(self) -> Iterator[Known]:
        """From a window of one position on; drafts at some, all or no positions, scores where Linear-SS has them."""
        for number in range(_SITUATIONS):
            yield _situation(random.Random(f"{self.seed} {number}"), 1 + number % _WIDEST)


def _situation(rng: random.Random, size: int) -> Known:
    span = sorted(rng.sample(range(1, 2 * _WIDEST + 1), rng.randint(size, 2 * _WIDEST)))
    window = tuple(sorted(rng.sample(span, size)))
    accepted = tuple((j, rng.randrange(3)) for j in rng.sample(span, len(span)) if j not in window)
    drafted = [j for j in window if rng.random() < rng.choice((0, 0.5, 1))]
    laws = {j: RationalLaw.weighted(rng.sample(range(1, 9), 3)) for j in drafted}
    scores = {j: rng.choice((0.25, 0.5, 0.75, rng.random())) for j in window if not drafted and rng.random() < 0.7}
    draft = {j: Drafted(j, rng.randrange(3), law) for j, law in laws.items()}
    return Known(window, accepted, draft, scores, max(span) + rng.randint(0, 3))


def permutation(policy: Policy) -> str:
    """Every window is ordered: a permutation of its positions."""
    return f"{sum(1 for known in policy.situations() if policy(known))} situations, windows of up to {_WIDEST} positions"


def purity(policy: Policy) -> str:
    """The same situation gets the same order, whatever was asked in between, and is not changed."""
    situations = list(policy.situations())
    before = copy.deepcopy(situations)
    first = [policy(known) for known in situations]
    again = [policy(known) for known in reversed(copy.deepcopy(before))][::-1]
    for known, untouched, one, other in zip(situations, before, first, again, strict=True):
        if (known.window, known.accepted, known.draft, known.scores) != (
            untouched.window,
            untouched.accepted,
            untouched.draft,
            untouched.scores,
        ):
            found("contract", "it changes what it is shown", _shown(untouched))
        if one != other:
            found("determinism", f"the same situation is ordered {list(one)} and later {list(other)}", _shown(known))
    return f"{len(situations)} situations, each asked for twice"


class _Drawn(int):
    """A draft token that notes that it was looked at, and which numbers it was compared with."""

    seen: list[object]


def _noting(name: str) -> Callable[..., Any]:
    def method(self: _Drawn, *others: object) -> Any:
        self.seen.append(others[0] if others else None)
        return getattr(int, name)(self, *others)

    return method


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "hash", "index", "int", "float", "repr", "neg", "add", "sub", "mod", "bool"):
    setattr(_Drawn, f"__{_name}__", _noting(f"__{_name}__"))


def _looked_at(policy: Policy) -> tuple[bool, tuple[int, ...]]:
    """Whether the policy looks at draft tokens at all, and at which ones above those of the situations."""
    seen: list[object] = []
    for known in policy.situations():
        draft = {}
        for j, each in known.draft.items():
            token = _Drawn(each.token)
            token.seen = seen
            draft[j] = each._replace(token=token)
        policy(replace(known, draft=draft))
    return bool(seen), tuple(sorted({each for each in seen if type(each) is int and each > 2}))[:8]


def _redrawn(known: Known, rng: random.Random, tokens: Sequence[int] = (0, 1, 2)) -> Known:
    return replace(known, draft={j: each._replace(token=rng.choice(tokens)) for j, each in known.draft.items()})


def _other_laws(known: Known, rng: random.Random) -> Known:
    return replace(
        known, draft={j: each._replace(law=RationalLaw.weighted(rng.sample(range(1, 9), 3))) for j, each in known.draft.items()}
    )


_CHANGES: dict[str, Callable[[Known, random.Random], Known]] = {
    "drawn tokens": _redrawn,
    "the laws of the draft": _other_laws,
    "accepted tokens": lambda known, rng: replace(known, accepted=tuple((j, rng.randrange(3)) for j, _ in known.accepted)),
    "the order of acceptance": lambda known, rng: replace(
        known, accepted=tuple(rng.sample(known.accepted, len(known.accepted)))
    ),
    "scores": lambda known, rng: replace(known, scores={j: rng.random() for j in known.scores}),
    "E": lambda known, rng: replace(known, end=known.end + rng.randint(1, 3)),
}


def sight(policy: Policy) -> str:
    """What its orders depend on, besides the window: all of it may be but the draft tokens that were drawn."""
    seen = []
    looks, special = _looked_at(policy)
    changes = _CHANGES | {"drawn tokens": partial(_redrawn, tokens=(0, 1, 2, *special))}
    for name, change in changes.items():
        rng = random.Random(f"{policy.seed} {name}")
        for known in policy.situations():
            other = change(known, rng)
            one, two = policy(known), policy(other)
            if one == two:
                continue
            seen.append(name)
            if name == "drawn tokens":
                statement = "it looks at which draft tokens were drawn: sampling with it is not exact, greedy decoding is"
                evidence = f"{_shown(known)}: {list(one)}\n{_shown(other)}: {list(two)}"
                found("law", statement, evidence)
            break
    if looks:
        raise NotReached("it looks at which draft tokens were drawn; never reached: an order that depends on them")
    return (
        f"its orders depend on the window{''.join(f', {name}' for name in seen)}; not on drawn tokens, in {_SITUATIONS} pairs"
    )


STAGES: dict[str, Callable[[Any], str]] = {"permutation": permutation, "purity": purity, "sight": sight}
BASIS = {"purity": ("permutation",), "sight": ("permutation", "purity")}


def check_order(policy: Order, *, seed: int = 0, limit: float = 20.0, name: str = "", source: str = "") -> Report:
    """Check an order policy: a function of `simulator.any_order.Known` that returns a permutation of its window.

    EXACT means that sampling in this order leaves every token the verifier's law, as far as made-up situations show.
    Raises InvalidInput for a negative seed or a policy that cannot be called.
    """
    if seed < 0:
        raise InvalidInput(f"the seed must be >= 0, got {seed}")
    if not callable(policy):
        raise InvalidInput(f"an order policy is a function of what is known, got {policy!r}")
    shown = name or str(getattr(policy, "__name__", None) or type(policy).__name__)
    return run_battery(Policy(policy, source, seed), STAGES, BASIS, limit, shown)


def _shown(known: Known) -> str:
    draft = {j: f"{each.token} of {[str(p) for p in each.law.probabilities]}" for j, each in known.draft.items()}  # type: ignore[attr-defined]
    scores = {j: round(score, 3) for j, score in known.scores.items()}
    return f"window {list(known.window)}, accepted {list(known.accepted)}, E = {known.end}, draft {draft}, scores {scores}"
