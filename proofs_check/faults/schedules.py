"""Schedules with a fault, or an oddity that is none: each takes the schedule it is planted in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from proofs_check.faults import rules
from proofs_check.faults.planting import Coins, Odd, Racing, Replaced, Rule, as_kind, replaced
from simulator.chance import Chance, Purpose, draw, draw_block
from simulator.laws import Law, RationalLaw, argmax
from simulator.processing import Processing
from simulator.records import Call, Draft, Limits, Reply, State, Step, Stop, Tokens
from simulator.schedule import Schedule

Plant = Callable[[Schedule], Schedule]


# --- the draft --------------------------------------------------------------------------------------------------------------


def drawn_by(other: Callable[[Law], Law], stored: Callable[[Law], Law] = lambda law: law) -> Plant:
    """Draft tokens come from other(law), and stored(law) is kept with them."""

    def plant(schedule: Schedule) -> Schedule:
        return _Redrawn(schedule.name, schedule.opening, schedule.cycle, other=other, stored=stored)

    return plant


@dataclass(frozen=True)
class _Redrawn(Schedule):
    other: Callable[[Law], Law] = lambda law: law
    stored: Callable[[Law], Law] = lambda law: law

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        proposals = tuple(laws and tuple(Odd(self.stored(law), self.other(law)) for law in laws) for laws in reply.proposals)
        return super().absorb(state, call, reply._replace(proposals=proposals), chance)


top_2 = partial(Processing(top_k=2), ())
top_p = partial(Processing(top_p=RationalLaw((1,)).probability(0) / 2), ())


class FreshOfTaken(Schedule):
    """The draft is verified with proposal laws recomputed from the newest branch, not from the one it was drawn from."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        fresh = next((laws for laws in reply.proposals if laws), ())
        laws = (*fresh, *state.draft.laws[len(fresh) :])[: len(state.draft.laws)]
        return super().absorb(state._replace(draft=Draft(state.draft.tokens, laws)), call, reply, chance)


class Unshifted(Schedule):
    """The tokens are those of the retained suffix, the stored laws those of one position before."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        if step.branch is None or not step.discarded:
            return after, step
        laws = reply.proposals[call.branches.index(step.branch)] or ()
        shifted = laws[step.discarded - 1 :][: step.retained]
        return after._replace(draft=Draft(after.draft.tokens, shifted)), step


@dataclass(frozen=True)
class WrongBranch(Schedule):
    """The next draft comes from another branch than that of the accepted count, each token with its own law."""

    pick: Callable[[int], int] = lambda accepted: accepted + 1

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        branch = self.pick(step.accepted)
        laws = reply.proposals[call.branches.index(branch)] if branch in call.branches else None
        if step.branch is None or laws is None or after.stop:
            return after, step
        kept = laws[max(0, len(step.committed) - branch) :]
        draft = Draft(draw_block(kept, chance, after.emitted + 1), kept)
        return after._replace(draft=draft), step._replace(retained=len(kept), branch=branch)


def wrong_branch(pick: Callable[[int], int]) -> Plant:
    return lambda schedule: WrongBranch(schedule.name, schedule.opening, schedule.cycle, pick)


# --- coins ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherCoins(Schedule):
    """The coins pass through `other` before the schedule sees them."""

    other: Callable[[Chance, State], Chance] = lambda chance, state: chance

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        return super().absorb(state, call, reply, self.other(chance, state))


def other_coins(other: Callable[[Chance, State], Chance]) -> Plant:
    return lambda schedule: OtherCoins(schedule.name, schedule.opening, schedule.cycle, other)


class _Stray:
    """One of the three streams comes from a generator of the schedule's own."""

    def __init__(self, chance: Chance, stream: Purpose, generator: Any) -> None:
        self.chance, self.stream, self.generator = chance, stream, generator

    def uniform(self, purpose: Purpose, position: int) -> Any:
        return self.generator.random() if purpose == self.stream else self.chance.uniform(purpose, position)


def stray(stream: Purpose, generator: Any = random) -> Plant:
    return other_coins(lambda chance, state: _Stray(chance, stream, generator))


def redirected(redirect: Callable[[Purpose, int, int], tuple[Purpose, int]]) -> Plant:
    """`redirect(purpose, position, first)` names the coin used in another's place; `first` is the call's first position."""
    return other_coins(
        lambda chance, state: Coins(chance, lambda purpose, position: redirect(purpose, position, state.emitted + 1))
    )


# --- stops ------------------------------------------------------------------------------------------------------------------


def cut_by(reason: Callable[[Limits, Tokens, int], Stop | None]) -> Callable[[Tokens, State], tuple[Tokens, Stop | None]]:
    """A `_cut` that asks `reason(limits, prefix, prompt_length)` after every token of the block."""

    def cut(tokens: Tokens, state: State) -> tuple[Tokens, Stop | None]:
        for count in range(1, len(tokens) + 1):
            stop = reason(state.limits, state.prefix + tokens[:count], state.prompt_length)
            if stop:
                return tokens[:count], stop
        return tokens, None

    return cut


def last_token_only(tokens: Tokens, state: State) -> tuple[Tokens, Stop | None]:
    """The length limit cuts; EOS and end markers are looked for at the end of the block alone."""
    room = state.limits.max_new_tokens - state.emitted
    kept = tokens[:room]
    return kept, state.limits.reached(state.prefix + kept, state.prompt_length) if kept else None


def overshoot(tokens: Tokens, state: State) -> tuple[Tokens, Stop | None]:
    """The length limit is looked at between blocks, not in them."""
    unlimited = state._replace(limits=state.limits._replace(max_new_tokens=1 << 30))
    for count in range(1, len(tokens) + 1):
        stop = unlimited.limits.reached(state.prefix + tokens[:count], state.prompt_length)
        if stop:
            return tokens[:count], stop
    return tokens, state.limits.reached(state.prefix + tokens, state.prompt_length)


def length_first(tokens: Tokens, state: State) -> tuple[Tokens, Stop | None]:
    """A block that reaches the limit is cut there, whatever EOS stands before."""
    room = state.limits.max_new_tokens - state.emitted
    if len(tokens) >= room > 0:
        return tokens[:room], "length"
    return cut_by(Limits.reached)(tokens, state)


def eos_first(tokens: Tokens, state: State) -> tuple[Tokens, Stop | None]:
    """A block with an EOS is cut there, though the limit stands before."""
    ends = [count for count in range(1, len(tokens) + 1) if tokens[count - 1] in state.limits.eos]
    return (tokens[: ends[0]], "eos") if ends else cut_by(Limits.reached)(tokens, state)


class _Begun(State):
    """A first state that has not stopped, whatever the limits say."""

    stop = None


class AlwaysOneCall(Schedule):
    """L = 0 makes a call all the same."""

    def init(self, prompt: Sequence[int], limits: Limits) -> State:
        return _Begun(*super().init(prompt, limits))


def without_limits(**changed: Any) -> Plant:
    """The schedule forgets some of its limits."""

    class Forgets(Schedule):
        def init(self, prompt: Sequence[int], limits: Limits) -> State:
            return super().init(prompt, limits._replace(**changed))

    return partial(as_kind, Forgets)


class BelievedEos(Schedule):
    """A drafted EOS is committed without a test."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        eos = state.limits.eos
        rule = rules.rule(trusted=lambda index, token: token in eos)
        return (
            as_kind(Schedule, self).absorb(state, call, reply, chance)
            if not eos
            else _with(self, rule).absorb(state, call, reply, chance)
        )


def _with(schedule: Schedule, rule: Rule) -> Schedule:
    return replaced(schedule, accept=rule)


# --- memory and loops -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remembers(Schedule):
    """The draft left over by one request is the first draft of the next."""

    memory: list[Draft] = None  # type: ignore[assignment]

    def init(self, prompt: Sequence[int], limits: Limits) -> State:
        state = super().init(prompt, limits)
        return state._replace(draft=self.memory[-1]) if self.memory and not state.stop else state

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        if after.draft.tokens:
            self.memory[:] = [after.draft]
        return after, step


@dataclass(frozen=True)
class Sticky(Schedule):
    """A request that ended at an EOS leaves a mode behind: later ones accept nothing but their first test."""

    mode: list[bool] = None  # type: ignore[assignment]

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        if self.mode:
            rule = rules.rule(coin=rules.one_uniform)
            after, step = _with(self, rule).absorb(state, call, reply, chance)
        else:
            after, step = super().absorb(state, call, reply, chance)
        if step.stop == "eos":
            self.mode[:] = [True]
        return after, step


def with_memory(kind: type[Schedule]) -> Plant:
    return lambda schedule: kind(schedule.name, schedule.opening, schedule.cycle, [])  # type: ignore[call-arg]


class WaitsForAcceptance(Schedule):
    """A call that accepts no draft token commits nothing: the drafter is asked again."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        if step.verified and not step.accepted:
            return after._replace(prefix=state.prefix, draft=state.draft), step._replace(committed=(), stop=None)
        return after, step


def indexed(law: Law, token: int) -> Any:
    """law[token] as an array has it: out of range raises, and -1 is the last token."""
    if law.certain is not None:
        table: Sequence[Any] = [int(x == law.certain) for x in range(40)]
    else:
        table = getattr(law, "probabilities", None) or [law.probability(x) for x in range(max(law.support) + 1)]
    return table[token]


# --- controls ---------------------------------------------------------------------------------------------------------------


class DrawnAhead(Schedule):
    """C04: all W draft tokens of every branch are drawn before anything is verified, those that are not kept thrown away."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        ahead = {
            (b, i): draw(law, chance, "draft", state.emitted + 1 + b + i)
            for b, laws in zip(call.branches, reply.proposals, strict=True)
            for i, law in enumerate(laws or ())
        }
        after, step = super().absorb(state, call, reply, chance)
        if step.branch is not None:
            first = max(0, step.discarded)
            tokens = tuple(ahead[step.branch, first + i] for i in range(step.retained))
            after = after._replace(draft=Draft(tokens, after.draft.laws))
        return after, step


class Races(Schedule):
    """C05: every draw is a race."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        target: Any = tuple(map(raced, reply.target))
        proposals: Any = tuple(laws and tuple(map(raced, laws)) for laws in reply.proposals)
        return super().absorb(state, call, reply._replace(target=target, proposals=proposals), chance)


def raced(law: Law) -> Any:
    return law if law.certain is not None else Racing(law)


class AnyWidth(Schedule):
    """C07: the draft length is chosen before the draft is drawn, from whatever was seen before: 0 .. 3 by the prefix."""

    def request(self, state: State) -> Call:
        call = super().request(state)
        return call._replace(width=hash(state.prefix) % 4) if call.branches else call


class EndsDraftAtEos(Schedule):
    """C09: nothing is drafted after a drafted EOS; if the target wants that EOS too, the request ends there."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        ends = [i for i, token in enumerate(after.draft.tokens, start=1) if token in state.limits.eos]
        if not ends:
            return after, step
        draft = Draft(after.draft.tokens[: ends[0]], after.draft.laws[: ends[0]])
        return after._replace(draft=draft), step._replace(retained=ends[0])


def greedy_drafts(schedule: Schedule, rule: Rule | None = None) -> Schedule:
    """C02, C03: the most likely draft token, stored as the point mass it was drawn from."""
    points = drawn_by(argmax, argmax)(schedule)
    if rule is None:
        return points
    return Both(schedule.name, schedule.opening, schedule.cycle, (("accept", rule),))


class Both(Replaced):
    """Greedy drafts and another rule."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        proposals = tuple(laws and tuple(map(argmax, laws)) for laws in reply.proposals)
        return super().absorb(state, call, reply._replace(proposals=proposals), chance)
