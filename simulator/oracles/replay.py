"""Replay: a model that answers only what another one has answered before."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.decode import Model
from simulator.errors import ContractError
from simulator.records import Call, Reply


class Recorder:
    """`model`, keeping every call it answered in `answers`, in order."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.answers: list[tuple[Call, Reply]] = []

    def __call__(self, call: Call) -> Reply:
        reply = self.model(call)
        self.answers.append((call, reply))
        return reply


class Replay:
    """Answers from recorded (call, reply) pairs, by the call alone: in any order, as often as asked.

    Stands for a run on a machine that is not at hand. The same schedule under the same coins costs exactly what it cost then;
    whether Assumption 3.1 held is the recorded model's affair. Of two replies to one call the first counts.

    Raises ContractError at the first call that was not recorded, and names it.
    """

    def __init__(self, answers: Iterable[tuple[Call, Reply]]) -> None:
        self.replies: dict[Call, Reply] = {}
        for call, reply in answers:
            self.replies.setdefault(call, reply)

    def __call__(self, call: Call) -> Reply:
        if call not in self.replies:
            asked = call._asdict()
            prefix = asked.pop("prefix")  # may be long
            rest = ", ".join(f"{name}={value}" for name, value in asked.items())
            raise ContractError(f"call not recorded: a prefix of {len(prefix)} tokens that ends in {prefix[-8:]}, {rest}")
        return self.replies[call]
