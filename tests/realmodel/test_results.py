"""The folder of finished cells: what it gives back, what it notices, and that a file appears whole."""

import json
import os

import pytest

from realmodel.results import Damaged, Results, digest
from simulator import InvalidInput

PARAMETERS = {"model": "m", "prompt_ids": (1, 2), "seed": 0}
RECORDS = [["p", 0, [1, 2, None], 0.1 + 0.2], ["p", 1, [], 1e-9]]


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "new" / "folder")


def test_what_was_written_comes_back(results):
    assert results.read(PARAMETERS) is None
    results.write(PARAMETERS, RECORDS)
    assert results.read(PARAMETERS) == RECORDS  # floats to the last bit
    assert [file.name for file in results.path.iterdir()] == [results.file(PARAMETERS).name]
    results.write(PARAMETERS, RECORDS[:1])
    assert results.read(dict(reversed(PARAMETERS.items()))) == RECORDS[:1]


def test_every_parameter_names_another_file(results):
    results.write(PARAMETERS, RECORDS)
    for name in PARAMETERS:
        assert results.read(PARAMETERS | {name: "other"}) is None
    assert digest({"a": 1}) != digest({"a": "1"})


def damage(file, how):
    content = json.loads(file.read_text())
    if how == "cut short":
        file.write_bytes(file.read_bytes()[:-20])
    elif how == "empty":
        file.write_text("")
    elif how == "not text":
        file.write_bytes(b"\xff\xfe\x00")
    elif how == "other JSON":
        file.write_text("[1, 2]")
    elif how == "nested":
        file.write_text("[" * 100_000)
    elif how == "no number":
        file.write_text('{"parameters": {}, "records": [NaN], "sha256": ""}')
    elif how == "no list":
        content = {"parameters": PARAMETERS, "records": 7}
        file.write_text(json.dumps(content | {"sha256": digest(list(content.values()))}))
    else:
        content[how] = {"records": RECORDS[:1], "parameters": PARAMETERS | {"seed": 1}, "sha256": "0" * 64}[how]
        file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "how",
    [
        *("cut short", "empty", "not text", "other JSON", "nested", "no number", "no list"),
        *("records", "parameters", "sha256"),
    ],
)
def test_damage_is_noticed(results, how):
    results.write(PARAMETERS, RECORDS)
    damage(results.file(PARAMETERS), how)
    with pytest.raises(Damaged):
        results.read(PARAMETERS)


def test_a_file_under_another_name_is_no_result(results):
    results.write(PARAMETERS, RECORDS)
    other = PARAMETERS | {"seed": 7}
    os.rename(results.file(PARAMETERS), results.file(other))
    with pytest.raises(Damaged, match="other parameters"):
        results.read(other)


def test_a_write_that_fails_leaves_the_old_file(results, monkeypatch):
    results.write(PARAMETERS, RECORDS)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InvalidInput, match="No space left"):
        results.write(PARAMETERS, [])
    assert results.read(PARAMETERS) == RECORDS
    assert len(list(results.path.iterdir())) == 1


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot keep results"):
        Results(tmp_path / "file")
    with pytest.raises(InvalidInput, match="cannot keep results"):
        Results(tmp_path / "file" / "below")
