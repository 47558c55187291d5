"""Traces: what is written reads back the same, and a damaged file is refused at the line that is wrong."""

import json

import pytest

from simulator import InvalidInput, Limits, Sampled, generate, linear, packed
from simulator.oracles import random_tables
from simulator.trace import TracedRequest, read_trace, trace_lines


def _requests():
    limits = Limits.of(6, eos=[2], stop=[(0, 1, 0), (1, 1)])
    tables = random_tables(3, 5)
    return [
        TracedRequest(f"seed {seed}", schedule.name, (1,), limits, generate(tables, schedule, (1,), limits, Sampled(seed)))
        for seed in range(4)
        for schedule in (packed(3), linear(2, "sampled"))
    ]


def test_round_trip():
    requests = _requests()
    assert {request.generation.stop for request in requests} > {"eos"}
    assert read_trace(trace_lines(requests)) == requests
    assert read_trace(trace_lines([])) == []


def _damaged(number, change):
    lines = list(trace_lines(_requests()))
    if change is None:
        del lines[number - 1]
    elif isinstance(change, str):
        lines[number - 1] = change
    else:
        lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | change)
    return lines


@pytest.mark.parametrize(
    ("number", "change", "line", "reason"),
    [
        (1, {"version": 2}, 1, "first line must be"),
        (1, None, 1, "first line must be"),
        (2, "{ not json", 2, ""),
        (2, "[]", 2, ""),
        (2, None, 2, "request line must come first"),
        (2, {"request": 1}, 2, "must be number 0"),
        (2, {"type": "begin"}, 2, "type must be"),
        (2, {"limits": {"max_new_tokens": -1, "eos": [], "stop": []}}, 2, "must be >= 0"),
        (2, {"limits": {"eos": [], "stop": []}}, 2, "'max_new_tokens' is missing"),
        (2, {"prompt": "text"}, 2, "list of ids"),
        (3, None, 3, "must be number 1"),
        (3, {"accepted": "two"}, 3, "expected an integer"),
        (3, {"accepted": True}, 3, "expected an integer"),
        (3, {"verified": 3}, 3, "verified has the wrong type"),
        (3, {"branch": [1]}, 3, "branch has the wrong type"),
        (3, {"stop": "tired"}, 3, "stop must be"),
        (3, {"fallback": 0}, 3, "fallback"),
        (3, {"committed": [1, None]}, 3, "expected an integer"),
    ],
)
def test_damage_is_named_by_line(number, change, line, reason):
    with pytest.raises(InvalidInput, match=f"^line {line} of the trace: .*{reason}"):
        read_trace(_damaged(number, change))


def test_missing_fields_and_ends():
    lines = list(trace_lines(_requests()))
    step = json.loads(lines[2])
    del step["rows"]
    with pytest.raises(InvalidInput, match="line 3 of the trace: the field 'rows' is missing"):
        read_trace([*lines[:2], json.dumps(step), *lines[3:]])
    with pytest.raises(InvalidInput, match="within a request"):
        read_trace(lines[:3])
    with pytest.raises(InvalidInput, match="no header"):
        read_trace([])
    with pytest.raises(InvalidInput, match="has no end"):
        read_trace([*lines[:2], lines[1]])
