"""Traces: what is written reads back the same, and a damaged file is refused at the line that is wrong."""

import io
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import InvalidInput, Limits, Sampled, Step, generate, linear, packed
from simulator.oracles import random_tables
from simulator.trace import EndLine, Noted, RequestLine, StepLine, TracedRequest, bounded_lines, read_trace, trace_lines


def _requests():
    limits = Limits.of(6, eos=[2], stop=[(0, 1, 0), (1, 1)])
    tables = random_tables(3, 5)
    return [
        TracedRequest(
            f"seed {seed}",
            schedule.name,
            (1,),
            limits,
            generate(tables, schedule, (1,), limits, Sampled(seed)),
            width,
            start,
            "tables",
            seed,
        )
        for seed in range(4)
        for schedule, width, start in ((packed(3), 3, "algorithm"), (linear(2, "sampled"), 2, "sampled"))
    ]


def test_round_trip():
    requests = _requests()
    assert {request.generation.stop for request in requests} > {"eos"}
    lines = list(read_trace(trace_lines(requests)))
    assert [number for number, _ in lines] == list(range(2, len(lines) + 2))
    items = iter(line for _, line in lines)
    for index, request in enumerate(requests):
        assert next(items) == RequestLine(
            index,
            request.limits,
            request.name,
            "tables",
            request.schedule,
            request.width,
            request.start,
            request.prompt,
            request.seed,
        )
        for call, step in enumerate(request.generation.steps, start=1):
            line = next(items)
            assert isinstance(line, StepLine)
            assert (line.call, Step(**line.fields)) == (call, step)
        assert next(items) == EndLine(request.generation.tokens, request.generation.stop, request.generation.nfe)
    assert not list(items)
    assert list(read_trace(trace_lines([]))) == []


def test_only_the_required_fields():
    lines = [
        '{"trace": "packedss", "version": 1}',
        '{"type": "request", "request": 0, "limits": {"max_new_tokens": 2}}',
        '{"type": "step", "request": 0, "call": 1, "committed": [7]}',
        '{"type": "end", "request": 0}',
    ]
    (_, head), (_, step), (_, end) = read_trace(lines)
    assert head == RequestLine(0, Limits.of(2), None, None, None, None, None, None, None)
    assert step == StepLine(1, {"committed": (7,)})
    assert end == EndLine(None, None, None)


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
        (2, '{"type": "requ\n', 2, "Unterminated string"),
        (2, "[]", 2, "expected an object"),
        (2, "[" * 100_000, 2, "recursion"),
        (2, "9" * 10_000, 2, ""),
        (2, "x" * ((1 << 24) + 1), 2, "longer than"),
        (2, None, 2, "request line must come first"),
        (2, {"request": 1}, 2, "must be number 0"),
        (2, {"request": False}, 2, "expected an integer"),
        (2, {"type": "begin"}, 2, "type must be"),
        (2, {"type": ["request"]}, 2, "type must be"),
        (2, {"limits": {"max_new_tokens": -1, "eos": [], "stop": []}}, 2, "expected an integer in 0"),
        (2, {"limits": {"max_new_tokens": 2**60}}, 2, "expected an integer in 0"),
        (2, {"limits": {"max_new_tokens": float("nan")}}, 2, "expected an integer"),
        (2, {"limits": {"eos": [], "stop": []}}, 2, "'max_new_tokens' is missing"),
        (2, {"limits": [6]}, 2, "limits must be"),
        (2, {"limits": {"max_new_tokens": 6, "stop": [[]]}}, 2, "at least 1 token"),
        (2, {"limits": {"max_new_tokens": 6, "stop": 3}}, 2, "list of lists"),
        (2, {"prompt": "text"}, 2, "list of ids"),
        (2, {"prompt": [-1]}, 2, "expected an integer in 0"),
        (2, {"name": 5}, 2, "expected a text"),
        (2, {"width": 2.0}, 2, "expected an integer"),
        (3, None, 3, "must be number 1"),
        (3, {"call": True}, 3, "expected an integer"),
        (3, {"accepted": "two"}, 3, "expected an integer"),
        (3, {"accepted": True}, 3, "expected an integer"),
        (3, {"accepted": -1}, 3, "expected an integer"),
        (3, {"verified": 3}, 3, "list of ids"),
        (3, {"branch": [1]}, 3, "expected an integer"),
        (3, {"stop": "tired"}, 3, "stop must be"),
        (3, {"stop": ["eos"]}, 3, "stop must be"),
        (3, {"fallback": 0}, 3, "fallback"),
        (3, {"committed": [1, None]}, 3, "expected an integer"),
    ],
)
def test_damage_is_named_by_line(number, change, line, reason):
    with pytest.raises(InvalidInput, match=f"^line {line} of the trace: .*{reason}"):
        list(read_trace(_damaged(number, change)))


def test_missing_fields_and_ends():
    lines = list(trace_lines(_requests()))
    step = json.loads(lines[2])
    del step["committed"]
    with pytest.raises(InvalidInput, match="line 3 of the trace: the field 'committed' is missing"):
        list(read_trace([*lines[:2], json.dumps(step), *lines[3:]]))
    with pytest.raises(InvalidInput, match="within a request"):
        list(read_trace(lines[:3]))
    with pytest.raises(InvalidInput, match="no header"):
        list(read_trace([]))
    with pytest.raises(InvalidInput, match="has no end"):
        list(read_trace([*lines[:2], lines[1]]))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_whatever_stands_in_a_field_is_read_or_refused(data):
    number = data.draw(st.sampled_from([2, 3, 4]))
    record = json.loads(list(trace_lines(_requests()))[number - 1])
    lines = _damaged(number, {data.draw(st.sampled_from(sorted(record))): data.draw(_JSON)})
    with suppress(InvalidInput):
        list(read_trace(lines))


def test_a_line_without_end_is_not_read_whole():
    class Endless(io.StringIO):
        asked = 0

        def readline(self, size=-1):
            assert 0 < size < 1 << 25
            self.asked += 1
            return "[" * min(size, 100) if self.asked < 3 else ""

    file = Endless()
    with pytest.raises(InvalidInput, match="line 1 of the trace"):
        list(read_trace(bounded_lines(file)))
    assert file.asked == 1


def test_a_finding_travels_with_its_request_and_is_checked() -> None:
    for noted in (Noted("wrong", 1), Noted("wrong", None)):
        lines = list(trace_lines([_requests()[0]._replace(finding=noted)]))
        [head] = [line for _, line in read_trace(lines) if isinstance(line, RequestLine)]
        assert head.finding == noted
    for bad in ('"text"', '{"call": 1}', '{"text": 1}', '{"text": "x", "call": -1}'):
        line = f'{{"type": "request", "request": 0, "limits": {{"max_new_tokens": 1}}, "finding": {bad}}}'
        with pytest.raises(InvalidInput, match="line 2 of the trace"):
            list(read_trace([lines[0], line]))
