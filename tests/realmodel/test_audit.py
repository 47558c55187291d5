"""The audit draws the drafter as it is, the schedules do on its matrix what they do on the model, and a fault shows."""

import itertools
import json

import numpy as np
import pytest
import torch

from proofs_check import joint
from realmodel import audit as auditing
from realmodel.audit import audit, first_draft, path_drafts
from realmodel.monotonicity import MeasuredRuns, Share, bounds, reaches, statistics, thresholds
from realmodel.parity import draft_logits
from realmodel.reference import causal_logits, greedy_reference
from simulator import InvalidInput, Limits, ar, branches, linear, packed, quadratic
from simulator.oracles import ThresholdModel, random_lags
from simulator.oracles.empirical import load_audits, replay_nfe

W = 6


@pytest.fixture(scope="module")
def named_prompts(prompts):
    return [(f"prompt {index}", prompts[index]) for index in (3, 10)]  # both break Assumption 3.1


@pytest.fixture(scope="module")
def run_audit(load_model, model64, named_prompts):
    def run(start="algorithm", count=2, length=24, schedules=None):
        schedules = schedules or [ar(), linear(W, start), packed(W, start), quadratic(W, start), branches((0, 3), W, start)]
        return audit(load_model("float32"), model64, named_prompts[:count], schedules, Limits.of(length), W, start, sample=3)

    return run


@pytest.fixture(scope="module")
def audited(run_audit):
    return run_audit()


@pytest.mark.claim("LAYD1")
@pytest.mark.parametrize("rows", [512, 40])
def test_every_context_is_drafted_as_by_a_separate_forward(model64, prompts, monkeypatch, rows):
    """Float64: same tokens, and margins to 1e-10, whether the path fits one forward or takes several."""
    monkeypatch.setattr(auditing, "_BLOCK_ROWS", rows)
    output = greedy_reference(model64, prompts[3], Limits.of(20))
    drafts = path_drafts(model64, prompts[3], output, W)
    assert drafts.targets == output
    assert [len(row) for row in drafts.tokens] == [min(W, 20 - c) for c in range(20)]
    for c in (0, 1, 5, 6, 13, 19):
        check(drafts.tokens[c], drafts.margins[c], draft_logits(model64, prompts[3] + output[:c], W), output[c:], model64)
    wide = first_draft(model64, prompts[3], output, W)
    check(wide.tokens[0], wide.margins[0], draft_logits(model64, prompts[3], W + 1, anchored=False), output, model64)
    assert wide.targets == output[:1]


def check(tokens, margins, logits, following, model):
    logits = logits.clone()
    logits[:, model.mask_token] = -torch.inf
    assert tokens == tuple(logits.argmax(-1).tolist())[: len(following)]
    for row, right, margin in zip(logits, following, margins, strict=False):
        others = torch.cat([row[:right], row[right + 1 :]])
        assert abs(margin - (row[right] - others.max()).item()) < 1e-10


@pytest.mark.claim("PAD")
def test_the_mask_is_never_drafted(model64):
    logits = torch.zeros(2, model64.vocabulary, dtype=torch.float64)
    logits[:, model64.mask_token] = 9.0
    logits[:, 7] = 1.0
    assert auditing._judged(model64, logits, [(7, 8)], 2) == ([(7, 7)], [(1.0, -1.0)])


@pytest.mark.claim("THM3.2")
@pytest.mark.parametrize("start", ["algorithm", "wide", "sampled"])
def test_the_matrix_explains_every_call_on_the_model(run_audit, audited, start):
    """Measured on the embedded model; it does break Assumption 3.1."""
    found = audited if start == "algorithm" else run_audit(start, count=1, schedules=[quadratic(W, start)])
    for prompt in found.prompts:
        for run in prompt.runs:
            assert (run.verdict, run.note, run.measured) == ("EQUAL", "", run.simulated)
            assert (run.drafted.count, run.drafted.total > 0) == (0, run.schedule != "ar")
        calls = {run.schedule: run.measured for run in prompt.runs}
        assert (calls["linear"], calls["packed"]) == (prompt.bounds.linear, prompt.bounds.packed)
        assert prompt.flips.count == prompt.target_flips == 0 < prompt.flips.total
        assert 0 < prompt.noise < 1e-3
        assert prompt.bounds.slack >= 0
        assert prompt.bounds.slack_2d >= 0
    assert found.faults == []
    assert found.held == found.held_on_model == Share(len(found.prompts), len(found.prompts))
    assert found.statistics.non_monotone.count > 0


def test_replay_from_the_file_needs_the_measured_calls(audited, tmp_path):
    file = tmp_path / "audit.json"
    file.write_text(json.dumps({"command": "audit", "rows": [audited.plain()]}, allow_nan=False))
    recordings = load_audits(file)[W]
    assert (recordings.model, recordings.dtype, recordings.start) == ("embedded", "float32", "algorithm")
    schedules = [(s.name, s) for s in (ar(), linear(W), packed(W), quadratic(W), branches((0, 3), W))]
    for prompt, simulated, source in zip(recordings.prompts, replay_nfe(recordings, schedules), audited.prompts, strict=True):
        assert (prompt.rows, prompt.wide) == (source.rows, source.wide)
        assert simulated == prompt.measured
        assert len(set(simulated.values())) >= 3


def lying(c, k, margin):
    """path_drafts, but with the cell (c, k) turned and its margin another."""

    def lie(model, prompt, output, width):
        drafts = path_drafts(model, prompt, output, width)
        tokens, margins = list(map(list, drafts.tokens)), list(map(list, drafts.margins))
        right = tokens[c][k - c - 1] == output[k - 1]
        tokens[c][k - c - 1] = (output[k - 1] + right) % model.vocabulary
        margins[c][k - c - 1] = margin
        return drafts._replace(tokens=tuple(map(tuple, tokens)), margins=tuple(map(tuple, margins)))

    return lie


def test_a_wrong_cell_is_found_unless_it_is_a_tie(run_audit, audited, monkeypatch):
    noise = audited.prompts[0].noise
    for margin, verdict in ((1.0, "DIFFERENT"), (1.5 * noise, "TIE"), (-2.5 * noise, "DIFFERENT")):
        monkeypatch.setattr(auditing, "path_drafts", lying(0, 2, margin))
        found = run_audit(count=1, schedules=[packed(W)])
        runs = {run.schedule: run for run in found.prompts[0].runs}
        assert runs["packed"].verdict == verdict
        for run in runs.values():
            assert "position 2 from context 0 is drafted otherwise" in run.note
            assert run.drafted.count == 1
            assert (run.verdict == "DIFFERENT") == (verdict == "DIFFERENT")
        assert len(found.faults) == 2 * (verdict == "DIFFERENT")
        near = found.prompts[0].near_ties - audited.prompts[0].near_ties
        assert near == (verdict == "TIE")


def test_a_run_that_drafts_from_a_stale_context_is_found(run_audit, monkeypatch):
    """A planted fault of the model binding: drafting blocks see one token less than they should, verifier rows all of them."""
    laid_out = auditing.DualModeModel.session

    def session(self, temperature=0.0, padded=None):
        stale = laid_out(self, temperature, padded)
        if padded is False:  # the audit's own drafts
            return stale
        answer = stale.logits

        def logits(call):
            rows, found = answer(call)
            if not call.branches or len(call.prefix) < 2 or 0 not in call.branches:
                return rows, found
            late = laid_out(self, temperature, padded).logits(call._replace(prefix=call.prefix[:-1], draft=(), verify=False))
            found = found.clone()
            found[len(rows.verifier) : len(rows.verifier) + call.width] = late[1][: call.width]
            return rows, found

        stale.logits = logits
        return stale

    monkeypatch.setattr(auditing.DualModeModel, "session", session)
    found = run_audit(count=1, schedules=[packed(W)])
    assert {run.verdict for run in found.prompts[0].runs} == {"DIFFERENT"}
    assert all(run.drafted.count > 0 for run in found.prompts[0].runs)


def test_a_schedule_that_makes_other_calls_is_found(run_audit, monkeypatch):
    """The matrix is asked about another schedule than the model: every draft agrees, the calls do not."""
    real = auditing.generate

    def generate(model, schedule, prompt, limits):
        return real(model, linear(W) if not prompt else schedule, prompt, limits)

    monkeypatch.setattr(auditing, "generate", generate)
    (run, other) = run_audit(count=1, schedules=[packed(W)]).prompts[0].runs[::-1]
    assert (run.verdict, run.note) == ("EQUAL", "")
    assert (other.verdict, other.note) == ("DIFFERENT", "other calls than on the matrix, though every draft is as there")


@pytest.mark.parametrize("tie", [False, True])
def test_a_run_that_leaves_the_path_is_told_from_a_tie(run_audit, monkeypatch, load_model, named_prompts, tie):
    """The path gets the runner-up at position 5; the drafts up to there are compared all the same."""
    _, prompt = named_prompts[0]
    model = load_model("float32")
    output = greedy_reference(model, prompt, Limits.of(4))
    following = causal_logits(model, prompt + output)[-1].topk(2).indices.tolist()
    monkeypatch.setattr(auditing, "greedy_reference", lambda *given: (*output, following[1], *output))
    if tie:
        first = auditing.first_difference
        monkeypatch.setattr(
            auditing, "first_difference", lambda *given: first(*given)._replace(gap=1e-7, noise=1e-6, regret=0.0)
        )
    found = run_audit(count=1, length=9, schedules=[packed(W)])
    assert found.prompts[0].target_flips > 0
    for run in found.prompts[0].runs:
        assert run.note.startswith(f"left the greedy path at token 5, {following[1]} there, {following[0]} here")
        assert run.verdict == ("TIE" if tie else "DIFFERENT")
        assert 0 == run.drafted.count < run.drafted.total


def test_a_broken_bound_is_a_fault(audited):
    prompt = audited.prompts[0]
    broken = prompt._replace(bounds=prompt.bounds._replace(slack=-1, packed=99))
    changed = auditing.Audit(**vars(audited) | {"prompts": (broken, audited.prompts[1])})
    assert len(changed.faults) == 1
    assert changed.faults[0].startswith("prompt 3: BOUND-2D broken by 1 calls")
    assert changed.held == Share(1, 2)
    assert changed.held_on_model == Share(2, 2)


def test_bad_arguments_are_refused(load_model, model64, named_prompts):
    model = load_model("float32")

    def run(prompts=named_prompts, length=4, width=W, start="algorithm", sample=1):
        audit(model, model64, prompts, [packed(max(1, width))], Limits.of(length), width, start, sample)

    for arguments, message in (
        ({"start": "prompt"}, "knows the starts algorithm, wide, sampled"),
        ({"length": 0}, "at least 1 new token"),
        ({"width": 0}, "W must be >= 1"),
        ({"sample": 0}, "at least 1 context"),
        ({"prompts": []}, "at least 1 prompt"),
        ({"prompts": [("none", ())]}, "at least 1 token"),
        ({"length": 2000}, "positions"),
    ):
        with pytest.raises(InvalidInput, match=message):
            run(**arguments)


@pytest.mark.claim("ASM3.1")
def test_statistics_by_their_definitions():
    """Random matrices, every figure once more by brute force over cells."""
    rng = np.random.default_rng(0)
    width = 4
    matrices = []
    for length in (1, 3, 7, 12, 30):
        cells = (rng.random((length, width)) < 0.6).astype(int).tolist()
        matrices.append(tuple(tuple(cells[c][: min(width, length - c)]) for c in range(length)))
    found = statistics(matrices, width)
    broken = dropped = surprises = positions = contexts = 0
    behind, front = Share(), Share()
    lags = [0] * (width + 1)
    for rows in matrices:
        length = len(rows)
        right = {(c, k): rows[c][k - c - 1] for k in range(1, length + 1) for c in range(max(0, k - width), k)}
        seen = {k: sorted(c for c, position in right if position == k) for k in range(1, length + 1)}
        surprise = {k for k in seen if not any(right[c, k] for c in seen[k])}
        reach = [min([k for k in range(c + 1, length + 1) if (c, k) in right and not right[c, k]] + [c + width + 1, length])
                 for c in range(length)]  # fmt: skip
        assert reach == reaches(rows, width)
        surprises += len(surprise)
        dropped += sum(any(reach[c] > reach[later] for c in range(later)) for later in range(length))
        contexts += length - 1
        for k, before in seen.items():
            positions += len(before) > 1
            broken += any(right[c, k] > right[later, k] for c, later in itertools.combinations(before, 2))
            threshold = min([c for c in before if right[c, k]], default=k)
            assert thresholds(rows, width)[k - 1] == threshold
            if len(before) == width:
                lags[k - threshold] += 1
            for c in before if k not in surprise else ():
                cell = (right[c, k], 1)
                if any(c < s < k for s in surprise):
                    behind += cell
                else:
                    front += cell
    for offset, share in enumerate(found.by_offset):
        column = [row[offset] for rows in matrices for row in rows if offset < len(row)]
        assert share == Share(sum(column), len(column))
    assert found.non_monotone == Share(broken, positions)
    assert found.reach_drops == Share(dropped, contexts)
    assert found.surprises == Share(surprises, sum(map(len, matrices)))
    assert (found.behind, found.in_front, list(found.lags)) == (behind, front, lags)
    assert min(broken, dropped, surprises, behind.count, behind.total - behind.count, lags[0], lags[width]) > 0


@pytest.mark.claim("ASM3.1")
def test_threshold_drafters_are_monotone_and_found_again():
    rng = np.random.default_rng(1)
    for _ in range(50):
        c_star = random_lags(20, 2.0, rng).tolist()
        model = ThresholdModel(c_star)
        rows = tuple(tuple(int(model.correct(k, c)) for k in range(c + 1, min(c + W, 20) + 1)) for c in range(20))
        found = statistics([rows], W)
        assert found.non_monotone.count == found.reach_drops.count == 0
        assert thresholds(rows, W) == tuple(max(c, k - W, 0) for k, c in enumerate(c_star, start=1))
        told = bounds(MeasuredRuns(rows, W, "algorithm", (1,) * 7))
        assert told.held
        assert (told.in_step, told.out_of_step, told.drops, told.non_monotone.count) == (0, 0, 0, 0)
        assert told.lead >= 0


@pytest.mark.claim("THM3.2")
def test_the_smallest_drafter_that_breaks_the_theorem_is_told():
    """L = 8, W = 4: Packed-SS needs a call more, within the bound that needs no assumption."""
    outcome, cells = next(joint.classes(8, 4, "algorithm", lambda outcome: outcome == (1, 1, 1)))
    rows = joint.rows_of(cells, 8, 0)
    told = bounds(MeasuredRuns(tuple(row[:4] for row in rows), 4, "algorithm", (0,) * 5))
    assert not told.held
    assert (told.packed - told.linear, told.in_step, told.out_of_step) == outcome
    assert (told.slack, told.slack_2d) == (0, 2 * told.drops - 1)
    assert told.lead < 0
    assert told.non_monotone.count > 0
    assert told.reach_drops.count > 0
