"""Answering a Call from two functions of a context: what every oracle shares."""

from __future__ import annotations

from collections.abc import Callable

from simulator.laws import Law
from simulator.records import Call, Reply, Tokens


def answer(call: Call, target: Callable[[Tokens], Law], proposal: Callable[[Tokens, int], Law]) -> Reply:
    """The Reply of a model with law target(context), and proposal(context, j) for the j-th position after `context`."""
    contexts = [call.prefix + call.draft[:i] for i in range(len(call.draft) + 1)]
    return Reply(
        target=tuple(map(target, contexts)) if call.verify else (),
        proposals=tuple(
            tuple(proposal(contexts[b], j) for j in range(1, call.width + 1)) if b < len(contexts) else None
            for b in call.branches
        ),
        rows=call.padded_rows,
    )
