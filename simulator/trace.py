"""The trace: what every call of a run did, as JSON Lines, schema 1. Any decoder may write it.

    {"trace": "packedss", "version": 1}
    {"type": "request", "request": 0, "limits": {"max_new_tokens": 64, "eos": [2], "stop": [[5, 6]]}, ...}
    {"type": "step", "request": 0, "call": 1, "committed": [17, 4], ...}       one per forward pass
    {"type": "end", "request": 0, ...}

Requests are numbered from 0 and calls from 1; lines of one request stand together. What stands above is required, `eos` and
`stop` of the limits excepted. Every other field may be missing, and then it is not checked:

    request   name, model (text); schedule (its name), width (W), start: the declared policy; prompt (ids); seed;
              finding {"text": what is wrong, "call": in which call}, from who wrote the trace to who reads it
    step      the fields of `simulator.records.Step`, `committed` being one of them
    end       tokens (the whole output, ids), stop ("eos", "stop" or "length"), nfe (number of forward passes)

Files are untrusted: `read_trace` checks types and numbering, names the first line that is wrong, and holds one line at a time.
Whether the steps obey the rules is `proofs_check.trace_check`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TextIO, TypeAlias

from simulator.decode import Generation
from simulator.errors import InvalidInput
from simulator.records import Limits, Step, Tokens

HEADER = {"trace": "packedss", "version": 1}
_STOPS = ("eos", "stop", "length")
_LISTS = ("verified", "predictions", "committed", "order")
_LONGEST_LINE = 1 << 24  # characters; a line that is longer is no step of a decoder
_LARGEST = 1 << 53  # beyond it, JSON readers disagree about integers


class Noted(NamedTuple):
    """What whoever wrote the trace found wrong with the request."""

    text: str
    call: int | None  # the call that shows it, None where no single one does


class TracedRequest(NamedTuple):
    """One request to be written."""

    name: str  # the prompt's name, for people
    schedule: str
    prompt: Tokens
    limits: Limits
    generation: Generation
    width: int | None = None
    start: str | None = None
    model: str | None = None
    seed: int | None = None
    finding: Noted | None = None


class RequestLine(NamedTuple):
    """A request line that was read; None where the file says nothing."""

    number: int
    limits: Limits
    name: str | None
    model: str | None
    schedule: str | None
    width: int | None
    start: str | None
    prompt: Tokens | None
    seed: int | None
    finding: Noted | None = None


class StepLine(NamedTuple):
    """A step line that was read."""

    call: int
    fields: dict[str, Any]  # by the names of `Step`; `committed` always, others as far as the file has them


class EndLine(NamedTuple):
    """An end line that was read; None where the file says nothing."""

    tokens: Tokens | None
    stop: str | None
    nfe: int | None


Line: TypeAlias = RequestLine | StepLine | EndLine


def trace_lines(requests: Iterable[TracedRequest]) -> Iterator[str]:
    """The lines of a trace, without line ends."""
    yield json.dumps(HEADER)
    for number, (name, schedule, prompt, limits, run, *rest) in enumerate(requests):
        end = {"max_new_tokens": limits.max_new_tokens, "eos": sorted(limits.eos), "stop": limits.stop}
        optional = dict(zip(("width", "start", "model", "seed", "finding"), rest, strict=True))
        head = {"type": "request", "request": number, "name": name, "schedule": schedule, "prompt": prompt, "limits": end}
        yield json.dumps(head | {k: v._asdict() if isinstance(v, Noted) else v for k, v in optional.items() if v is not None})
        for call, step in enumerate(run.steps, start=1):
            fields = {key: value for key, value in step._asdict().items() if value != Step._field_defaults.get(key, ...)}
            yield json.dumps({"type": "step", "request": number, "call": call, **fields})
        yield json.dumps({"type": "end", "request": number, "tokens": run.tokens, "stop": run.stop, "nfe": run.nfe})


def bounded_lines(file: TextIO) -> Iterator[str]:
    """The lines of a file, none of them held beyond the longest that a trace may have."""
    while line := file.readline(_LONGEST_LINE + 2):
        yield line


def read_trace(lines: Iterable[str]) -> Iterator[tuple[int, Line]]:
    """The lines of a trace with their numbers, from 2: each request line, its steps, its end.

    Raises InvalidInput naming the first line that does not fit the schema.
    """
    requests = calls = number = 0
    inside = False
    for number, line in enumerate(lines, start=1):
        try:
            _expect(len(line) <= _LONGEST_LINE, f"longer than {_LONGEST_LINE:,} characters")
            record = json.loads(line.rstrip("\r\n"))
            _expect(isinstance(record, dict), "expected an object, { .. }")
            if number == 1:
                _expect(record == HEADER, f"the first line must be {json.dumps(HEADER)}")
                continue
            kind = record["type"]
            _expect(kind in ("request", "step", "end"), "type must be request, step or end")
            _expect(_integer(record["request"]) == requests, f"the request must be number {requests}")
            _expect(inside or kind == "request", "a request line must come first")
            if kind == "request":
                _expect(not inside, "the request before has no end")
                inside, calls = True, 0
                yield number, _request(record)
            elif kind == "step":
                calls += 1
                _expect(_integer(record["call"]) == calls, f"the call must be number {calls}")
                yield number, StepLine(calls, _step(record))
            else:
                inside = False
                requests += 1
                tokens, nfe = _optional(record, "tokens", _tokens), _optional(record, "nfe", _integer)
                yield number, EndLine(tokens, _optional(record, "stop", _stop), nfe)
        except (ValueError, KeyError, TypeError, RecursionError, InvalidInput) as error:
            reason = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidInput(f"line {number} of the trace: {reason}") from error
    if number == 0 or inside:
        raise InvalidInput(f"the trace ends after line {number} " + ("within a request" if number else "with no header"))


def _request(record: dict[str, Any]) -> RequestLine:
    end = record["limits"]
    _expect(isinstance(end, dict), "limits must be an object, { .. }")
    markers = end.get("stop") or []
    _expect(isinstance(markers, list), "stop must be a list of lists of ids")
    limits = Limits.of(_integer(end["max_new_tokens"]), _tokens(end.get("eos") or []), [_tokens(marker) for marker in markers])
    return RequestLine(
        record["request"],
        limits,
        _optional(record, "name", _text),
        _optional(record, "model", _text),
        _optional(record, "schedule", _text),
        _optional(record, "width", _integer),
        _optional(record, "start", _text),
        _optional(record, "prompt", _tokens),
        _optional(record, "seed", _integer),
        _optional(record, "finding", _noted),
    )


def _step(record: dict[str, Any]) -> dict[str, Any]:
    record["committed"]
    fields: dict[str, Any] = {}
    for name in Step._fields:
        if name not in record:
            continue
        value = record[name]
        if name == "predictions":
            fields[name] = _tokens(value, also_none=True)
        elif name in _LISTS:
            fields[name] = _tokens(value)
        elif name == "stop":
            fields[name] = None if value is None else _stop(value)
        elif name == "fallback":
            _expect(isinstance(value, bool), "fallback must be true or false")
            fields[name] = value
        else:
            fields[name] = None if value is None and name in ("branch", "end") else _integer(value)
    return fields


def _noted(value: Any) -> Noted:
    _expect(isinstance(value, dict), "a finding must be an object, { .. }")
    return Noted(_text(value["text"]), _optional(value, "call", _integer))


def _optional(record: dict[str, Any], name: str, read: Any) -> Any:
    return None if record.get(name) is None else read(record[name])


def _text(value: Any) -> str:
    _expect(isinstance(value, str), f"expected a text, got {_short(value)}")
    return str(value)


def _stop(value: Any) -> str:
    _expect(value in _STOPS, f"stop must be one of {', '.join(_STOPS)}, or null in a step that does not end the request")
    return str(value)


def _integer(value: Any) -> int:
    _expect(type(value) is int and 0 <= value < _LARGEST, f"expected an integer in 0 .. 2^53 - 1, got {_short(value)}")
    return int(value)


def _tokens(value: Any, also_none: bool = False) -> tuple[Any, ...]:
    _expect(isinstance(value, list), f"expected a list of ids, got {_short(value)}")
    return tuple(None if item is None and also_none else _integer(item) for item in value)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
