"""The kill matrix of the model layer: every planted binding and harness is called, by a symptom it must show; controls pass."""

from typing import get_args

import pytest

from proofs_check.faults.matrix import exit_code, lines
from proofs_check.faults.table import Checker
from proofs_check.findings import Symptom
from realmodel.faults import binding, harness
from realmodel.faults.matrix import CHECKERS, certificate_of, kill_matrix, run_member
from realmodel.faults.table import ROWS, Subject
from simulator import InvalidInput, packed, quadratic

MEMBERS = [(identifier, index) for identifier, row in ROWS.items() for index in range(len(row.members))]
QUICK = [("F26", 3), ("F27", 0), ("F28", 0), ("F29", 4), ("F30", 0), ("F31", 0), ("F34", 0), ("F34", 2), ("F35", 0), ("C10", 3)]

ANY_ORDER = {pair: ROWS[pair[0]].members[pair[1]].name for pair in MEMBERS}
ANY_ORDER = [pair for pair, name in ANY_ORDER.items() if name.startswith("any-order")]
QUICK += [pair for pair in ANY_ORDER if pair[0] in ("F26", "F27", "F31", "F34", "F41")]
QUICK += [pair for pair in ANY_ORDER if pair[0] in ("F28", "F29", "C10")][::3]


def judge(identifier, index):
    result = run_member(identifier, index)
    row = ROWS[identifier]
    assert result.right, "\n".join(lines([result]))
    if not row.control:
        assert result.first.stage in row.stages
        assert len(result.first.statement) > 30
    return result


def test_the_table():
    assert set(ROWS) == {"F26", "F27", "F28", "F29", "F30", "F31", "F33", "F34", "F35", "F41", "C10"}
    assert set(CHECKERS) <= set(get_args(Checker))
    for row in ROWS.values():
        assert row.layer == "M"
        assert set(row.symptoms) <= set(get_args(Symptom))
        assert len({member.name for member in row.members}) == len(row.members)
        assert row.control == (row.id == "C10") == (not row.stages)


@pytest.mark.parametrize(("identifier", "index"), QUICK, ids=lambda value: str(value))
def test_one_of_each_kind(identifier, index):
    judge(identifier, index)


@pytest.mark.parametrize("index", range(3))
def test_harnesses(index):
    """F33; and the production harness passes the audit."""
    assert judge("F33", index).first.stage == ROWS["F33"].stages[index]
    assert harness.audit_harness(harness.ours(), "ours").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("identifier", "index"), [pair for pair in MEMBERS if pair not in QUICK and pair[0] != "F33"])
def test_every_member(identifier, index):
    judge(identifier, index)


@pytest.mark.slow
def test_the_matrix_in_processes_and_as_text():
    results = list(kill_matrix(["F31", "F33", "C10"], workers=2))
    assert exit_code(results) == 0
    text = list(lines(results))
    assert text[-2].startswith("6 of 6 faults of 2 kinds killed")
    assert text[-1] == "6 of 6 controls of 1 kinds pass"


def test_an_unknown_row_is_refused():
    with pytest.raises(InvalidInput, match="allowed: F26"):
        list(kill_matrix(["F01"]))


@pytest.mark.parametrize("schedule", [packed(4), quadratic(4)], ids=["packed", "quadratic"])
def test_a_faint_stale_row_is_conformances_alone_to_call(schedule):
    """In bfloat16 nothing is to be seen of it."""
    found = certificate_of(Subject(binding.StaleRow, schedule, "bfloat16"))
    assert found.verdict == "FAULT"
    assert found.layer("numerics").verdict in ("EXACT", "TIES")
    assert found.layer("rule").verdict == "EXACT"
    assert [finding.stage for finding in found.findings] == ["cache"]
