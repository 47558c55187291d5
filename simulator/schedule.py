"""The schedule kernel: every left-to-right schedule is one policy over these three pure functions.

A policy says, call by call, whether to verify and which accepted-draft counts to draft for:

    AR            verify the empty draft
    Linear-SS     draft branch 0 | verify                    two calls an iteration
    Packed-SS     verify and draft branch 0                  one call (ALG1, ALG2)
    Quadratic-SS  verify and draft branches 0 .. W           one call
    Branches(S)   verify and draft the branches in S         one call

After h accepted draft tokens the largest drafted branch b <= h supplies the next draft: what it proposes beyond the tokens
just committed. Packed-SS is S = {0} (BRANCH0) and Quadratic-SS is S = {0, .., W}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.acceptance import accept
from simulator.chance import Chance, draw_block
from simulator.errors import ContractError, InvalidInput
from simulator.records import Call, Draft, Limits, Reply, State, Step, Stop, Tokens

_NO_DRAFT = Draft()


class Ask(NamedTuple):
    """What a policy wants of one call."""

    verify: bool
    branches: Tokens = ()
    width: int = 0
    anchored: bool = True  # see Call


@dataclass(frozen=True)
class Schedule:
    """Opening calls (the start), then a cycle of calls until the request ends.

    `name` is how reports call it; the kernel looks only at the two tuples of `Ask`.
    """

    name: str
    opening: tuple[Ask, ...]
    cycle: tuple[Ask, ...]

    def __post_init__(self) -> None:
        if not self.cycle:
            raise InvalidInput(f"the schedule {self.name!r} needs a cycle of at least 1 call")

    def init(self, prompt: Sequence[int], limits: Limits) -> State:
        """The state before the first call: P_0 = P, D_0 empty."""
        return State(tuple(prompt), len(prompt), Draft(), 0, limits)

    def resume(self, prompt: Sequence[int], output: Sequence[int], limits: Limits, draft: Draft = _NO_DRAFT) -> State:
        """The state of a request that already has verified `output` and, perhaps, a draft for the positions after it.

        It enters the cycle where that draft can be verified, or at its beginning without one; the start is behind it.
        Raises InvalidInput when a draft token has no law, or one that cannot draw it, or when `output` goes on after a stop.
        """
        if len(draft.tokens) != len(draft.laws):
            raise InvalidInput(
                f"a draft needs one stored law per token, got {len(draft.tokens)} tokens, {len(draft.laws)} laws"
            )
        for token, law in zip(draft.tokens, draft.laws, strict=True):
            if not law.probability(token) > 0:
                raise InvalidInput(f"the draft token {token} cannot have been drawn from its stored law, {law}")
        prefix = (*prompt, *output)
        for end in range(len(prompt) + 1, len(prefix)):
            if stop := limits.reached(prefix[:end], len(prompt)):
                raise InvalidInput(f"the output goes on after its token {end - len(prompt)}, where {stop!r} ends it")
        skip = next(index for index, ask in enumerate(self.cycle) if ask.verify) if draft.tokens else 0
        return State(prefix, len(prompt), draft, len(self.opening) + skip, limits)

    def request(self, state: State) -> Call:
        """The forward pass to make now. Not to be asked of a state that has stopped."""
        ask = self._plan(state.phase)
        return Call(state.prefix, state.draft.tokens, *ask)

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        """Verify, accept, stop, keep the next draft. Raises ContractError when `reply` does not fit `call`."""
        _check(call, reply)
        first = state.emitted + 1
        verified: Tokens = ()
        tokens: Tokens = ()
        h, fallback = 0, False
        if call.verify:
            verified = state.draft.tokens
            h, tokens, fallback = accept(state.draft, reply.target, chance, first)
        committed, stop = _cut(tokens, state)
        a = len(committed)

        branch = max((b for b in call.branches if b <= h), default=None)
        draft = Draft() if call.verify else state.draft
        discarded = 0
        if stop:
            branch, draft = None, Draft()
        elif branch is not None:
            laws = reply.proposals[call.branches.index(branch)]
            assert laws is not None  # _check: b <= h <= |draft|
            discarded = min(a - branch, len(laws))
            kept = laws[discarded:]
            draft = Draft(draw_block(kept, chance, first + a), kept)

        step = Step(
            verified=verified,
            predictions=tuple(law.certain for law in reply.target),
            accepted=h,
            advance=len(tokens),
            committed=committed,
            branch=branch,
            discarded=discarded,
            retained=len(draft.tokens),
            stop=stop,
            rows=reply.rows,
            fallback=fallback,
        )
        return State(state.prefix + committed, state.prompt_length, draft, self._after(state.phase), state.limits), step

    def _plan(self, phase: int) -> Ask:
        return self.opening[phase] if phase < len(self.opening) else self.cycle[phase - len(self.opening)]

    def _after(self, phase: int) -> int:
        return phase + 1 if phase + 1 < len(self.opening) + len(self.cycle) else len(self.opening)


def _cut(tokens: Tokens, state: State) -> tuple[Tokens, Stop | None]:
    """The stopping rule (ALG1.L7-L8, STOPSEQ): cut after the first token that ends the output."""
    for count in range(1, len(tokens) + 1):
        stop = state.limits.reached(state.prefix + tokens[:count], state.prompt_length)
        if stop:
            return tokens[:count], stop
    return tokens, None


def _check(call: Call, reply: Reply) -> None:
    rows = len(call.draft) + 1 if call.verify else 0
    if len(reply.target) != rows:
        raise ContractError(f"the model returned {len(reply.target)} verifier rows where the call asked for {rows}")
    if len(reply.proposals) != len(call.branches):
        raise ContractError(f"the model answered {len(reply.proposals)} branches where the call asked for {len(call.branches)}")
    for branch, laws in zip(call.branches, reply.proposals, strict=True):
        if branch <= len(call.draft) and (laws is None or len(laws) != call.width):
            got = "nothing" if laws is None else f"{len(laws)} proposals"
            raise ContractError(f"the model returned {got} for branch {branch} where the call asked for {call.width} proposals")
