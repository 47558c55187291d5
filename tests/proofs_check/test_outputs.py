"""Logs against a reference: right engines pass, wrong ones do not, numerics are told from both, and files are not trusted.

Seeds are fixed; under others a right log would be flagged with odds of alpha = 0.01 at most.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs_check.biases import BIASES, Bias, Language
from proofs_check.outputs import OutputsReport, check_outputs
from simulator import ArrayLaw, InvalidInput, Limits, Processing, Sampled, ar, generate, packed, processed

LANGUAGE = Language(0)
AR = Bias("none", ar())
RIGHT = Bias("none", packed(4))


class Noisy:
    """The language in low precision: every logit a little off, always the same way after the same context."""

    def __init__(self, size: float) -> None:
        self.size = size

    def __call__(self, call: Any) -> Any:
        reply = LANGUAGE(call)
        contexts = [call.prefix + call.draft[:index] for index in range(len(reply.target))]
        return reply._replace(target=tuple(map(self.law, contexts)))

    def law(self, context: tuple[int, ...]) -> ArrayLaw:
        noise = np.random.default_rng((7, *context)).standard_normal(24)
        weights = LANGUAGE.target(context).probabilities * np.exp(self.size * noise)
        return ArrayLaw(weights / weights.sum())


def log(
    count: int,
    temperature: float = 1.0,
    bias: Bias = RIGHT,
    model: Any = LANGUAGE,
    begin: int = 0,
    length: int = 32,
    **settings: Any,
) -> list[str]:
    """Requests of an engine, one a line."""
    keep = {name: settings[name] for name in ("top_k", "top_p", "min_p") if name in settings}
    asked = processed(bias.model(model), Processing(temperature, **keep))
    lines = []
    for request in range(begin, begin + count):
        prompt = (request % 24, request % 7)
        run = generate(
            asked, bias.schedule, prompt, Limits.of(length, settings.get("eos", [])), bias.chance(Sampled(3, request))
        )
        record = {"prompt": prompt, "output": run.tokens, "temperature": temperature, "max_new_tokens": length, "eos": []}
        lines.append(json.dumps(record | settings))
    return lines


def outcome(report: OutputsReport, stage: str) -> str:
    [found] = [each.outcome for each in report.stages if each.name == stage]
    return found


@pytest.mark.claim("THM3.3")
def test_right_logs_pass() -> None:
    lines = log(12, 1.0) + log(12, 0.7, top_k=8) + log(12, 1.3, top_p=0.8, eos=[5]) + log(8, 0.0, eos=[5])
    report = check_outputs(lines, LANGUAGE)
    assert report.verdict == "NOTHING FOUND", str(report)
    assert [stage.name for stage in report.stages] == ["ids", "stop", "greedy", "sampling"]
    assert report.alpha == 0.01
    assert "left out of the log" in str(report)
    control = check_outputs(lines, LANGUAGE, log(20, 1.0, AR, begin=100) + log(8, 0.0, AR))
    assert control.verdict == "NOTHING FOUND", str(control)


@pytest.mark.parametrize("name", ["argmax draft", "stale q", "coin reused", "no coin for tests", "residual ignored"])
def test_biased_samplers_are_rejected(name: str) -> None:
    report = check_outputs(log(80, bias=BIASES[name]), LANGUAGE)
    assert [finding.symptom for finding in report.findings] == ["law"]
    assert "a control would tell" in report.findings[0].statement
    assert "line " in report.findings[0].counterexample


def test_settings_are_the_requests_own() -> None:
    said_otherwise = [json.dumps(json.loads(line) | {"temperature": 0.6}) for line in log(40, 1.0)]
    assert check_outputs(said_otherwise, LANGUAGE).verdict == "NOT EXACT"
    unfiltered = [json.dumps(json.loads(line) | {"top_k": 3}) for line in log(3, 1.0)]
    [finding] = check_outputs(unfiltered, LANGUAGE).findings
    assert "is impossible under the reference" in finding.statement


def test_numerics_show_in_the_control_as_well() -> None:
    """The noise is the engine's: neither its AR nor its speculative sampling has the reference's law."""
    lines, control = log(120, 1.0, model=Noisy(1.0)), log(120, 1.0, AR, Noisy(1.0), begin=500)
    assert check_outputs(lines, LANGUAGE).verdict == "NOT EXACT"
    report = check_outputs(lines, LANGUAGE, control)
    assert report.verdict == "NOT RUN"
    assert "does not match the engine's own AR" in report.stages[-1].detail
    short = check_outputs(lines, LANGUAGE, log(1, 1.0, AR, begin=500))
    assert outcome(short, "sampling") == "not run"
    assert "are needed to tell" in short.stages[-1].detail


def test_a_biased_sampler_is_rejected_with_a_control_too() -> None:
    report = check_outputs(log(80, bias=BIASES["stale q"]), LANGUAGE, log(80, 1.0, AR, begin=500))
    assert report.verdict == "NOT EXACT"


def swapped(lines: list[str], requests: int, rank: int = 4) -> list[str]:
    """In the first requests one token is replaced by that of another rank, and the output goes on from there."""
    model = processed(LANGUAGE, Processing(0))
    result = []
    for line in lines[:requests]:
        record = json.loads(line)
        kept = (*record["prompt"], *record["output"][:5])
        token = int(np.argsort(-LANGUAGE.target(kept).probabilities)[rank])
        tail = generate(model, ar(), (*kept, token), Limits.of(record["max_new_tokens"] - 6)).tokens
        result.append(json.dumps(record | {"output": [*record["output"][:5], token, *tail]}))
    return result + lines[requests:]


def test_greedy_regrets_against_nothing() -> None:
    report = check_outputs(swapped(log(20, 0.0), 1), LANGUAGE)
    [finding] = report.findings
    assert (finding.symptom, finding.stage) == ("law", "greedy")
    assert "output token 6" in finding.counterexample
    assert "line 1," in finding.counterexample
    assert check_outputs(swapped(log(20, 0.0), 1), LANGUAGE, tolerance=20).verdict == "NOTHING FOUND"


def test_greedy_regrets_against_a_control() -> None:
    noisy = Noisy(0.05)
    lines, control = log(70, 0.0, model=noisy), log(70, 0.0, AR, noisy, begin=1000)
    alone = check_outputs(lines, LANGUAGE)
    assert [finding.stage for finding in alone.findings] == ["greedy"]
    assert check_outputs(lines, LANGUAGE, control).verdict == "NOTHING FOUND"
    assert check_outputs(swapped(lines, 1), LANGUAGE, control).verdict == "NOT EXACT"  # one regret, far too large
    coarser = log(70, 0.0, model=Noisy(0.5))
    assert check_outputs(coarser, LANGUAGE, control).verdict == "NOT EXACT"  # too many of them


def test_controls_that_say_nothing() -> None:
    exact = log(40, 0.0, AR)
    one = check_outputs(swapped(log(40, 0.0), 1, rank=1), LANGUAGE, exact)
    assert outcome(one, "greedy") == "not run"
    assert "give a longer one" in one.stages[-1].detail
    assert outcome(check_outputs(swapped(exact, 1), LANGUAGE, log(10, 1.0, AR)), "greedy") == "not run"
    foreign = check_outputs(swapped(exact, 1), LANGUAGE, log(40, 0.0, AR, Noisy(2.0)))
    assert "does not match the engine's own AR" in foreign.stages[-1].detail


def changed(line: str, **fields: Any) -> str:
    return json.dumps({key: value for key, value in (json.loads(line) | fields).items() if value is not ...})


def test_ends_are_a_matter_of_stops() -> None:
    lines = log(30, 1.0, eos=[5])
    early = changed(lines[0], output=json.loads(lines[0])["output"][:3])
    assert 5 not in json.loads(early)["output"]
    report = check_outputs([early, *lines], LANGUAGE)
    assert [finding.symptom for finding in report.findings] == ["stop"]
    assert "line 1: an output ends after 3 tokens" in report.findings[0].statement
    late = changed(lines[0], max_new_tokens=2)
    assert "goes on for" in check_outputs([*lines, late], LANGUAGE).findings[0].statement
    unsaid = [changed(line, max_new_tokens=..., eos=...) for line in log(30, 1.0)]
    report = check_outputs(unsaid, LANGUAGE)
    assert report.verdict == "NOTHING FOUND"
    assert "nothing to check" in report.stages[1].detail


def test_one_seed_for_all_is_no_sample() -> None:
    report = check_outputs([changed(line, seed=1) for line in log(30, 1.0)], LANGUAGE)
    assert report.verdict == "NOT RUN"
    assert "line 2 was sampled under the seed of the request before" in report.stages[-1].detail
    assert check_outputs([changed(line, seed=n) for n, line in enumerate(log(30, 1.0))], LANGUAGE).verdict == "NOTHING FOUND"


def test_nothing_to_compare() -> None:
    report = check_outputs([], LANGUAGE)
    assert report.verdict == "NOT RUN"
    assert report.exit_code == 2
    assert check_outputs([changed(log(1, 1.0)[0], output=[], max_new_tokens=0)], LANGUAGE).verdict == "NOT RUN"
    assert "too little to bet on" in check_outputs(log(1, 1.0, length=2), LANGUAGE).stages[-1].detail


def test_ids_outside_the_vocabulary() -> None:
    class Sized:
        vocabulary = 24

        def laws(self, prompt: Any, output: Any) -> Iterator[ArrayLaw]:
            return (LANGUAGE.target((*prompt, *output[:count])) for count in range(len(output)))

    lines = log(30, 1.0)
    assert check_outputs(lines, Sized()).verdict == "NOTHING FOUND"
    report = check_outputs([*lines, changed(lines[0], output=[24, *json.loads(lines[0])["output"][1:]])], Sized())
    assert [finding.symptom for finding in report.findings] == ["contract"]
    with pytest.raises(InvalidInput, match="line 31 of the outputs: the prompt's id 99"):
        check_outputs([*lines, changed(lines[0], prompt=[99])], Sized())


class Interrupted(Exception):
    pass


def test_a_run_goes_on_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proofs_check.outputs._EVERY", 7)
    lines = log(20, 1.0) + swapped(log(20, 0.0), 2) + log(10, 0.8)
    control = log(15, 1.0, AR, begin=500)
    whole = check_outputs(lines, LANGUAGE, control)
    states: list[dict[str, Any]] = []

    def interrupt(state: dict[str, Any]) -> None:
        states.append(json.loads(json.dumps(state)))
        if len(states) == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        check_outputs(lines, LANGUAGE, control, checkpoint=interrupt)
    assert states[-1]["outputs"]["done"] == 28
    evaluated = []

    def counting(context: tuple[int, ...]) -> Any:
        evaluated.append(context)
        return LANGUAGE.target(context)

    resumed = check_outputs(lines, counting, control, state=states[-1])
    assert resumed == whole
    assert len(evaluated) == 32 * (50 - 28)
    longer = check_outputs([*lines, *log(5, 1.0, begin=300)], LANGUAGE, control, state=whole.state)
    assert longer.tokens == whole.tokens + 5 * 32


def test_states_of_something_else_are_refused() -> None:
    lines = log(5, 1.0)
    state = check_outputs(lines, LANGUAGE).state
    for wrong, message in (
        (state | {"version": 0}, "another version"),
        (state | {"alpha": 0.5}, "another version or alpha"),
        ({}, "cannot be read"),
        ([], "cannot be read"),
        (state | {"outputs": 3}, "cannot be read"),
        (state | {"outputs": state["outputs"] | {"greedy": {"more": 1}}}, "cannot be read"),
        (state | {"outputs": state["outputs"] | {"process": {}}}, "cannot be read"),
        (state | {"outputs": state["outputs"] | {"tolerance": 3}}, "tolerance"),
        (state | {"outputs": state["outputs"] | {"process": state["outputs"]["process"] | {"wealth": [0.0]}}}, "saved bets"),
        (state | {"outputs": state["outputs"] | {"found": {"x": ["none", "", ""]}}}, "no symptom"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_outputs(lines, LANGUAGE, state=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="begins otherwise"):
        check_outputs(lines[::-1], LANGUAGE, state=state)
    with pytest.raises(InvalidInput, match="has seen 5 requests, the file has 4"):
        check_outputs(lines[:4], LANGUAGE, state=state)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 of the outputs: Expecting"),
        ("[]", "expected an object"),
        ("[" * 100_000, "recursion"),
        ('{"output": [1], "temperature": 1}', "the field 'prompt' is missing"),
        ('{"prompt": [1], "temperature": 1}', "the field 'output' is missing"),
        ('{"prompt": [1], "output": [1]}', "the field 'temperature' is missing"),
        ('{"prompt": "ab", "output": [1], "temperature": 1}', "prompt must be a list of ids"),
        ('{"prompt": [1], "output": [-1], "temperature": 1}', "output must be a list of ids"),
        ('{"prompt": [1], "output": [true], "temperature": 1}', "output must be a list of ids"),
        ('{"prompt": [1], "output": [1e3], "temperature": 1}', "output must be a list of ids"),
        ('{"prompt": [1], "output": [' + "9" * 5000 + '], "temperature": 1}', "limit"),
        ('{"prompt": [1], "output": [1], "temperature": NaN}', "temperature must be a number"),
        ('{"prompt": [1], "output": [1], "temperature": 1e999}', "temperature must be a number"),
        ('{"prompt": [1], "output": [1], "temperature": -1}', "temperature must be >= 0"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "top_p": 0}', "top_p must be > 0"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "top_k": 1.5}', "top_k must be an integer"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "max_new_tokens": -1}', "max_new_tokens must be"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "eos": "x"}', "eos must be a list of ids"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "stop": [[]]}', "at least 1 token"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "stop": {"a": 1}}', "stop must be a list"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "seed": "a"}', "the seed must be an integer"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "repetition_penalty": 1.1}', "repetition_penalty = 1.1 changes"),
        ('{"prompt": [1], "output": [1], "temperature": 1, "do_sample": false}', "do_sample = false contradicts"),
    ],
)
def test_lines_that_do_not_fit_are_named(line: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        check_outputs([log(1)[0], line], LANGUAGE)
    assert "line 2" in str(error.value)


def test_lines_too_long_and_no_text() -> None:
    with pytest.raises(InvalidInput, match="longer than"):
        check_outputs(["[" + " " * (1 << 24) + "]"], LANGUAGE)

    def binary() -> Iterator[str]:
        yield log(1)[0]
        b"\xff".decode()

    with pytest.raises(InvalidInput, match="line 2 is no UTF-8 text"):
        check_outputs(binary(), LANGUAGE)


def test_neutral_fields_and_engines_ways_to_say_off() -> None:
    lines = [changed(line, repetition_penalty=1.0, top_k=-1, top_p=None, other=[1]) for line in log(30)]
    assert check_outputs([*lines, "\n"], LANGUAGE).verdict == "NOTHING FOUND"


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["prompt", "output", "temperature"]), inner)
            ),
            max_leaves=6,
        ).map(json.dumps)
        | st.text(max_size=20),
        max_size=3,
    )
)
def test_whatever_a_file_holds_there_is_no_traceback(lines: list[str]) -> None:
    with contextlib.suppress(InvalidInput):
        check_outputs(lines, LANGUAGE)


def test_arguments_that_make_no_sense() -> None:
    for arguments in ({"alpha": 0.0}, {"tolerance": -1.0}, {"tolerance": float("nan")}):
        with pytest.raises(InvalidInput):
            check_outputs([], LANGUAGE, **arguments)  # type: ignore[arg-type]
