"""The table: planted faults with the symptom that each must show, and controls that no check may flag.

A row is a KIND, shown by a few members; what catches it must not know which. Ids are those of the fault list; sources are the
public reports, by repository and number, that a kind was first seen in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from proofs_check.faults import rules, schedules, systems
from proofs_check.faults.planting import as_kind, replaced
from proofs_check.findings import Symptom
from proofs_check.refutations import FreshLaws, OneEarly, OneLate, ShiftedTokens
from proofs_check.system import System
from simulator.laws import Point, argmax
from simulator.records import Limits
from simulator.schedule import Schedule
from simulator.schedules import branches, linear, packed, quadratic

Checker = Literal["battery"]


class Member(NamedTuple):
    """One member of a kind, and what it is put to."""

    name: str
    checker: Checker
    subject: Callable[[], Any]  # a `System` for the battery


@dataclass(frozen=True)
class Row:
    """A kind of fault, or a control."""

    id: str
    layer: str
    planted: str
    source: str
    symptoms: tuple[Symptom, ...]  # a fault must show one of them and no other; a control none
    stages: tuple[str, ...]  # where it is expected to show
    members: tuple[Member, ...]

    @property
    def control(self) -> bool:
        return not self.symptoms


P3, L3, Q3, B3 = packed(3), linear(3), quadratic(3), branches((0, 2), 3)
Plant = Callable[[Schedule], Schedule]


def schedule(name: str, plant: Plant, base: Schedule = P3, declared: bool = True) -> Member:
    """`plant` in a schedule, which declares the calls of the schedule without it."""
    label = f"{base.name}, W = {max(ask.width for ask in base.cycle)}" + (f": {name}" if name else "")
    return Member(label, "battery", lambda: System(plant(base), base if declared else None))


def rule(name: str, accept: Any, base: Schedule = P3, declared: bool = True) -> Member:
    """Another acceptance rule in a schedule."""
    return schedule(name, lambda s: replaced(s, accept=accept), base, declared)


def part(name: str, base: Schedule = P3, declared: bool = True, **parts: Any) -> Member:
    """Another part of the system around a schedule."""
    return Member(f"{base.name}: {name}", "battery", lambda: System(base, base if declared else None, **parts))


def kind(cls: type[Schedule]) -> Plant:
    return partial(as_kind, cls)


def _rows() -> list[Row]:
    law: tuple[Symptom, ...] = ("law",)
    return [
        Row(
            "F01",
            "L",
            "the draft token is the argmax, the law stored with it is not",
            "transformers#32867",
            law,
            ("law",),
            (schedule("", schedules.drawn_by(argmax)), schedule("", schedules.drawn_by(argmax), L3)),
        ),
        Row(
            "F02",
            "L",
            "the draft is drawn from a filtered law, the unfiltered one is stored",
            "transformers#47932",
            law,
            ("law",),
            (
                schedule("top-k", schedules.drawn_by(schedules.top_2)),
                schedule("top-p", schedules.drawn_by(schedules.top_p), Q3),
            ),
        ),
        Row(
            "F03",
            "L",
            "the laws of the newer prefix in the place of the stored ones",
            "paper 3.2",
            law,
            ("law",),
            (schedule("", kind(FreshLaws)), schedule("", kind(schedules.FreshOfTaken), Q3)),
        ),
        Row(
            "F04",
            "L,S",
            "stored laws one position off after trimming",
            "the loop itself",
            law,
            ("law",),
            (schedule("", kind(ShiftedTokens)), schedule("", kind(schedules.Unshifted), Q3)),
        ),
        Row(
            "F05",
            "L",
            "verification at temperature 1 whatever the request asks",
            "vllm#10198",
            law,
            ("law",),
            (part("", processed=systems.unprocessed_target),),
        ),
        Row(
            "F06",
            "L",
            "the filter on the bonus row only",
            "vllm#42744",
            law,
            ("law",),
            (part("", processed=systems.bonus_row_only), part("all but the bonus row", processed=systems.not_bonus_row)),
        ),
        Row(
            "F07",
            "L",
            "residual through a softmax, or not normalised",
            "transformers#28508",
            law,
            ("law",),
            (
                rule("softmax", rules.rule(corrected=rules.softmax_residual)),
                rule("not normalised", rules.rule(corrected=rules.unnormalised_residual), L3),
            ),
        ),
        Row(
            "F08",
            "L",
            "the correction is drawn from p",
            "classic",
            law,
            ("law",),
            (rule("", rules.rule(corrected=rules.from_target)), rule("", rules.rule(corrected=rules.from_target), B3)),
        ),
        Row(
            "F09",
            "L",
            "the correction is drawn from p without the rejected token",
            "classic",
            law,
            ("law",),
            (
                rule("", rules.rule(corrected=rules.without_rejected)),
                rule("", rules.rule(corrected=rules.without_rejected), L3),
            ),
        ),
        Row(
            "F10",
            "L",
            "a residual of mass 0 breaks the run",
            "jaymody/speculative-sampling#5",
            ("contract", "law"),
            ("edges",),
            (rule("raises", rules.rule(corrected=rules.divided)), rule("NaN", rules.rule(corrected=rules.not_a_number))),
        ),
        Row(
            "F11",
            "L",
            "u <= alpha: a token of probability 0 passes at u = 0",
            "sglang#35771",
            law,
            ("edges",),
            (
                rule("", rules.rule(passes=lambda coin, alpha: coin <= alpha)),
                rule("", rules.rule(passes=lambda coin, alpha: coin <= alpha), L3),
            ),
        ),
        Row(
            "F12",
            "L",
            "the uniform of the failed test draws the correction",
            "vllm-ascend#16370",
            law,
            ("law",),
            (rule("", rules.rule(correction=rules.reused)), rule("", rules.rule(correction=rules.reused), L3)),
        ),
        Row(
            "F13",
            "L",
            "one uniform for all tests of a call",
            "flashinfer#424",
            law,
            ("law",),
            (rule("", rules.rule(coin=rules.one_uniform)), rule("", rules.rule(coin=rules.one_uniform), L3)),
        ),
        Row(
            "F14",
            "S",
            "one of the three streams is not the request's",
            "vllm#6038",
            ("determinism",),
            ("determinism",),
            (
                schedule("drafts", schedules.stray("draft")),
                schedule("tests", schedules.stray("test"), L3),
                schedule("corrections", schedules.stray("correct"), Q3),
            ),
        ),
        Row(
            "F15",
            "L",
            "accepted without a uniform",
            "vllm-project.github.io#80, vllm#5131",
            law,
            ("law",),
            (
                rule("iff p >= q", rules.rule(alpha=rules.whole)),
                rule("typical acceptance", rules.rule(alpha=rules.typical), L3),
                rule("ratio doubled", rules.rule(alpha=rules.lenient)),
            ),
        ),
        Row(
            "F16",
            "S",
            "the first draft token is never checked",
            "lattice#243",
            law,
            ("greedy",),
            (
                rule("", rules.rule(trusted=lambda index, token: index == 0)),
                rule("", rules.rule(trusted=lambda index, token: index == 0), L3),
            ),
        ),
        Row(
            "F17",
            "S,L",
            "draft i is tested against prediction i + 1",
            "transformers#28166",
            law,
            ("greedy",),
            (rule("", rules.rule(row=1)), rule("i - 1", rules.rule(row=-1), L3)),
        ),
        Row(
            "F18",
            "S",
            "rejected tokens are not reverted",
            "lucidrains/speculative-decoding#3",
            law,
            ("greedy",),
            (rule("", rules.not_reverted), rule("", rules.not_reverted, L3)),
        ),
        Row(
            "F19",
            "S,L",
            "a bonus token after a rejection too",
            "the loop itself",
            law,
            ("greedy",),
            (rule("", rules.bonus_after_rejection), rule("", rules.bonus_after_rejection, L3)),
        ),
        Row(
            "F20",
            "S",
            "the next draft is kept from one position early or late, with its laws",
            "the loop itself",
            ("count",),
            ("counts",),
            (schedule("late", kind(OneLate)), schedule("early", kind(OneEarly))),
        ),
        Row(
            "F21",
            "S",
            "the next draft is that of the branch of h + 1, or of 0",
            "the loop itself",
            ("count",),
            ("counts",),
            (
                schedule("h + 1", schedules.wrong_branch(lambda h: h + 1), Q3),
                schedule("0", schedules.wrong_branch(lambda h: 0), Q3),
            ),
        ),
        Row(
            "F22",
            "S",
            "an EOS inside an accepted block is not looked for",
            "several",
            ("stop",),
            ("greedy",),
            (
                schedule("", lambda s: replaced(s, _cut=schedules.last_token_only)),
                schedule("end markers", schedules.without_limits(stop=()), L3),
            ),
        ),
        Row(
            "F23",
            "S,L",
            "a drafted EOS is believed",
            "several",
            ("law", "stop"),
            ("greedy", "law"),
            (schedule("", kind(schedules.BelievedEos)), schedule("", kind(schedules.BelievedEos), L3)),
        ),
        Row(
            "F24",
            "S",
            "the length limit is overshot, or L = 0 makes a call",
            "several",
            ("stop",),
            ("contract", "greedy"),
            (
                schedule("", lambda s: replaced(s, _cut=schedules.overshoot)),
                schedule("L = 0", kind(schedules.AlwaysOneCall)),
                part("L = 0 in the loop", drive=systems.makes_a_call_for_nothing),
            ),
        ),
        Row(
            "F25",
            "S",
            "EOS and limit in one block, and the wrong one wins",
            "several",
            ("stop",),
            ("greedy", "events"),
            (
                schedule("the limit", lambda s: replaced(s, _cut=schedules.length_first)),
                schedule("the EOS", lambda s: replaced(s, _cut=schedules.eos_first), L3),
            ),
        ),
        Row(
            "F26",
            "S",
            "the cache is not cropped, cropped to nothing, or by a row too few or too many",
            "mlx-lm#1109, aprender#2014",
            law,
            ("cache",),
            (
                part("not at all", session=systems.cropping(lambda surplus, held: 0)),
                part("to 0", session=systems.cropping(lambda surplus, held: held)),
                part("a row too few", session=systems.cropping(lambda surplus, held: surplus - 1)),
                part("a row too many", session=systems.cropping(lambda surplus, held: surplus + 1)),
            ),
        ),
        Row(
            "F31",
            "S",
            "padding after the draft counts as accepted",
            "paper D.1",
            law,
            ("greedy",),
            (rule("", rules.padded(0, 3)), rule("", rules.padded(7, 3), Q3)),
        ),
        Row(
            "F32",
            "S",
            "counters that do not close",
            "several",
            ("count",),
            ("counters",),
            (
                part("drafting calls not counted", L3, drive=systems.counting(systems.verifying_only)),
                part("prefill not counted", packed(3, "prompt"), drive=systems.counting(systems.without_prefill)),
                part("rate above 1", drive=systems.counting(systems.bonus_accepted)),
                part("rows without padding", drive=systems.counting(systems.unpadded)),
            ),
        ),
        Row(
            "F34",
            "S",
            "something is left over from the request before",
            "several",
            ("determinism",),
            ("determinism", "requests"),
            (
                schedule("its draft", schedules.with_memory(schedules.Remembers)),
                schedule("a mode", schedules.with_memory(schedules.Sticky), L3),
                part("the cache", session=systems.TrustsItsCache),
            ),
        ),
        Row(
            "F39",
            "S",
            "ties of the argmax broken differently",
            "several",
            ("law", "count"),
            ("law",),
            (part("by the verifier", processed=systems.verifier_ties), part("by the drafter", processed=systems.drafter_ties)),
        ),
        Row(
            "F40",
            "S",
            "a constant drafter, or ids out of the vocabulary, crash or stall the loop",
            "lattice#1373",
            ("contract", "progress", "law"),
            ("greedy",),
            (
                rule(
                    "index out of range",
                    rules.rule(alpha=lambda p, q, token: min(1, schedules.indexed(p, token) / schedules.indexed(q, token))),
                ),
                schedule("waits", kind(schedules.WaitsForAcceptance)),
            ),
        ),
        Row(
            "C01",
            "L",
            "sample and match",
            "mlxcel#992",
            (),
            (),
            (rule("", rules.sample_and_match, declared=False), rule("", rules.sample_and_match, L3, declared=False)),
        ),
        Row(
            "C02",
            "L",
            "the rule for one-hot proposals, on one-hot proposals",
            "EAGLE#183",
            (),
            (),
            (schedule("", lambda s: schedules.greedy_drafts(s, rules.one_hot), declared=False),),
        ),
        Row(
            "C03",
            "L",
            "greedy drafts, stored as point masses",
            "vllm#16899",
            (),
            (),
            (schedule("", schedules.greedy_drafts, declared=False), schedule("", schedules.greedy_drafts, Q3, declared=False)),
        ),
        Row(
            "C04",
            "L",
            "all W draft tokens drawn before the advance is known",
            "independent given the laws",
            (),
            (),
            (schedule("", kind(schedules.DrawnAhead)), schedule("", kind(schedules.DrawnAhead), Q3)),
        ),
        Row(
            "C06",
            "S",
            "drafters that are always wrong, or say EOS, or one token",
            "costs calls alone",
            (),
            (),
            (
                part(
                    "token 2",
                    processed=systems.drafter(lambda context, law: law if len(context) % 2 else Point(2)),
                    declared=False,
                ),
                part(
                    "out of the vocabulary",
                    processed=systems.drafter(lambda context, law: law if len(context) % 2 else Point(99)),
                    declared=False,
                ),
            ),
        ),
        Row(
            "C07",
            "S",
            "any draft length chosen in advance",
            "exact",
            (),
            (),
            (schedule("", kind(schedules.AnyWidth), declared=False), schedule("", lambda s: s, packed((3, 0, 2)))),
        ),
        Row(
            "C08",
            "L",
            "block verification",
            "vllm#46781",
            (),
            (),
            (rule("", rules.block_verification, declared=False), rule("", rules.block_verification, linear(2), declared=False)),
        ),
        Row(
            "C09",
            "S",
            "stops at an EOS that the target chose inside a draft",
            "vllm#41493",
            (),
            (),
            (schedule("", kind(schedules.EndsDraftAtEos), declared=False),),
        ),
    ]


ROWS = {row.id: row for row in _rows()}
