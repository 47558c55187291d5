"""check_drafter: a draft token must come from the law declared for it, given what is known when it is tested."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proofs_check import check_drafter
from proofs_check.drafter import declared, drawn_laws
from simulator.chance import draw_block
from simulator.laws import ArrayLaw, Point, RationalLaw, SparseLaw
from simulator.records import Tokens

V = 3


def table(context: Tokens, offset: int) -> list[Fraction]:
    """The law of a drafter that depends on context and offset."""
    rng = random.Random(f"{context} {offset}")
    weights = [rng.randint(0, 3) for _ in range(V)]
    weights[rng.randrange(V)] += 2
    return [Fraction(w, sum(weights)) for w in weights]


def tables(context: Any, width: int) -> list[list[Fraction]]:
    return [table(tuple(context), j) for j in range(1, width + 1)]


def best(law: Any) -> int:
    return max(range(len(law)), key=law.__getitem__)


def drawn(laws: Any, coins: Any) -> list[int]:
    return [coins.choose(law) for law in laws]


# --- right drafters ---------------------------------------------------------------------------------------------------------


def diffusion(context: Any, width: int, coins: Any) -> Any:
    laws = tables(context, width)
    return drawn(laws, coins), laws


def greedy(context: Any, width: int, coins: Any) -> Any:
    """C03: the likeliest tokens, and point masses for their laws."""
    tokens = [best(law) for law in tables(context, width)]
    return tokens, [[Fraction(x == token) for x in range(V)] for token in tokens]


def throws_away(context: Any, width: int, coins: Any) -> Any:
    """C04: all drawn before the advance is known, the first 2 thrown away."""
    laws = tables(context, width + 2)
    return drawn(laws, coins)[2:], laws[2:]


def chain(context: Any, width: int, coins: Any) -> Any:
    """A drafter of its own next token: laws depend on the draft tokens before."""
    tokens: tuple[int, ...] = ()
    laws = []
    for _ in range(width):
        laws.append(table((*context, *tokens), 1))
        tokens = (*tokens, coins.choose(laws[-1]))
    return tokens, laws


def until_unsure(context: Any, width: int, coins: Any) -> Any:
    """C07: how many is decided by the laws and the tokens drawn and kept; none for some contexts."""
    if len(context) == 1:
        return (), ()
    tokens, laws = chain(context, width, coins)
    count = next((i + 1 for i, x in enumerate(tokens) if x == 0), width)
    return tokens[:count], laws[:count]


def mixture(context: Any, width: int, coins: Any) -> Any:
    """One of two heads at random, its laws declared."""
    laws = tables((9, *context) if coins() < Fraction(1, 3) else context, width)
    return drawn(laws, coins), laws


def production(context: Any, width: int, coins: Any) -> Any:
    laws = [RationalLaw(law) for law in tables(context, width)]
    return draw_block(laws, coins, len(context) + 1), laws


def in_floats(context: Any, width: int, coins: Any) -> Any:
    laws = np.array(tables(context, width), dtype=float)
    supports = [np.flatnonzero(law) for law in laws]
    tokens = [s[np.sum(np.cumsum(law[s])[:-1] <= u)] for law, s, u in zip(laws, supports, coins.random(width), strict=True)]
    return tokens, [ArrayLaw(law) for law in laws]


@pytest.mark.parametrize(
    "right", [diffusion, greedy, throws_away, chain, until_unsure, mixture, production, in_floats], ids=lambda f: f.__name__
)
def test_right_drafters_pass(right: Any) -> None:
    report = check_drafter(right)
    assert report.verdict == "EXACT", str(report)
    assert [stage.name for stage in report.stages] == ["contract", "law", "edges"]
    assert ("equal up to rounding" in report.stages[1].detail) == (right is in_floats)


# --- wrong drafters ---------------------------------------------------------------------------------------------------------


def argmax_for_soft(context: Any, width: int, coins: Any) -> Any:
    """F01."""
    laws = tables(context, width)
    return [best(law) for law in laws], laws


def filtered(context: Any, width: int, coins: Any) -> Any:
    """F02: drawn from the two likeliest, declared without the filter."""
    laws = tables(context, width)
    return drawn([[w if sorted(law)[-2] <= w else 0 for w in law] for law in laws], coins), laws


def fresh(context: Any, width: int, coins: Any) -> Any:
    """F03: drawn in an older context, declared from the newer one."""
    return drawn(tables(context[:-1], width), coins), tables(context, width)


def shifted(context: Any, width: int, coins: Any) -> Any:
    """F04: tokens trimmed, laws not."""
    laws = tables(context, width + 1)
    return drawn(laws, coins)[1:], laws[:-1]


def tempered(context: Any, width: int, coins: Any) -> Any:
    """Drawn at temperature 1/2, declared at 1."""
    laws = tables(context, width)
    return drawn([[w * w for w in law] for law in laws], coins), laws


def shared(context: Any, width: int, coins: Any) -> Any:
    """One coin for all slots: every token alone is right."""
    laws, u = tables(context, width), coins()
    tokens = []
    for law in laws:
        last = max(x for x in range(V) if law[x])
        tokens.append(next((x for x in range(last) if u < sum(law[: x + 1])), last))
    return tokens, laws


def drops_the_unlikely(context: Any, width: int, coins: Any) -> Any:
    """A draft that ends before its first unlikely token: those that are kept were picked."""
    tokens, laws = diffusion(context, width, coins)
    count = next((i for i, x in enumerate(tokens) if laws[i][x] < Fraction(1, 3)), width)
    return tokens[:count], laws[:count]


def second_sorted(context: Any, width: int, coins: Any) -> Any:
    """The tokens of a pair in ascending order: the joint law is off."""
    tokens, laws = diffusion(context, width, coins)
    return sorted(tokens), laws


def averaged(context: Any, width: int, coins: Any) -> Any:
    """One head drawn, the mean of two declared: right on the whole for each token, wrong for two of them."""
    heads = tables((9, *context), width), tables(context, width)
    laws = [[(a + b) / 2 for a, b in zip(*pair, strict=True)] for pair in zip(*heads, strict=True)]
    return drawn(heads[coins() < Fraction(1, 2)], coins), laws


def reaches_zero(context: Any, width: int, coins: Any) -> Any:
    """Inverse CDF by u <= cumulative."""
    laws = tables(context, width)
    tokens = []
    for law in laws:
        u, last = coins(), max(x for x in range(V) if law[x])
        tokens.append(next((x for x in range(last) if u <= sum(law[: x + 1])), last))
    return tokens, laws


def own_generator(context: Any, width: int, coins: Any) -> Any:
    laws = tables(context, width)
    return [random.choices(range(V), list(map(float, law)))[0] for law in laws], laws


WRONG = {
    argmax_for_soft: ("law", "law"),
    filtered: ("law", "law"),
    fresh: ("law", "law"),
    shifted: ("law", "law"),
    tempered: ("law", "law"),
    shared: ("law", "law"),
    drops_the_unlikely: ("law", "law"),
    second_sorted: ("law", "law"),
    averaged: ("law", "law"),
    reaches_zero: ("law", "edges"),
    own_generator: ("determinism", "contract"),
    lambda context, width, coins: ([0, 0], [[1, 0]]): ("contract", "contract"),
    lambda context, width, coins: ([0] * 5, [[1, 0]] * 5): ("contract", "contract"),
    lambda context, width, coins: ([0], [[0.5, 0.4]]): ("contract", "contract"),
    lambda context, width, coins: ([0], [[1.5, -0.5]]): ("contract", "contract"),
    lambda context, width, coins: ([0], [[math.nan, 0.5]]): ("contract", "contract"),
    lambda context, width, coins: ([0.5], [[0.5, 0.5]]): ("contract", "contract"),
    lambda context, width, coins: None: ("contract", "contract"),
    lambda context, width, coins: {}[width]: ("contract", "contract"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda f: f.__name__)
def test_wrong_drafters_are_caught(wrong: Any) -> None:
    symptom, stage = WRONG[wrong]
    report = check_drafter(wrong)
    assert report.verdict == "NOT EXACT", str(report)
    failed = {finding.stage: finding.symptom for finding in report.findings}
    assert failed.get(stage) == symptom, str(report)
    assert failed.keys() <= {stage, "edges"}, str(report)


def test_the_finding_shows_both_laws_and_a_program() -> None:
    [finding] = check_drafter(argmax_for_soft).findings
    assert "context [], width 3" in finding.counterexample
    assert "draft token 1, after the draft tokens []" in finding.counterexample
    law = dict(declared(table((), 1)))
    assert f"declared {{{', '.join(f'{x}: {w}' for x, w in law.items())}}}" in finding.counterexample
    assert f"drawn    {{{best(table((), 1))}: 1}}" in finding.counterexample
    with pytest.raises(AssertionError):
        exec(finding.program, {})
    exec(finding.program.replace("import argmax_for_soft ", "import diffusion "), {})


def test_drawn_laws_are_by_what_is_known_when_a_token_is_tested() -> None:
    laws = tuple(declared(law) for law in tables((1,), 2))
    slots = drawn_laws(diffusion, (1,), 2)
    assert slots.keys() == {((), laws[:1]), *(((x,), laws) for x, _ in laws[0])}
    assert all(drawn == dict(slot[1][-1]) for slot, drawn in slots.items())


def test_contexts_and_width_are_the_callers() -> None:
    asked: set[tuple[Tokens, int]] = set()

    def listening(context: Any, width: int, coins: Any) -> Any:
        asked.add((context, width))
        return diffusion(context, width, coins)

    drawn_laws(listening, (1, 2), 2)
    assert asked == {((1, 2), 2)}
    report = check_drafter(fresh, contexts=[[0], (1, 1)], width=1)
    assert "context [0], width 1" in report.findings[0].counterexample


def test_a_drafter_that_never_drafts_two_tokens_says_too_little() -> None:
    def short(context: Any, width: int, coins: Any) -> Any:
        return diffusion(context, 1, coins)

    report = check_drafter(short)
    assert report.verdict == "NOT RUN"
    assert report.stages[1].detail == "never reached: a draft of 2 tokens"
    assert check_drafter(short, width=1).verdict == "EXACT"


def test_laws_of_every_kind_are_read() -> None:
    half = Fraction(1, 2)
    expected = ((0, half), (2, half))
    for law in (
        [half, 0, half],
        {2: 0.5, 0: 0.5},
        np.array([0.5, 0, 0.5]),
        RationalLaw([half, 0, half]),
        SparseLaw([0, 2], [0.5, 0.5]),
    ):
        assert declared(law) == expected
    assert declared(Point(3)) == ((3, 1),)
    for wrong in ([math.inf], ["x"], 3):
        with pytest.raises((TypeError, ValueError)):
            declared(wrong)


# --- drafters one can only run ----------------------------------------------------------------------------------------------


def exponential_noise(context: Any, width: int, coins: Any) -> Any:
    """C05: the argmax of p / Exp(1) noise is a draw from p."""
    laws = tables(context, width)
    return [best([float(w) / -math.log(coins() or 1e-300) for w in law]) for law in laws], laws


CONTEXTS = [(), (1,), (2, 0)]


def test_noise_has_no_law_by_enumeration_and_passes_as_a_sample() -> None:
    """Odds of a false alarm 1e-4 for a fresh seed; the coins are seeded."""
    report = check_drafter(exponential_noise)
    assert report.verdict == "NOT RUN"
    assert "an enumerated coin has no value" in report.stages[1].detail
    report = check_drafter(exponential_noise, contexts=CONTEXTS, width=2, samples=1000)
    assert report.verdict == "NOTHING FOUND", str(report)
    assert report.exit_code == 0
    assert "alpha 0.0001 in all, TV80 of the weakest 0." in report.stages[0].detail


@pytest.mark.parametrize("wrong", [argmax_for_soft, filtered, fresh, shared, averaged], ids=lambda f: f.__name__)
def test_samples_show_what_is_wrong(wrong: Any) -> None:
    report = check_drafter(wrong, contexts=CONTEXTS, width=2, samples=1500)
    assert report.verdict == "NOT EXACT", str(report)
    [finding] = report.findings
    assert finding.symptom == "law"
    assert "came up" in finding.counterexample


def test_a_generator_of_its_own_may_be_sampled() -> None:
    """Seeded here, for the run to be the same every time; 1e-4 otherwise."""

    def seeded(context: Any, width: int, coins: Any, rng: Any = random.Random(3)) -> Any:  # noqa: B008  # one for all calls
        laws = tables(context, width)
        return [rng.choices(range(V), list(map(float, law)))[0] for law in laws], laws

    assert check_drafter(seeded, contexts=CONTEXTS, width=2, samples=1000).verdict == "NOTHING FOUND"


def test_too_few_samples_are_no_test() -> None:
    report = check_drafter(diffusion, samples=20)
    assert report.verdict == "NOT RUN"
    assert "100 drafts" in report.stages[0].detail
