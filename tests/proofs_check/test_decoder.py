"""Opaque decoders: right ones pass whatever they do inside, wrong ones get a finding of their kind, from tokens alone.

Seeds are fixed. Where a right sampler must pass, the odds of a false alarm under another seed are alpha = 0.01 each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from proofs_check.biases import BIASES, Language
from proofs_check.decoder import OpaqueReport, check_decoder, first_stop, wrong_end
from simulator import (
    InvalidInput,
    Limits,
    Processing,
    Sampled,
    ar,
    branches,
    generate,
    greedy,
    linear,
    packed,
    processed,
    quadratic,
)
from simulator.oracles import random_tables

PROMPTS = [(1, 2), (3,), (0, 5, 7), ()]
LANGUAGE = Language(0)
EOS = 9


def decoder(policy: Any = packed(4), asked: Processing = Processing(), eos: Sequence[int] = (), model: Any = LANGUAGE) -> Any:  # noqa: B008
    def run(prompt: list[int], length: int, seed: int) -> tuple[int, ...]:
        limits = Limits.of(length, eos)
        return generate(processed(model, asked), policy, prompt, limits, Sampled(seed)).tokens

    return run


def symptoms(report: OpaqueReport) -> list[str]:
    return [finding.symptom for finding in report.findings]


def outcomes(report: OpaqueReport) -> dict[str, str]:
    return {stage.name: stage.outcome for stage in report.stages}


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("policy", [ar(), linear(3), packed(4), quadratic(2), branches((0, 2), 3)], ids=lambda p: str(p.name))
@pytest.mark.parametrize("asked", [Processing(), Processing(0.7, 8), Processing(top_p=0.8)], ids=["plain", "top-k", "top-p"])
def test_right_samplers_pass(policy: Any, asked: Processing) -> None:
    report = check_decoder(
        decoder(policy, asked, [EOS]), LANGUAGE, PROMPTS, processing=asked, eos=[EOS], tokens=600, max_new_tokens=40
    )
    assert report.verdict == "NOTHING FOUND", str(report)
    assert set(outcomes(report).values()) == {"passed"}
    assert report.exit_code == 0
    assert report.tokens >= 600
    assert report.alpha == 0.01
    assert "Not seen: calls made" in str(report)


@pytest.mark.claim("COR-GREEDY")
def test_right_greedy_decoders_pass() -> None:
    asked = Processing(0)
    for policy in (ar(), linear(3), packed(4), quadratic(2)):
        report = check_decoder(decoder(policy, asked, [EOS]), LANGUAGE, PROMPTS, processing=asked, eos=[EOS], max_new_tokens=30)
        assert report.verdict == "NOTHING FOUND", str(report)
        assert report.alpha == 0
        assert "4 of 4 prompts" in report.stages[-1].detail


@pytest.mark.parametrize("name", BIASES)
def test_biased_samplers_are_rejected(name: str) -> None:
    bias = BIASES[name]

    def run(prompt: list[int], length: int, seed: int) -> tuple[int, ...]:
        chance = bias.chance(Sampled(seed))
        return generate(bias.model(LANGUAGE), bias.schedule, prompt, Limits.of(length), chance).tokens

    report = check_decoder(run, LANGUAGE, PROMPTS, processing=bias.asked, tokens=8000)
    assert symptoms(report) == ["law"], str(report)
    assert report.tokens < 8000
    assert "prompt" in report.findings[0].counterexample


def test_an_impossible_token_is_rejected_at_once() -> None:
    report = check_decoder(decoder(), LANGUAGE, PROMPTS, processing=Processing(top_k=2))
    assert symptoms(report) == ["law"]
    [finding] = report.findings
    assert "is impossible under the reference" in finding.statement
    assert report.tokens < 30


def test_regret_names_the_token() -> None:
    right = decoder(ar(), Processing(0))

    def second_best(prompt: list[int], length: int, seed: int) -> list[int]:
        tokens = list(right(prompt, length, seed))
        law = LANGUAGE.target((*prompt, *tokens[:5])).probabilities
        tokens[5] = int(np.argsort(law)[-2])
        return [*tokens[:6], *right([*prompt, *tokens[:6]], length - 6, seed)]

    report = check_decoder(second_best, LANGUAGE, PROMPTS, processing=Processing(0), max_new_tokens=12)
    assert symptoms(report) == ["law"]
    assert "output token 6 of prompt 0" in report.findings[0].statement
    law = np.sort(LANGUAGE.target((*PROMPTS[0], *right(PROMPTS[0], 5, 0))).probabilities)
    gap = float(np.log(law[-1] / law[-2]))
    assert f"{gap:.4g} nats" in report.findings[0].statement
    lenient = check_decoder(second_best, LANGUAGE, PROMPTS, processing=Processing(0), max_new_tokens=12, tolerance=10)
    assert lenient.verdict == "NOTHING FOUND"


def test_a_tie_broken_otherwise_has_no_regret() -> None:
    report = check_decoder(
        lambda prompt, length, seed: [1] * length, lambda context: [0.5, 0.5], [()], processing=Processing(0)
    )
    assert report.verdict == "NOTHING FOUND"
    assert "64 exact ties broken otherwise" in report.stages[-1].detail


def truncating(run: Any, change: Callable[[tuple[int, ...]], Any]) -> Any:
    return lambda prompt, length, seed: change(run(prompt, length, seed))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tokens: tokens[:-1], "without an EOS or the length limit"),
        (lambda tokens: (*tokens, 3, 4), "goes on for 2 tokens after the stop"),
        (lambda tokens: (), "ends after 0 tokens"),
    ],
)
@pytest.mark.parametrize("asked", [Processing(), Processing(0)])
def test_wrong_ends_are_a_matter_of_stops_alone(change: Any, expected: str, asked: Processing) -> None:
    run = truncating(decoder(packed(3), asked, [EOS]), change)
    report = check_decoder(run, LANGUAGE, PROMPTS, processing=asked, eos=[EOS], tokens=300, max_new_tokens=20)
    assert symptoms(report) == ["stop"], str(report)
    assert expected in report.findings[0].statement


def test_a_prompt_that_comes_back_is_recognised() -> None:
    run = decoder(packed(3))
    report = check_decoder(lambda prompt, length, seed: [*prompt, *run(prompt, length, seed)], LANGUAGE, [(1, 2)], tokens=100)
    assert "stop" in symptoms(report)
    assert any("begins with the prompt" in finding.statement for finding in report.findings)


def test_where_outputs_end() -> None:
    limits = Limits.of(5, [9], [(1, 2)])
    assert first_stop((3, 9, 4), limits) == (2, "eos")
    assert first_stop((1, 2), limits) == (2, "stop")
    assert first_stop((3, 3, 3, 3, 9), limits) == (5, "eos")
    assert first_stop((3,) * 7, limits) == (5, "length")
    assert first_stop((3,), limits) == (1, None)
    assert not wrong_end((), (1, 2), limits)
    assert wrong_end((), (2, 1), limits)


def test_unseeded_coins_are_a_matter_of_determinism() -> None:
    seeds: Iterator[int] = iter(range(10**6))
    run = decoder(packed(3))
    report = check_decoder(lambda prompt, length, seed: run(prompt, length, next(seeds)), LANGUAGE, PROMPTS, tokens=300)
    assert symptoms(report) == ["determinism"]
    assert "the same seed" in report.findings[0].statement


def test_a_state_that_leaks_into_the_next_request_is_seen() -> None:
    made: list[int] = []
    run = decoder(packed(3))

    def leaks(prompt: list[int], length: int, seed: int) -> Any:
        made.append(seed)
        return run(prompt, length, seed + 1000 * (len(made) > 2))

    assert symptoms(check_decoder(leaks, LANGUAGE, PROMPTS, tokens=300)) == ["determinism"]


def test_seeds_that_change_nothing_are_seen() -> None:
    run = decoder(packed(3))
    report = check_decoder(lambda prompt, length, seed: run(prompt, length, 5), LANGUAGE, PROMPTS, tokens=100, max_new_tokens=8)
    assert symptoms(report) == ["determinism"], str(report)
    assert "8 seeds give the same output" in report.findings[0].statement
    assert outcomes(report)["law"] == "not run"  # they are no independent samples


def test_at_temperature_0_the_seed_must_not_matter() -> None:
    run = decoder(packed(3))
    report = check_decoder(run, LANGUAGE, PROMPTS, processing=Processing(0), max_new_tokens=8)
    assert {"determinism", "law"} == set(symptoms(report))


def raises(prompt: list[int], length: int, seed: int) -> Any:
    raise KeyError("nothing")


def hangs(prompt: list[int], length: int, seed: int) -> Any:
    while True:
        time.sleep(0.01)


def endless(prompt: list[int], length: int, seed: int) -> Iterator[int]:
    while True:
        yield 1


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (raises, "raises KeyError"),
        (lambda *_: None, "returns no list"),
        (lambda *_: ["a"], "returns no list"),
        (lambda *_: [1.5], "returns no list"),
        (lambda *_: [-1], "the id -1"),
        (lambda *_: [24], "the id 24, outside the vocabulary 0 .. 23"),
        (lambda *_: [10**30], "outside the vocabulary"),
    ],
)
@pytest.mark.parametrize("limit", [20.0, None])
def test_what_misbehaves_gets_a_finding(run: Any, expected: str, limit: float | None) -> None:
    report = check_decoder(run, LANGUAGE_REFERENCE, PROMPTS, limit=limit)
    assert symptoms(report) == ["contract"]
    assert expected in report.findings[0].statement
    assert outcomes(report)["law"] == "not run"
    assert report.exit_code == 1


class _Sized:
    """A reference that takes the whole output at once, and knows its vocabulary."""

    vocabulary = 24

    def laws(self, prompt: tuple[int, ...], output: tuple[int, ...]) -> Any:
        return np.array([LANGUAGE.target((*prompt, *output[:count])).probabilities for count in range(len(output))])


LANGUAGE_REFERENCE = _Sized()


def test_a_hang_and_an_exit_are_a_matter_of_progress() -> None:
    report = check_decoder(hangs, LANGUAGE, PROMPTS, limit=0.3)
    assert symptoms(report) == ["progress"]
    assert "request 1" in report.findings[0].statement
    report = check_decoder(lambda *_: os._exit(3), LANGUAGE, PROMPTS)
    assert symptoms(report) == ["progress"]
    assert "exit code 3" in report.findings[0].statement


def test_an_output_without_end_is_cut() -> None:
    report = check_decoder(endless, LANGUAGE, PROMPTS, processing=Processing(0), max_new_tokens=8)
    assert {"stop", "law"} >= set(symptoms(report)) >= {"stop"}


def test_a_reference_that_is_certain_leaves_nothing_to_bet_on() -> None:
    report = check_decoder(lambda prompt, length, seed: [1] * length, lambda context: [0.0, 1.0], [()], tokens=200)
    assert report.verdict == "NOT RUN"
    assert report.exit_code == 2
    assert outcomes(report)["law"] == "not run"
    assert outcomes(report)["determinism"] == "not run"
    assert "too little to bet on" in report.stages[-1].detail


def test_laws_of_fractions_and_whole_outputs_serve_as_references() -> None:
    tables = random_tables(4, 3)
    run = decoder(packed(2), model=tables)
    assert check_decoder(run, tables, [()], tokens=100, max_new_tokens=4).verdict == "NOTHING FOUND"
    assert check_decoder(decoder(), LANGUAGE_REFERENCE, PROMPTS, tokens=300).verdict == "NOTHING FOUND"
    model = greedy(tables)
    exact = decoder(packed(2), model=model)
    assert check_decoder(exact, tables, [()], processing=Processing(0), max_new_tokens=4).verdict == "NOTHING FOUND"


def test_arguments_that_make_no_sense() -> None:
    for arguments in ({"prompts": []}, {"max_new_tokens": 0}, {"tokens": 0}, {"tolerance": -1}, {"alpha": 2}):
        with pytest.raises(InvalidInput):
            check_decoder(decoder(), LANGUAGE, **{"prompts": PROMPTS, **arguments})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a reference has"):
        check_decoder(decoder(), 5, PROMPTS)
    with pytest.raises(InvalidInput, match="its probabilities sum"):
        check_decoder(lambda *_: [0] * 64, lambda context: [0.5, 0.1], [()])
