"""Does it make the calls that its declared policy makes? A draft kept in the wrong place is exact; it only costs calls."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np

from proofs_check.stages.greedy import made
from proofs_check.system import (
    Instance,
    NotReached,
    Run,
    System,
    compare_greedy,
    described,
    found,
    only_schedule,
    picture,
    program,
)
from simulator.oracles import random_lags
from simulator.records import Limits

_EXHAUSTIVE = 5


def self_draft(system: System) -> str:
    """A drafter that is never wrong has everything accepted that the stopping rule does not cut off."""
    verified = 0
    for length in (1, 2, 5, 9, 20, 33):
        instance = Instance(
            made(source := "ThresholdModel((), truth=(1, 2, 3, 4, 5, 6), vocabulary=7)"), source, Limits.of(length)
        )
        run = compare_greedy(system, instance)
        for number, step in enumerate(run.generation.steps, start=1):
            verified += len(step.verified)
            if step.accepted < len(step.verified):
                statement = f"call {number} rejects a draft token that equals the verifier's own"
                found("count", statement, f"{described(instance)}\n{picture(run.generation.steps)}", program(system, instance))
    return f"{verified} draft tokens, all accepted" if verified else "it never verifies a draft"


def counts(system: System) -> str:
    """Calls, rows and drafts against the declared policy: every threshold vector of length 5, longer drafters at random."""
    if system.declares is None:
        raise NotReached("no policy is declared, so any number of calls would do")
    runs = calls = 0
    for instance in system.in_time(_instances(system.seed)):
        ours = compare_greedy(system, instance)
        theirs = compare_greedy(only_schedule(System(system.declares), system.declares), instance)
        runs += 1
        calls += theirs.generation.nfe
        _compare(system, instance, ours, theirs)
    return f"{runs} runs, {calls} calls: as many as {system.declares.name} makes, with the same drafts and rows"


def _compare(system: System, instance: Instance, ours: Run, theirs: Run) -> None:
    name = system.declares.name if system.declares else ""
    lines = (described(instance), picture(ours.generation.steps), f"{name}:", picture(theirs.generation.steps))
    evidence = ("\n".join(lines), program(system, instance))
    if ours.generation.nfe != theirs.generation.nfe:
        statement = f"exact, but it makes {ours.generation.nfe} calls where {name} makes {theirs.generation.nfe}"
        found("count", statement, *evidence)
    for number, (mine, other) in enumerate(zip(ours.calls, theirs.calls, strict=True), start=1):
        shape, expected = [(len(c.draft) if c.verify else None, c.padded_rows) for c in (mine, other)]
        if shape[0] != expected[0]:
            statement = f"exact, but call {number} verifies {shape[0]} draft tokens where {name} verifies {expected[0]}"
            found("count", statement, *evidence)
        if shape[1] != expected[1]:
            found("count", f"exact, but call {number} asks for {shape[1]} rows where {name} asks for {expected[1]}", *evidence)
        if mine.verify and mine.draft != other.draft:
            statement = f"exact, but call {number} verifies the draft {mine.draft} where {name} has {other.draft}"
            found("count", statement, *evidence)


def _instances(seed: int) -> Iterator[Instance]:
    """Short ones first, so that the first difference is on the smallest."""
    for length in range(1, _EXHAUSTIVE + 1):
        for thresholds in product(*(range(k + 1) for k in range(1, length + 1))):
            source = f"ThresholdModel({thresholds})"
            yield Instance(made(source), source, Limits.of(length))
    rng, draws = np.random.default_rng(20261130 + seed), random.Random(seed)
    for mean_lag, number in product((0.5, 2.0, 5.0, 12.0, 40.0), range(4)):
        thresholds = tuple(random_lags(60, mean_lag, rng).tolist())
        truth = [1 + k % 6 for k in range(60)]  # so that a draft for another position shows
        truth[draws.randrange(2, 60)] = 7
        prompt = (5, 6, 7)[:number]
        source = f"ThresholdModel({thresholds}, truth={tuple(truth)}, vocabulary=8, prompt_length={len(prompt)})"
        yield Instance(made(source), source, Limits.of(60, 7 if number % 2 else None), prompt)
    for share in (0.5, 0.8, 0.95):  # drafters without Assumption 3.1
        for _ in range(3):
            rows = [[int(draws.random() < share) for _ in range(12)] for _ in range(24)]
            source = f"MatrixModel({rows}, truth={tuple(1 + k % 6 for k in range(24))}, vocabulary=8)"
            yield Instance(made(source), source, Limits.of(24))
