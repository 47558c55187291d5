"""NATIVE: SetDLM's own sliding-window decoder, which accepts what its drafter is sure of and verifies nothing (E.6).

Not exact for any serial reference: a token is taken given the accepted ones alone, not the others taken in the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from simulator.any_order.records import Call, State
from simulator.any_order.schedule import append, initial, window
from simulator.chance import Chance
from simulator.errors import ContractError, InvalidInput
from simulator.laws import confidence
from simulator.records import Limits, Reply, Step


@dataclass(frozen=True)
class Native:
    """Greedy. A call drafts the window and accepts every token of probability >= `threshold`, or else the most probable one, of
    equals the leftmost. With `prompt`, a counted call that only processes the prompt comes first.
    """

    name: str
    width: int  # the window, in consecutive positions
    threshold: float = 0.9
    prompt: bool = False

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InvalidInput(f"the speculative width W must be >= 1, got {self.width}")
        if not 0 <= self.threshold <= 1:
            raise InvalidInput(f"the threshold of the native decoder must lie in 0 .. 1, got {self.threshold}")

    def init(self, prompt: Sequence[int], limits: Limits) -> State:
        """Nothing accepted, E = L."""
        return initial(prompt, limits)._replace(phase=0 if self.prompt else 1)

    def request(self, state: State) -> Call:
        """Draft the whole window, after the prompt call if there is one."""
        if state.phase == 0:
            return Call(state.prompt, (), (), (), False, (), 0)
        return Call(state.prompt, state.accepted, window(state, self.width), (), False, (0,), state.unread)

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        """Accept, stop. Raises ContractError when the model is not greedy or does not answer the window."""
        laws = dict(zip(call.order, (reply.proposals and reply.proposals[0]) or (), strict=False))
        tokens = {j: law.certain for j, law in laws.items()}
        if len(laws) != len(call.order):
            raise ContractError(f"the model returned {len(laws)} proposals where the call asked for {len(call.order)}")
        if None in tokens.values():
            raise ContractError("the native decoder is greedy: it needs a model at temperature 0")
        found = {j: float(confidence(law, law.certain)) for j, law in laws.items() if law.certain is not None}
        sure = {j: probability if isfinite(probability) else 0.0 for j, probability in found.items()}
        taken = [j for j in call.order if sure[j] >= self.threshold] or sorted(call.order, key=lambda j: -sure[j])[:1]
        pairs = tuple((j, token) for j in taken if (token := tokens[j]) is not None)
        accepted, end = append(state, pairs)
        committed = tuple(token for j, token in pairs if j <= end)
        after = state._replace(accepted=accepted, end=end, unread=len(committed), phase=1)
        step = Step(
            verified=(),
            predictions=(),
            accepted=0,
            advance=len(taken),
            committed=committed,
            branch=None,
            discarded=len(call.order),
            retained=0,
            stop=after.stop,
            rows=reply.rows,
            fallback=False,
            order=(*taken, *(j for j in call.order if j not in taken)),
            end=end,
            again=reply.again,
        )
        return after, step
