"""Packed-SS done wrong in the ways that are easiest to get wrong, each refuted in the manner it must be.

The first two touch the stored laws: the output law itself changes, which only Q stored with its token prevents (Algorithm 2).
The others keep another part of the proposals, each token with its own law: exact, but not the calls of the declared policy.
"""

from __future__ import annotations

from functools import partial

from proofs_check.counterexample import Finding, find
from proofs_check.ledger import Budget, Check, Entry
from simulator.chance import Chance, draw
from simulator.records import Call, Draft, Reply, State, Step
from simulator.schedule import Schedule
from simulator.schedules import packed


class FreshLaws(Schedule):
    """The draft is verified with proposal laws recomputed from the newer prefix."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        fresh = (reply.proposals[0] or ())[: len(state.draft.tokens)]
        return super().absorb(state._replace(draft=Draft(state.draft.tokens, fresh)), call, reply, chance)


class ShiftedTokens(Schedule):
    """The tokens are those of the retained suffix, the stored laws those of the positions before."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        unshifted = (reply.proposals[0] or ())[: step.retained]
        return after._replace(draft=Draft(after.draft.tokens, unshifted)), step


class OneLate(Schedule):
    """The draft is kept from the second retained proposal on, as if it were for the first position."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        draft = Draft(after.draft.tokens[1:], after.draft.laws[1:])
        return after._replace(draft=draft), step._replace(retained=len(draft.tokens))


class OneEarly(Schedule):
    """The draft begins with the proposal for the position that was just filled."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        proposals = reply.proposals[0]
        if after.stop or not proposals or not step.discarded:
            return after, step
        law = proposals[step.discarded - 1]
        token = draw(law, chance, "draft", after.emitted)
        draft = Draft((token, *after.draft.tokens), (law, *after.draft.laws))
        return after._replace(draft=draft), step._replace(retained=len(draft.tokens))


FAULTS: dict[str, tuple[type[Schedule], str, str, str]] = {
    "fresh-laws": (FreshLaws, "LEMB4", "law", "laws recomputed from the newer prefix"),
    "shifted-tokens": (ShiftedTokens, "THM3.3", "law", "tokens shifted to the retained suffix but not their laws"),
    "one-late": (OneLate, "DRAFTLEN", "calls", "the draft kept one position late"),
    "one-early": (OneEarly, "DRAFTLEN", "calls", "the draft kept one position early"),
}
SIZES: dict[Budget, tuple[int, int]] = {"quick": (4, 3), "full": (5, 3)}  # the largest L and W looked at
MANNER = {"law": "refuted by its output law", "calls": "exact in law, refuted by its number of calls"}


def make(fault: type[Schedule], width: int) -> Schedule:
    """Packed-SS of that width with the fault."""
    schedule = packed(width)
    return fault(schedule.name, schedule.opening, schedule.cycle)


def refuted(name: str, budget: Budget) -> list[Entry]:
    """One fault: the entry holds if it is found in its manner and not otherwise."""
    fault, claim, manner, what = FAULTS[name]
    length, width = SIZES[budget]
    found: Finding | None = find(partial(make, fault), "packed", max_length=length, max_width=width)
    statement = f"Packed-SS with {what}: {MANNER[manner]}"
    bound = f"L<={length}, W<={width}, graded tables, by L, then W, then tables"
    if found is None:
        return [Entry(claim, statement, "exact", bound, "violated", "the fault survives: no instance shows it")]
    return [Entry(claim, statement, "exact", bound, "holds" if found.kind == manner else "violated", found.text)]


CHECKS = tuple(Check(f"refuted/{name}", (claim,), partial(refuted, name)) for name, (_, claim, _, _) in FAULTS.items())
