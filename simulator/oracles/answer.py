"""Answering a Call from two functions of a context: what every stateless oracle shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from simulator.laws import Law, argmax
from simulator.records import Call, Reply, Tokens


class Oracle(Protocol):
    """A model given by its two functions of a context: `TabularModel`, `ThresholdModel`, and what is built on them."""

    def target(self, context: Tokens) -> Law:
        """The law of the token after `context`."""

    def proposal(self, context: Tokens, offset: int) -> Law:
        """The law drafted for the `offset`-th position after `context`, from 1, given `context` alone."""

    def __call__(self, call: Call) -> Reply: ...


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


def greedy_path(target: Callable[[Tokens], Law]) -> Callable[[Tokens, int], Tokens]:
    """The function (context, offset) -> `context` and its offset - 1 most likely next tokens, one after the other."""

    @cache
    def path(context: Tokens, offset: int) -> Tokens:
        if offset == 1:
            return context
        before = path(context, offset - 1)
        return (*before, argmax(target(before)).token)

    return path
