"""The any-order scheduler against spec/, call by call, and its exact laws against serial decoding in the same order."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import nan
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from simulator import ContractError, InvalidInput, Limits, Reply, exact_law, generate
from simulator.any_order import Call, Drafted, Known, Pairs, confidence, left_to_right, named, right_to_left
from simulator.any_order.orders import along, shuffled, within
from simulator.laws import Law, Peak, RationalLaw
from simulator.oracles.any_order import AnyOrderModel, by_accepted, random_tables
from simulator.records import text
from spec import any_order as spec

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "any_order.json").read_text())["rows"]
VERIFYING = ("linear", "packed", "quadratic")


def drafted_first(known: Known) -> tuple[int, ...]:
    return tuple(sorted(known.window, key=lambda j: (j not in known.draft, 7919 * j % 13, j)))


GOLDEN_ORDERS: dict[str, Any] = {"ltr": "ltr", "rtl": "rtl", "drafted_first": drafted_first}


class Toy:
    """The formula-defined model of golden/any_order.json."""

    def __init__(self, V: int, salt: int, noise: int) -> None:  # noqa: N803
        self.V, self.salt, self.noise = V, salt, noise

    def token(self, pairs: Pairs, j: int) -> int:
        h = 17 * j + self.salt
        for r, (i, x) in enumerate(pairs):
            h = 31 * h + 7 * i + 13 * x + r
        return h // 7 % self.V

    def __call__(self, call: Call) -> Reply:
        walk, proposals = call.accepted, []
        for j in call.order:
            token, h = self.token(walk, j), 5 * j + self.salt + sum(3 * i + 11 * x for i, x in call.accepted)
            wrong = (h * 2654435761 >> 7) % 100 < self.noise
            proposals.append(Peak((token + 1) % self.V if wrong else token, 1.0))
            walk += ((j, token),)
        target = [Peak(self.token(call.accepted + call.draft[:r], call.order[r]), 1.0) for r in range(call.asked)]
        return Reply(tuple(target), (tuple(proposals),), call.padded_rows)


@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"{r['policy']}-V{r['V']}-L{r['L']}-W{r['W']}-{r['salt']}-{r['noise']}")
def test_golden_runs(row: dict[str, Any]) -> None:
    schedule = named("packed", row["W"], GOLDEN_ORDERS[row["policy"]])
    run = generate(Toy(row["V"], row["salt"], row["noise"]), schedule, (), Limits.of(row["L"], row["eos"]))
    assert list(run.tokens) == row["tokens"]
    assert run.nfe == row["nfe"]
    assert [{"order": list(step.order), "accepted": step.advance} for step in run.steps] == row["calls"]
    ends = [row["L"], *(step.end for step in run.steps)]
    assert sum(after < before for before, after in pairwise(ends)) == row["eos_moved"]


# --- spec, step by step -----------------------------------------------------------------------------------------------------


def jumpy(salt: str, vocabulary: int, odd: float) -> Callable[[Pairs, int], Peak]:
    def law(pairs: Pairs, j: int) -> Peak:
        random = Random(f"{salt} {pairs} {j}")
        return Peak(random.randrange(vocabulary), random.choice((random.random(), 0.25, 0.95, odd)))

    return law


def by_spec(order: Any) -> Callable[[Any, Any], Any]:
    """A policy for spec, which says of CONF by itself what it means."""
    if order == "confidence":
        return spec.confidence

    def chosen(U: tuple[int, ...], state: Any) -> Any:  # noqa: N803
        return order(Known(U, state.P, dict.fromkeys(dict(state.D)), {}, state.E))

    return chosen


ORDERS: dict[str, Any] = {
    "ltr": left_to_right,
    "rtl": right_to_left,
    "confidence": "confidence",
    "random": shuffled(3),
    "drafted first": drafted_first,
    "horizon": within(right_to_left, 2),
    "given": along((3, 1, 2, 6, 4, 5)),
}


@pytest.mark.claim("PROPC1", "ALG3.L5", "ALG3.L10", "ALG3.L15", "STOPSEQ", "CONF", "NATIVE")
@pytest.mark.parametrize("start", ["algorithm", "prompt"])
@pytest.mark.parametrize("schedule", [*VERIFYING, "native"])
def test_every_step_is_that_of_spec(schedule: Any, start: Any) -> None:
    """200 seeded models a schedule and start, with EOS ids, end markers and every order policy."""
    seen: set[str] = set()
    for seed in range(200):
        random = Random(f"{schedule} {start} {seed}")
        vocabulary, width, length = random.randint(2, 4), random.randint(1, 5), random.randint(0, 9)
        odd = 0.5 if schedule == "native" else nan  # CONF says what a score that is not finite means, NATIVE does not
        verifier = jumpy(f"{seed} p", vocabulary, odd)
        other, share = jumpy(f"{seed} q", vocabulary, odd), random.random()

        def drafter(pairs: Pairs, j: int, other: Any = other, verifier: Any = verifier, share: float = share) -> Peak:
            return verifier(pairs, j) if Random(f"{pairs} {j} {share}").random() < share else other(pairs, j)

        name, order = random.choice(list(ORDERS.items()))
        eos = {0} if random.random() < 0.4 else set()
        markers = {(1, 1), (1, 0, 1)} if random.random() < 0.3 else set()

        def answer(law: Callable[[Pairs, int], Peak]) -> Callable[[Pairs, int], tuple[int, float]]:
            return lambda pairs, position: (law(pairs, position).token, law(pairs, position).confidence)

        given = spec.Given((7,), width, length, answer(verifier), answer(drafter), eos, markers, by_spec(order))
        expected = spec.run(schedule, given, start)
        policy = named(schedule, width, order, start)
        state: Any = policy.init((7,), Limits.of(length, eos, markers))
        model = AnyOrderModel(verifier, drafter)
        steps = []
        for before, record, after in zip(expected.states, expected.records, expected.states[1:], strict=False):
            call = policy.request(state)
            state, step = policy.absorb(state, call, model(call), None)  # type: ignore[arg-type]  # greedy: no coin is asked for
            steps.append(step)
            assert state.accepted == after.P
            assert state.end == after.E
            assert tuple((d.position, d.token) for d in state.draft) == after.D
            assert step.accepted == record.h
            taken = tuple(zip(step.order, step.committed, strict=False))
            assert step.advance == len(record.C)
            if schedule == "native":
                assert step.order[: step.advance] == tuple(j for j, _ in record.C)
                assert sorted(step.order) == list(record.pi)
            else:
                assert step.order == record.pi
                assert [pair for pair in record.C if pair[0] <= after.E] == [
                    (j, x) for j, x in zip([j for j in step.order[: step.advance] if j <= after.E], step.committed, strict=True)
                ]
            seen |= {name} | {label for label, happened in {
                "E lowered": after.E < before.E,
                "a pair removed": len(after.P) < len(before.P) + len(taken) and after.E < before.E,
                "rejected": step.accepted < len(step.verified),
                "no bonus": step.accepted == step.advance == len(step.order) > 1,
                "branch": bool(step.branch),
                "marker": state.stop == "stop",
            }.items() if happened}  # fmt: skip
        assert state.stop is not None
        assert text(steps) == expected.P[1:] == state.prefix[1:]
    wanted = {*ORDERS, "E lowered", "a pair removed", "marker"}
    if schedule != "native":
        wanted |= {"rejected", "no bonus"} | ({"branch"} if schedule == "quadratic" else set())
    assert wanted <= seen


# --- sampling ---------------------------------------------------------------------------------------------------------------


def serial_law(verifier: Callable[[Pairs, int], Law], order: tuple[int, ...], limits: Limits) -> dict[Any, Fraction]:
    """One token after the other in a fixed order of all positions, straight from the verifier; holes up to E are filled."""
    finished: dict[Any, Fraction] = {}

    def go(pairs: Pairs, end: int, weight: Fraction) -> None:
        free = [j for j in order if j <= end and j not in dict(pairs)]
        if not free:
            output = tuple(x for _, x in sorted(pairs))
            finished[output] = finished.get(output, Fraction(0)) + weight
            return
        law = verifier(pairs, free[0])
        for token in law.support:
            after = (*pairs, (free[0], token))
            lower = min(end, limits.end(dict(after), [free[0]]))
            go(tuple(p for p in after if p[0] <= lower), lower, weight * Fraction(law.probability(token)))

    go((), limits.max_new_tokens, Fraction(1))
    return finished


@pytest.mark.claim("THM3.3", "PROPC1")
@pytest.mark.parametrize("schedule", ["serial", *VERIFYING])
@pytest.mark.parametrize(
    ("order", "eos"), [("ltr", None), ("ltr", 1), ("rtl", None), ("2,1,3", None)], ids=["ltr", "ltr-eos", "rtl", "213"]
)
def test_rejection_sampling_has_the_serial_law_of_its_order(schedule: str, order: str, eos: int | None) -> None:
    for seed in range(3):
        model, limits = random_tables(3, seed), Limits.of(3, eos)
        policy = named(schedule, 3, order)
        law = exact_law(policy, model, (), limits)
        positions = {"ltr": (1, 2, 3), "rtl": (3, 2, 1), "2,1,3": (2, 1, 3)}[order]
        assert law.output == serial_law(model.verifier, positions, limits)
        if schedule in ("packed", "quadratic"):
            assert any(kind.accepted < kind.verified for kind in law.kinds)
            assert any(kind.accepted == kind.verified >= 2 for kind in law.kinds)


def test_what_an_eos_removes_was_seen_by_the_rest_of_its_call() -> None:
    """In an order that is not textual, pairs beyond an EOS are removed after the call, not after the token (ALG3.L12): later
    ranks of that call are conditioned on them, so the law depends on how tokens fall into calls, and on the schedule."""
    model, limits = random_tables(3, 0), Limits.of(3, 1)
    expected = serial_law(model.verifier, (3, 2, 1), limits)
    assert exact_law(named("serial", 3, "rtl"), model, (), limits).output == expected
    for schedule in VERIFYING:
        assert exact_law(named(schedule, 3, "rtl"), model, (), limits).output != expected


# --- progress, contracts ----------------------------------------------------------------------------------------------------


@pytest.mark.claim("PROGRESS")
@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_every_verifying_call_resolves_a_position(width: int) -> None:
    for schedule in ("serial", "packed", "quadratic", "native"):
        for correct in (lambda accepted, j: False, lambda accepted, j: True, lambda accepted, j: len(accepted) % 3 == j % 3):
            model = by_accepted([1, 2, 0, 1, 2, 2, 1], correct, vocabulary=3)
            run = generate(model, named(schedule, width, shuffled(1)), (), Limits.of(7))
            assert all(step.committed for step in run.steps)
            assert len(run.tokens) == 7
            if schedule != "native":
                assert run.tokens == (1, 2, 0, 1, 2, 2, 1)


def test_a_correction_stays_unread_when_accepted_drafts_fall_beyond_the_end() -> None:
    """3 and the EOS at 2 are accepted, 1 is corrected; 3 falls, and the correction is what no call was given (|N| = 1)."""
    model, policy = by_accepted([1, 0, 1], lambda accepted, j: True), named("packed", 3, "rtl")
    drafted = tuple(Drafted(j, token, Peak(token, 1.0)) for j, token in ((1, 0), (2, 0), (3, 1)))
    state: Any = policy.init((), Limits.of(3, 0))._replace(draft=drafted)
    call: Any = policy.request(state)
    after, step = policy.absorb(state, call, model(call), None)  # type: ignore[arg-type]  # greedy: no coin is asked for
    assert (step.accepted, step.end, after.accepted) == (2, 2, ((2, 0), (1, 1)))
    assert after.unread == 1


def test_perfect_drafts_take_the_calls_they_should() -> None:
    model = by_accepted([1] * 12, lambda accepted, j: True)
    calls = {
        name: generate(model, named(name, 4), (), Limits.of(12)).nfe for name in ("serial", "linear", "packed", "quadratic")
    }
    # Packed: 1, then min(W, drafted + 1) a call; no bonus token, so Linear's two calls resolve exactly W positions.
    assert calls == {"serial": 12, "linear": 6, "packed": 6, "quadratic": 6}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda known: known.window[1:],
        lambda known: known.window * 2,
        lambda known: (0,),
        lambda known: None,
        lambda known: 3,
        lambda known: [float(j) for j in known.window],
        lambda known: np.array([known.window, known.window]),
        lambda known: [np.array([j, j]) for j in known.window],
    ],
)
def test_an_order_that_is_no_permutation_is_one_clear_error(wrong: Any) -> None:
    with pytest.raises(
        ContractError, match=r"\Athe order policy must return a permutation of the window \[1, 2, 3\], got .+\Z"
    ):
        generate(by_accepted([1, 1, 1, 1], lambda accepted, j: True), named("packed", 3, wrong), (), Limits.of(4))


def test_an_order_of_numpy_integers_is_that_of_the_integers() -> None:
    model, limits = random_tables(4, 1).greedy(), Limits.of(6)
    runs = [generate(model, named("packed", 3, order), (), limits) for order in (lambda k: np.array(k.window)[::-1], "rtl")]
    assert runs[0] == runs[1]
    assert {type(j) for step in runs[0].steps for j in step.order} == {int}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: named("fast", 2), "unknown any-order schedule 'fast'; allowed: serial, linear, packed, quadratic, native"),
        (lambda: named("packed", 0), "must be >= 1, got 0"),
        (lambda: named("native", 0), "must be >= 1, got 0"),
        (lambda: named("packed", 2, "up"), "unknown order 'up'; allowed: ltr"),
        (lambda: named("packed", 2, "1,3"), "must be a permutation of 1 .. 2, got"),
        (lambda: named("packed", 2, start="wide"), "unknown start 'wide' of an any-order schedule; allowed: algorithm, prompt"),
        (lambda: within(left_to_right, 0), "at least 1 position, got 0"),
    ],
)
def test_bad_input_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_horizon_holds_back_what_is_too_early() -> None:
    known = Known((1, 2, 3, 4, 5), (), {}, {}, 5)
    assert within(right_to_left, 5)(known) == (5, 4, 3, 2, 1)
    assert within(right_to_left, 2)(known) == (2, 1, 4, 3, 5)
    assert within(right_to_left, 1)(known) == (1, 2, 3, 4, 5)


def test_native_needs_a_greedy_model() -> None:
    with pytest.raises(ContractError, match="the native decoder is greedy"):
        generate(random_tables(3, 1), named("native", 2), (), Limits.of(3))


def test_confidence_ranks_unscored_positions_last_in_textual_order() -> None:
    assert confidence(Known((1, 2, 3, 4), (), {}, {2: nan, 3: 0.5, 4: 0.5}, 4)) == (3, 4, 1, 2)


def test_a_rational_law_and_a_peak_are_no_equals() -> None:
    assert Peak(1, 0.5) != Peak(1, 0.25)
    assert RationalLaw([0, 1]) != Peak(1, 1.0)
