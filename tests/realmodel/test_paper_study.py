"""Figures of a cell: paired, of sums, whole; and what `study.json` refuses. Checks are shown the faults that they catch."""

import json
import math

import numpy as np
import pytest

from realmodel.paper import study
from realmodel.paper.paired import Paired
from realmodel.paper.study import (
    COLUMNS,
    CORRECT,
    NFE,
    TOKENS,
    WALL,
    Cell,
    Evidence,
    Method,
    Reason,
    Study,
    Trajectory,
    arranged,
)
from simulator import InvalidInput

METHODS = (Method("linear", "", 31, "EXACT", 32, 32), Method("packed", "", 31, "TIES", 64, 32))


def response(tokens, nfe, wall, correct=1.0):
    return (tokens, nfe, 32 * nfe, wall, 0.9 * wall, nfe - 1, 0.8 * wall, 64, correct)


def cell(runs, methods=METHODS, **changes):
    """`runs`: [method][prompt][draw] of (tokens, nfe, wall, correct)."""
    array = np.array([[[response(*draw) for draw in prompt] for prompt in method] for method in runs], dtype=float)
    prompts = tuple(f"p{i}" for i in range(array.shape[1]))
    found = Cell("gsm8k", "task", 0.0, 1024, "wide", 1319, True, prompts, methods, array)
    return Cell(**(vars(found) | changes))


# Packed-SS is 0.5 s faster on every prompt, whatever the prompt costs.
CONSTANT = [[[(10, 5, 1.0 + i)] for i in range(8)], [[(10, 4, 0.5 + i)] for i in range(8)]]


def paired_difference(made):
    value = Paired(made).difference(1, 0, WALL)
    assert value.estimate == pytest.approx(-0.5)
    assert (value.low, value.high) == (pytest.approx(-0.5), pytest.approx(-0.5))


def test_methods_are_compared_prompt_by_prompt():
    paired_difference(cell(CONSTANT))


def test_a_swapped_pairing_is_seen():
    made = cell(CONSTANT)
    made.runs[1] = made.runs[1, ::-1].copy()  # the same sums, on other prompts
    with pytest.raises(AssertionError):
        paired_difference(made)


def rate_of_sums(quotient):
    """10 tokens in 1 s and 90 in 3 s are 25 tokens/s; the mean of the rates is 20."""
    made = cell([[[(10, 2, 1.0)], [(90, 9, 3.0)]]], METHODS[:1])
    assert quotient(made) == pytest.approx(25.0)


def test_a_rate_is_one_of_sums():
    rate_of_sums(lambda made: Paired(made).quotient(0, TOKENS, WALL).estimate)


def test_a_mean_of_rates_is_seen():
    with pytest.raises(AssertionError):
        rate_of_sums(lambda made: float((made.runs[0, :, 0, TOKENS] / made.runs[0, :, 0, WALL]).mean()))


def test_ratios_of_aggregates():
    """Throughput is tokens/NFE over time/NFE, of the figures and of their ratios."""
    sums = Paired(cell([[[(10, 4, 2.0)], [(30, 8, 3.0)]], [[(12, 3, 1.0)], [(33, 6, 3.0)]]]))
    per_call, per_second, spent = (sums.ratio(1, 0, a, b).estimate for a, b in ((TOKENS, NFE), (TOKENS, WALL), (WALL, NFE)))
    assert per_call == pytest.approx((45 / 9) / (40 / 12))
    assert per_second == pytest.approx((45 / 4) / (40 / 5))
    assert per_second == pytest.approx(per_call / spent)


def test_all_draws_of_a_prompt_go_together():
    """Draws that differ, prompts that do not: nothing varies between prompts, so the interval is a point."""
    made = cell([[[(10, 5, 1.0, 1.0), (20, 5, 2.0, 0.0)]] * 6] * 2)
    value = Paired(made).mean_interval(0, CORRECT)
    assert (value.estimate, value.low, value.high) == (0.5, 0.5, 0.5)
    assert Paired(made).mean(0, TOKENS) == 15.0


def test_one_prompt_has_no_interval_and_nothing_over_nothing_no_figure():
    sums = Paired(cell([[[(10, 5, 1.0)]], [[(0, 0, 0.0)]]]))
    assert sums.quotient(0, TOKENS, NFE) == (2.0, None, None)
    assert math.isnan(sums.quotient(1, TOKENS, NFE).estimate)


ROWS = [(m, p, d, response(8, 4, 1.0)) for m in range(2) for p in ("p0", "p1") for d in range(3)]


def test_every_response_has_its_place():
    found = arranged(ROWS, 2, ("p0", "p1"), 3)
    assert found.shape == (2, 2, 3, len(COLUMNS))
    assert not np.isnan(found).any()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS[:-1], "method 1 has 0 responses to 'p1', draw 2"),
        ([*ROWS, ROWS[0]], "method 0 has 2 responses to 'p0', draw 0"),
        ([*ROWS[:-1], (1, "p1", 3, ROWS[0][3])], "draw 3, belongs to no prompt"),
        ([*ROWS, (0, "p2", 0, ROWS[0][3])], "'p2', draw 0, belongs to no prompt"),
    ],
)
def test_a_missing_or_doubled_draw_is_refused(rows, said):
    with pytest.raises(InvalidInput, match=said):
        arranged(rows, 2, ("p0", "p1"), 3)


def whole(**changes):
    made = cell(
        CONSTANT,
        trajectories=(Trajectory(1, 0, 8, 2, 2, 1, 1, ("p1, output token 3",), 0),),
        reasons=(Reason(1, "stopped after 10 s", 3),),
        evidence=(Evidence(0, (("rule", "EXACT", "W = 3"),), ("flagged: nothing was rejected",)),),
    )
    made.runs[0, 0, 0, CORRECT] = math.nan
    found = Study("m", "bfloat16", "cuda:0", "a GPU", False, False, 7, {"torch": "2"}, (made,))
    return Study(**(vars(found) | changes))


def test_a_study_comes_back_as_it_was(tmp_path):
    study.write(whole(), tmp_path)
    again = study.read(tmp_path)
    assert again.plain() == whole().plain()
    assert again.cells[0].methods == METHODS
    assert np.isnan(again.cells[0].runs[0, 0, 0, CORRECT])
    assert [file.name for file in tmp_path.iterdir()] == [study.FILE]


def damaged(how):
    content = json.loads(json.dumps(whole().plain()))
    made = content["cells"][0]
    if how == "schema":
        content["schema"] = 99
    elif how == "model":
        content["model"] = {"$": 1}
    elif how == "runs":
        made["runs"] = made["runs"][:1]
    elif how == "negative":
        made["runs"][0][0][0][0] = -1
    elif how == "no count":
        made["runs"][0][0][0][1] = None
    elif how == "grade":
        made["runs"][0][1][0][CORRECT] = 7
    elif how == "trajectory":
        made["trajectories"][0][0] = 5
    elif how == "evidence":
        made["evidence"][0][1] = [["rule", "EXACT"]]
    elif how == "no time":
        made["runs"][0][0][0][3] = None
    elif how == "infinite":
        made["runs"][0][0][0][3] = math.inf
    elif how == "huge":
        made["runs"][0][0][0][0] = 10**400
    elif how == "temperature":
        made["temperature"] = 10**400
    elif how == "no temperature":
        made["temperature"] = math.nan
    elif how == "verdict":
        made["methods"][0][3] = "fault"  # would neither show figures nor fail the run
    elif how == "method twice":
        made["methods"][1] = made["methods"][0]
    elif how == "prompt twice":
        made["prompts"][1] = made["prompts"][0]
    elif how == "no cell":
        content["cells"] = []
    elif how == "text":
        made["runs"][0][0][0][0] = "<b>"
    else:
        del content["cells"]
    return json.dumps(content)


@pytest.mark.parametrize(
    "how",
    [
        *("schema", "model", "runs", "negative", "no count", "no time", "infinite", "huge", "grade", "temperature"),
        *("no temperature", "verdict", "method twice", "prompt twice", "trajectory", "evidence", "text", "no cell", "cells"),
    ],
)
def test_a_damaged_study_is_refused_in_one_line(tmp_path, how):
    (tmp_path / study.FILE).write_text(damaged(how))
    with pytest.raises(InvalidInput, match="is damaged") as caught:
        study.read(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_what_is_no_study_is_refused(tmp_path, text):
    (tmp_path / study.FILE).write_text(text)
    with pytest.raises(InvalidInput, match=r"cannot be read|is damaged"):
        study.read(tmp_path)


def test_a_folder_without_a_study(tmp_path):
    with pytest.raises(InvalidInput, match=r"has no study\.json"):
        study.read(tmp_path)
