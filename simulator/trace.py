"""The trace: what every call of a run did, as JSON Lines, schema 1.

    {"trace": "packedss", "version": 1}
    {"type": "request", "request": 0, "name": ..., "schedule": ..., "prompt": [...], "limits": {...}}
    {"type": "step", "request": 0, "call": 1, ...}         one per forward pass, the fields of `Step`
    {"type": "end", "request": 0, "tokens": [...], "stop": "eos" | "stop" | "length"}

Requests are numbered from 0, calls from 1; lines of one request stand together. Files are untrusted: `read_trace` checks types
and numbering and names the first line that is wrong. Whether the steps obey the rules is not its business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from simulator.decode import Generation
from simulator.errors import InvalidInput
from simulator.records import Limits, Step, Tokens

HEADER = {"trace": "packedss", "version": 1}
_STOPS = ("eos", "stop", "length")


class TracedRequest(NamedTuple):
    """One request of a trace."""

    name: str  # the prompt's name, for people
    schedule: str
    prompt: Tokens
    limits: Limits
    generation: Generation


def trace_lines(requests: Iterable[TracedRequest]) -> Iterator[str]:
    """The lines of a trace, without line ends."""
    yield json.dumps(HEADER)
    for number, (name, schedule, prompt, limits, run) in enumerate(requests):
        end = {"max_new_tokens": limits.max_new_tokens, "eos": sorted(limits.eos), "stop": limits.stop}
        head = {"type": "request", "request": number, "name": name, "schedule": schedule, "prompt": prompt, "limits": end}
        yield json.dumps(head)
        for call, step in enumerate(run.steps, start=1):
            yield json.dumps({"type": "step", "request": number, "call": call, **step._asdict()})
        yield json.dumps({"type": "end", "request": number, "tokens": run.tokens, "stop": run.stop})


def read_trace(lines: Iterable[str]) -> list[TracedRequest]:
    """The requests of a trace. Raises InvalidInput naming the first line that does not fit the schema."""
    requests: list[TracedRequest] = []
    head: TracedRequest | None = None
    steps: list[Step] = []
    number = 0
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if number == 1:
                _expect(record == HEADER, f"the first line must be {json.dumps(HEADER)}")
                continue
            kind = record["type"]
            _expect(kind in ("request", "step", "end"), "type must be request, step or end")
            _expect(record["request"] == len(requests), f"the request must be number {len(requests)}")
            if kind == "request":
                _expect(head is None, "the request before has no end")
                end = record["limits"]
                limits = Limits.of(_integer(end["max_new_tokens"]), _tokens(end["eos"]), [_tokens(m) for m in end["stop"]])
                empty = Generation((), (), "length")
                head = TracedRequest(str(record["name"]), str(record["schedule"]), _tokens(record["prompt"]), limits, empty)
                steps = []
                continue
            _expect(head is not None, "a request line must come first")
            assert head is not None
            if kind == "step":
                _expect(record["call"] == len(steps) + 1, f"the call must be number {len(steps) + 1}")
                steps.append(_step(record))
            else:
                _expect(record["stop"] in _STOPS, f"stop must be one of {', '.join(_STOPS)}")
                requests.append(head._replace(generation=Generation(_tokens(record["tokens"]), tuple(steps), record["stop"])))
                head = None
        except (ValueError, KeyError, TypeError) as error:
            reason = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidInput(f"line {number} of the trace: {reason}") from error
    if number == 0 or head is not None:
        raise InvalidInput(f"the trace ends after line {number} " + ("within a request" if number else "with no header"))
    return requests


def _step(record: dict[str, Any]) -> Step:
    values = {}
    for name in Step._fields:
        value = record[name]
        if isinstance(value, list):
            value = tuple(None if item is None and name == "predictions" else _integer(item) for item in value)
        elif name == "stop":
            _expect(value is None or value in _STOPS, f"stop must be null or one of {', '.join(_STOPS)}")
        elif name == "fallback":
            _expect(isinstance(value, bool), "fallback must be true or false")
        elif not (value is None and name == "branch"):
            _integer(value)
        _expect(isinstance(value, tuple) == (name in ("verified", "predictions", "committed")), f"{name} has the wrong type")
        values[name] = value
    return Step(**values)


def _integer(value: Any) -> int:
    _expect(isinstance(value, int) and not isinstance(value, bool), f"expected an integer, got {json.dumps(value)}")
    return int(value)


def _tokens(value: Any) -> Tokens:
    _expect(isinstance(value, list), f"expected a list of ids, got {json.dumps(value)}")
    return tuple(_integer(item) for item in value)


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
