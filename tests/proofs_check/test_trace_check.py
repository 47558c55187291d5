"""Traces replayed against spec/: every rule can fail, and each is named; what a log does not say is said to be unchecked."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs_check.trace_check import RULES, TraceReport, check_trace
from simulator import InvalidInput, Limits, Sampled, generate, named
from simulator.oracles import ThresholdModel, random_tables
from simulator.trace import TracedRequest, trace_lines

STARTS = {"ar": ("algorithm", "prompt")}
FOUR = ("algorithm", "wide", "sampled", "prompt")


def sampled(name: str, start: str, seed: int) -> TracedRequest:
    limits = Limits.of(9, eos=[2] if seed % 2 else None, stop=[(0, 1, 0), (1, 1)] if seed % 3 else [])
    run = generate(random_tables(3, seed), named(name, 3, start), (1,), limits, Sampled(seed))
    return TracedRequest(f"seed {seed}", name, (1,), limits, run, 3, start)


@pytest.mark.parametrize("name", ["ar", "linear", "packed", "quadratic"])
def test_what_our_schedules_write_holds(name: str) -> None:
    requests = [sampled(name, start, seed) for start in STARTS.get(name, FOUR) for seed in range(30)]
    report = check_trace(trace_lines(requests))
    assert (report.verdict, report.violations, report.unchecked) == ("holds", [], {})
    assert report.requests == len(requests)
    assert report.calls == sum(request.generation.nfe for request in requests)
    assert report.tokens == sum(len(request.generation.tokens) for request in requests)
    left_to_right = {rule for rule in RULES if not rule.startswith("ALG3")}
    assert set(report.checked) >= left_to_right - ({"ALG2.L7"} if name == "ar" else set()) - {"INIT"}


def greedy_lines(limits: Limits, thresholds: tuple[int, ...] = (0, 0, 1, 2, 2, 2, 4, 4), start: str = "algorithm") -> list[str]:
    run = generate(ThresholdModel(thresholds), named("packed", 3, start), (), limits)
    return list(trace_lines([TracedRequest("greedy", "packed", (), limits, run, 3, start)]))


def changed(lines: list[str], kind: str, call: int | None = None, **fields: Any) -> list[str]:
    """The lines with some fields of one line set, or left out where the value is ..."""
    result = []
    for line in lines:
        record = json.loads(line)
        if record.get("type") == kind and record.get("call") == call:
            record = {key: value for key, value in (record | fields).items() if value is not ...}
        result.append(json.dumps(record))
    return result


def found(lines: list[str], **options: Any) -> tuple[str, int]:
    report = check_trace(lines, **options)
    assert report.verdict == "violated"
    [violation] = report.violations
    return violation.rule, violation.call


def steps(lines: list[str]) -> list[dict[str, Any]]:
    return [record for record in map(json.loads, lines) if record.get("type") == "step"]


LINES = greedy_lines(Limits.of(8))
SECOND = steps(LINES)[1]


def test_the_run_that_is_damaged_below() -> None:
    assert 0 < SECOND["accepted"] < len(SECOND["verified"]) == 2
    assert check_trace(LINES).verdict == "holds"


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("ALG1.L5", {"accepted": 99}),
        ("ALG1.L5", {"accepted": SECOND["accepted"] - 1, "advance": ...}),
        ("ALG1.L6", {"advance": 7}),
        ("ALG1.L6", {"committed": []}),
        ("ALG1.L6", {"committed": SECOND["committed"] + [1]}),
        ("ALG1.L6", {"committed": [SECOND["committed"][0] + 1, *SECOND["committed"][1:]]}),
        ("ALG1.L6", {"committed": [*SECOND["committed"][:-1], SECOND["committed"][-1] + 1]}),
        ("ALG1.L6", {"predictions": SECOND["predictions"][:-1]}),
        ("ALG1.L7", {"committed": SECOND["committed"][:-1]}),
        ("ALG1.L10", {"retained": SECOND["retained"] + 1}),
        ("ALG1.L10", {"verified": [*SECOND["verified"], 5], "predictions": ...}),
        ("STOP", {"stop": "eos"}),
        ("TAB2", {"rows": len(SECOND["verified"])}),
    ],
)
def test_a_damaged_step_is_named(rule: str, fields: dict[str, Any]) -> None:
    assert found(changed(LINES, "step", 2, **fields)) == (rule, 2)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [("STOP", {"stop": "eos"}), ("NFE-CONV", {"nfe": 1}), ("NFE-CONV", {"tokens": [0]}), ("NFE-CONV", {"tokens": []})],
)
def test_a_damaged_end_is_named(rule: str, fields: dict[str, Any]) -> None:
    assert found(changed(LINES, "end", **fields)) == (rule, len(steps(LINES)))


def test_a_rejected_token_is_no_correction() -> None:
    """Nothing else can tell where the laws are not in the log; a residual rounded to 0 excuses it."""
    lines = changed(LINES, "step", 2, predictions=..., accepted=0, advance=1, committed=SECOND["verified"][:1], stop=None)
    assert found(lines) == ("ALG2.L7", 2)
    assert found(changed(lines, "step", 2, fallback=True))[0] != "ALG2.L7"


def test_calls_after_the_end_and_an_end_too_early() -> None:
    short = changed(LINES, "request", limits={"max_new_tokens": len(steps(LINES)[0]["committed"])})
    assert found(changed(short, "step", 1, stop="length", retained=0)) == ("ALG1.L2", 2)
    assert found(changed(LINES, "request", limits={"max_new_tokens": 100}))[0] == "STOP"
    assert found([*LINES[:-2], LINES[-1]])[0] == "STOP"


def test_a_block_that_runs_over_the_limit() -> None:
    whole = steps(LINES)
    room = sum(len(step["committed"]) for step in whole[:2]) - 1
    lines = changed(LINES, "request", limits={"max_new_tokens": room})
    assert len(whole[1]["committed"]) > 1
    assert found(lines) == ("ALG1.L7", 2)


def test_a_call_of_another_kind() -> None:
    """A Packed-SS log that is declared to be Linear-SS commits a token in what should be a drafting call."""
    assert found(LINES, policy="linear") == ("INIT", 1)
    assert found(LINES, policy="ar") == ("ALG1.L10", 1)
    assert found(LINES, width=4)[0] == "ALG1.L10"
    assert found(LINES, start="wide")[0] == "ALG1.L10"


def test_a_draft_kept_one_position_late_is_a_matter_of_the_policy() -> None:
    """Exact in law, so only the declared policy is violated; without one the log is in order."""
    late = changed(LINES, "step", 1, retained=1)
    late = changed(late, "step", 2, verified=SECOND["verified"][1:2], accepted=0, advance=1, predictions=..., committed=[5])
    late = [line for line in late if json.loads(line).get("call", 0) < 3]
    late = changed(late, "request", limits={"max_new_tokens": 2}, schedule=...)
    late = changed(changed(late, "step", 2, stop="length"), "end", tokens=..., nfe=...)
    report = check_trace(late)
    assert report.verdict == "holds", report.violations
    assert any("no policy is declared" in missing for missing in report.unchecked)
    assert found(late, policy="packed") == ("ALG1.L10", 1)


def test_missing_fields_are_said_to_be_unchecked() -> None:
    least = [
        {"trace": "packedss", "version": 1},
        {"type": "request", "request": 0, "limits": {"max_new_tokens": 8}},
        *({"type": "step", "request": 0, "call": step["call"], "committed": step["committed"]} for step in steps(LINES)),
        {"type": "end", "request": 0},
    ]
    lines = list(map(json.dumps, least))
    report = check_trace(lines)
    assert report.verdict == "holds"
    for name in ("accepted", "verified", "predictions", "advance", "stop", "tokens", "nfe"):
        assert any(f"'{name}'" in missing for missing in report.unchecked), name
    with_policy = check_trace(lines, "packed", 3)
    assert with_policy.verdict == "holds"
    assert found(lines, policy="packed", width=1)[0] == "ALG1.L5"  # more came out of a call than it can have drafted


def test_one_bad_request_does_not_hide_the_next() -> None:
    requests = [sampled("packed", "algorithm", seed) for seed in range(30)]
    lines = list(trace_lines(requests))
    lines = [line.replace('"advance": 1', '"advance": 2') if '"type": "step"' in line else line for line in lines]
    report = check_trace(lines)
    assert report.violated > 20 == len(report.violations)
    assert report.calls == sum(request.generation.nfe for request in requests)


def test_nothing_to_check_is_not_run() -> None:
    assert check_trace(trace_lines([])).verdict == "not run"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "turbo"}, "allowed: ar, linear, packed, quadratic"),
        ({"start": "cold"}, "start is 'cold'"),
        ({"policy": "ar", "start": "wide"}, "start is 'wide'"),
        ({"width": 0}, "W >= 1"),
        ({"width": 1 << 52}, "more than 1024 is not replayed"),
    ],
)
def test_bad_policies_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_trace(LINES, **options)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data())
def test_any_change_is_explained_violated_or_refused(data: st.DataObject) -> None:
    number = data.draw(st.integers(1, len(LINES) - 1))
    record = json.loads(LINES[number])
    name = data.draw(st.sampled_from(sorted(record)))
    value = data.draw(
        st.none() | st.booleans() | st.integers(-1, 2**54) | st.lists(st.integers(0, 3), max_size=5) | st.just(...)
    )
    lines = [*LINES]
    lines[number] = json.dumps({key: item for key, item in (record | {name: value}).items() if item is not ...})
    try:
        report = check_trace(lines)
    except InvalidInput:
        return
    assert isinstance(report, TraceReport)


def test_memory_does_not_grow_with_the_file() -> None:
    """2,000 requests, some 2 MB, and one request that never ends."""

    def peak(lines: Iterator[str]) -> int:
        tracemalloc.start()
        try:
            check_trace(lines)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def many(count: int) -> Iterator[str]:
        yield LINES[0]
        for request in range(count):
            for line in LINES[1:]:
                yield line.replace('"request": 0', f'"request": {request}')

    assert sum(map(len, many(2000))) > 2_000_000
    assert peak(many(2000)) < 1_000_000

    def endless(calls: int) -> Iterator[str]:
        yield LINES[0]
        yield json.dumps({"type": "request", "request": 0, "limits": {"max_new_tokens": 1 << 40}})
        for call in range(1, calls + 1):
            yield json.dumps({"type": "step", "request": 0, "call": call, "committed": [1]})

    with pytest.raises(InvalidInput, match="within a request"):
        peak(endless(2000))


@pytest.mark.parametrize("field", ["accepted", "advance"])
@pytest.mark.parametrize("limit", [7, 2**53 - 1])
def test_a_huge_count_is_compared_not_spelt_out(field: str, limit: int) -> None:
    lines = [
        '{"trace": "packedss", "version": 1}',
        json.dumps({"type": "request", "request": 0, "limits": {"max_new_tokens": limit}}),
        json.dumps({"type": "step", "request": 0, "call": 1, "committed": [1], field: 2**53 - 1}),
        '{"type": "end", "request": 0}',
    ]
    [violation] = check_trace(lines).violations
    most = min(limit, 2**53 - (field == "advance"))
    assert (violation.rule, violation.expected.split()[0]) == ("ALG1.L7", str(most))
