"""Oracles: each is pinned to what its docstring promises: the thresholds it stands for, its exact cost, its output."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from simulator import (
    Call,
    ContractError,
    InvalidInput,
    Limits,
    Point,
    Sampled,
    ar,
    autoregressive_law,
    branches,
    exact_law,
    generate,
    greedy,
    linear,
    named,
    packed,
    quadratic,
)
from simulator.oracles import (
    HashRule,
    NoisyModel,
    Recorder,
    RecurrentModel,
    Replay,
    TabularModel,
    ThresholdModel,
    always_wrong,
    constant,
    eos_happy,
    random_tables,
    self_draft,
    stale,
)

SCHEDULES = ["ar", "linear", "packed", "quadratic", "branches:0,2"]
LENGTH = 14


def truth(seed: int, vocabulary: int = 2) -> tuple[int, ...]:
    rng = Random(seed)
    return tuple(rng.randrange(vocabulary) for _ in range(LENGTH + 8))


def thresholds(seed: int) -> list[int]:
    rng = Random(seed)
    return [rng.randint(0, k) for k in range(1, LENGTH + 9)]


def calls(model: Any, name: str, width: int, length: int = LENGTH, eos: Any = None) -> int:
    return generate(model, named(name, width), (), Limits.of(length, eos)).nfe


# --- the thresholds each stands for (ASM3.1) --------------------------------------------------------------------------------


def aged(c: int, k: int, age: int) -> int:
    return min(k, c + age) if c else 0


# The drafter built on a base, and its threshold for position k, where the base has threshold c and the truth is x.
DRAFTERS: dict[str, tuple[Callable[[Any], Any], Callable[[int, int, int], int]]] = {
    "self-draft": (self_draft, lambda k, c, x: 0),
    "always wrong": (lambda base: always_wrong(base, 2), lambda k, c, x: k),
    "constant": (lambda base: constant(base, 1), lambda k, c, x: 0 if x == 1 else k),
    "eos-happy": (lambda base: eos_happy(base, 1), lambda k, c, x: 0 if x == 1 else k),
    "stale by 1": (lambda base: stale(base, 1), lambda k, c, x: aged(c, k, 1)),
    "stale by 3": (lambda base: stale(base, 3), lambda k, c, x: aged(c, k, 3)),
}


@pytest.mark.claim("ASM3.1")
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_drafter_is_the_threshold_model_it_claims_to_be(kind: str, name: str) -> None:
    """Step for step at temperature 0. On two tokens there is one wrong one, so equal correctness is equal drafts."""
    make, threshold = DRAFTERS[kind]
    accepted: set[int] = set()
    for seed in range(12):
        inner, tokens = thresholds(seed), truth(seed)
        expected = [threshold(k, c, x) for k, (c, x) in enumerate(zip(inner, tokens, strict=True), start=1)]
        limits = Limits.of(LENGTH, 1 if kind == "eos-happy" else None)
        models = (make(ThresholdModel(inner, tokens)), ThresholdModel(expected, tokens))
        ours, theirs = (generate(model, named(name, 2 + seed % 4), (), limits) for model in models)
        assert ours == theirs
        accepted.update(step.accepted for step in ours.steps)
    assert len(accepted) > 1 or name == "ar" or kind == "always wrong"


@pytest.mark.claim("THM3.2")
@pytest.mark.parametrize("width", [1, 2, 5])
def test_exact_costs(width: int) -> None:
    """The formulas of the docstrings, for every length."""
    base = ThresholdModel([0], truth(1))
    for n in range(1, LENGTH + 1):
        q, r = divmod(n, width + 1)
        best = {"ar": n, "linear": 2 * -(-n // (width + 1)), "packed": 2 * q + min(r, 2), "quadratic": 1 + -(-(n - 1) // width)}
        worst = {"ar": n, "linear": 2 * n, "packed": n, "quadratic": n}
        for name in best:
            assert calls(self_draft(base), name, width, n) == best[name]
            assert calls(always_wrong(base, 2), name, width, n) == worst[name]
            assert calls(constant(base, 9), name, width, n) == worst[name]  # out of vocabulary
            ends = TabularModel(lambda context, n=n: Point(int(len(context) == n - 1)), base.proposal)
            assert calls(eos_happy(ends, 1), name, width, LENGTH, eos=1) == worst[name]


@pytest.mark.parametrize("width", [1, 4])
def test_a_self_draft_is_accepted_whole_at_temperature_1_where_laws_depend_on_the_position_only(width: int) -> None:
    tables = random_tables(3, 0)
    model = self_draft(TabularModel(lambda context: tables.target((len(context),)), tables.proposal))
    steps: list[Any] = []
    law = exact_law(packed(width), model, (), Limits.of(4), observe=steps.append)
    assert all(step.accepted == len(step.verified) for step in steps)
    assert law.nfe == {calls(self_draft(ThresholdModel([])), "packed", width, 4): 1}


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
def test_a_bad_drafter_costs_calls_never_correctness(name: str) -> None:
    """C06: the exact output law at temperature 1, under every drafter."""
    limits = Limits.of(4, 2)
    for seed in range(3):
        tables = random_tables(3, seed)
        expected = autoregressive_law(tables.target, (1,), limits)
        for model in (self_draft(tables), always_wrong(tables, 3), constant(tables, 0), constant(tables, 99)):
            assert exact_law(named(name, 2), model, (1,), limits).output == expected
        for model in (eos_happy(tables, 2), stale(tables, 1, prompt_length=1), stale(tables, 2)):
            assert exact_law(named(name, 2), model, (1,), limits).output == expected


def test_a_stale_drafter_sees_an_older_prefix_but_never_less_than_the_prompt() -> None:
    for age, prompt_length, context, offset in [(0, 1, (5, 6, 7), 1), (1, 1, (5, 6), 2), (2, 1, (5,), 3), (9, 1, (5,), 3)]:
        seen: list[Any] = []
        base = TabularModel(Point, lambda *asked, seen=seen: seen.append(asked) or Point(4))
        assert stale(base, age, prompt_length).proposal((5, 6, 7), 1) == Point(4)
        assert seen == [(context, offset)]
    assert stale(random_tables(3, 0), 9).proposal((5, 6, 7), 1) == random_tables(3, 0).proposal((), 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: always_wrong(random_tables(2, 0), 1), "at least 2, got 1"),
        (lambda: stale(random_tables(2, 0), -1), "got -1"),
        (lambda: NoisyModel(ThresholdModel([]), 1.5, 0), "0 .. 1, got 1.5"),
        (lambda: NoisyModel(ThresholdModel([]), float("nan"), 0), "got nan"),
        (lambda: HashRule(vocabulary=17), "2 .. 16 tokens"),
        (lambda: HashRule(vocabulary=1), "2 .. 16 tokens"),
        (lambda: RecurrentModel(HashRule())(Call((), (), True, (), 0)), "at least 1 token"),
    ],
)
def test_bad_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert message in str(caught.value)


# --- noisy ------------------------------------------------------------------------------------------------------------------


def flips(model: NoisyModel, base: ThresholdModel) -> list[bool]:
    return [model.correct(k, c) != base.correct(k, c) for k in range(1, 71) for c in range(k)]


def test_the_share_of_flipped_pairs() -> None:
    """2485 pairs. For a fresh seed each bound is 5 standard deviations or more away: odds below 1e-6 a seed; here fixed."""
    base = ThresholdModel([])
    for seed in range(3):
        assert not any(flips(NoisyModel(base, 0, seed), base))
        assert all(flips(NoisyModel(base, 1, seed), base))
        assert 0.2 < sum(flips(NoisyModel(base, 0.25, seed), base)) / 2485 < 0.3
    assert flips(NoisyModel(base, 0.25, 0), base) != flips(NoisyModel(base, 0.25, 1), base)
    few, many = (flips(NoisyModel(base, share, 0), base) for share in (0.1, 0.3))
    assert all(more for less, more in zip(few, many, strict=True) if less)  # one coin a pair: more noise adds flips


def test_noise_is_addressed_so_every_schedule_meets_the_same_drafter() -> None:
    base = ThresholdModel(thresholds(0), truth(0))
    one, two = NoisyModel(base, 0.3, 4), NoisyModel(base, 0.3, 4)
    pairs = [(k, c) for k in range(1, 20) for c in range(k)]
    assert [one.correct(*pair) for pair in pairs] == [two.correct(*pair) for pair in reversed(pairs)][::-1]


@pytest.mark.claim("ASM3.1")
def test_noise_breaks_the_bound_and_never_the_output() -> None:
    """Packed-SS, which needs no more calls than Linear-SS without noise, needs 10 where Linear-SS needs 8 in one pinned
    instance, so the assumption is needed. That is rare: about 1 seed in 300 at this share and width."""
    for seed in range(30):
        for share in (0, 0.25):
            model = NoisyModel(ThresholdModel(thresholds(seed), truth(seed, 3), vocabulary=3), share, seed)
            runs = [generate(model, schedule, (), Limits.of(LENGTH)) for schedule in (packed(3), linear(3), quadratic(3))]
            assert all(run.tokens == truth(seed, 3)[:LENGTH] for run in runs)
            assert share or runs[0].nfe <= runs[1].nfe
    model = NoisyModel(ThresholdModel([]), 0.3, seed=139)
    assert [calls(model, name, 8, 20) for name in ("packed", "linear")] == [10, 8]


# --- replay -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_replay_repeats_the_run(name: str) -> None:
    recorder = Recorder(random_tables(3, 7))
    run = generate(recorder, named(name, 3), (1,), Limits.of(10, 2), Sampled(3))
    assert len(recorder.answers) == run.nfe
    replay = Replay(recorder.answers)
    assert generate(replay, named(name, 3), (1,), Limits.of(10, 2), Sampled(3)) == run
    assert [replay(call) for call, _ in reversed(recorder.answers)] == [reply for _, reply in reversed(recorder.answers)]


def test_the_first_call_that_was_not_recorded_is_named() -> None:
    recorder = Recorder(greedy(random_tables(3, 7)))
    run = generate(recorder, packed(3), (1,), Limits.of(8))
    replay = Replay(recorder.answers)
    assert generate(replay, packed(3), (1,), Limits.of(6)).tokens == run.tokens[:6]  # a shorter one makes the same calls
    with pytest.raises(ContractError) as caught:
        generate(replay, packed(3), (1,), Limits.of(12))
    message = str(caught.value)
    assert f"a prefix of {1 + len(run.tokens)} tokens that ends in {run.tokens[-8:]}" in message
    assert "draft=" in message
    assert "branches=(0,), width=3" in message
    assert "\n" not in message
    other = generate(recorder.model, packed(2), (1,), Limits.of(1))  # nothing recorded at this width
    assert other.tokens == run.tokens[:1]
    with pytest.raises(ContractError, match=r"prefix of 1 tokens that ends in \(1,\), draft=\(\), verify=True, .*width=2"):
        generate(replay, packed(2), (1,), Limits.of(1))


def test_the_first_of_two_replies_to_one_call_counts() -> None:
    call = Call((1,), (), True, (), 0)
    first, second = (random_tables(3, seed)(call) for seed in (0, 1))
    assert first != second
    assert Replay([(call, first), (call, second)])(call) == first


# --- the toy recurrent model ------------------------------------------------------------------------------------------------

RECURRENT = [
    ar(),
    ar("prompt"),
    linear(4),
    linear(3, "wide"),
    packed(1),
    packed(4),
    packed(5, "wide"),
    packed(4, "sampled"),
    packed(3, "prompt"),
    packed([4, 0, 2, 1]),
    quadratic(3),
    quadratic(2, "wide"),
    branches([1, 3], 4),
]


class Watched(RecurrentModel):
    """Keeps what was asked and rolled back."""

    def __init__(self, rule: HashRule) -> None:
        super().__init__(rule)
        self.crops: list[int] = []
        self.fed: list[int] = []  # rows added by each call

    def crop(self, rows: int) -> None:
        self.crops.append(rows)
        super().crop(rows)

    def __call__(self, call: Call) -> Any:
        crops = sum(self.crops)
        before = len(self.states)
        reply = super().__call__(call)
        self.fed.append(len(self.states) - before + sum(self.crops) - crops)
        return reply


@pytest.mark.parametrize("schedule", RECURRENT, ids=lambda s: f"{s.name}-{len(s.opening)}-{s.cycle[0].width}")
def test_decoding_with_state_equals_decoding_without(schedule: Any) -> None:
    """Every Step, at temperature 0 and 1; one session for several requests, so that nothing leaks (F34)."""
    rule = HashRule(seed=5)
    session = RecurrentModel(rule)
    for prompt, eos in [((1, 2, 3), None), ((1, 2, 3), 4), ((1, 2, 9, 9, 9), None), ((7,), None)]:
        limits = Limits.of(24, eos)
        assert generate(greedy(session), schedule, prompt, limits) == generate(
            greedy(rule.stateless()), schedule, prompt, limits
        )
        sampled = [generate(model, schedule, prompt, limits, Sampled(1)) for model in (session, rule.stateless())]
        assert sampled[0] == sampled[1]


def test_what_the_recurrent_runs_go_through() -> None:
    """Rejections in a row, at once and later, full acceptance, kept drafts; and rows are reused: after the first call only the
    call's own rows are fed, never the prompt again."""
    rule = HashRule(seed=5)
    session = Watched(rule)
    steps = generate(greedy(session), packed(4), tuple(range(10)), Limits.of(60)).steps
    outcomes = [(step.accepted, len(step.verified)) for step in steps]
    rejected = [h < n for h, n in outcomes]
    assert any(a and b for a, b in itertools.pairwise(rejected))
    assert any(0 < h < n for h, n in outcomes)
    assert any(h == n >= 2 for h, n in outcomes)
    assert any(step.retained and step.accepted < len(step.verified) for step in steps)
    assert len(session.crops) == len(steps) - 1
    assert len(set(session.crops)) > 3
    assert session.fed[0] == 10 + 5  # the prompt, then a block of W + 1
    assert session.fed[1:] == [1 + len(step.verified) + 5 for step in steps[1:]]


class CropNothing(RecurrentModel):
    """F26: the rollback does nothing."""

    def crop(self, rows: int) -> None:
        pass


class CropToZero(RecurrentModel):
    """F26: the rollback forgets everything, and nobody notices."""

    def crop(self, rows: int) -> None:
        del self.states[1:]


class CropOneTooFew(RecurrentModel):
    """F26: one row too many is kept."""

    def crop(self, rows: int) -> None:
        super().crop(rows - 1)


@pytest.mark.parametrize("fault", [CropNothing, CropToZero, CropOneTooFew])
@pytest.mark.parametrize("schedule", [packed(4), quadratic(3), linear(4)], ids=lambda s: s.name)
def test_a_wrong_rollback_shows_at_once(fault: type[RecurrentModel], schedule: Any) -> None:
    """The first reply after the first rollback differs already (the hashes have 64 bits), and so does the output: 1 token in
    about 11 is right by accident, all of the 12 or more that follow with odds below 1e-12. Seeds are fixed."""
    for seed in range(4):
        rule, limits = HashRule(seed=seed), Limits.of(16)
        good, bad = Recorder(RecurrentModel(rule)), Recorder(fault(rule))
        expected, got = (generate(greedy(model), schedule, (3, 1, 4), limits) for model in (good, bad))
        assert generate(greedy(rule.stateless()), schedule, (3, 1, 4), limits) == expected
        assert got.tokens != expected.tokens
        assert bad.answers[0] == good.answers[0]
        assert bad.answers[1][0] == good.answers[1][0]
        assert bad.answers[1][1] != good.answers[1][1]
