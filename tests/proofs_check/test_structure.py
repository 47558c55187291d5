"""The checks of starts, stops, branch 0, padding and rows: they hold, find planted faults, and say what they missed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

import proofs_check.structure as structure
import simulator.schedule
import spec.layouts
from proofs_check.ledger import Entry
from proofs_check.structure import (
    Event,
    Recorder,
    check_branch_0,
    check_padding,
    check_rows,
    check_starts,
    check_stops,
    events,
    threshold_vectors,
)
from simulator import Call, Draft, Limits, generate, named
from simulator.acceptance import Verdict, accept
from simulator.decode import Generation
from simulator.schedule import Ask, Schedule


def outcomes(found: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in found}


def details(found: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.detail for entry in found}


def everything_holds(found: list[Entry]) -> None:
    assert found
    for entry in found:
        assert entry.outcome == "holds", entry
        assert entry.method in ("exact", "exhaustive")


@pytest.fixture
def packed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults show under Packed-SS too, and sooner."""
    monkeypatch.setattr(structure, "NAMES", ("packed",))


class Faulty(Schedule):
    """`names` replaces `structure.named`."""

    @classmethod
    def named(cls, name: str, width: int, start: str = "algorithm") -> Schedule:
        sound = named(name, width, start)
        return cls(*(getattr(sound, field.name) for field in fields(sound)))


class KeepsOneMore(Faulty):
    """F20: the next draft begins with the proposal for the position just filled."""

    def absorb(self, state: Any, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        if step.branch is None or not step.committed:
            return after, step
        laws = reply.proposals[call.branches.index(step.branch)][step.discarded - 1 :]
        tokens = tuple(law.support[0] for law in laws)
        return after._replace(draft=Draft(tokens, laws)), step._replace(retained=len(laws))


class Stalling(Faulty):
    """Nothing is emitted when the first draft token is rejected."""

    def absorb(self, state: Any, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        return (state, step._replace(committed=())) if step.verified and not step.accepted else (after, step)


# --- starts -----------------------------------------------------------------------------------------------------------------


def test_threshold_vectors() -> None:
    assert len({*threshold_vectors(4)}) == 120
    assert {*threshold_vectors(4, extreme=True)} == {
        c for c in threshold_vectors(4) if all(x in (0, k) for k, x in enumerate(c, 1))
    }


def test_extreme_thresholds_show_every_sequence_of_accepted_counts() -> None:
    """What `check_stops` rests on: what calls accept under any threshold vector, they accept under one of those in {0, k}."""
    for name in structure.NAMES:
        for start in ("algorithm", "wide"):
            schedule = named(name, 3, start)
            seen: list[set[Any]] = []
            for extreme in (False, True):
                runs = (generate(Recorder(c).model, schedule, (0,), Limits.of(5)) for c in threshold_vectors(5, extreme))
                seen.append({tuple((len(step.verified), step.accepted) for step in run.steps) for run in runs})
            assert seen[0] == seen[1]
            assert len(seen[0]) > 5


@pytest.mark.claim("INIT", "NFE-CONV", "DRAFTLEN", "PROGRESS")
def test_starts_hold() -> None:
    found = check_starts("quick")
    everything_holds(found)
    assert [entry.claim for entry in found] == ["INIT", "NFE-CONV", "DRAFTLEN", "PROGRESS"]
    assert "all 120 threshold vectors" in found[0].bound
    # 4 widths of 3 schedules, 3 of Branches({0, 2}), 4 starts
    assert found[0].detail.startswith(f"{120 * (4 * 3 + 3) * 4:,} runs")


@pytest.mark.usefixtures("packed_alone")
def test_a_draft_kept_one_position_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "named", KeepsOneMore.named)
    found = check_starts("quick")
    assert outcomes(found)["INIT"] == outcomes(found)["DRAFTLEN"] == "violated"
    shown = re.search(r"W = (\d), packed, start algorithm: call 1 has A = 1 and leaves (\d) tokens", details(found)["DRAFTLEN"])
    assert shown, found
    assert shown[1] == shown[2]


@pytest.mark.usefixtures("packed_alone")
def test_a_start_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start `wide` that drafts W proposals, not W + 1."""

    def narrow(name: str, width: int, start: str) -> Schedule:
        sound = named(name, width, start)
        if start != "wide" or name == "linear":
            return sound
        return Schedule(sound.name, (Ask(True, (0,), width, anchored=False),), sound.cycle)

    monkeypatch.setattr(structure, "named", narrow)
    found = check_starts("quick")
    assert outcomes(found)["INIT"] == "violated"
    assert re.search(
        r"start wide: call 1 asks for Call\(.*width=1.*\), where .* is \(True, \(0,\), 2\)$", details(found)["INIT"]
    )


def test_a_call_that_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """F32: Linear-SS counts a drafting call and the verifying one as one."""

    def merged(model: Any, schedule: Any, prompt: Any, limits: Any) -> Generation:
        run = generate(model, schedule, prompt, limits)
        return run._replace(steps=tuple(step for step in run.steps if step.advance)) if schedule.name == "linear" else run

    monkeypatch.setattr(structure, "generate", merged)
    found = check_starts("quick")
    assert outcomes(found)["NFE-CONV"] == "violated"
    counted = re.search(r"NFE is (\d+), forward passes made (\d+)$", details(found)["NFE-CONV"])
    assert counted
    assert int(counted[2]) == 2 * int(counted[1])


@pytest.mark.usefixtures("packed_alone")
def test_a_run_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "named", Stalling.named)
    found = check_starts("quick")
    assert outcomes(found)["PROGRESS"] == "violated"
    assert details(found)["PROGRESS"].endswith("the run does not end")


@pytest.mark.usefixtures("packed_alone")
def test_an_idle_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is processed twice."""

    def idle(name: str, width: int, start: str) -> Schedule:
        sound = named(name, width, start)
        return Schedule(name, sound.opening * 2, sound.cycle) if start == "prompt" else sound

    monkeypatch.setattr(structure, "named", idle)
    found = check_starts("quick")
    assert outcomes(found) == {"INIT": "violated", "NFE-CONV": "violated", "DRAFTLEN": "holds", "PROGRESS": "violated"}
    assert re.search(r"start prompt: \d+ calls for 4 tokens$", details(found)["PROGRESS"])


def test_runs_that_accept_everything_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "threshold_vectors", lambda length, extreme=False: [(0,) * length])
    found = check_starts("quick")
    assert outcomes(found)["PROGRESS"] == "not run"
    assert "never reached: the most calls of" in details(found)["PROGRESS"]


# --- stops ------------------------------------------------------------------------------------------------------------------


def test_events() -> None:
    found = events(3)
    assert Event(0) in found
    assert Event(3, (1, 2)) in found
    assert Event(2, (), ((1, 2, 3),)) in found
    assert Event(3, (2,)).outcome == (2, "eos")
    assert Event(2, (2,)).outcome == (2, "eos")
    assert Event(3, (2,), ((1, 2),)).outcome == (2, "eos")
    assert Event(2, (), ((1, 2),)).outcome == (2, "stop")
    assert Event(1, (2,), ((1, 2),)).outcome == (1, "length")


@pytest.mark.claim("STOP", "STOPSEQ")
def test_stops_hold() -> None:
    everything_holds(check_stops("quick"))


def last_only(tokens: Any, state: Any) -> Any:
    """F22: only the last token of a block is looked at; the length limit is kept."""
    room = state.limits.max_new_tokens - state.emitted
    tokens = tokens[:room]
    return tokens, state.limits.reached(state.prefix + tokens, state.prompt_length)


def overshoot(tokens: Any, state: Any) -> Any:
    """F24: an EOS cuts, the length limit ends the run but cuts nothing."""
    for count in range(1, len(tokens) + 1):
        stop = state.limits.reached(state.prefix + tokens[:count], state.prompt_length)
        if stop in ("eos", "stop"):
            return tokens[:count], stop
    return tokens, state.limits.reached(state.prefix + tokens, state.prompt_length)


def length_first(tokens: Any, state: Any) -> Any:
    """F25: of an EOS and the length limit in one block the later one wins."""
    cut, stop = overshoot(tokens, state)
    room = state.limits.max_new_tokens - state.emitted
    return (tokens[:room], "length") if len(tokens) >= room > 0 else (cut, stop)


@pytest.mark.usefixtures("packed_alone")
@pytest.mark.parametrize("fault", [last_only, overshoot, length_first])
def test_a_block_cut_wrongly(fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator.schedule, "_cut", fault)
    found = check_stops("quick")
    assert outcomes(found)["STOP"] == "violated"
    shown = re.search(r"Event\(.*\): output (\[.*\]), ended by (\w+); due (\[.*\]), (\w+)$", details(found)["STOP"])
    assert shown, details(found)["STOP"]
    assert (ast.literal_eval(shown[1]), shown[2]) != (ast.literal_eval(shown[3]), shown[4])


@pytest.mark.usefixtures("packed_alone")
def test_a_refunded_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not count a last call whose block was cut."""

    def refund(model: Any, schedule: Any, prompt: Any, limits: Any) -> Generation:
        run = generate(model, schedule, prompt, limits)
        if not run.steps or len(run.steps[-1].committed) == run.steps[-1].advance:
            return run
        return run._replace(steps=run.steps[:-1])

    monkeypatch.setattr(structure, "generate", refund)
    found = check_stops("quick")
    assert outcomes(found)["STOP"] == "violated"
    assert re.search(r"(\d) forward passes, NFE (\d); \1 reach position", details(found)["STOP"])


@pytest.mark.usefixtures("packed_alone")
def test_a_marker_that_begins_in_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Limits.reached

    def with_prompt(limits: Limits, prefix: Any, prompt_length: int) -> Any:
        if len(prefix) > prompt_length and any(prefix[-len(marker) :] == marker for marker in limits.stop):
            return "stop"
        return sound(limits, prefix, prompt_length)

    monkeypatch.setattr(Limits, "reached", with_prompt)
    assert outcomes(check_stops("quick")) == {"STOP": "violated", "STOPSEQ": "violated"}


@pytest.mark.usefixtures("packed_alone")
def test_a_drafted_eos_that_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """F23: a draft is verified up to its first EOS, which is taken as it is."""

    def believing(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
        verdict = accept(draft, target, chance, first)
        h = verdict.accepted
        return Verdict(h + 1, (*draft.tokens[: h + 1], 0), False) if draft.tokens[h : h + 1] == (3,) else verdict

    monkeypatch.setattr(simulator.schedule, "accept", believing)
    assert outcomes(check_stops("quick"))["STOP"] == "violated"


def test_blocks_of_one_token_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "threshold_vectors", lambda length, extreme: [tuple(range(1, length + 1))])
    found = check_stops("quick")
    assert outcomes(found) == {"STOP": "not run", "STOPSEQ": "not run"}
    assert "an EOS inside an accepted block" in details(found)["STOP"]


@pytest.mark.usefixtures("packed_alone")
def test_stops_of_a_run_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "named", Stalling.named)
    assert details(check_stops("quick"))["STOP"].endswith("the run does not end")


# --- BRANCH0 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("BRANCH0")
def test_branch_0_holds() -> None:
    everything_holds(check_branch_0("quick"))


@pytest.mark.parametrize("faulty", ["packed", "branches:0", "quadratic"])
def test_a_schedule_that_keeps_another_draft(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(name: str, width: int) -> Schedule:
        return KeepsOneMore.named(name, width) if name == faulty else named(name, width)

    monkeypatch.setattr(structure, "named", one)
    (entry,) = check_branch_0("quick")
    assert entry.outcome == "violated"
    shown = re.search(r"\(h, P, D, Q\) = .* follows with probability (\S+), under (.*) with (\S+)$", entry.detail)
    assert shown, entry.detail
    assert shown[1] != shown[3]


def test_drafters_that_are_always_right_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "threshold_vectors", lambda length: [(0,)])
    monkeypatch.setattr(structure, "random_tables", lambda vocabulary, seed: Recorder((0,)).model)
    (entry,) = check_branch_0("quick")
    assert entry.outcome == "not run"
    assert structure.ALIKE in entry.detail


# --- PAD --------------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("PAD")
def test_padding_holds() -> None:
    everything_holds(check_padding("quick"))


def test_a_mask_that_shows_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: proposal rows see the verifier region."""
    monkeypatch.setattr(structure, "sees", lambda x, y: spec.layouts.sees(x, y) or (x.region, y.region) == ("Z", "V"))
    layout, rule = check_padding("quick")
    assert (layout.outcome, rule.outcome) == ("violated", "holds")
    assert "Nemotron, W = 1, 0 draft tokens: (Row(region='Z'" in layout.detail


def test_an_order_that_shows_missing_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """SetDLM's rows see all earlier ranks, drafted or not."""

    def all_ranks(x: Any, y: Any) -> bool:
        return spec.layouts.sees(x, y) or (x.region == "M" and y.region == "O" and y.i < x.i)

    monkeypatch.setattr(structure, "sees", all_ranks)
    assert "SetDLM, ranks drafted (False, False)" in check_padding("quick")[0].detail


def test_padded_rows_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """F31: what is not refused must not count either; here it is taken."""
    monkeypatch.setattr(simulator.schedule, "_check", lambda call, reply: None)
    layout, rule = check_padding("quick")
    assert (layout.outcome, rule.outcome) == ("holds", "violated")
    assert "padded rows are taken" in rule.detail


def test_a_rule_that_goes_past_the_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
        verdict = accept(draft, target, chance, first)
        if verdict.accepted == len(draft.tokens) and verdict.tokens[-1] == structure.MASK_ID:
            return Verdict(verdict.accepted + 1, (*verdict.tokens, structure.MASK_ID), False)
        return verdict

    monkeypatch.setattr(simulator.schedule, "accept", careless)
    rule = check_padding("quick")[1]
    assert rule.outcome == "violated"
    assert re.search(r"draft \[\], verifier rows \[999, .*\]: accepts 1, commits \[999, 999\]$", rule.detail)


def test_no_answer_beyond_the_draft_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "_padded_answers", lambda most: (5, 0, ""))
    assert check_padding("quick")[1].outcome == "not run"


# --- TAB2 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("TAB2")
def test_rows_hold() -> None:
    everything_holds(check_rows("quick"))


@pytest.mark.parametrize("region", ["nemotron", "setdlm"])
def test_a_row_too_many(region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = getattr(spec.layouts, region)
    monkeypatch.setattr(structure, region, lambda *args: [*sound(*args), spec.layouts.Row("V", 99, 99, None)])
    (entry,) = check_rows("quick")
    assert entry.outcome == "violated"
    shown = re.search(r" layout, linear, .*: (\d+) rows, by the formula (\d+)$", entry.detail)
    assert shown
    assert int(shown[1]) == int(shown[2]) + 2


def test_a_scheduler_that_counts_no_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Call, "padded_rows", property(lambda call: (len(call.draft) + 1) * call.verify + (call.width + 1) * len(call.branches))
    )
    (entry,) = check_rows("quick")
    assert entry.detail.startswith("scheduler, linear, B = 2, 0 draft tokens: 3 rows, by the formula 4")


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_starts, check_stops, check_branch_0, check_padding, check_rows])
def test_full(check: Any) -> None:
    everything_holds(check("full"))
