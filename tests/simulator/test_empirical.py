"""A measured drafter is replayed cell by cell, resampled in whole rows, and its file is trusted in nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator import InvalidInput, Limits, branches, generate, linear, packed, quadratic
from simulator.oracles import EmpiricalModel, MatrixModel
from simulator.oracles.empirical import Recording, Recordings, load_audits, replay, replay_nfe, resample
from simulator.simulate import count_calls

W = 3


def recording(length: int, seed: int) -> Recording:
    cells = np.random.default_rng(seed).integers(0, 2, (length + 1, W + 1)).tolist()
    rows = tuple(tuple(cells[c][: min(W, length - c)]) for c in range(length))
    return Recording(f"prompt {seed}", rows, tuple(cells[length][: min(W + 1, length)]), {"packed": 7})


RECORDINGS = Recordings("m", "float32", W, "algorithm", (recording(12, 0), recording(20, 1), recording(2, 2)))


def text(cells: Any) -> str:
    return "".join(map(str, cells))


def content() -> dict[str, Any]:
    prompts = [
        {
            "name": prompt.name,
            "output": [5] * prompt.length,
            "rows": list(map(text, prompt.rows)),
            "wide": text(prompt.wide),
            "measured": dict(prompt.measured),
            "for readers": None,
        }
        for prompt in RECORDINGS.prompts
    ]
    audit = {"model": "m", "dtype": "float32", "width": W, "start": "algorithm", "prompts": prompts}
    return {"packedss": "0", "command": "audit", "arguments": {}, "rows": [audit]}


def written(folder: Path, what: Any) -> Path:
    file = folder / "audit.json"
    file.write_text(what if isinstance(what, str) else json.dumps(what))
    return file


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert load_audits(written(tmp_path, content())) == {W: RECORDINGS}


def test_replay_is_the_matrix_for_every_schedule() -> None:
    schedules = [
        (f"{make.__name__} {start}", make(W, start))
        for make in (linear, packed, quadratic)
        for start in ("algorithm", "sampled", "prompt")
    ]
    schedules.append(("branches", branches((0, 2), W)))
    simulated = replay_nfe(RECORDINGS, schedules)
    for prompt, found in zip(RECORDINGS.prompts, simulated, strict=True):
        for name, schedule in schedules:
            assert found[name] == generate(MatrixModel(prompt.rows), schedule, (), Limits.of(prompt.length)).nfe
    assert len({tuple(found.values()) for found in simulated}) == 3  # the prompts do differ


def test_the_start_wide_begins_with_its_own_draft() -> None:
    """From masks alone 4 tokens are right, from the anchored block none: only `wide` may use the former."""
    rows = [(0,) * min(W, 9 - c) for c in range(9)]
    model = EmpiricalModel(rows, W, (1, 1, 1, 1))
    assert [len(step.committed) for step in generate(model, packed(W, "wide"), (), Limits.of(9)).steps] == [1, 4, 1, 1, 1, 1]
    assert generate(model, packed(W), (), Limits.of(9)).nfe == 9


def test_what_was_not_measured_is_refused() -> None:
    for model in replay(RECORDINGS)[:1]:
        with pytest.raises(InvalidInput, match="W = 3; it cannot stand for W = 2"):
            generate(model, packed(2), (), Limits.of(12))
        with pytest.raises(InvalidInput, match="W = 3; it cannot stand for W = 4"):
            generate(model, packed(4, "wide"), (), Limits.of(12))
        with pytest.raises(InvalidInput, match="measured for 12 tokens"):
            generate(model, packed(W), (), Limits.of(13))


def test_resampled_drafters_are_made_of_measured_rows() -> None:
    models = resample(RECORDINGS, runs=40, length=33, seed=5, block=6)
    assert [model.rows for model in models] == [model.rows for model in resample(RECORDINGS, 40, 33, 5, 6)]
    assert len({model.rows for model in models}) == 40
    measured = {  # every block of 6 complete rows; the third prompt has none
        prompt.rows[begin : begin + 6] for prompt in RECORDINGS.prompts for begin in range(prompt.length - W + 1 - 6 + 1)
    }
    met = {model.rows[begin : begin + 6] for model in models for begin in range(0, 30, 6)}
    assert met == measured  # 17 blocks, 200 draws: one is missed with probability below 1e-4
    assert all(len(model.rows) == 33 and generate(model, packed(W), (), Limits.of(33)).nfe for model in models)
    assert all(model.rows[30:] in {block[:3] for block in measured} for model in models)


def test_blocks_are_as_long_as_the_paths_allow() -> None:
    for prompts, block in ((RECORDINGS.prompts, 12), (RECORDINGS.prompts[:1], 10)):  # 4 W; 10 complete rows
        found = RECORDINGS._replace(prompts=prompts)
        assert [m.rows for m in resample(found, 3, 30, 1)] == [m.rows for m in resample(found, 3, 30, 1, block)]
    with pytest.raises(InvalidInput, match="no prompt has 1 contexts with 3 drafts each, at most 0"):
        resample(RECORDINGS._replace(prompts=RECORDINGS.prompts[2:]), 3, 30, 1)


def test_schedules_can_be_counted_on_them() -> None:
    models = resample(RECORDINGS, runs=5, length=25, seed=0, block=4)
    counts = count_calls([linear(W), packed(W)], models, 25)
    assert [count.tokens for count in counts] == [125, 125]
    assert counts[1].nfe == tuple(generate(MatrixModel(model.rows), packed(W), (), Limits.of(25)).nfe for model in models)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"runs": 0}, "runs must be >= 1"),
        ({"length": 0}, "length must be >= 1"),
        ({"seed": -1}, "seed must be >= 0"),
        ({"block": 0}, "block must be >= 1"),
        ({"block": 19}, "no prompt has 19 contexts with 3 drafts each, at most 18"),
    ],
)
def test_bad_numbers_are_named(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        resample(RECORDINGS, **{"runs": 1, "length": 5, "seed": 0} | numbers)


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    whole = content()
    where: Any = whole
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    return whole


PROMPT = ("rows", 0, "prompts", 1)
BROKEN: dict[str, Any] = {
    "not JSON": "{",
    "deeply nested": "[" * 200_000,
    "a number with too many digits": "9" * 5000,
    "not an object": [],
    "another command's result": changed(("command",), "simulate"),
    "no audit": changed(("rows",), []),
    "rows that are no list": changed(("rows",), {}),
    "two audits of one width": changed(("rows",), content()["rows"] * 2),
    "an audit that is no object": changed(("rows", 0), 3),
    "width 0": changed(("rows", 0, "width"), 0),
    "a huge width": changed(("rows", 0, "width"), 10**3000),
    "width true": changed(("rows", 0, "width"), True),
    "a start unknown": changed(("rows", 0, "start"), ["algorithm"]),
    "no model": changed(("rows", 0, "model"), None),
    "no prompts": changed(("rows", 0, "prompts"), []),
    "a prompt that is no object": changed(PROMPT, "x"),
    "a name that is none": changed((*PROMPT, "name"), 1),
    "no output": changed((*PROMPT, "output"), []),
    "a token that is none": changed((*PROMPT, "output", 0), 1.5),
    "a row missing": changed((*PROMPT, "rows"), content()["rows"][0]["prompts"][1]["rows"][:-1]),
    "a row too short": changed((*PROMPT, "rows", 0), "01"),
    "a row too long at the end": changed((*PROMPT, "rows", 19), "01"),
    "a cell that is none": changed((*PROMPT, "rows", 0), "012"),
    "another script's digits": changed((*PROMPT, "rows", 0), "01\u0661"),
    "wide too long": changed((*PROMPT, "wide"), "11111"),
    "no wide": changed((*PROMPT, "wide"), None),
    "calls below 0": changed((*PROMPT, "measured"), {"packed": -1}),
    "calls that are no number": changed((*PROMPT, "measured"), {"packed": True}),
    "no measured calls": changed((*PROMPT, "measured"), None),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_audits(written(tmp_path, BROKEN[kind]))
    message = str(refused.value)
    assert "audit.json" in message
    assert "\n" not in message
    assert len(message) < 300 + len(str(tmp_path))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        load_audits(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="cannot read"):
        load_audits(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not a JSON file"):
        load_audits(tmp_path / "bytes.json")
