"""Processing: tie rules by hand, each row under its own context, and outputs that follow the processed target law exactly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from simulator import (
    ArrayLaw,
    Call,
    ContractError,
    InvalidInput,
    Law,
    Limits,
    Point,
    RationalLaw,
    Reply,
    Sampled,
    Scripted,
    autoregressive_law,
    exact_law,
    generate,
    greedy,
    named,
    packed,
)
from simulator.laws import SparseLaw, dense
from simulator.oracles import TabularModel, random_tables
from simulator.processing import Processing, processed

ANY = (1, 2, 3)  # a context that `Processing` does not look at


def rational(*weights: int) -> RationalLaw:
    return RationalLaw.weighted(weights)


def sparse(*weights: int) -> SparseLaw:
    row = np.array(weights) / sum(weights)
    return SparseLaw(np.flatnonzero(row), row[row > 0])


def array(*weights: int) -> ArrayLaw:
    return ArrayLaw(np.array(weights) / sum(weights))


KINDS: list[Callable[..., Law]] = [rational, array, sparse]


# --- each bound, by hand ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("how", "before", "after"),
    [
        (Processing(), (1, 0, 3), (1, 0, 3)),
        (Processing(top_k=1), (1, 3, 0, 3, 1), (0, 3, 0, 0, 0)),  # equal: the lower id
        (Processing(top_k=2), (1, 3, 0, 3, 1), (0, 3, 0, 3, 0)),
        (Processing(top_k=3), (1, 3, 0, 3, 1), (1, 3, 0, 3, 0)),
        (Processing(top_k=4), (1, 3, 0, 3, 1), (1, 3, 0, 3, 1)),
        (Processing(top_k=9), (1, 3, 0, 3, 1), (1, 3, 0, 3, 1)),
        (Processing(top_p=Fraction(3, 8)), (1, 3, 0, 3, 1), (0, 3, 0, 0, 0)),  # reached exactly by one
        (Processing(top_p=0.376), (1, 3, 0, 3, 1), (0, 3, 0, 3, 0)),
        (Processing(top_p=0.75), (1, 3, 0, 3, 1), (0, 3, 0, 3, 0)),
        (Processing(top_p=0.751), (1, 3, 0, 3, 1), (1, 3, 0, 3, 0)),  # equal: the lower id
        (Processing(top_p=0.876), (1, 3, 0, 3, 1), (1, 3, 0, 3, 1)),
        (Processing(top_p=1e-9), (2, 3, 3, 0, 0), (0, 3, 0, 0, 0)),  # never empty
        (Processing(min_p=Fraction(1, 2)), (1, 4, 2, 0, 1), (0, 4, 2, 0, 0)),  # at least: equality stays
        (Processing(min_p=0.501), (1, 4, 2, 0, 1), (0, 4, 0, 0, 0)),
        (Processing(min_p=0.25), (1, 4, 2, 0, 1), (1, 4, 2, 0, 1)),
        (Processing(min_p=1), (1, 3, 0, 3, 1), (0, 3, 0, 3, 0)),
        # Each bound sees what the one before has left, renormalised: 1/2 of the two kept is reached by one.
        (Processing(top_k=2, top_p=Fraction(1, 2)), (3, 3, 2, 0, 0), (3, 0, 0, 0, 0)),
        (Processing(top_k=3, top_p=Fraction(4, 5)), (4, 3, 1, 1, 1), (4, 3, 0, 0, 0)),  # 7/8, where 7/10 would not do
        (Processing(top_p=Fraction(1, 2), min_p=Fraction(1, 3)), (4, 2, 2, 0, 0), (4, 0, 0, 0, 0)),
        (Processing(top_k=3, min_p=Fraction(1, 2)), (4, 2, 2, 2, 0), (4, 2, 2, 0, 0)),
    ],
)
def test_bounds_and_ties(make: Callable[..., Law], how: Processing, before: Any, after: Any) -> None:
    got = how(ANY, make(*before))
    assert list(got.support) == [token for token, weight in enumerate(after) if weight]
    assert dense(got, len(after)) == pytest.approx(np.array(after) / sum(after), abs=2**-52)


def test_the_kind_of_law_that_comes_out() -> None:
    """Exact laws stay exact and whole, truncated floats become sparse, nothing to do leaves the law itself."""
    truncate = Processing(top_k=2)
    assert truncate(ANY, rational(1, 2, 3)) == rational(0, 2, 3)
    for make in (array, sparse):
        assert isinstance(truncate(ANY, make(1, 2, 3)), SparseLaw)
    for law in (rational(1, 2), array(1, 2), sparse(1, 2), Point(3)):
        assert Processing()(ANY, law) is law
    for how in (truncate, Processing(temperature=0.5), Processing(temperature=0)):
        assert how(ANY, Point(3)) == Point(3)
    assert truncate(ANY, sparse(1, 2, 3)).support == [1, 2]
    assert Processing(top_k=1)(ANY, array(1, 2, 2)).certain == 1  # needs no coin


@pytest.mark.parametrize("make", KINDS)
def test_temperature_0_is_the_most_likely_token_the_lowest_id_among_equals(make: Callable[..., Law]) -> None:
    assert Processing(temperature=0)(ANY, make(1, 3, 0, 3)) == Point(1)
    assert Processing(temperature=0, top_k=3, top_p=0.1, min_p=0.9)(ANY, make(1, 3, 0, 3)) == Point(1)


@pytest.mark.parametrize("make", [array, sparse])
@pytest.mark.parametrize("temperature", [0.5, Fraction(1, 2), 0.7, 2, 50.0])
def test_temperature_is_a_power(make: Callable[..., Law], temperature: Any) -> None:
    weights = np.array([1, 5, 0, 3, 5])
    powers = np.where(weights > 0, (weights / 14) ** (1 / float(temperature)), 0)
    assert dense(Processing(temperature=temperature)(ANY, make(*weights)), 5) == pytest.approx(powers / powers.sum(), abs=1e-15)


@pytest.mark.parametrize("make", [array, sparse])
def test_temperature_comes_before_the_bounds(make: Callable[..., Law]) -> None:
    """At temperature 1/2 the weights 2 1 1 become 4 1 1, so that one token has 0.6 of the mass; at 2 two do not have 0.75."""
    assert list(Processing(temperature=0.5, top_p=0.6)(ANY, make(2, 1, 1)).support) == [0]
    assert list(Processing(temperature=1, top_p=0.6)(ANY, make(2, 1, 1)).support) == [0, 1]
    assert list(Processing(temperature=2, top_p=0.75)(ANY, make(2, 1, 1)).support) == [0, 1, 2]
    assert list(Processing(temperature=1, top_p=0.75)(ANY, make(2, 1, 1)).support) == [0, 1]


def test_extreme_temperatures_leave_a_law() -> None:
    law = ArrayLaw([0.3, 0.4, 0.3, 0.0])
    assert Processing(temperature=1e-4)(ANY, law).support == [1]  # the others underflow, and are gone
    assert Processing(temperature=5e-324)(ANY, law).support == [1]
    assert dense(Processing(temperature=1e300)(ANY, law), 4) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert dense(Processing(temperature=0.01)(ANY, ArrayLaw([1e-300, 1 - 1e-300])), 2) == pytest.approx([0, 1])


def test_exact_laws_take_temperatures_0_and_1_only() -> None:
    with pytest.raises(InvalidInput, match="take temperature 0 or 1, got 1/2; use float laws"):
        Processing(temperature=Fraction(1, 2))(ANY, rational(1, 2))
    assert Processing(temperature=Fraction(1), top_k=1)(ANY, rational(1, 2)) == rational(0, 1)


def test_a_float_bound_on_an_exact_law_means_its_binary_value() -> None:
    """0.9 is a little above nine tenths, so a mass of nine tenths does not reach it; the fraction says what is meant."""
    assert Processing(top_p=0.9)(ANY, rational(9, 1)) == rational(9, 1)
    assert Processing(top_p=Fraction(9, 10))(ANY, rational(9, 1)) == rational(1, 0)


@pytest.mark.parametrize(
    ("bad", "allowed"),
    [({"temperature": t}, "temperature must be >= 0 and finite") for t in (-1, -1e-9, float("inf"), float("nan"))]
    + [({"top_k": k}, "top_k must be an integer >= 1, or None") for k in (0, -1, 2.0, "3")]
    + [({"top_p": p}, "top_p must be > 0 and <= 1") for p in (0, -0.1, 1.5, float("nan"))]
    + [({"min_p": p}, "min_p must be >= 0 and <= 1") for p in (-0.1, 1.1, float("nan"))],
)
def test_bad_parameters_are_refused(bad: Any, allowed: str) -> None:
    with pytest.raises(InvalidInput, match=allowed) as caught:
        Processing(**bad)
    assert str(next(iter(bad.values()))) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- each row under its own context -----------------------------------------------------------------------------------------


def tagged(call: Call) -> Reply:
    """A model whose laws tell their rows apart: Point(100 + i) in verifier row i, Point(1000 + 10 b + j) as proposal j of b."""
    rows = range(len(call.draft) + 1) if call.verify else ()
    return Reply(
        tuple(Point(100 + i) for i in rows),
        tuple(
            tuple(Point(1000 + 10 * b + j) for j in range(1, call.width + 1)) if b <= len(call.draft) else None
            for b in call.branches
        ),
        7,
    )


@pytest.mark.parametrize("verify", [True, False])
def test_contexts(verify: bool) -> None:
    """Verifier row i gets prefix + draft[:i], all proposals of branch b get prefix + draft[:b], an inert branch nothing."""
    call = Call(prefix=(5, 6), draft=(7, 8), verify=verify, branches=(0, 2, 3), width=2)
    seen: dict[str, list[tuple[Any, int]]] = {"target": [], "proposal": []}

    def processor(side: str) -> Callable[..., Law]:
        return lambda context, law: seen[side].append((context, law.token)) or Point(law.token + 5000)

    reply = processed(tagged, processor("target"), processor("proposal"))(call)
    rows = [((5, 6), 100), ((5, 6, 7), 101), ((5, 6, 7, 8), 102)] if verify else []
    assert seen["target"] == rows
    assert seen["proposal"] == [((5, 6), 1001), ((5, 6), 1002), ((5, 6, 7, 8), 1021), ((5, 6, 7, 8), 1022)]
    assert reply.target == tuple(Point(5000 + tag) for _, tag in rows)
    assert reply.proposals == ((Point(6001), Point(6002)), (Point(6021), Point(6022)), None)
    assert reply.rows == 7


def test_without_a_second_processor_proposals_get_the_first() -> None:
    call = Call(prefix=(5,), draft=(7,), verify=True, branches=(0,), width=1)
    reply = processed(tagged, lambda context, law: Point(len(context)))(call)
    assert (reply.target, reply.proposals) == ((Point(1), Point(2)), ((Point(1),),))


def test_a_model_that_answers_too_few_or_too_many_rows_is_still_found_out() -> None:
    """The wrapper neither hides surplus rows from the schedule nor crashes on them."""
    call = Call(prefix=(), draft=(), verify=True, branches=(0,), width=1)
    for proposals in ((), ((Point(0),), (Point(0),))):
        with pytest.raises(ContractError, match="branches"):
            greedy(lambda c, p=proposals: Reply((Point(0),), p, 1))(call)
    for target in ((), (Point(0),) * 3):
        with pytest.raises(ContractError, match="verifier rows"):
            generate(greedy(lambda c, t=target: Reply(t, ((Point(0),),), 1)), packed(1), (), Limits.of(2))


# --- exactness --------------------------------------------------------------------------------------------------------------


def penalty(context: tuple[int, ...], law: Law) -> Law:
    """A repetition penalty: a token in the context weighs half. Reads its context, so a wrong one shows."""
    assert isinstance(law, RationalLaw)
    weights = [p / (2 if token in context else 1) for token, p in enumerate(law.probabilities)]
    return RationalLaw(w / sum(weights) for w in weights)


PROCESSORS: dict[str, tuple[Any, Any]] = {
    "top-k": (Processing(top_k=2), None),
    "top-p": (Processing(top_p=Fraction(3, 5)), None),
    "min-p": (Processing(min_p=Fraction(1, 2)), None),
    "penalty": (penalty, None),
    "target only": (Processing(top_k=2), Processing()),
    "proposals only": (Processing(), Processing(top_k=1)),
    "target penalty, greedy proposals": (penalty, Processing(temperature=0)),
    "greedy target": (Processing(temperature=0), Processing()),
}


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("kind", PROCESSORS)
@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
def test_outputs_follow_the_processed_target_law(name: str, kind: str) -> None:
    """Exactly, whatever the proposals are processed with: F02 (q filtered when drawn, not in the ratio), F05 (target processed
    as by another request), F06 (only the bonus row filtered) would each move a probability. Reached: rejections, and drafts
    kept after them."""
    target, proposal = PROCESSORS[kind]
    rejected = kept = False
    for seed in range(6):
        tables, limits = random_tables(3, seed), Limits.of(4, 0)
        steps: list[Any] = []
        law = exact_law(named(name, 3), processed(tables, target, proposal), (1,), limits, observe=steps.append)
        assert law.output == processed_ar(tables, target, limits)
        rejected |= any(step.accepted < len(step.verified) for step in steps)
        kept |= any(step.accepted < len(step.verified) and step.retained for step in steps)
    assert rejected
    assert kept or name == "linear"


def processed_ar(tables: TabularModel, target: Any, limits: Limits) -> Any:
    return autoregressive_law(lambda context: target(context, tables.target(context)), (1,), limits)


class Unfiltered(NamedTuple):
    """Drawn from one law, weighed by another."""

    drawn: RationalLaw
    weighed: RationalLaw

    @property
    def support(self) -> tuple[int, ...]:
        return self.weighed.support

    @property
    def certain(self) -> None:
        return None

    def probability(self, token: int) -> Fraction:
        return self.weighed.probability(token)

    def draw(self, coin: Any) -> int:
        return self.drawn.draw(coin)


def mistaken(fault: str, how: Processing) -> Callable[[Any], Any]:
    def wrap(model: Any) -> Any:
        def run(call: Call) -> Reply:
            raw, right = model(call), processed(model, how)(call)
            if fault == "F02":
                pairs = zip(right.proposals[0], raw.proposals[0], strict=True)
                return right._replace(proposals=(tuple(Unfiltered(drawn, weighed) for drawn, weighed in pairs),))
            if fault == "F05":
                return right._replace(target=raw.target)
            return right._replace(target=(*raw.target[:-1], right.target[-1]))  # F06

        return run

    return wrap


@pytest.mark.parametrize("fault", ["none", "F02", "F05", "F06"])
def test_the_check_sees_the_known_mistakes(fault: str) -> None:
    """The comparison above, on wrappers that process as reported faulty engines do. (F02 draws from the filtered proposal and
    weighs with the unfiltered one.)"""
    how, tables, limits = Processing(top_k=2), random_tables(4, 1), Limits.of(3)
    wrap = mistaken(fault, how) if fault != "none" else lambda model: processed(model, how)
    law = exact_law(packed(2), wrap(tables), (1,), limits).output
    assert (law == processed_ar(tables, how, limits)) == (fault == "none")


def test_the_stored_law_is_the_law_drawn_from(walk: Any) -> None:
    """F02: what travels with a draft token is the processed proposal, which can draw it, and not the model's own."""
    how = Processing(top_k=2)
    tables = random_tables(4, 1)
    stored = 0
    for move in walk(processed(tables, Processing(), how), packed(4), (), Limits.of(12), Sampled(2)):
        for index, (token, law) in enumerate(zip(*move.after.draft, strict=True)):
            assert law.probability(token) > 0
            raw = tables.proposal(move.before.prefix, len(move.step.committed) + index + 1)
            assert law == how(ANY, raw)
            stored += law != raw
    assert stored > 5


def test_wrapping_twice_runs_the_inner_processor_first() -> None:
    """Contexts are the same for both; a penalty before top-k can change which tokens are kept."""
    both = processed(processed(random_tables(3, 5), penalty), Processing(top_k=1))
    direct = processed(random_tables(3, 5), lambda context, law: Processing(top_k=1)(context, penalty(context, law)))
    call = Call(prefix=(0, 1), draft=(2, 2), verify=True, branches=(0, 1), width=2)
    assert both(call) == direct(call)


def in_floats(model: TabularModel, make: Callable[[RationalLaw], Law]) -> TabularModel:
    return TabularModel(lambda prefix: make(model.target(prefix)), lambda prefix, j: make(model.proposal(prefix, j)))


@pytest.mark.claim("SPARSEQ")
@pytest.mark.parametrize("how", [Processing(top_k=2), Processing(top_p=Fraction(3, 5)), Processing(temperature=0)], ids=str)
def test_processed_runs_agree_between_floats_and_fractions(how: Processing) -> None:
    """Tokens of whole runs under the same coins. Odds of a sampled coin within 1e-9 of an edge are below 1e-5, seeds fixed."""
    for seed in range(10):
        tables = random_tables(4, seed)
        runs = [
            generate(processed(model, how), named(name, 3), (1,), Limits.of(10), Sampled(seed)).tokens
            for name in ("packed", "quadratic")
            for model in (tables, in_floats(tables, lambda law: ArrayLaw([float(p) for p in law.probabilities])))
        ]
        assert runs[0] == runs[1]
        assert runs[2] == runs[3]


def test_greedy_needs_no_coin_and_is_temperature_0() -> None:
    for seed in range(5):
        tables = random_tables(3, seed)
        runs = [generate(model, packed(3), (), Limits.of(8), Scripted({})) for model in (greedy(tables), tables.greedy())]
        assert runs[0] == runs[1]
