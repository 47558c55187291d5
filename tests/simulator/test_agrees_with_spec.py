"""Scheduler and spec side by side, call by call: prefix, draft, stored laws, what the next call does, h, A and a.

The spec was written from the paper without a look at the scheduler. Only models, coins and stops are shared; the drawing of
tokens is written a second time here. At the end of a run the scheduler keeps no draft and the spec may, so drafts are
compared where the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import spec.greedy
import spec.sampling
from simulator import Limits, Point, RationalLaw, Sampled, Scripted, State, named
from simulator.oracles import TabularModel, random_tables
from spec import SCHEDULES, Given, Start

RUNS = [(name, start) for name in SCHEDULES for start in get_args(Start) if name != "ar" or start in ("algorithm", "prompt")]
TOP = Fraction(2**53 - 1, 2**53)  # the largest coin of a 53-bit generator

# What a family of instances must have gone through, or its agreement says little. (Linear-SS keeps no draft.)
REACHED = {"rejected at once", "rejected later", "accepted in full", "EOS cut", "length cut", "EOS in the prompt", "L = 0"}
KEPT = {"draft kept after a rejection"}


def assert_agreement(moves: list[Any], expected: Any, start: State, laws: Callable[[State], tuple[Any, ...]]) -> None:
    """`expected` is the spec's run; `laws` shows our stored laws in the spec's notation."""
    states = [start, *(move.after for move in moves)]
    assert (len(moves), len(states)) == (expected.NFE, len(expected.states))
    for ours, theirs in zip(states, expected.states, strict=True):
        assert ours.prefix == theirs.P
        if ours.stop is None:
            assert (ours.draft.tokens, laws(ours)) == (theirs.D, theirs.Q)
    for move, theirs, record in zip(moves, expected.states, expected.records, strict=False):
        assert theirs.phase == record.phase
        assert move.call.verify == (record.phase in ("verify", "both", "wide"))
        assert bool(move.call.branches) == (record.phase in ("draft", "both", "wide"))
        assert (move.step.accepted, move.step.advance, len(move.step.committed)) == (record.h, record.A, record.a)


def reached(moves: list[Any], prompt: tuple[int, ...], limits: Limits) -> set[str]:
    seen = {"L = 0"} if limits.max_new_tokens == 0 else set()
    if moves and prompt and prompt[-1] in limits.eos:
        seen.add("EOS in the prompt")
    for move in moves:
        step = move.step
        if step.accepted < len(step.verified):
            seen.add("rejected later" if step.accepted else "rejected at once")
            if step.retained:
                seen.add("draft kept after a rejection")
        elif len(step.verified) >= 2:
            seen.add("accepted in full")
        if step.stop and len(step.committed) < step.advance:
            seen.add("EOS cut" if step.stop == "eos" else "length cut")
    return seen


def expectations(name: str) -> set[str]:
    if name == "ar":
        return {"EOS in the prompt", "L = 0"}
    return REACHED if name == "linear" else REACHED | KEPT


@st.composite
def greedy_instances(draw: Any) -> tuple[tuple[int, ...], int, int, frozenset[int], list[int], list[int]]:
    """(prompt, W, L, EOS ids, target table, slips): predictions are looked up by a hash of the prefix; a proposal is the
    greedy token plus a slip, 0 half of the time or more, so that acceptance is neither rare nor certain. A slip may leave the
    vocabulary."""
    vocabulary = draw(st.integers(2, 4))
    token = st.integers(0, vocabulary - 1)
    prompt = draw(st.lists(token, max_size=3).map(tuple))
    table = draw(st.lists(token, min_size=1, max_size=11))
    slips = draw(st.lists(st.sampled_from([0, 0, 0, 0, 1, vocabulary]), min_size=1, max_size=13))
    eos = draw(st.one_of(st.just(()), st.just(prompt[-1:]), st.just(table[-1:]), st.lists(token, max_size=2)))
    length = draw(st.one_of(st.integers(0, 12), st.integers(5, 12)))
    return prompt, draw(st.integers(1, 6)), length, frozenset(eos), table, slips


def lookup(table: list[int], prefix: tuple[int, ...], salt: int = 0) -> int:
    return table[(sum((i + 2) * (x + 1) for i, x in enumerate(prefix)) + salt) % len(table)]


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize(("name", "start"), RUNS)
def test_greedy(name: str, start: str, walk: Any, points: Any) -> None:
    """Point-mass laws in the scheduler against plain tokens in Algorithm 1 and its baselines."""
    seen: set[str] = set()

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(greedy_instances())
    @example(((2,), 3, 9, frozenset({2}), [1, 2, 1, 0, 2, 1, 0], [0, 1, 0]))  # an EOS inside an accepted block
    def agree(instance: Any) -> None:
        prompt, width, length, eos, table, slips = instance

        def p(prefix: tuple[int, ...]) -> int:
            return lookup(table, prefix)

        def q(prefix: tuple[int, ...], j: int) -> int:
            slip = lookup(slips, prefix, 5 * j)
            for _ in range(1, j):
                prefix = (*prefix, p(prefix))
            return p(prefix) + slip

        schedule, limits = named(name, width, start), Limits.of(length, eos)
        moves = walk(points(p, q), schedule, prompt, limits)
        expected = spec.greedy.run(name, Given(prompt, width, length, p, q, eos), start)
        assert_agreement(moves, expected, schedule.init(prompt, limits), lambda state: ())
        assert all(move.after.draft.laws == tuple(map(Point, move.after.draft.tokens)) for move in moves)
        seen.update(reached(moves, prompt, limits))

    agree()
    assert seen >= expectations(name)


def inverse_cdf(law: tuple[Fraction, ...], u: Any) -> int:
    return next(x for x, mass in enumerate(law) if mass > 0 and u < sum(law[: x + 1]))


def sampling_agreement(walk: Any, model: TabularModel, source: Any, name: str, start: str, instance: Any) -> set[str]:
    """Both under the same coins: test coins through the spec's `uniform`, the others through its `draw`."""
    prompt, width, length, eos = instance
    schedule, limits = named(name, width, start), Limits.of(length, eos)
    moves = walk(model, schedule, prompt, limits, source)
    p, q = (lambda prefix: model.target(prefix).probabilities), (lambda prefix, j: model.proposal(prefix, j).probabilities)
    expected = spec.sampling.run(
        name,
        Given(prompt, width, length, p, q, eos),
        lambda call, position: source.at(call).uniform("test", position),
        lambda law, purpose, call, position: inverse_cdf(law, source.at(call).uniform(purpose, position)),
        start,
    )
    laws = lambda state: tuple(law.probabilities for law in state.draft.laws)  # noqa: E731
    assert_agreement(moves, expected, schedule.init(prompt, limits), laws)
    return reached(moves, prompt, limits)


def random_instance(seed: int) -> tuple[int, tuple[Any, ...]]:
    """(vocabulary, (prompt, W, L, EOS ids))"""
    rng = Random(seed)
    vocabulary = rng.randint(2, 4)
    prompt = tuple(rng.randrange(vocabulary) for _ in range(rng.randint(0, 2)))
    eos = rng.choice([(), (0,), (0, vocabulary - 1), prompt[-1:]])
    return vocabulary, (prompt, rng.randint(1, 6), rng.randint(0, 12), frozenset(eos))


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize(("name", "start"), RUNS)
def test_sampling_under_the_same_coins(name: str, start: str, walk: Any) -> None:
    """Rational laws with zeros on both sides, coins of `Sampled` at the same addresses."""
    seen: set[str] = set()
    for seed in range(50):
        vocabulary, instance = random_instance(seed)
        seen |= sampling_agreement(walk, random_tables(vocabulary, seed), Sampled(seed), name, start, instance)
    assert seen >= expectations(name)


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("u", [Fraction(0), 0.0, TOP, float(TOP)], ids=["0", "0.0", "top", "float top"])
@pytest.mark.parametrize(("name", "start"), RUNS)
def test_sampling_under_extreme_coins(name: str, start: str, u: Any, walk: Any) -> None:
    """u = 0 must not accept alpha = 0; u = 1 - 2^-53 must accept alpha = 1. Draws take the first and the last token."""
    for seed in range(8):
        vocabulary, instance = random_instance(seed)
        sampling_agreement(walk, random_tables(vocabulary, seed), Scripted({}, otherwise=u), name, start, instance)


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize(("name", "start"), RUNS)
def test_sampling_from_drawn_tables(name: str, start: str, walk: Any) -> None:
    """As above with laws and coins of Hypothesis's choice: few distinct laws, coins on their edges, point masses."""
    weights = st.lists(st.integers(0, 2), min_size=3, max_size=3).filter(any)
    laws = st.lists(weights.map(RationalLaw.weighted), min_size=1, max_size=4)
    coins = st.lists(st.fractions(0, 1, max_denominator=6).filter(lambda u: u < 1), min_size=1, max_size=7)

    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(laws, laws, coins, st.integers(1, 4), st.integers(0, 7), st.frozensets(st.integers(0, 2), max_size=2))
    def agree(targets: Any, proposals: Any, table: Any, width: int, length: int, eos: frozenset[int]) -> None:
        model = TabularModel(lambda prefix: lookup(targets, prefix), lambda prefix, j: lookup(proposals, prefix, j))
        source = Scripted(
            {
                (call, purpose, position): table[(3 * call + salt + 2 * position) % len(table)]
                for call in range(1, 2 * length + 3)
                for salt, purpose in enumerate(("draft", "test", "correct"))
                for position in range(1, length + 2 * width + 2)
            }
        )
        sampling_agreement(walk, model, source, name, start, ((1,), width, length, eos))

    agree()
