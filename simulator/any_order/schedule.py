"""The any-order kernel: every schedule that verifies is one policy over these three pure functions (ALG3).

    Serial        verify the empty draft, one rank            one token a call
    Linear-SS     draft branch 0 | verify                     ASSD's two calls; the order is fixed before the first
    Packed-SS     verify and draft branch 0                   Algorithm 3
    Quadratic-SS  verify and draft branches 0 .. u - 1        branches follow the order

With point masses this is Algorithm 3 as written; with laws it is rejection sampling, each draft token tested against the law it
was drawn from. The accept rule is `simulator.acceptance`'s, in rank order. A window that is accepted in full has no bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.acceptance import accept
from simulator.any_order.orders import Known, Order, check
from simulator.any_order.records import Call, Drafted, Pairs, State
from simulator.chance import Chance, Purpose, draw
from simulator.errors import ContractError, InvalidInput
from simulator.laws import Coin, argmax, confidence
from simulator.records import Draft, Limits, Reply, Step, Tokens


class Ask(NamedTuple):
    """What a policy wants of one call."""

    verify: bool
    branches: Tokens = ()
    ranks: int | None = None  # how many ranks of the order take part; None: all


@dataclass(frozen=True)
class Schedule:
    """Opening calls (the start), then a cycle of calls until the request ends; `width` consecutive positions are active."""

    name: str
    width: int  # W
    order: Order
    opening: tuple[Ask, ...]
    cycle: tuple[Ask, ...]

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InvalidInput(f"the speculative width W must be >= 1, got {self.width}")

    def init(self, prompt: Sequence[int], limits: Limits) -> State:
        """The state before the first call: P_0 = P, D_0 empty, E = L (ALG3.L1)."""
        return initial(prompt, limits)

    def request(self, state: State) -> Call:
        """The forward pass to make now. Raises ContractError when the order policy returns no permutation of the window."""
        ask = self._plan(state.phase)
        if not ask.verify and not ask.branches:
            return Call(state.prompt, state.accepted, (), (), False, (), 0)
        order = state.order or ranked(self.order, state, window(state, self.width))
        order = order[: ask.ranks]
        drafted = {each.position: each.token for each in state.draft}
        draft = tuple((j, drafted[j]) for j in order if j in drafted)
        branches = tuple(b for b in ask.branches if b < len(order))
        return Call(state.prompt, state.accepted, order, draft, ask.verify, branches, state.unread)

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        """Verify, accept, stop, keep the next draft (ALG3.L9-L15). Raises ContractError when `reply` does not fit `call`."""
        _check(call, reply)
        order, kappa = call.order, call.kappa
        at_ranks = _AtRanks(chance, order)
        laws = {each.position: each.law for each in state.draft}
        verified: Tokens = ()
        tokens: Tokens = ()
        h, fallback = 0, False
        if call.verify:
            verified = tuple(token for _, token in call.draft[:kappa])
            h, tokens, fallback = accept(Draft(verified, tuple(laws[j] for j in order[:kappa])), reply.target, at_ranks, 1)
        accepted, end = append(state, tuple(zip(order, tokens, strict=False)))
        resolved = {j for j, _ in accepted}
        left = [(r, j) for r, j in enumerate(order) if j not in resolved and j <= end]

        branch = max((b for b in call.branches if b <= h), default=None) if left else None
        draft: tuple[Drafted, ...] = ()
        if branch is not None:
            proposals = reply.proposals[call.branches.index(branch)]
            assert proposals is not None  # _check: b <= h <= kappa
            kept = sorted((j, proposals[r - branch], r) for r, j in left)
            draft = tuple(Drafted(j, draw(law, at_ranks, "draft", r + 1), law) for j, law, r in kept)
        scores = {j: law for j, law in zip(order, reply.target, strict=False) if call.verify and not call.branches}
        committed = tuple(token for j, token in zip(order, tokens, strict=False) if j <= end)

        after = State(
            prompt=state.prompt,
            accepted=accepted,
            draft=draft,
            scores=tuple((j, float(confidence(scores[j], argmax(scores[j]).token))) for _, j in left if j in scores),
            end=end,
            order=() if call.verify else order,
            unread=sum(j <= end for j in order[h : len(tokens)]),
            phase=self._after(state.phase),
            limits=state.limits,
        )
        step = Step(
            verified=verified,
            predictions=tuple(law.certain for law in reply.target),
            accepted=h,
            advance=len(tokens),
            committed=committed,
            branch=branch,
            discarded=0 if branch is None else len(order) - branch - len(draft),
            retained=len(draft),
            stop=after.stop,
            rows=reply.rows,
            fallback=fallback,
            order=order,
            end=end,
            again=reply.again,
        )
        return after, step

    def _plan(self, phase: int) -> Ask:
        return self.opening[phase] if phase < len(self.opening) else self.cycle[phase - len(self.opening)]

    def _after(self, phase: int) -> int:
        return phase + 1 if phase + 1 < len(self.opening) + len(self.cycle) else len(self.opening)


class _AtRanks:
    """Coins by rank, from 1: the coin of rank r is that of the output position checked there."""

    def __init__(self, chance: Chance, order: Tokens) -> None:
        self._chance, self._order = chance, order

    def uniform(self, purpose: Purpose, position: int) -> Coin:
        return self._chance.uniform(purpose, self._order[position - 1])


def initial(prompt: Sequence[int], limits: Limits) -> State:
    """The state before the first call of any schedule."""
    return State(tuple(prompt), (), (), (), limits.max_new_tokens, (), 0, 0, limits)


def window(state: State, width: int) -> Tokens:
    """U_t, ascending: the unresolved among `width` consecutive positions from the leftmost unresolved one (ALG3.L3-L4)."""
    text = state.text
    first = next(j for j in range(1, state.end + 1) if j not in text)
    return tuple(j for j in range(first, min(state.end, first + width - 1) + 1) if j not in text)


def ranked(order: Order, state: State, active: Tokens) -> Tokens:
    """pi_t, from what is known before the call (ALG3.L5)."""
    known = Known(active, state.accepted, {each.position: each for each in state.draft}, dict(state.scores), state.end)
    return check(order(known), active)


def append(state: State, new: Pairs) -> tuple[Pairs, int]:
    """P_t and E after `new` was accepted: nothing beyond E is kept (ALG3.L11-L13)."""
    pairs = state.accepted + new
    end = min(state.end, state.limits.end(dict(pairs), (j for j, _ in new)))
    return tuple(pair for pair in pairs if pair[0] <= end), end


def _check(call: Call, reply: Reply) -> None:
    if len(reply.target) != call.asked:
        raise ContractError(f"the model returned {len(reply.target)} verifier laws where the call asked for {call.asked}")
    if len(reply.proposals) != len(call.branches):
        raise ContractError(f"the model answered {len(reply.proposals)} branches where the call asked for {len(call.branches)}")
    for branch, laws in zip(call.branches, reply.proposals, strict=True):
        wanted = len(call.order) - branch
        if branch <= call.kappa and (laws is None or len(laws) != wanted):
            got = "nothing" if laws is None else f"{len(laws)} proposals"
            raise ContractError(f"the model returned {got} for branch {branch} where the call asked for {wanted} proposals")
