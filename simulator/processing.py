"""Processing of a model's laws before a schedule sees them: here, temperature 0."""

from __future__ import annotations

from simulator.decode import Model
from simulator.laws import argmax
from simulator.records import Call, Reply


def greedy(model: Model) -> Model:
    """`model` at temperature 0: every law becomes a point mass on its most likely token, the lowest id among equals."""

    def processed(call: Call) -> Reply:
        reply = model(call)
        return Reply(
            tuple(map(argmax, reply.target)),
            tuple(None if laws is None else tuple(map(argmax, laws)) for laws in reply.proposals),
            reply.rows,
        )

    return processed
