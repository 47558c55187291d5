"""The replay of any-order logs: what our schedules write holds, and each kind of change is named by its rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from proofs_check.trace_check import RULES, TraceReport, check_trace
from simulator import InvalidInput, Limits, Sampled, generate
from simulator.any_order import NAMES, named
from simulator.oracles.any_order import random_tables
from simulator.trace import TracedRequest, trace_lines

ORDERS = ("ltr", "rtl", "random:1", "confidence")


def requests(name: str, temperature: int = 0, start: str = "algorithm") -> list[TracedRequest]:
    found = []
    for seed in range(40):
        random = Random(f"{name} {seed}")
        model, width = random_tables(3, seed), random.randint(1, 4)
        model = model if temperature else model.greedy()
        limits = Limits.of(random.randint(0, 7), 0 if seed % 2 else None, [(1, 2)] if seed % 3 == 0 else ())
        run = generate(model, named(name, width, random.choice(ORDERS), start), (), limits, Sampled(seed))
        found.append(TracedRequest(f"{seed}", name, (), limits, run, width, start))
    return found


def replayed(traced: list[TracedRequest], change: Callable[[dict[str, Any]], None] = lambda line: None) -> TraceReport:
    lines = [json.loads(line) for line in trace_lines(traced)]
    for line in lines:
        change(line)
    return check_trace(json.dumps(line) for line in lines)


@pytest.mark.parametrize("start", ["algorithm", "prompt"])
@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_what_our_schedules_write_holds(name: str, temperature: int, start: str) -> None:
    if name == "native" and temperature:
        pytest.skip("the native decoder is greedy")
    traced = requests(name, temperature, start)
    report = replayed(traced)
    assert (report.verdict, report.violations, report.unchecked) == ("holds", [], {})
    wanted = {rule for rule in RULES if rule.startswith("ALG3")} | {"STOP", "NFE-CONV"}
    assert set(report.checked) >= wanted
    steps = [step for request in traced for step in request.generation.steps]
    ends = [request.limits.max_new_tokens for request in traced for _ in request.generation.steps]
    assert any(step.end is not None and step.end < end for step, end in zip(steps, ends, strict=True))


def first(traced: list[TracedRequest], wanted: Callable[[dict[str, Any]], bool]) -> tuple[int, int]:
    """Request and call of the first step like that."""
    for line in map(json.loads, trace_lines(traced)):
        if line.get("type") == "step" and wanted(line):
            return line["request"], line["call"]
    raise AssertionError("no such step")


@pytest.mark.parametrize(
    ("wanted", "change", "rule"),
    [
        (lambda s: len(s["order"]) > 1, lambda s: s["order"].__setitem__(0, s["order"][1]), "ALG3.L5"),
        (lambda s: s["end"] > max(s["order"], default=0), lambda s: s["order"].append(s["end"]), "ALG3.L5"),
        (lambda s: s["accepted"] > 0, lambda s: s.update(accepted=s["accepted"] - 1), "ALG3.L10"),
        (lambda s: s["accepted"] < len(s["verified"]), lambda s: s.update(accepted=s["accepted"] + 1), "ALG3.L10"),
        (lambda s: s["advance"] > 1, lambda s: s.update(advance=s["advance"] - 1), "ALG3.L10"),
        (lambda s: s["committed"] and s["end"] > 1, lambda s: s["committed"].pop(), "ALG3.L11"),
        (lambda s: s["committed"], lambda s: s["committed"].__setitem__(0, 9), "ALG3.L10"),
        (lambda s: s["retained"] > 0, lambda s: s.update(retained=s["retained"] - 1), "ALG3.L15"),
        (lambda s: len(s["verified"]) > 1, lambda s: s.update(verified=[], predictions=[None], accepted=0), "ALG3.L15"),
        (lambda s: s["retained"] > 0, lambda s: s.update(branch=s["branch"] + 1), "ALG3.L15"),
        (lambda s: s["retained"] > 0, lambda s: s.update(branch=None), "ALG3.L15"),
        (lambda s: s["discarded"] > 0, lambda s: s.update(discarded=s["discarded"] - 1), "ALG3.L15"),
        (lambda s: s["predictions"], lambda s: s["predictions"].pop(), "ALG3.L10"),
        (lambda s: s["predictions"], lambda s: s["predictions"].append(0), "ALG3.L10"),
        (lambda s: s["predictions"], lambda s: s.update(rows=len(s["predictions"]) - 1), "TAB2"),
        (lambda s: s["stop"] == "eos", lambda s: s.update(stop="length"), "STOP"),
        (lambda s: s["stop"] is None and s["committed"], lambda s: s.update(end=s["end"] + 1), "ALG3.L11"),
    ],
)
def test_a_changed_step_is_found_where_it_is(wanted: Any, change: Any, rule: str) -> None:
    traced = requests("packed")
    request, call = first(traced, wanted)

    def edit(line: dict[str, Any]) -> None:
        if line.get("type") == "step" and (line["request"], line["call"]) == (request, call):
            change(line)

    report = replayed(traced, edit)
    found = {(each.request, each.call, each.rule) for each in report.violations}
    assert (request, call, rule) in found, report.violations


def test_an_order_changed_between_linears_two_calls_is_found() -> None:
    traced = requests("linear")
    request, call = first(traced, lambda s: s["advance"] > 0 and len(s["order"]) > 1)

    def edit(line: dict[str, Any]) -> None:
        if line.get("type") == "step" and (line["request"], line["call"]) == (request, call):
            line["order"].reverse()

    assert (request, call, "ALG3.L5") in {(v.request, v.call, v.rule) for v in replayed(traced, edit).violations}


def test_a_rejected_token_that_comes_back_is_found() -> None:
    """At temperature 1 no prediction is certain; but the residual never holds the token that was rejected."""
    traced = requests("packed", temperature=1)
    request, call = first(traced, lambda s: s["accepted"] < len(s["verified"]) and s["advance"] == len(s["committed"]))

    def edit(line: dict[str, Any]) -> None:
        if line.get("type") == "step" and (line["request"], line["call"]) == (request, call):
            line["committed"][-1] = line["verified"][line["accepted"]]

    assert (request, call, "ALG2.L7") in {(v.request, v.call, v.rule) for v in replayed(traced, edit).violations}


@pytest.mark.parametrize("declared", [None, "mine"])
@pytest.mark.parametrize("start", ["algorithm", "prompt"])
@pytest.mark.parametrize("name", NAMES)
def test_right_logs_without_a_policy_hold(name: str, start: str, declared: str | None) -> None:
    traced = [request._replace(schedule=declared, width=None) for request in requests(name, start=start)]
    assert replayed(traced).violations == []


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_the_least_fields_holds(name: str) -> None:
    """What is left out is not checked, and said to be."""

    def least(line: dict[str, Any]) -> None:
        if line.get("type") == "step":
            for field in set(line) - {"type", "request", "call", "committed", "order", "end"}:
                del line[field]

    report = replayed(requests(name), least)
    assert report.violations == []
    assert ("the field 'accepted' of the steps is missing" in report.unchecked) == (name != "native")


@pytest.mark.parametrize("change", [lambda line: line.pop("end"), lambda line: line.update(end=None)])
def test_a_call_without_its_end_is_refused(change: Any) -> None:
    def edit(line: dict[str, Any]) -> None:
        if line.get("call") == 1:
            change(line)

    with pytest.raises(InvalidInput, match=r"request 0, call 1: a call over positions needs its end, E"):
        replayed(requests("packed"), edit)


def test_without_a_policy_what_cannot_be_checked_is_said() -> None:
    report = replayed([request._replace(schedule="mine", width=None) for request in requests("packed")])
    assert report.verdict == "holds"
    assert any("no any-order policy" in words for words in report.unchecked)
    assert any("no width" in words for words in report.unchecked)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown any-order policy 'branches'"):
        check_trace(trace_lines(requests("packed")), "branches", 2)
