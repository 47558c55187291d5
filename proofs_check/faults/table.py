"""The table: planted faults with the symptom that each must show, and controls that no check may flag.

A row is a KIND, shown by a few members; what catches it must not know which. Sources are the public reports that a kind was
first seen in, by repository and number; `loop` is the schedules' own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, cast, get_args

from proofs_check.any_order_limits import ArgmaxDrafts, ShiftedLaws
from proofs_check.any_order_limits import FreshLaws as FreshAnyOrderLaws
from proofs_check.any_order_system import AnyOrderSystem
from proofs_check.faults import any_order, outside, rules, schedules, systems
from proofs_check.faults.planting import as_kind, replaced
from proofs_check.findings import Symptom
from proofs_check.refutations import FreshLaws, OneEarly, OneLate, ShiftedTokens
from proofs_check.system import System
from simulator import any_order as family
from simulator.any_order.orders import right_to_left, within
from simulator.laws import Law, Point, argmax
from simulator.processing import Processing
from simulator.schedule import Schedule
from simulator.schedules import branches, linear, packed, quadratic

Checker = Literal[
    "battery", "any-order", "acceptance", "drafter", "decoder", "certificate", "harness"
]  # the last two: realmodel.faults
Plant = Callable[[Schedule], Schedule]


class Member(NamedTuple):
    """One member of a kind, and what it is put to."""

    name: str
    checker: Checker
    subject: Callable[[], Any]  # see `proofs_check.faults.matrix.CHECKERS`


@dataclass(frozen=True)
class Row:
    """A kind of fault, or a control."""

    id: str
    layer: str  # S: scheduler, L: law
    symptoms: tuple[Symptom, ...]  # a fault must show one of them and no other, a control none
    stages: tuple[str, ...]  # where it is expected to show first
    source: str
    planted: str
    members: tuple[Member, ...]

    @property
    def control(self) -> bool:
        return not self.symptoms


_ROWS = """\
F01 | L | law | small law, law | transformers#32867 | the draft token is the argmax, the law stored with it is not
F02 | L | law | small law, law | transformers#47932 | the draft is drawn from a filtered law, the unfiltered one is stored
F03 | L | law | small law, law | paper, 3.2 | the laws of the newer prefix in the place of the stored ones
F04 | L, S | law | small law, law | loop | stored laws one position off after trimming
F05 | L | law | small law, law | vllm#10198 | verification at temperature 1 whatever the request asks
F06 | L | law | small law, law | vllm#42744 | the filter on the bonus row only, or on all rows but that
F07 | L | law | small law, law, law1 | transformers#28508 | the residual through a softmax, or not normalised
F08 | L | law | small law, law, law1 | classic | the correction is drawn from p
F09 | L | law | small law, law, law1 | classic | the correction is drawn from p without the rejected token
F10 | L | contract, law | edges, floats | jaymody/speculative-sampling#5 | a residual of mass 0 raises, or is NaN
F11 | L | law | edges | sglang#35771 | u <= alpha: a token of probability 0 passes at u = 0
F12 | L | law | small law, law, law1 | vllm-ascend#16370 | the uniform of the failed test draws the correction
F13 | L | law | small law, law, law2 | flashinfer#424 | one uniform for all tests of a call
F14 | S | determinism | determinism | vllm#6038 | one of the three streams is not the request's
F15 | L | law | small law, law, law1 | vllm-project.github.io#80, vllm#5131 | accepted without a uniform, or by another ratio
F16 | S | law | greedy, law1 | lattice#243 | the first draft token is never checked
F17 | S, L | law | greedy, law1, law2 | transformers#28166 | draft i is tested against another prediction than i
F18 | S | law | greedy | lucidrains/speculative-decoding#3 | rejected tokens are not reverted
F19 | S, L | law | greedy | loop | a bonus token after a rejection too
F20 | S | count | self-draft | loop | the next draft is kept from one position early or late, with its laws
F21 | S | count | counts | loop | the next draft is that of the branch of h + 1, or of 0
F22 | S | stop | greedy, events | several | an EOS or end marker inside an accepted block is not looked for
F23 | S, L | law, stop | greedy | several | a drafted EOS is believed
F24 | S | stop | contract, greedy, events, stop | several | the length limit is overshot, or L = 0 makes a call
F25 | S | stop | greedy | several | EOS and limit in one block, and the wrong one wins
F26 | S | law | cache | mlx-lm#1109, aprender#2014 | the cache is not cropped, cropped to nothing, or by a row too few or many
F31 | S | law | greedy | paper, D.1 | padding after the draft counts as accepted
F32 | S | count | counters | several | counters that do not close
F34 | S | determinism | determinism, requests | several | something is left over from the request before
F36 | S | law, order, count | greedy, counts | kind K25 | any-order: asked in one order, accepted in another chosen later
F37 | S | stop, contract | contract, greedy, events | loop | any-order: an EOS does not end the output where it should
F38 | S | law, order, count | greedy, counts | loop | any-order: ranks behind one without a draft are verified
F39 | S | law, count | small law, law | several | ties of the argmax are broken differently
F40 | S | contract, progress, law | contract, greedy | lattice#1373 | constant drafters, or unknown ids, crash or stall it
F41 | S | law | cache | loop | any-order: accepted pairs keep rows that saw a removed pair
F42 | S | order | greedy | loop | any-order: a token outside the window
C01 | L | - | - | mlxcel#992 | sample and match
C02 | L | - | - | EAGLE#183 | the rule for one-hot proposals, on one-hot proposals
C03 | L | - | - | vllm#16899 | greedy drafts, stored as point masses
C04 | L | - | - | independent given the laws | all W draft tokens drawn before the advance is known
C05 | L | - | - | vllm#8320 | the draw is the argmax of p / Exp(1)
C06 | S | - | - | costs calls alone | drafters that are wrong, say EOS, or do not know the vocabulary
C07 | S | - | - | exact | any draft length chosen in advance
C08 | L | - | - | vllm#46781 | block verification
C09 | S | - | - | vllm#41493 | it stops at an EOS that the target chose inside a draft
C11 | S, L | - | - | exact | any-order: an order by accepted pairs and laws, whatever it makes of them
"""

P3, L3, Q3, B3 = packed(3), linear(3), quadratic(3), branches((0, 2), 3)
P_RTL, L_RTL, Q_RTL = family.packed(3, "rtl"), family.linear(3, "rtl"), family.quadratic(3, "rtl")
RANDOM = family.packed(4, "random:1")


def schedule(name: str, plant: Plant, base: Schedule = P3, declared: bool = True) -> Member:
    """`plant` in a schedule, which declares the calls of the schedule without it."""
    return Member(_label(base, name), "battery", lambda: System(plant(base), base if declared else None))


def rule(name: str, accept: Any, base: Schedule = P3, declared: bool = True) -> Member:
    """Another acceptance rule in a schedule."""
    return schedule(name, lambda s: replaced(s, accept=accept), base, declared)


def part(name: str, base: Schedule = P3, declared: bool = True, **parts: Any) -> Member:
    """Another part of the system around a schedule."""
    return Member(_label(base, name), "battery", lambda: System(base, base if declared else None, **parts))


def function(name: str, accept: Any, one_hot: bool = False) -> Member:
    """An acceptance rule on its own."""
    return Member(name, "acceptance", lambda: (outside.as_function(accept), one_hot))


def drafter(name: str, drawn: Callable[[Law], Law], declared: Callable[[Law], Law] = lambda law: law) -> Member:
    """A drafter on its own."""
    return Member(name, "drafter", lambda: outside.drafting(drawn, declared))


def decoder(name: str, asked: Processing, **parts: Any) -> Member:
    """Tokens alone."""
    return Member(name, "decoder", lambda: (asked, parts))


def any_order_schedule(
    name: str, plant: any_order.Plant, base: family.Schedule = P_RTL, declared: bool = True, **parts: Any
) -> Member:
    """`plant` in an any-order schedule."""
    label = ", ".join(filter(None, (f"any-order {base.name} {base.width}", name)))
    return Member(label, "any-order", lambda: AnyOrderSystem(plant(base), base if declared else None, **parts))


def _kept(schedule: family.Schedule) -> family.Schedule:
    return schedule


def _label(base: Schedule, name: str) -> str:
    return ", ".join(filter(None, (f"{base.name} {max(ask.width for ask in base.cycle)}", name)))


def _kind(cls: type[Schedule]) -> Plant:
    return partial(as_kind, cls)


def _cutting(cut: Any) -> Plant:
    return lambda s: replaced(s, _cut=cut)


def _twice(name: str, accept: Any, base: Schedule = P3) -> tuple[Member, Member]:
    """A rule in a schedule and on its own."""
    return rule(name, accept, base), function(name, accept)


def _passes_at_0(coin: Any, alpha: Any) -> bool:
    return bool(coin <= alpha)


def _by_index(p: Law, q: Law, token: int) -> Any:
    return min(1, schedules.indexed(p, token) / schedules.indexed(q, token))


def _sometimes(token: int) -> Callable[..., Law]:
    return lambda context, law: law if len(context) % 2 else Point(token)


_MEMBERS: dict[str, tuple[Member, ...]] = {
    "F01": (
        schedule("", schedules.drawn_by(argmax)),
        schedule("", schedules.drawn_by(argmax), L3),
        drafter("", argmax),
        any_order_schedule("", any_order.kind(ArgmaxDrafts)),
    ),
    "F02": (
        schedule("top-k", schedules.drawn_by(schedules.top_2)),
        schedule("top-p", schedules.drawn_by(schedules.top_p), Q3),
        drafter("top-k", schedules.top_2),
    ),
    "F03": (
        schedule("", _kind(FreshLaws)),
        schedule("", _kind(schedules.FreshOfTaken), Q3),
        any_order_schedule("", any_order.kind(FreshAnyOrderLaws)),
    ),
    "F04": (
        schedule("", _kind(ShiftedTokens)),
        schedule("", _kind(schedules.Unshifted), Q3),
        any_order_schedule("by position", any_order.kind(ShiftedLaws), RANDOM),
    ),
    "F05": (
        part("", processed=systems.unprocessed_target),
        decoder("", Processing(temperature=0.6), wrap=systems.unprocessed_target),
    ),
    "F06": (part("bonus row", processed=systems.bonus_row_only), part("all others", processed=systems.not_bonus_row)),
    "F07": (
        *_twice("softmax", rules.rule(corrected=rules.softmax_residual)),
        *_twice("not normalised", rules.rule(corrected=rules.unnormalised_residual), L3),
    ),
    "F08": _twice("", rules.rule(corrected=rules.from_target), B3),
    "F09": _twice("", rules.rule(corrected=rules.without_rejected), L3),
    "F10": (
        *_twice("raises", rules.rule(corrected=rules.divided)),
        *_twice("NaN", rules.rule(corrected=rules.not_a_number)),
    ),
    "F11": _twice("", rules.rule(passes=_passes_at_0)),
    "F12": _twice("", rules.rule(correction=rules.reused)),
    "F13": _twice("", rules.rule(coin=rules.one_uniform)),
    "F14": (
        schedule("drafts", schedules.stray("draft")),
        schedule("tests", schedules.stray("test"), L3),
        schedule("corrections", schedules.stray("correct"), Q3),
    ),
    "F15": (
        *_twice("iff p >= q", rules.rule(alpha=rules.whole)),
        *_twice("typical acceptance", rules.rule(alpha=rules.typical), L3),
        *_twice("ratio doubled", rules.rule(alpha=rules.lenient)),
    ),
    "F16": _twice("", rules.rule(trusted=lambda index, token: index == 0)),
    "F17": (*_twice("i + 1", rules.rule(row=1)), *_twice("i - 1", rules.rule(row=-1), L3)),
    "F18": (rule("", rules.not_reverted), rule("", rules.not_reverted, L3)),
    "F19": (rule("", rules.bonus_after_rejection), rule("", rules.bonus_after_rejection, L3)),
    "F20": (schedule("late", _kind(OneLate)), schedule("early", _kind(OneEarly))),
    "F21": (
        schedule("h + 1", schedules.wrong_branch(lambda h: h + 1), Q3),
        schedule("0", schedules.wrong_branch(lambda h: 0), Q3),
    ),
    "F22": (
        schedule("only the last token", _cutting(schedules.last_token_only)),
        schedule("end markers", schedules.without_limits(stop=()), L3),
    ),
    "F23": (schedule("", _kind(schedules.BelievedEos)), schedule("", _kind(schedules.BelievedEos), L3)),
    "F24": (
        schedule("overshot", _cutting(schedules.overshoot)),
        schedule("L = 0", _kind(schedules.AlwaysOneCall)),
        part("L = 0 in the loop", drive=systems.makes_a_call_for_nothing),
        any_order_schedule("L = 0", any_order.kind(any_order.AlwaysOneCall)),
        decoder("overshot", Processing(), schedule=_cutting(schedules.overshoot)(packed(4))),
    ),
    "F25": (
        schedule("the limit", _cutting(schedules.length_first)),
        schedule("the EOS", _cutting(schedules.eos_first), L3),
    ),
    "F26": (
        part("not at all", session=systems.cropping(lambda surplus, held: 0)),
        part("to 0", session=systems.cropping(lambda surplus, held: held)),
        part("a row too few", session=systems.cropping(lambda surplus, held: surplus - 1)),
        part("a row too many", session=systems.cropping(lambda surplus, held: surplus + 1)),
    ),
    "F31": (rule("token 0", rules.padded(0, 3)), rule("token 7", rules.padded(7, 3), Q3)),
    "F32": (
        part("drafting calls not counted", L3, drive=systems.counting(systems.verifying_only)),
        part("prefill not counted", packed(3, "prompt"), drive=systems.counting(systems.without_prefill)),
        part("rate above 1", drive=systems.counting(systems.bonus_accepted)),
        part("rows without padding", drive=systems.counting(systems.unpadded)),
    ),
    "F34": (
        schedule("its draft", schedules.with_memory(schedules.Remembers)),
        schedule("a mode", schedules.with_memory(schedules.Sticky), L3),
        part("the cache", session=systems.TrustsItsCache),
    ),
    "F36": (
        any_order_schedule("all matches", any_order.kind(any_order.MatchesFirst)),
        any_order_schedule("all matches", any_order.kind(any_order.MatchesFirst), L_RTL),
        any_order_schedule("the surest row first", any_order.kind(any_order.SurestFirst)),
        any_order_schedule("backwards", any_order.kind(any_order.Backwards), family.packed(4)),
        any_order_schedule("ordered anew by the draft", any_order.kind(any_order.OrdersAnew), family.linear(3, "confidence")),
        any_order_schedule("ordered anew by its laws", any_order.kind(any_order.OrdersAnew), family.linear(3, "peak")),
    ),
    "F37": (
        any_order_schedule("nothing discarded", any_order.replaced(append=any_order.keeps_all_beyond)),
        any_order_schedule("the older not discarded", any_order.replaced(append=any_order.keeps_the_older), Q_RTL),
        any_order_schedule("E grows back", any_order.replaced(append=any_order.grows_back)),
        any_order_schedule("E grows back", any_order.replaced(append=any_order.grows_back), L_RTL),
        any_order_schedule("the end discarded", any_order.replaced(append=any_order.discards_the_end), RANDOM),
        any_order_schedule("the first accepted end", any_order.replaced(append=any_order.first_accepted_end), Q_RTL),
        any_order_schedule("markers filled from behind", any_order.replaced(append=any_order.only_own_markers), L_RTL),
        any_order_schedule("holes left", any_order.kind(any_order.LeavesHoles)),
    ),
    "F38": (
        any_order_schedule("as token 0", any_order.kind(any_order.Padded), RANDOM),
        any_order_schedule("as token 0, trusted", any_order.kind(any_order.PaddedAndTrusted), RANDOM),
        any_order_schedule("passed over", any_order.kind(any_order.SkipsGaps), RANDOM),
    ),
    "F39": (
        part("by the verifier", processed=systems.verifier_ties),
        part("by the drafter", processed=systems.drafter_ties),
    ),
    "F40": (
        rule("index out of range", rules.rule(alpha=_by_index)),
        schedule("waits for an acceptance", _kind(schedules.WaitsForAcceptance)),
    ),
    "F41": (
        any_order_schedule("all", _kept, family.packed(5, "rtl"), session=any_order.KeepsStale),
        any_order_schedule("all", _kept, family.linear(5, "random:1"), session=any_order.KeepsStale),
        any_order_schedule("by their number", _kept, family.packed(5, "rtl"), session=any_order.CropsByCount),
    ),
    "F42": (
        any_order_schedule("a bonus", any_order.kind(any_order.BonusOutside)),
        any_order_schedule("a bonus", any_order.kind(any_order.BonusOutside), L_RTL),
        any_order_schedule("unresolved positions counted", any_order.replaced(window=any_order.wider_window)),
    ),
    "C01": (
        rule("", rules.sample_and_match, declared=False),
        rule("", rules.sample_and_match, L3, declared=False),
        function("", rules.sample_and_match),
    ),
    "C02": (
        schedule("", lambda s: schedules.greedy_drafts(s, rules.one_hot), declared=False),
        function("", rules.one_hot, one_hot=True),
    ),
    "C03": (
        schedule("", schedules.greedy_drafts, declared=False),
        schedule("", schedules.greedy_drafts, Q3, declared=False),
        drafter("", argmax, argmax),
    ),
    "C04": (schedule("", _kind(schedules.DrawnAhead)), schedule("", _kind(schedules.DrawnAhead), Q3)),
    "C05": (
        schedule("", _kind(schedules.Races), declared=False),
        decoder("", Processing(), wrap=systems.racing),
    ),
    "C06": (
        part("token 2", processed=systems.drafter(_sometimes(2)), declared=False),
        part("unknown ids", processed=systems.drafter(_sometimes(99)), declared=False),
        drafter("always token 0", lambda law: Point(0), lambda law: Point(0)),
    ),
    "C07": (
        schedule("by the prefix", _kind(schedules.AnyWidth), declared=False),
        schedule("3, 0, 2", lambda s: s, packed((3, 0, 2))),
        any_order_schedule("by the pairs", any_order.kind(any_order.AnyWidth), family.packed(4, "rtl"), declared=False),
    ),
    "C08": (
        rule("", rules.block_verification, declared=False),
        rule("", rules.block_verification, linear(2), declared=False),
        function("", rules.block_verification),
    ),
    "C09": (schedule("", _kind(schedules.EndsDraftAtEos), declared=False),),
    "C11": (
        any_order_schedule("", any_order.ordered(any_order.by_tokens), declared=False),
        any_order_schedule("", any_order.ordered(any_order.by_tokens), family.quadratic(4), declared=False),
        any_order_schedule("by peaks", _kept, family.packed(4, "peak")),
        any_order_schedule("drafted first", any_order.ordered(any_order.gaps_last(right_to_left)), declared=False),
        any_order_schedule("within a horizon", _kept, family.packed(4, within(right_to_left, 2))),
        any_order_schedule("confidence before the draft", _kept, family.linear(4, "confidence")),
    ),
}


def _row(line: str) -> Row:
    identifier, layer, symptoms, stages, source, planted = line.split(" | ")
    named = () if symptoms == "-" else tuple(symptoms.split(", "))
    if not set(named) <= set(get_args(Symptom)):
        raise ValueError(f"{identifier} names an unknown symptom: {symptoms}")
    places = () if stages == "-" else tuple(stages.split(", "))
    return Row(identifier, layer, cast(Any, named), places, source, planted, _MEMBERS[identifier])


ROWS = {row.id: row for row in map(_row, _ROWS.splitlines())}
