"""THM3.2, its lemmas and its neighbours on ALL threshold vectors c*_1 .. c*_L, 0 <= c*_k <= k: (L + 1)! drafters for each L.

These are all drafters of Assumption 3.1, as far as a greedy run can tell (`check_assumption`). The sweeps are position
arithmetic at machine speed (`kernels`); `check_scheduler` shows on all shorter vectors that the production scheduler makes
these very calls. Widths go up to L: a wider draft changes nothing before position L.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from math import factorial, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.decode import Resumption, decode, generate
from simulator.errors import InvalidInput
from simulator.laws import Point
from simulator.oracles import ThresholdModel
from simulator.records import Draft, Limits
from simulator.schedules import STARTS, linear, packed, quadratic
from spec.thresholds import F, threshold_model

LENGTHS: dict[Budget, int] = {"quick": 8, "full": 10}
SCHEDULER_LENGTHS: dict[Budget, int] = {"quick": 4, "full": 5}
SCHEDULES = ("linear", "packed", "quadratic", "any-order linear", "any-order packed")
Vector = tuple[int, ...]
REJECTED, SURVIVED = "a rejected draft", "a draft that survives a rejection"
FULL, CUT = "a draft of 2 or more accepted in full", "a stop inside a block"


def counts(
    c_star: npt.ArrayLike,
    width: int,
    schedule: str,
    start: str = "algorithm",
    eos: int | None = None,
    length: int | None = None,
) -> npt.NDArray[np.int64]:
    """NFE of one greedy run for each row c*_1 .. c*_n of `c_star` [rows, n], in a microsecond or less. [rows]

    `schedule` is one of SCHEDULES (the any-order ones in textual order, start `algorithm`), `eos` the output position of the
    first EOS, `length` the limit L, by default n. Raises InvalidInput for anything outside its range.
    """
    from proofs_check import kernels

    vectors = np.asarray(c_star, np.int64)
    if vectors.ndim != 2 or (vectors < 0).any() or (vectors > np.arange(1, vectors.shape[-1] + 1)).any():
        raise InvalidInput("c_star must be [rows, n] with 0 <= c*_k <= k")
    limit = vectors.shape[1] if length is None else length
    if schedule not in SCHEDULES or start not in STARTS or (schedule.startswith("any-order") and start != "algorithm"):
        raise InvalidInput(
            f"no schedule {schedule!r} with start {start!r}; allowed: {', '.join(SCHEDULES)}; {', '.join(STARTS)}"
            " (the any-order ones only with algorithm)"
        )
    if width < 1 or limit < 0 or (eos is not None and eos < 1):
        raise InvalidInput(f"width and eos must be >= 1 and length >= 0, got {width}, {eos}, {limit}")
    machine = kernels.TEXTUAL if schedule.startswith("any-order") else STARTS.index(start)
    code = SCHEDULES.index(schedule) % 3
    nfe: npt.NDArray[np.int64] = kernels.counts(vectors, width, code, machine, limit, limit if eos is None else min(eos, limit))
    return nfe


class Sweep:
    """All vectors of length 1 .. `length`, with all widths 1 .. `length`, through one kernel.

    tally[i] sums what the kernel counts; failures[kind] = (W, vector) is the smallest counterexample: shortest, then narrowest,
    then first in lexicographic order.
    """

    def __init__(self, kernel: Callable[..., Any], length: int, *arguments: int) -> None:
        self.length = length
        self.tally = np.zeros(10, np.int64)
        self.failures: dict[int, tuple[int, Vector]] = {}
        self.expected = 0
        self.rate = 0.0
        for size in range(1, length + 1):
            before, begun = self.tally[0], time.perf_counter()
            for width in range(1, length + 1):
                tally, failures = kernel(size, width, *arguments)
                self.tally[: len(tally)] += tally
                self.expected += factorial(size + 1)
                for kind in range(len(failures)):
                    if failures[kind, 0]:
                        self.failures.setdefault(kind, (width, tuple(map(int, failures[kind, 1:]))))
            self.rate = float(self.tally[0] - before) / (time.perf_counter() - begun)  # of the longest vectors in the end

    @property
    def instances(self) -> str:
        return f"{self.tally[0]:,} pairs of vector and width at {self.rate / 1e6:.2g} million a second"

    @property
    def bound(self) -> str:
        last = factorial(self.length + 1)
        return f"all {last:,} threshold vectors of length L={self.length} and all shorter ones, W=1..{self.length}"

    def entry(
        self,
        claim: str,
        statement: str,
        kinds: Iterable[int],
        explain: Callable[[int, int, Vector], str],
        evidence: str,
        required: dict[str, int],
    ) -> Entry:
        """Violated by one of these kinds of failure; not run when vectors are missing or a required count is 0."""
        missing = [what for what, index in required.items() if not self.tally[index]]
        outcome: Outcome
        for kind in kinds:
            if kind in self.failures:
                outcome, detail = "violated", explain(kind, *self.failures[kind])
                break
        else:
            if self.tally[0] != self.expected:
                outcome, detail = "not run", f"{self.tally[0]:,} instances visited, {self.expected:,} expected"
            elif missing or not self.expected:
                outcome, detail = "not run", f"never reached: {', '.join(missing) or 'a vector'}"
            else:
                outcome, detail = "holds", evidence
        return Entry(claim, statement, "exhaustive", self.bound, outcome, detail)


def check_runs(start: str, length: int) -> list[Entry]:
    """Packed-SS against Linear-SS, call by call, under start algorithm, wide or sampled, or `any-order`: in Algorithm 3.

    Start `prompt` only adds a call to both schedules.
    """
    from proofs_check import kernels as k

    code = k.TEXTUAL if start == "any-order" else STARTS.index(start)
    sweep = Sweep(k.sweep_runs, length, code)
    tally = sweep.tally

    def explain(kind: int, width: int, c_star: Vector) -> str:
        padded, calls = np.array([0, *c_star, *[0] * (width + 2)]), np.zeros((2 * len(c_star) + 4, 3), np.int64)
        seen = []
        for schedule, name in ((k.PACKED, "Packed-SS"), (k.LINEAR, "Linear-SS")):
            n = k.run(padded, width, schedule, code, len(c_star), calls)
            lengths, drafts = calls[: n + 1, 0].tolist(), calls[1 : n + 1, 1].clip(0).tolist()
            seen.append(f"{name} has {lengths} tokens after calls 0 .. {n}; calls 1 .. {n} verify {drafts} draft tokens")
        what = ("falls behind", "needs more calls", "keeps a draft of another length", "makes no progress")[kind]
        return f"{'A schedule' if kind == k.IDLE else 'Packed-SS'} {what} for c* = {c_star}, W = {width}: {'; '.join(seen)}"

    under = "Algorithm 3 in textual order" if start == "any-order" else f"start {start}"
    fewer = f"Packed-SS needs fewer calls in {tally[k.FEWER]:,}, as many in {tally[k.EQUAL]:,}"
    together = f"{tally[k.NFE_PACKED]:,} calls of Packed-SS, {tally[k.NFE_LINEAR]:,} of Linear-SS"
    blocks = f"{tally[k.REJECTED]:,} drafts rejected, {tally[k.FULL]:,} of 2 or more accepted in full"
    stops = f"{tally[k.CUT]:,} runs end inside a block of Packed-SS"
    required = {
        "a run with fewer calls": k.FEWER,
        "a run with as many calls": k.EQUAL,
        REJECTED: k.REJECTED,
        SURVIVED: k.SURVIVED,
        FULL: k.FULL,
        CUT: k.CUT,
    }

    def entry(claim: str, statement: str, kinds: tuple[int, ...], evidence: str) -> Entry:
        return sweep.entry(claim, f"{under}: {statement}", kinds, explain, evidence, required)

    dominance = "Packed-SS is never behind Linear-SS after the same number of calls"
    nfe = "needs no more calls for any L' <= L and an EOS at any position"
    kept = "Packed-SS keeps max(0, W - A) draft tokens" + ("" if start == "algorithm" else ", W after the start")
    accepts = "every call that verifies accepts a token, and every run of both schedules ends"
    row = {"wide": "DOM-WIDE", "sampled": "DOM-SAMPLED", "any-order": "DOM-ANYORDER"}.get(start)
    entries = [entry("PROGRESS", accepts, (k.IDLE,), f"{sweep.instances}; {together}; {blocks}")]
    if start != "any-order":
        survived = f"{tally[k.SURVIVED]:,} drafts kept after a rejection"
        entries.append(entry("DRAFTLEN", kept, (k.DRAFT_LENGTH,), f"{sweep.instances}; {survived}"))
    if row:
        whole = f"{sweep.instances}; {fewer}; {together}; {stops}"
        return [entry(row, f"{dominance}, and {nfe}", (k.BEHIND, k.MORE_CALLS), whole), *entries]
    return [
        entry("THM3.2", dominance, (k.BEHIND,), f"{sweep.instances}; {fewer}; {blocks}"),
        entry("EQ5", f"Packed-SS {nfe}", (k.MORE_CALLS,), f"{sweep.instances}; {together}; {stops}"),
        *entries,
    ]


def check_lemmas(length: int) -> list[Entry]:
    """EQ6, LEMB1 and LEMB2 from every context, whether a run visits it or not."""
    from proofs_check import kernels as k

    sweep = Sweep(k.sweep_lemmas, length)
    tally = sweep.tally

    def explain(kind: int, width: int, c_star: Vector) -> str:
        padded = np.array([0, *c_star, *[0] * (width + 2)])
        contexts = range(len(c_star) + 1)
        reach = [int(k.F(c, width, padded)) for c in contexts]
        fresh = [int(k.verified(padded, c, c, c + width)) for c in contexts]
        where = f"for c* = {c_star}, W = {width}: F(0), F(1), .. = {reach}"
        if kind == k.NOT_FRESH:
            return f"a fresh draft does not end at F {where}, but drafting and verifying ends at {fresh}"
        if kind == k.DECREASES:
            return f"F decreases {where}"
        c, first, second = next(
            (c, first, second)
            for c in contexts
            for first in range(c + 1, c + width + 2)
            if (second := int(k.verified(padded, c, first, c + width))) < reach[c]
        )
        return f"two passes of Packed-SS from c = {c} end at {first} and {second}, short of F({c}) {where}"

    stopped = {"an F(c) set by the width": k.BY_WIDTH, "an F(c) set by a wrong proposal": k.BY_ERROR}
    ends = f"{tally[k.BY_WIDTH]:,} times at c + W + 1, {tally[k.BY_ERROR]:,} at a wrong proposal"
    pairs = f"{tally[k.PAIRS]:,} pairs c < c', {tally[k.WITHIN]:,} of them with c' < F(c)"
    states = f"{tally[k.STATES]:,} states, {tally[k.RETAINED]:,} need a retained token, {tally[k.TIGHT]:,} end at F(c) itself"
    return [
        sweep.entry(
            "EQ6",
            "min(c + W + 1, min{k > c : c*_k > c}) is where a fresh draft's first wrong token, or its bonus, lies",
            (k.NOT_FRESH,),
            explain,
            f"{sweep.instances}; {ends}",
            stopped,
        ),
        sweep.entry(
            "LEMB1",
            "F(c) <= F(c') for all c < c', and drafting W tokens at any c and verifying them ends at F(c)",
            (k.DECREASES, k.NOT_FRESH),
            explain,
            f"{sweep.instances}; {pairs}",
            {**stopped, "a pair with c' >= F(c)": k.BEYOND, "a pair with c' < F(c)": k.WITHIN},
        ),
        sweep.entry(
            "LEMB2",
            "two Packed-SS passes from any c end at F(c) or beyond, whatever draft the first one verifies",
            (k.SHORT,),
            explain,
            f"{sweep.instances}; {states}",
            {"c' >= F(c)": k.PAST, "a retained token needed": k.RETAINED, "a state that ends at F(c)": k.TIGHT},
        ),
    ]


def check_assumption(length: int) -> list[Entry]:
    """ASM3.1: the threshold vectors are all drafters it allows, and ours (spec, simulator, kernels) are right just there."""
    from proofs_check import kernels as k

    allowed: list[int] = []
    failure = ""
    for position in range(1, length + 1):
        contexts = range(position)
        # Once right, right from every longer context; the thresholds need not grow with the position.
        monotone = {p for p in itertools.product((False, True), repeat=position) if list(p) == sorted(p)}
        found = set()
        for threshold in range(position + 1):
            c_star = (*[0] * (position - 1), threshold)
            pattern = tuple(c >= threshold for c in contexts)
            model, (p, q) = ThresholdModel(c_star), threshold_model(c_star)
            padded = np.array([0, *c_star, 0])
            drafters = {
                "the simulator's drafter": [model.correct(position, c) for c in contexts],
                "the spec's drafter": [
                    q(tuple(range(1, c + 1)), position - c) == p(tuple(range(1, position))) for c in contexts
                ],
                "the kernel's drafter": [bool(k.verified(padded, c, position - 1, position) > position) for c in contexts],
            }
            for name, right in drafters.items():
                if tuple(right) != pattern:
                    failure = failure or f"{name} is right {right} at k = {position} from c = 0 .. with c*_k = {threshold}"
            found.add(pattern)
        if found != monotone:
            failure = failure or f"thresholds 0 .. {position} give {len(found)} patterns, {len(monotone)} are monotone"
        allowed.append(len(found))
    total = prod(allowed)
    complete = length > 0 and total == factorial(length + 1)
    return [
        Entry(
            "ASM3.1",
            "the vectors with 0 <= c*_k <= k are exactly the drafters that stay right as the context grows",
            "exhaustive",
            f"all patterns of right and wrong over the contexts of position k, k=1..{length}",
            "violated" if failure else "holds" if complete else "not run",
            failure
            or f"{', '.join(map(str, allowed))} of {', '.join(str(2**n) for n in range(1, length + 1))} patterns are monotone:"
            f" {total:,} drafters",
        )
    ]


class _Findings:
    """What the runs of the production scheduler have shown: how often what happened, and the first failure of each claim."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self.failures: dict[str, str] = {}

    def expect(self, claim: str, holds: bool, detail: str) -> None:
        if not holds:
            self.failures.setdefault(claim, detail)


def check_scheduler(length: int) -> list[Entry]:
    """The production scheduler on every vector of this length, every width, start and stop, against kernels and spec's F."""
    found = _Findings()
    for c_star in itertools.product(*(range(k + 1) for k in range(1, length + 1))):
        found.reached["vectors"] += 1
        for width in range(1, length + 1):
            _two_passes(c_star, width, found)
            for start in STARTS:
                _runs(c_star, width, start, found)
    n = found.reached
    fewer = {claim: f"Packed-SS needs fewer calls in {n[claim]:,}" for claim in ("THM3.2", "DOM-WIDE", "DOM-SAMPLED")}
    missing = [what for what in (REJECTED, SURVIVED, FULL, CUT) if not n[what]]
    missing += [f"a run with fewer calls ({claim})" for claim in fewer if not n[claim]]
    if n["vectors"] != factorial(length + 1):
        missing = [f"{factorial(length + 1) - n['vectors']:,} of the vectors"]
    runs = f"{n['runs']:,} runs, {n['calls']:,} calls"
    statements = {
        "THM3.2": "Packed-SS is never behind Linear-SS; call by call, all schedules are where the sweeps have them",
        "EQ5": "Packed-SS needs no more calls for any L' <= L and an EOS at any position, start algorithm or prompt",
        "DOM-WIDE": "start wide: never behind and no more calls, where the sweeps have them",
        "DOM-SAMPLED": "start sampled: never behind and no more calls, where the sweeps have them",
        "LEMB1": "F(c) is nondecreasing, and Linear-SS advances from c to F(c)",
        "LEMB2": "two Packed-SS passes from any c, with any draft in hand, end at F(c) or beyond",
        "DRAFTLEN": "a call of Packed-SS that goes on keeps max(0, W - A) tokens, W at the end of a wide or sampled start",
        "PROGRESS": "every call that verifies accepts a token, and the run ends with the target's tokens up to its stop",
    }
    evidence = {claim: f"{runs}; {fewer.get(claim, fewer['THM3.2'])}" for claim in statements} | {
        "LEMB1": f"all iterations of {runs}",
        "LEMB2": f"{n['states']:,} states and all passes of {runs}",
        "DRAFTLEN": f"{runs}; {n[SURVIVED]:,} drafts kept after a rejection",
        "PROGRESS": f"{runs}; {n[REJECTED]:,} drafts rejected, {n[CUT]:,} runs end inside a block",
    }
    return [
        Entry(
            claim,
            f"the production scheduler: {statement}",
            "exhaustive",
            f"all {factorial(length + 1):,} threshold vectors of length L={length}, W=1..{length}",
            "violated" if claim in found.failures else "not run" if missing else "holds",
            found.failures.get(claim) or (f"never reached: {', '.join(missing)}" if missing else evidence[claim]),
        )
        for claim, statement in statements.items()
    ]


def _runs(c_star: Vector, width: int, start: str, found: _Findings) -> None:
    """Linear-SS, Packed-SS and Quadratic-SS, stopped at every position by the limit and by EOS, against the kernel's calls."""
    from proofs_check import kernels as k

    length, n = len(c_star), found.reached
    padded, calls = np.array([0, *c_star, *[0] * (width + 2)]), np.zeros((2 * length + 4, 3), np.int64)
    schedules = [make(width, start) for make in (linear, packed, quadratic)]
    counted = []
    for code in (k.LINEAR, k.PACKED, k.QUADRATIC):
        made = k.run(padded, width, code, STARTS.index(start), length, calls)
        counted.append(calls[: made + 1, 0].tolist())
    reach = [F(c, width, c_star) for c in range(length)]
    never_behind = {"wide": "DOM-WIDE", "sampled": "DOM-SAMPLED"}.get(start, "THM3.2")
    no_more_calls = never_behind if never_behind.startswith("DOM") else "EQ5"
    where = f"c* = {c_star}, W = {width}, start {start}"
    found.expect("LEMB1", reach == sorted(reach), f"F decreases: {reach} for {where}")

    for stop, by_eos in itertools.product(range(1, length + 1), (False, True)):
        model = ThresholdModel(c_star, [int(k == stop and by_eos) for k in range(1, length + 1)])
        limits = Limits.of(length, eos=1) if by_eos else Limits.of(stop)  # wrong draft tokens before it are EOS as well
        at = f"{where}, {'EOS' if by_eos else 'limit'} at {stop}"
        runs = [generate(model, schedule, (), limits) for schedule in schedules]
        paths = [list(itertools.accumulate((len(step.committed) for step in run.steps), initial=0)) for run in runs]
        for schedule, run, path, full in zip(schedules, runs, paths, counted, strict=True):
            expected = [min(c, stop) for c in full if c < stop] + [stop]
            detail = f"{schedule.name} has {path} tokens after its calls, and not {expected}, for {at}"
            found.expect(never_behind, path == expected, detail)
            accepts = all(step.committed for step in run.steps if step.predictions)
            detail = f"{schedule.name} emits {list(run.tokens)}, with {path} tokens after its calls, for {at}"
            found.expect("PROGRESS", accepts and run.tokens == model.truth[:stop], detail)
            n["runs"] += 1
            n["calls"] += run.nfe
            n[CUT] += run.steps[-1].advance > len(run.steps[-1].committed)

        two_call, one_call, _ = paths
        detail = f"Packed-SS has {one_call} tokens after its calls, Linear-SS {two_call}, for {at}"
        found.expect(never_behind, all(a >= b for a, b in zip(one_call, two_call, strict=False)), detail)
        detail = f"Packed-SS {len(one_call) - 1}, Linear-SS {len(two_call) - 1} calls for {at}"
        found.expect(no_more_calls, len(one_call) <= len(two_call), detail)
        n[never_behind] += len(one_call) < len(two_call)
        if start == "algorithm":
            iterations = zip(two_call[::2], two_call[2::2], strict=False)
            fresh = all(after == min(reach[before], stop) for before, after in iterations)
            found.expect("LEMB1", fresh, f"Linear-SS does not advance by F for {at}")
            passes = zip(one_call, one_call[2:], strict=False)
            far = all(after >= min(reach[before], stop) for before, after in passes)
            found.expect("LEMB2", far, f"two passes of Packed-SS fall short of F for {at}")

        first = {"algorithm": 0, "wide": 1, "sampled": 2, "prompt": 1}[start]  # calls before the loop of ALG1
        for number, step in enumerate(runs[1].steps, 1):
            n[REJECTED] += step.accepted < len(step.verified)
            n[FULL] += len(step.verified) == step.accepted >= 2
            n[SURVIVED] += step.accepted < len(step.verified) and step.retained > 0
            if not step.stop:
                kept = max(0, width - step.advance) if number > first else width * (number == first and start != "prompt")
                detail = f"call {number} of Packed-SS keeps {step.retained} draft tokens, and not {kept}, for {at}"
                found.expect("DRAFTLEN", step.retained == kept, detail)


def _two_passes(c_star: Vector, width: int, found: _Findings) -> None:
    """Packed-SS resumed at every context with a draft of W tokens, of which the first h = 0 .. W are right."""
    model, schedule = ThresholdModel(c_star), packed(width, "algorithm")
    limits = Limits.of(len(c_star) + 3 * width)  # no stop within two passes
    for c, h in itertools.product(range(len(c_star)), range(width + 1)):
        tokens = (*[0] * h, *[1] * (width - h))
        state = schedule.resume((), (0,) * c, limits, Draft(tokens, tuple(map(Point, tokens))))
        steps = itertools.islice(decode(model, schedule, (), limits, resume=Resumption(state, 0)), 2)
        end, reach = c + sum(len(step.committed) for step in steps), F(c, width, c_star)
        where = f"c* = {c_star}, W = {width}, c = {c}, the first {h} draft tokens right"
        found.expect("LEMB2", end >= reach, f"two passes of Packed-SS end at {end}, F(c) = {reach}, for {where}")
        found.reached["states"] += 1


def _check(name: str, claims: tuple[str, ...], check: Callable[[int], list[Entry]], lengths: dict[Budget, int]) -> Check:
    return Check(f"exhaustive/{name}", claims, partial(_run, check, lengths))


def _run(check: Callable[[int], list[Entry]], lengths: dict[Budget, int], budget: Budget) -> list[Entry]:
    return check(lengths[budget])


CHECKS = (
    _check("lemmas", ("EQ6", "LEMB1", "LEMB2"), check_lemmas, LENGTHS),
    _check("algorithm", ("THM3.2", "EQ5", "PROGRESS", "DRAFTLEN"), partial(check_runs, "algorithm"), LENGTHS),
    _check("wide", ("DOM-WIDE", "PROGRESS", "DRAFTLEN"), partial(check_runs, "wide"), LENGTHS),
    _check("sampled", ("DOM-SAMPLED", "PROGRESS", "DRAFTLEN"), partial(check_runs, "sampled"), LENGTHS),
    _check("any-order", ("DOM-ANYORDER", "PROGRESS"), partial(check_runs, "any-order"), LENGTHS),
    _check(
        "scheduler",
        ("THM3.2", "EQ5", "DOM-WIDE", "DOM-SAMPLED", "LEMB1", "LEMB2", "DRAFTLEN", "PROGRESS"),
        check_scheduler,
        SCHEDULER_LENGTHS,
    ),
    _check("assumption", ("ASM3.1",), check_assumption, LENGTHS),
)
