"""Any-order schedules with a fault, or an oddity that is none: each takes the schedule it is planted in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proofs_check.faults.planting import part_replaced
from simulator.acceptance import accept
from simulator.any_order import Call, Known, Pairs, Schedule, State
from simulator.any_order import schedule as kernel
from simulator.any_order.orders import Order
from simulator.any_order.records import Drafted
from simulator.chance import Chance
from simulator.laws import Point, argmax, confidence
from simulator.oracles import HashRule
from simulator.oracles.recurrent_pairs import RecurrentPairs
from simulator.records import Limits, Reply, Step, Stop, Tokens

Plant = Callable[[Schedule], Schedule]


@dataclass(frozen=True)
class Replaced(Schedule):
    """A schedule whose kernel runs with other functions in the place of its own."""

    parts: tuple[tuple[str, Callable[..., Any]], ...] = ()

    def request(self, state: State) -> Call:
        with part_replaced(kernel, **dict(self.parts)):
            return super().request(state)

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        with part_replaced(kernel, **dict(self.parts)):
            return super().absorb(state, call, reply, chance)


def replaced(**parts: Callable[..., Any]) -> Plant:
    """These functions of the kernel replaced."""
    return lambda schedule: Replaced(
        schedule.name, schedule.width, schedule.order, schedule.opening, schedule.cycle, tuple(parts.items())
    )


def kind(cls: type[Schedule]) -> Plant:
    """The policy of a schedule run by another class of schedules."""
    return lambda schedule: cls(schedule.name, schedule.width, schedule.order, schedule.opening, schedule.cycle)


def ordered(order: Order) -> Plant:
    """Another order policy."""
    return lambda schedule: Schedule(schedule.name, schedule.width, order, schedule.opening, schedule.cycle)


# --- F36: rows under one order, accepted under another ----------------------------------------------------------------------


def _permuted(call: Call, reply: Reply, ranks: Sequence[int]) -> tuple[Call, Reply]:
    """The call as if its leading ranks had been asked in another order, each row as it was computed."""
    order = tuple(call.order[r] for r in ranks) + call.order[len(ranks) :]
    tokens = dict(call.draft)
    draft = tuple((j, tokens[j]) for j in order if j in tokens)
    return call._replace(order=order, draft=draft), reply._replace(target=tuple(reply.target[r] for r in ranks))


class MatchesFirst(Schedule):
    """Every draft token that its row agrees with is accepted, wherever it stands, and then one that it does not."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        if not call.verify or call.asked <= 1 or call.kappa < call.asked or len(call.branches) > 1:
            return super().absorb(state, call, reply, chance)
        tokens = dict(call.draft)
        right = [argmax(law).token == tokens[j] for law, j in zip(reply.target, call.order, strict=False)]
        ranks = sorted(range(call.asked), key=lambda r: (not right[r], r))
        return _reordered(super().absorb, state, call, reply, chance, ranks)


class SurestFirst(Schedule):
    """Accepted by falling certainty of this call's rows, not in the order they were asked in."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        if not call.verify or call.asked <= 1 or call.kappa < call.asked or len(call.branches) > 1:
            return super().absorb(state, call, reply, chance)
        sure = [float(confidence(law, argmax(law).token)) for law in reply.target]
        return _reordered(super().absorb, state, call, reply, chance, sorted(range(call.asked), key=lambda r: -sure[r]))


class Backwards(Schedule):
    """Accepted in the reverse of the order that the rows were asked in."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        if not call.verify or call.asked <= 1 or call.kappa < call.asked or len(call.branches) > 1:
            return super().absorb(state, call, reply, chance)
        return _reordered(super().absorb, state, call, reply, chance, range(call.asked - 1, -1, -1))


def _reordered(
    absorb: Callable[..., tuple[State, Step]], state: State, call: Call, reply: Reply, chance: Chance, ranks: Sequence[int]
) -> tuple[State, Step]:
    other, rows = _permuted(call, reply, ranks)
    if other.branches:
        by_position = dict(zip(call.order, reply.proposals[0] or (), strict=True))
        rows = rows._replace(proposals=(tuple(by_position[j] for j in other.order),))
    return absorb(state, other, rows, chance)


class OrdersAnew(Schedule):
    """Linear-SS asks its policy again before the call that verifies, which by then has seen the draft."""

    def request(self, state: State) -> Call:
        return super().request(state._replace(order=()))


# --- F37: E ------------------------------------------------------------------------------------------------------------------

_append = kernel.append


def keeps_all_beyond(state: State, new: Pairs) -> tuple[Pairs, int]:
    """E is lowered, and nothing beyond it is discarded."""
    return state.accepted + new, _append(state, new)[1]


def keeps_the_older(state: State, new: Pairs) -> tuple[Pairs, int]:
    """Of what stands beyond E, only what this call accepted is discarded."""
    _, end = _append(state, new)
    return state.accepted + tuple(pair for pair in new if pair[0] <= end), end


def grows_back(state: State, new: Pairs) -> tuple[Pairs, int]:
    """E forgets the EOS of calls before."""
    return _append(state._replace(end=state.limits.max_new_tokens), new)


def discards_the_end(state: State, new: Pairs) -> tuple[Pairs, int]:
    """The EOS itself goes too."""
    pairs, end = _append(state, new)
    return tuple(pair for pair in pairs if pair[0] < end or end == state.end), end


def first_accepted_end(state: State, new: Pairs) -> tuple[Pairs, int]:
    """Of two ends in one call the one accepted first wins, not the one that stands first."""
    for count in range(1, len(new) + 1):
        end = _append(state, new[:count])[1]
        if end < state.end:
            return tuple(pair for pair in state.accepted + new if pair[0] <= end), end
    return _append(state, new)


def only_own_markers(state: State, new: Pairs) -> tuple[Pairs, int]:
    """A marker that this call completes is not seen when its last token was accepted before."""
    pairs = state.accepted + new
    ends = [j for j, _ in new if state.limits.end({i: x for i, x in pairs if i <= j}, [j]) <= j]
    end = min([state.end, *ends])
    return tuple(pair for pair in pairs if pair[0] <= end), end


class _Ended(State):
    """Ends with the first EOS accepted, whatever is still unresolved before it."""

    @property
    def stop(self) -> Stop | None:
        lowered = self.end < self.limits.max_new_tokens and dict(self.accepted).get(self.end) in self.limits.eos
        return "eos" if lowered else super().stop


class LeavesHoles(Schedule):
    """The positions before an EOS that was accepted early are never filled."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        ended = _Ended(*after)
        return ended, step._replace(stop=ended.stop)


# --- F38: ranks without a draft ----------------------------------------------------------------------------------------------


def _filled(state: State, window: Tokens) -> State:
    held = {each.position for each in state.draft}
    padding = (Drafted(j, 0, Point(0)) for j in window if j not in held)
    return state._replace(draft=tuple(sorted((*state.draft, *padding), key=lambda each: each.position)))


class Padded(Schedule):
    """A rank without a draft counts as drafted, its token 0."""

    def request(self, state: State) -> Call:
        return super().request(_filled(state, kernel.window(state, self.width)) if state.draft else state)

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        return super().absorb(_filled(state, call.order) if state.draft else state, call, reply, chance)


class PaddedAndTrusted(Padded):
    """... and is taken for accepted: its row is not looked at."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        held = {each.position for each in state.draft}
        target = tuple(
            law if not state.draft or j in held else Point(0) for law, j in zip(reply.target, call.order, strict=False)
        )
        return super().absorb(state, call, reply._replace(target=target), chance)


class SkipsGaps(Schedule):
    """Ranks without a draft are passed over: those behind them are verified without them, and all is filed in policy order."""

    def request(self, state: State) -> Call:
        return _without_gaps(super().request(state))

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        policy = super().request(state).order
        taken = sorted(step.order[: step.advance], key=policy.index)
        text, before = dict(after.accepted), len(after.accepted) - len(step.committed)
        kept = tuple((j, text[j]) for j in taken if j in text)
        order = (*taken, *(j for j in policy if j not in taken))
        filed = after._replace(accepted=after.accepted[:before] + kept)
        return filed, step._replace(order=order, committed=tuple(token for _, token in kept))


def _without_gaps(call: Call) -> Call:
    if not call.verify or len(call.branches) > 1:
        return call
    drafted = {j for j, _ in call.draft}
    return call._replace(order=tuple(sorted(call.order, key=lambda j: j not in drafted)))


def gaps_last(order: Order) -> Order:
    """Positions with a draft first."""
    return lambda known: tuple(sorted(order(known), key=lambda j: j not in known.draft))


# --- F42: outside the window -------------------------------------------------------------------------------------------------


class BonusOutside(Schedule):
    """After a window that is accepted in full comes one token more, at the next free position."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        free = [j for j in range(1, after.end + 1) if j not in after.text]
        if not free or not 0 < step.advance == step.accepted == len(step.order):
            return after, step
        j, token = free[0], after.accepted[-1][1]
        accepted, end = _append(after, ((j, token),))
        after = after._replace(accepted=accepted, end=end, draft=tuple(d for d in after.draft if d.position != j))
        return after, step._replace(
            order=(*step.order[: step.advance], j), advance=step.advance + 1, committed=(*step.committed, token), end=end
        )


def wider_window(state: State, width: int) -> Tokens:
    """A window of `width` unresolved positions, however far apart, in the place of `width` consecutive ones."""
    text = state.text
    return tuple(j for j in range(1, state.end + 1) if j not in text)[:width]


# --- F41: a cache -----------------------------------------------------------------------------------------------------------


class KeepsStale(RecurrentPairs):
    """Accepted pairs that saw a removed one keep their rows."""

    def read(self, accepted: Pairs) -> int:
        rows = dict(self.held)
        self.held = [(pair, rows[pair]) for pair in accepted if pair in rows and self.keeps(pair)]
        for pair in accepted:
            if pair not in dict(self.held):
                self.feed(pair)
        return 0

    def keeps(self, pair: tuple[int, int]) -> bool:
        return True


class CropsByCount(RecurrentPairs):
    """As many rows are kept as pairs are accepted, whichever they are."""

    def __init__(self, rule: HashRule) -> None:
        super().__init__(rule)
        self.accepted: Pairs = ()

    def keep(self, accepted: Pairs) -> int:
        removed = set(self.accepted) - set(accepted)
        self.accepted = accepted
        return min(len(self.held), len(accepted)) if removed else super().keep(accepted)


# --- controls ---------------------------------------------------------------------------------------------------------------


def by_tokens(known: Known) -> Tokens:
    """An order that depends on the accepted tokens, their order and the laws of the draft, and on nothing that was drawn."""
    turn = sum((r + 1) * (3 * j + token) for r, (j, token) in enumerate(known.accepted)) + sum(
        max(each.law.support) for each in known.draft.values()
    )
    return known.window[turn % len(known.window) :] + known.window[: turn % len(known.window)]


class AnyWidth(Schedule):
    """The width changes from call to call with the number of accepted pairs."""

    def request(self, state: State) -> Call:
        narrow = Schedule(self.name, 1 + (len(state.accepted) * 2) % self.width, self.order, self.opening, self.cycle)
        return narrow.request(state)


class Timid(Schedule):
    """At most two tokens are accepted a call."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        def at_most_two(*arguments: Any) -> Any:
            verdict = accept(*arguments)
            return verdict._replace(tokens=verdict.tokens[:2], accepted=min(2, verdict.accepted))

        with part_replaced(kernel, accept=at_most_two):
            return super().absorb(state, call, reply, chance)


class AlwaysOneCall(Schedule):
    """L = 0 makes a call."""

    def init(self, prompt: Sequence[int], limits: Limits) -> State:
        return super().init(prompt, limits if limits.max_new_tokens else limits._replace(max_new_tokens=1))
