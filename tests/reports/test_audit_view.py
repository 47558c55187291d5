"""What an audit looks like in the terminal: every cell in its place, and the figures that were counted."""

from __future__ import annotations

import doctest

import pytest

from reports import audit_view
from simulator.oracles.empirical import Recording, Recordings


def test_the_map_shows_every_cell() -> None:
    assert doctest.testmod(audit_view).attempted == 1
    assert doctest.testmod(audit_view).failed == 0
    rows = [[(c + j) % 3 != 0 for j in range(min(2, 70 - c))] for c in range(70)]
    lines = list(audit_view.heat_map(rows, 2))
    assert len(lines) == 8  # 64 positions, then 6
    for k in range(1, 71):
        for offset in (1, 2):
            line = lines[(k > 64) * 4 + 1 + offset]
            shown = line[5 + (k - 1) % 64 : 6 + (k - 1) % 64]
            assert shown.strip() == "" if offset > k else (shown == "█") == rows[k - offset][offset - 1]


def test_bands_are_shares() -> None:
    lines = list(audit_view.bands([[(1, 0), (1, 1), (0,)], [(0, 0), (0,)]], 2, size=2))
    assert lines[1].split() == ["context", "+1", "+2"]
    assert lines[2].split() == ["0-1", "50▒", "33░"]
    assert lines[3].split() == ["2-3", "0"]


def test_replay_stands_beside_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tuple(Recording(name, ((0,),), (0,), {"packed": calls}) for name, calls in (("a", 1), ("b", 2)))
    recordings, simulated = Recordings("m", "float32", 1, "algorithm", prompts), [{"packed": 1, "ar": 1}] * 2
    for start, packed in (("algorithm", ["3", "1"]), ("sampled", ["not measured", ""])):
        audit_view.print_replay(recordings, simulated, start)
        lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        assert cells == [["packed", "2", "2", *packed], ["ar", "2", "2", "not measured", ""]]


def test_a_whole_audit_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from realmodel.audit import Audit, PromptAudit, RunComparison
    from realmodel.monotonicity import MeasuredRuns, Share, bounds

    rows, wide = ((0, 1), (1, 0), (1,)), (1, 0, 1)
    runs = (
        RunComparison("linear", 5, 4, Share(1, 4), "TIE", "so close"),
        RunComparison("packed", 3, 3, Share(0, 4), "DIFFERENT", "far off"),
    )
    told = bounds(MeasuredRuns(rows, 2, "algorithm", wide))
    prompt = PromptAudit("p[0]", (9,), (7, 7, 7), rows, wide, 0, 1e-5, 2, Share(0, 5), runs, told)
    audit_view.print_audit(Audit("m", "float32", "cpu", "float64", 2, "algorithm", (prompt,)))
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "m, float32 on cpu, W = 2, start 'algorithm': 1 prompts, 3 tokens of greedy path",
        "p[0], the position k drafted from",
        "+1 2/3 (66.7%) +2 1/2 (50.0%)",
        "ASM3.1 fails at 0/2 (0.0%) positions",
        "2 of 5 cells lie within twice",
        "THM3.2 held on 1/1 matrices, on the model 1/1",
        "TIE: linear on p[0]: so close",
        "FAULT: p[0], packed: far off",
    ):
        assert words in text, (words, text)
