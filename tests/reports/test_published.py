"""The committed evidence: it can be read, it is about this code, and its key figures come out again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proofs_check.beyond import BEYOND
from reports import cli
from reports.output import SCHEMA
from reports.report.gather import gather
from simulator import Limits, generate, named
from simulator.any_order import named as any_order
from spec.claims import CLAIMS

PUBLISHED = Path(cli.__file__).parent / "published"


def rows(name: str) -> list[dict[str, Any]]:
    content = json.loads((PUBLISHED / f"{name}.json").read_text())
    assert content["schema"] == SCHEMA
    found: list[dict[str, Any]] = content["rows"]
    return found


def test_every_file_can_be_shown() -> None:
    gathered = gather(PUBLISHED)
    assert gathered.skipped == ()
    commands = {result.command for result in gathered.results}
    assert commands >= {"prove", "faults", "simulate", "validate", "audit", "subjects"}
    page = (PUBLISHED / "report.html").read_text()
    for result in gathered.results:
        if result.command != "subjects":
            assert result.file in page
        assert not any(word in json.dumps(result.environment) for word in ("/root", "/home", "/work"))


def test_the_ledger_is_of_todays_claims_and_holds() -> None:
    found = {row["id"]: row["verdict"] for row in rows("prove")}
    assert set(found.values()) == {"holds"}
    assert set(found) >= {id for id, claim in (CLAIMS | BEYOND).items() if claim.kind in "CB"}


def test_every_fault_was_killed_and_every_control_passed() -> None:
    for name in ("faults", "faults-model"):
        assert all(row["right"] for row in rows(name))


def test_the_simulated_figures_come_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "again.json"
    replay = json.loads((PUBLISHED / "simulate.json").read_text())["replay"].split()
    replay[replay.index("--json") + 1] = str(file)
    monkeypatch.setattr("sys.argv", replay)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert json.loads(file.read_text())["rows"] == rows("simulate")


def test_runs_of_the_embedded_model_come_out_again() -> None:
    from realmodel import held_out_prompts, load

    model, [prompt], [found] = load("embedded"), held_out_prompts(1), rows("validate-embedded")
    ids = tuple(model.tokenizer.encode(prompt.text).ids)
    limits = Limits.of(found["parameters"]["max_new_tokens"], found["parameters"]["eos"])
    runs = [run for run in found["runs"] if run["prompt"] == prompt.name and run["schedule"] in ("linear", "packed")]
    assert {(run["schedule"], run["width"]) for run in runs} == {(s, w) for s in ("linear", "packed") for w in (4, 8)}
    for run in runs:
        again = generate(model.session(), named(run["schedule"], run["width"]), ids, limits)
        assert (list(again.tokens), again.nfe, again.stop) == (run["tokens"], run["nfe"], run["stop"])


def test_runs_of_the_embedded_any_order_model_come_out_again() -> None:
    from realmodel import held_out_prompts
    from realmodel.any_order.loading import load_any_order

    model, [prompt] = load_any_order("embedded-any-order"), held_out_prompts(1)
    ids = tuple(model.tokenizer.encode(prompt.text).ids)
    for found in rows("validate-any-order"):
        limits = Limits.of(found["parameters"]["max_new_tokens"], found["parameters"]["eos"])
        name = f"packed {found['order']}"
        [run] = [r for r in found["runs"] if (r["prompt"], r["schedule"], r["width"]) == (prompt.name, name, 8)]
        again = generate(model.session(), any_order("packed", 8, found["order"]), ids, limits)
        assert (list(again.tokens), again.nfe) == (run["tokens"], run["nfe"])


def test_smollm2_was_exact() -> None:
    [found] = rows("validate-smollm2")
    assert found["verdict"] == "EXACT"
    assert len({run["prompt"] for run in found["runs"]}) == 20
