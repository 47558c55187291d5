"""The golden numbers, from the production scheduler: exact E[NFE] under sampling, NFE sums over all threshold vectors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from simulator import Limits, autoregressive_law, exact_law, generate, named
from simulator.oracles import TabularModel, ThresholdModel

GOLDEN = Path(__file__).parents[1] / "golden"
ROWS = json.loads((GOLDEN / "expected_nfe.json").read_text())["rows"]
SUMS = json.loads((GOLDEN / "threshold_sums.json").read_text())["rows"]


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['schedule']}-{r['start']}-V{r['V']}-L{r['L']}-W{r['W']}-eos{r['eos']}")
def test_expected_nfe_and_the_output_law(row: dict[str, Any], table_model: Callable[[int], TabularModel]) -> None:
    """E[NFE] is the golden rational and the output law is the autoregressive one, without a tolerance."""
    model, limits = table_model(row["V"]), Limits.of(row["L"], row["eos"])
    law = exact_law(named(row["schedule"], row["W"], row["start"]), model, (), limits)
    assert law.expected_nfe == Fraction(row["expected_nfe"])
    assert law.output == autoregressive_law(model.target, (), limits)
    assert sum(law.nfe.values()) == 1


@pytest.mark.claim("EQ5")
@pytest.mark.parametrize("row", SUMS, ids=lambda row: f"L{row['L']}-W{row['W']}")
def test_threshold_sums(row: dict[str, int]) -> None:
    """NFE summed over every vector c*_1 .. c*_L, and how often Packed-SS and Linear-SS tie; it never loses (EQ5)."""
    length, limits = row["L"], Limits.of(row["L"])
    schedules = {name: named(name, row["W"]) for name in ("linear", "packed", "quadratic")}
    sums = dict.fromkeys(schedules, 0)
    instances = ties = 0
    for thresholds in itertools.product(*(range(k + 1) for k in range(1, length + 1))):
        model = ThresholdModel(thresholds)
        nfe = {name: generate(model, schedule, (), limits).nfe for name, schedule in schedules.items()}
        for name, calls in nfe.items():
            sums[name] += calls
        instances += 1
        ties += nfe["packed"] == nfe["linear"]
        assert nfe["packed"] <= nfe["linear"]
    assert {f"nfe_{name}": calls for name, calls in sums.items()} == {key: row[key] for key in row if key.startswith("nfe_")}
    assert (instances, ties) == (row["instances"], row["packed_equals_linear"])


def test_no_golden_row_is_missing() -> None:
    assert len(ROWS) == 60
    assert {row["start"] for row in ROWS if row["schedule"] == "packed"} == {"algorithm", "wide", "sampled", "prompt"}
    assert [(row["L"], row["W"]) for row in SUMS] == list(itertools.product(range(1, 7), range(1, 5)))
