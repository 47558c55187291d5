"""Logged outputs of any engine against a reference model: the prompts, the tokens, the sampling settings, and nothing else.

A log is JSON Lines, a request a line:

    {"prompt": [1, 2], "output": [3, 4, 5], "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": null,
     "max_new_tokens": 64, "eos": [2], "stop": [[5, 6]], "seed": 7}

`prompt`, `output` and `temperature` are required. The output is the continuation alone, its EOS or end marker included.
`top_k` may also be 0 or -1, for all. Where `max_new_tokens` or `eos` is missing, the end of the output is checked as far as it
can be. Other fields are ignored, except those known to change the law (_NEUTRAL): they must be neutral. Every request must be
in the log, whatever came out, and be sampled under a seed of its own: a log of chosen requests is no sample.

At temperature 0 each token's regret counts, its shortfall from the reference's highest logit, in nats. Above, every token is
bet on (`proofs_check.eprocess`). A second log, of the engine's plain AR decoding, is the control for its own numerics: what the
control does as well is not held against the outputs.

Files are untrusted: a line that does not fit is named in InvalidInput, and one line is held at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast, get_args

from proofs_check.decoder import BLIND, OpaqueReport, bets, first_stop, rejection, short, too_little, wrong_end
from proofs_check.eprocess import Emitted, EProcess
from proofs_check.findings import Finding, Stage, Symptom, worst_first
from proofs_check.reference import Reference, as_reference, entries_of, regret, rows
from simulator.errors import InvalidInput
from simulator.processing import Processing
from simulator.records import Limits, Tokens

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "typical_p": (1,),
    "min_tokens": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "logit_bias": ({}, []),
    "num_beams": (1,),
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "xtc_probability": (0,),
    "dry_multiplier": (0,),
    "mirostat": (0,),
}
_LONGEST_LINE = 1 << 24  # characters
_LARGEST = 1 << 53
_EVERY = 100  # requests between two checkpoints
_VERSION = 1
_MISMATCH = 0.05  # a control with a larger share of tokens that are not the reference's first is of another model


class Logged(NamedTuple):
    """One request of a log."""

    prompt: Tokens
    output: Tokens
    processing: Processing
    limits: Limits
    ends_known: bool  # whether max_new_tokens and EOS were given
    seed: int | None


def check_outputs(
    lines: Iterable[str],
    reference: Any,
    control: Iterable[str] | None = None,
    *,
    alpha: float = 0.01,
    tolerance: float = 0.0,
    state: dict[str, Any] | None = None,
    checkpoint: Callable[[dict[str, Any]], None] | None = None,
    name: str = "outputs",
) -> OutputsReport:
    """Check logged outputs against the reference (see `as_reference`).

    control      a log of the same engine's plain AR decoding, best of the same prompts and no shorter
    alpha        false-alarm odds of all statistics together
    tolerance    nats of regret at temperature 0 that are nobody's fault; beyond it the control decides, if there is one
    state        `OutputsReport.state` of an earlier run on the beginning of the same files: what it has seen is not evaluated
                 again
    checkpoint   called with such a state every 100 requests, to be written down

    A log of chosen requests is no sample: all must be there, each under a seed of its own. Else as `check_decoder`.

    Raises InvalidInput for a line that does not fit, naming it, and for a state of other files or settings.
    """
    if not 0 <= tolerance < math.inf:
        raise InvalidInput(f"the tolerance must be >= 0 and finite, got {tolerance}")
    model = as_reference(reference)
    sides = {name: _Side(name, alpha, tolerance) for name in ("outputs", "control")}
    if state is not None:
        _restore(sides, state, alpha)

    def save() -> dict[str, Any]:
        return {"version": _VERSION, "alpha": alpha} | {name: side.state() for name, side in sides.items()}

    for side, log in ((sides["control"], control), (sides["outputs"], lines)):
        if log is not None:
            for fresh in side.read(log, model):
                if checkpoint and fresh % _EVERY == 0:
                    checkpoint(save())
    return _report(name, sides["outputs"], None if control is None else sides["control"], alpha, tolerance, save())


@dataclass(frozen=True)
class OutputsReport(OpaqueReport):
    """What a log shows."""

    state: dict[str, Any] = field(default_factory=dict)  # for JSON; a run on longer files goes on from it


@dataclass
class _Greedy:
    """Regrets beyond the tolerance, summed up. The unit is the output, with its worst token: in one output they cluster."""

    outputs: int = 0
    tokens: int = 0
    off: int = 0  # tokens with a regret
    positive: int = 0  # outputs with one
    total: float = 0.0  # of the worst regrets of the outputs
    worst: float = 0.0
    where: str = ""  # the worst, in words; several lines
    impossible: int = 0  # outputs with a token of probability 0: an infinite regret, not in the total

    def add(self, gaps: list[float], describe: Callable[[int], str]) -> None:
        """The regrets of one output's tokens, 0 within the tolerance."""
        worst = max(gaps)
        self.outputs += 1
        self.tokens += len(gaps)
        self.off += sum(gap > 0 for gap in gaps)
        self.positive += worst > 0
        self.total += worst if math.isfinite(worst) else 0.0
        self.impossible += math.isinf(worst)
        if worst > self.worst:
            self.worst, self.where = worst, describe(gaps.index(worst))


class _Side:
    """What one log has shown so far."""

    def __init__(self, name: str, alpha: float, tolerance: float) -> None:
        self.name, self.tolerance = name, tolerance
        self.done = 0  # requests
        self.digest = ""  # of their lines
        self.greedy = _Greedy()
        self.process = EProcess(alpha / 2)
        self.found: dict[str, list[str]] = {}  # by stage: the first finding's symptom, statement and counterexample
        self.unchecked_ends = 0
        self.last_seed: int | None = None
        self.same_seed = ""  # the first request whose seed is that of the request before, in words

    def read(self, lines: Iterable[str], model: Reference) -> Iterator[int]:
        """Take every request; the number of each after it, except of those that a saved state has seen."""
        done, digest = 0, ""
        for number, line in _numbered(lines):
            done, digest = done + 1, _chained(digest, line)
            if done <= self.done:
                if done == self.done and digest != self.digest:
                    raise InvalidInput(f"{self.name}: the saved state is that of a file that begins otherwise")
                continue
            try:
                logged = _logged(line, model.vocabulary)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                reason = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
                raise InvalidInput(f"line {number} of the {self.name}: {reason}") from error
            self._take(number, logged, model)
            self.done, self.digest = done, digest
            yield done
        if done < self.done:
            raise InvalidInput(f"{self.name}: the saved state has seen {self.done} requests, the file has {done}")

    def _take(self, line: int, logged: Logged, model: Reference) -> None:
        prompt, output, processing, limits, ends_known, seed = logged

        def described(upto: int) -> str:
            return f"line {line}, {processing}\nprompt {short(prompt)}\noutput {short(output[:upto])}"

        length, stop = first_stop(output, limits)
        if stop is not None or ends_known:
            if problem := wrong_end(prompt, output, limits):
                self.found.setdefault("stop", ["stop", f"line {line}: {problem}", described(length)])
        else:
            self.unchecked_ends += 1
        output = output[:length]
        size = model.vocabulary
        alien = None if size is None else next((token for token in output if token >= size), None)
        if alien is not None:
            statement = f"line {line}: the id {alien} is outside the vocabulary 0 .. {(size or 0) - 1}"
            self.found.setdefault("ids", ["contract", statement, described(len(output))])
            return
        if processing.temperature == 0:
            regrets = [regret(row, token) for token, row in zip(output, rows(model, prompt, output), strict=True)]
            if regrets:
                gaps = [gap if gap > self.tolerance else 0.0 for gap, _ in regrets]
                self.greedy.add(gaps, lambda index: f"{_said(output, regrets, index)}\n{described(index + 1)}")
            return
        if seed is not None and seed == self.last_seed:
            self.same_seed = self.same_seed or f"line {line} was sampled under the seed of the request before, {seed}"
            return
        self.last_seed = seed
        if not self.process.rejected:
            before = self.process.tokens
            laws = (entries_of(row, processing) for row in rows(model, prompt, output))
            if self.process.observe(map(Emitted, output, laws)):
                self.found["sampling"] = ["law", rejection(self.process), described(self.process.tokens - before)]

    def state(self) -> dict[str, Any]:
        return {
            "tolerance": self.tolerance,
            "done": self.done,
            "digest": self.digest,
            "greedy": {key: str(value) if value == math.inf else value for key, value in vars(self.greedy).items()},
            "process": self.process.state(),
            "found": self.found,
            "unchecked_ends": self.unchecked_ends,
            "last_seed": self.last_seed,
            "same_seed": self.same_seed,
        }

    def restore(self, state: Any) -> None:
        """Raises InvalidInput for a state of other settings, and whatever a state of another form raises."""
        if state["tolerance"] != self.tolerance:
            raise InvalidInput(f"the saved state was made with tolerance {state['tolerance']}, this run has {self.tolerance}")
        self.done, self.digest = int(state["done"]), str(state["digest"])
        kinds = {"where": str, "total": float, "worst": float}
        self.greedy = _Greedy(**{key: kinds.get(key, int)(value) for key, value in dict(state["greedy"]).items()})
        self.process.restore(state["process"])
        for stage, texts in dict(state["found"]).items():
            symptom, statement, counterexample = map(str, texts)
            if symptom not in get_args(Symptom):
                raise ValueError(f"no symptom is called {symptom!r}")
            self.found[str(stage)] = [symptom, statement, counterexample]
        self.unchecked_ends, self.same_seed = int(state["unchecked_ends"]), str(state["same_seed"])
        self.last_seed = None if state["last_seed"] is None else int(state["last_seed"])


def _said(output: Tokens, regrets: list[tuple[float, int]], index: int) -> str:
    gap, top = regrets[index]
    return f"output token {index + 1} is {output[index]}, {gap:.4g} nats below {top}"


def _restore(sides: dict[str, _Side], state: Any, alpha: float) -> None:
    try:
        if state["version"] != _VERSION or state["alpha"] != alpha:
            raise InvalidInput(f"the saved state is of another version or alpha than {_VERSION} and {alpha}")
        for name, side in sides.items():
            side.restore(state[name])
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the saved state cannot be read: {type(error).__name__}: {error}") from error


class _Judged(NamedTuple):
    detail: str
    missing: str = ""  # why there is no verdict
    finding: Finding | None = None


def _report(
    name: str, outputs: _Side, control: _Side | None, alpha: float, tolerance: float, state: dict[str, Any]
) -> OutputsReport:
    ends = f"{outputs.done - outputs.unchecked_ends:,} of {outputs.done:,} outputs end where they say they must"
    judged = {
        "ids": _Judged(f"{outputs.done:,} requests", "" if outputs.done else "no request"),
        "stop": _Judged(ends, "no limit and EOS, or nothing to check" if outputs.unchecked_ends == outputs.done else ""),
    }
    if outputs.greedy.tokens:
        judged["greedy"] = _greedy(outputs.greedy, None if control is None else control.greedy, alpha / 2, tolerance)
    if outputs.process.tokens or outputs.same_seed:
        judged["sampling"] = _sampling(outputs, control)
    for stage in ("ids", "stop"):
        if stage in outputs.found:
            judged[stage] = judged[stage]._replace(finding=_finding(stage, outputs.found[stage]))
    stages, findings = [], []
    for stage, (detail, missing, finding) in judged.items():
        findings += [finding] if finding else []
        optional = stage == "stop"  # that a log does not say how it was to end leaves its tokens to be judged
        outcome: Literal["passed", "failed", "not run"]
        outcome = "failed" if finding else "not run" if missing and not optional else "passed"
        stages.append(Stage(stage, outcome, finding.statement if finding else missing or detail))
    if len(judged) == 2:
        stages.append(Stage("law", "not run", "no token to compare with the reference"))
    blind = (*BLIND, "requests that were left out of the log, and seeds shared between its requests")
    tokens = outputs.process.tokens + outputs.greedy.tokens
    return OutputsReport(name, None, tuple(stages), worst_first(findings), alpha, tokens, blind, state)


def _finding(stage: str, texts: list[str]) -> Finding:
    symptom, statement, counterexample = texts
    return Finding(cast(Symptom, symptom), statement, counterexample, stage=stage)


def _greedy(seen: _Greedy, control: _Greedy | None, alpha: float, tolerance: float) -> _Judged:
    """Regrets against those of the control: do more outputs have one (Fisher's exact test), is the largest too large?

    The second supposes that the tail of what numerics do falls as fast as an exponential law's: n regrets that sum to S, of an
    unknown scale, then leave a new one above x with probability (1 + x / S)^-n. Each test has half of alpha.
    """
    beyond = f" beyond {tolerance:g}" * (tolerance > 0)
    said = f"{seen.off:,} of {seen.tokens:,} tokens with a regret{beyond}, in {seen.positive:,} of {seen.outputs:,} outputs, "
    said += f"the worst {seen.worst:.3g} nats"
    finding = Finding("law", f"greedy output is not the reference's: {said}", seen.where, stage="greedy")
    if not seen.positive:
        return _Judged(said)
    if control is None:
        hint = "; the engine's plain AR outputs as a control would tell its numerics"
        return _Judged(said, finding=replace(finding, statement=finding.statement + hint))
    if not control.tokens:
        return _Judged(said, f"{said}; the control has no greedy tokens")
    said += f"; control {control.positive:,} of {control.outputs:,}, the worst {control.worst:.3g}"
    if control.impossible or control.off > _MISMATCH * control.tokens:
        return _Judged(said, f"the reference does not match the engine's own AR decoding: {said}")
    from scipy.stats import hypergeom

    both = seen.positive + control.positive
    rate = float(hypergeom.sf(seen.positive - 1, seen.outputs + control.outputs, both, seen.outputs))
    size = 1.0
    if control.positive:
        size = min(1.0, seen.positive * (1 + seen.worst / control.total) ** -control.positive)
    said += f"; odds of so many {rate:.2g}, of so large a one {size:.2g}"
    if seen.impossible or min(rate, size) < alpha / 2:
        return _Judged(said, finding=replace(finding, statement=f"greedy output is not the reference's: {said}"))
    if not control.positive:
        return _Judged(said, f"{said}; no regret in the control tells how large the engine's noise is: give a longer one")
    return _Judged(said)


def _sampling(outputs: _Side, control: _Side | None) -> _Judged:
    process, other = outputs.process, None if control is None else control.process
    said = bets(process)
    if outputs.same_seed:
        return _Judged(said, f"{outputs.same_seed}: no independent samples")
    if other is not None and other.rejected:
        return _Judged(said, f"the reference does not match the engine's own AR decoding: in the control, {rejection(other)}")
    if process.rejected:
        finding = _finding("sampling", outputs.found["sampling"])
        if other is None:
            hint = "; the engine's plain AR outputs as a control would tell its numerics"
            return _Judged(said, finding=replace(finding, statement=finding.statement + hint))
        if other.tokens < process.tokens:
            needed = (
                f"the control has {other.tokens:,} sampled tokens, {process.tokens:,} are needed to tell numerics from sampling"
            )
            return _Judged(said, f"{finding.statement}; but {needed}")
        return _Judged(said, finding=finding)
    if other is not None:
        said += f"; control: e-value {math.exp(other.log_e):.2g} after {other.tokens:,}"
    return _Judged(said, too_little(process))


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1; blank ones are skipped."""
    iterator, number = iter(lines), 0
    while True:
        number += 1
        try:
            line = next(iterator, None)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"line {number} is no UTF-8 text") from error
        if line is None:
            return
        if not line.isspace():
            yield number, line.rstrip("\r\n")


def _chained(digest: str, line: str) -> str:
    return hashlib.sha256(f"{digest}\n{line}".encode(errors="surrogatepass")).hexdigest()


def _logged(line: str, vocabulary: int | None) -> Logged:
    _expect(len(line) <= _LONGEST_LINE, f"longer than {_LONGEST_LINE:,} characters")
    record = json.loads(line)
    _expect(isinstance(record, dict), "expected an object, { .. }")
    for name, neutral in _NEUTRAL.items():
        value = record.get(name)
        _expect(
            value is None or value in neutral, f"{name} = {_short(value)} changes the law; it must be {neutral[0]} or missing"
        )
    prompt, output = _ids(record["prompt"], "prompt"), _ids(record["output"], "output")
    if vocabulary is not None:
        alien = next((token for token in prompt if token >= vocabulary), None)
        _expect(alien is None, f"the prompt's id {alien} is outside the reference's vocabulary 0 .. {vocabulary - 1}")
    top_k = record.get("top_k")
    if top_k is not None:
        _expect(type(top_k) is int and -1 <= top_k < _LARGEST, f"top_k must be an integer >= -1, got {_short(top_k)}")
    kept = top_k if top_k and top_k > 0 else None
    temperature = _number(record, "temperature", None)
    sampled = record.get("do_sample")
    _expect(
        sampled is None or sampled is (temperature > 0),
        f"do_sample = {_short(sampled)} contradicts temperature = {temperature:g}; greedy decoding is temperature 0",
    )
    processing = Processing(temperature, kept, _number(record, "top_p", 1), _number(record, "min_p", 0))
    most = record.get("max_new_tokens")
    _expect(most is None or (type(most) is int and 0 <= most < _LARGEST), f"max_new_tokens must be >= 0, got {_short(most)}")
    eos = record.get("eos")
    ends = [] if eos is None else _ids([eos] if type(eos) is int else eos, "eos")
    markers = record.get("stop") or []
    _expect(isinstance(markers, list), "stop must be a list of lists of ids")
    limits = Limits.of(_LARGEST if most is None else most, ends, [_ids(marker, "stop") for marker in markers])
    seed = record.get("seed")
    _expect(seed is None or type(seed) is int, f"the seed must be an integer, got {_short(seed)}")
    return Logged(prompt, output, processing, limits, most is not None and eos is not None, seed)


def _ids(value: Any, name: str) -> Tokens:
    good = isinstance(value, list) and all(type(item) is int and 0 <= item < _LARGEST for item in value)
    _expect(good, f"{name} must be a list of ids in 0 .. 2^53 - 1, got {_short(value)}")
    return tuple(value)


def _number(record: dict[str, Any], name: str, default: float | None) -> float:
    value: Any = record[name] if default is None else record.get(name)
    if value is None and default is not None:
        return default
    good = type(value) in (int, float) and -_LARGEST < value < _LARGEST  # not NaN either
    _expect(good, f"{name} must be a number, got {_short(value)}")
    return float(value)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
