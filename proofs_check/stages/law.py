"""The exact law of the output against AR's, as rationals, and that of the number of calls against the declared policy's."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from proofs_check.chain import REJECTION, TWO_WAYS, WINDOW, Reached, disjoint, near_equal
from proofs_check.findings import Finding
from proofs_check.system import Found, NotReached, System, found
from simulator.errors import ContractError
from simulator.exact import ExactLaw, autoregressive_law, exact_law, summed, visits
from simulator.laws import Law
from simulator.oracles import TabularModel, random_tables
from simulator.processing import Processing
from simulator.records import Limits, Tokens


class Case(NamedTuple):
    """A request whose law is computed."""

    source: str
    tables: TabularModel
    limits: Limits
    processing: Processing = Processing()  # frozen
    prompt: Tokens = ()

    def target(self, prefix: Tokens) -> Law:
        """The AR law that the output must follow: it does its own processing."""
        return self.processing(prefix, self.tables.target(prefix))

    def __str__(self) -> str:
        stops = "".join(
            f", {name} {list(value)}" for name, value in (("EOS", self.limits.eos), ("markers", self.limits.stop)) if value
        )
        processing = f", {self.processing}" if self.processing != Processing() else ""
        return f"{self.source}, L = {self.limits.max_new_tokens}{stops}{processing}"


def _program(system: System, case: Case) -> str:
    """Python that shows the two laws again; for plain tables of the package's own."""
    if not system.source or not case.source.startswith("random_tables") or case.processing != Processing():
        return ""
    eos, stop = sorted(case.limits.eos), [list(marker) for marker in case.limits.stop]
    return "\n".join(
        (
            "from simulator import *",
            "from simulator.oracles import *",
            system.source,
            f"model = {case.source}",
            f"limits = Limits.of({case.limits.max_new_tokens}, {eos}, {stop})",
            f"law = exact_law(schedule, model, {case.prompt}, limits).output",
            f"assert law == autoregressive_law(model.target, {case.prompt}, limits), law",
        )
    )


def cases() -> Iterator[Case]:
    """Small ones first, so that the first difference is on a small one."""
    for length in range(1, 5):
        for vocabulary, seed in ((3, 0), (2, 1), (3, 2), (4, 3)):
            tables = random_tables(vocabulary, seed)
            yield Case(f"random_tables({vocabulary}, seed={seed})", tables, Limits.of(length))
            yield Case(f"random_tables({vocabulary}, seed={seed})", tables, Limits.of(length, vocabulary - 1))
    for length in (2, 4):
        yield Case("near_equal(3, Fraction(1, 1000))", near_equal(3, Fraction(1, 1000)), Limits.of(length))
        yield Case("near_equal(3, Fraction(0))", near_equal(3, Fraction(0)), Limits.of(length))
        yield Case("disjoint(3)", disjoint(3), Limits.of(length, 0))
    for seed in range(3):
        tables, source = random_tables(3, seed), f"random_tables(3, seed={seed})"
        yield Case(source + ".greedy()", tables.greedy(), Limits.of(5, 2), prompt=(1,))
        yield Case(source, tables, Limits.of(4, 2, [(0, 1), (1, 0, 1)]))
        yield Case(source, tables, Limits.of(4), Processing(top_k=2))
        yield Case(source, tables, Limits.of(4), Processing(top_p=Fraction(3, 4)))
        yield Case(source, tables, Limits.of(4), Processing(temperature=0))
        yield Case(source, tables, Limits.of(5, 2), prompt=(0, 2))


def law(system: System) -> str:
    """Every transition of every case under enumerated coins."""
    reached = Reached()
    transitions = runs = longest = 0
    other_calls: Finding | None = None  # told only once all laws are right
    for case in cases():
        model = case.tables if case.processing == Processing() else system.processed(case.tables, case.processing)
        try:
            chain = list(visits(system.schedule, model, case.prompt, case.limits, max_calls=60))
            exact = summed(chain)
        except ContractError as error:
            _contract(str(error), case)
        for visit in chain:
            reached.visit(visit)
        reached.law(exact)
        longest = max([longest, *(kind.verified for kind in exact.kinds)])
        transitions += exact.transitions
        runs += 1
        _compare(system, exact, case)
        if system.declares is not None and other_calls is None:
            theirs = exact_law(system.declares, model, case.prompt, case.limits)
            other_calls = _compare_calls(exact, theirs, system.declares.name, case)
    if other_calls is not None:
        raise Found(other_calls)
    needed = (REJECTION, TWO_WAYS, WINDOW) if longest > 1 else (REJECTION, TWO_WAYS) if longest else ()
    missing = [condition for condition in needed if condition not in reached.seen]
    if missing:
        raise NotReached(f"never reached: {', '.join(missing)}")
    return f"{runs} laws, {transitions:,} transitions, equal as rationals"


def _contract(error: str, case: Case) -> None:
    if "pure function" in error or "keeps coins" in error:
        found("determinism", f"under enumerated coins it is no function of `chance` alone: {error}", str(case))
    found("progress" if "still running" in error else "contract", error, str(case))


def _compare(system: System, exact: ExactLaw, case: Case) -> None:
    expected = autoregressive_law(case.target, case.prompt, case.limits)
    if exact.output == expected:
        return
    wrong_end = [x for x in exact.output if not _ends_rightly(case, x)]
    zero = Fraction(0)
    gaps = {x: exact.output.get(x, zero) - expected.get(x, zero) for x in exact.output.keys() | expected.keys()}
    distance = sum(map(abs, gaps.values())) / 2
    worst = max(gaps, key=lambda x: (abs(gaps[x]), [-token for token in x]))
    evidence = (
        f"{case}\noutput {list(worst)} has probability {exact.output.get(worst, zero)}, AR gives {expected.get(worst, zero)}\n"
        f"total variation {distance} = {float(distance):.4f}"
    )
    if wrong_end:
        found(
            "stop",
            f"the output {list(min(wrong_end))} ends where no stop is, or goes on after one",
            evidence,
            _program(system, case),
        )
    found("law", "the output law is not the autoregressive one", evidence, _program(system, case))


def _ends_rightly(case: Case, output: Tokens) -> bool:
    reached = [case.limits.reached(case.prompt + output[:count], len(case.prompt)) for count in range(len(output) + 1)]
    return reached[-1] is not None and not any(reached[:-1])


def _compare_calls(ours: ExactLaw, theirs: ExactLaw, name: str, case: Case) -> Finding | None:
    if ours.nfe != theirs.nfe:
        evidence = f"{case}\nlaw of the number of calls {_shown(ours)}\n{name}: {_shown(theirs)}"
        statement = f"law exact, but E[NFE] = {ours.expected_nfe} is not that of {name}, {theirs.expected_nfe}"
        if ours.expected_nfe == theirs.expected_nfe:
            statement = f"law exact, E[NFE] as of {name}, but not the law of NFE"
        return Finding("count", statement, evidence)
    if ours.expected_rows != theirs.expected_rows:
        statement = f"law exact, but it evaluates {ours.expected_rows} rows in expectation, {name} {theirs.expected_rows}"
        return Finding("count", statement, str(case))
    return None


def _shown(law: ExactLaw) -> str:
    return ", ".join(f"{calls}: {weight}" for calls, weight in sorted(law.nfe.items()))
