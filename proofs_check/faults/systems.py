"""Faults outside the schedule: in the processing of laws, in the driver's counting, in a session's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proofs_check.faults.planting import Racing
from simulator.chance import Source
from simulator.decode import Generation, Model, Policy, generate
from simulator.laws import Law, Point
from simulator.oracles import HashRule, RecurrentModel
from simulator.processing import Processing, Processor, processed
from simulator.records import Call, Limits, Reply, Step, Tokens

# --- processing -------------------------------------------------------------------------------------------------------------


def unprocessed_target(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """Verifier rows at temperature 1 whatever was asked; the proposals are processed."""
    return processed(model, Processing(), proposal or target)


def bonus_row_only(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """Of the verifier rows only the last is processed."""
    both = processed(model, target, proposal)

    def run(call: Call) -> Reply:
        plain, reply = model(call), both(call)
        return reply._replace(target=(*plain.target[:-1], *reply.target[-1:]))

    return run


def not_bonus_row(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """Every verifier row is processed but the last."""
    both = processed(model, target, proposal)

    def run(call: Call) -> Reply:
        plain, reply = model(call), both(call)
        return reply._replace(target=(*reply.target[:-1], *plain.target[-1:]))

    return run


def highest_of_equals(context: Tokens, law: Law) -> Point:
    """Temperature 0, the highest id among equals."""
    return Point(max(reversed(law.support), key=law.probability))


def verifier_ties(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """At temperature 0 the verifier breaks ties the other way."""
    return processed(model, _other_ties(target), proposal or target)


def drafter_ties(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """At temperature 0 the drafter breaks ties the other way: calls, and nothing else."""
    return processed(model, target, _other_ties(proposal or target))


def _other_ties(processor: Processor) -> Processor:
    return highest_of_equals if getattr(processor, "temperature", 1) == 0 else processor


def drafter(proposal: Callable[[Tokens, Law], Law]) -> Callable[..., Model]:
    """C06: the drafter's laws are replaced after the processing."""

    def replaced(model: Model, target: Processor, own: Processor | None = None) -> Model:
        return processed(model, target, proposal)

    return replaced


def racing(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """C05: every draw is a race, and nothing else changes."""

    def raced(process: Processor) -> Processor:
        return lambda context, law: Racing(process(context, law))

    return processed(model, raced(target), raced(proposal or target))


# --- counting ---------------------------------------------------------------------------------------------------------------


def counting(steps: Callable[[tuple[Step, ...]], Sequence[Step]]) -> Callable[..., Generation]:
    """The driver reports other steps than it made."""

    def drive(model: Model, schedule: Policy, prompt: Sequence[int], limits: Limits, chance: Source) -> Generation:
        run = generate(model, schedule, prompt, limits, chance)
        return run._replace(steps=tuple(steps(run.steps)))

    return drive


def verifying_only(steps: tuple[Step, ...]) -> list[Step]:
    """A drafting call and the call that verifies its draft are one."""
    return [step for step in steps if step.advance]


def without_prefill(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The first call is not counted if it only processes the prompt."""
    return steps[1:] if steps and not steps[0].advance else steps


def bonus_accepted(steps: tuple[Step, ...]) -> list[Step]:
    """The verifier's own token counts as an accepted draft token."""
    return [step._replace(accepted=step.advance) for step in steps]


def unpadded(steps: tuple[Step, ...]) -> list[Step]:
    """The rows of the draft alone, not those evaluated."""
    return [step._replace(rows=len(step.verified) + 1) for step in steps]


def makes_a_call_for_nothing(
    model: Model, schedule: Policy, prompt: Sequence[int], limits: Limits, chance: Source
) -> Generation:
    """The loop looks at its condition after the call: L = 0 makes one."""
    if limits.max_new_tokens:
        return generate(model, schedule, prompt, limits, chance)
    run = generate(model, schedule, prompt, limits._replace(max_new_tokens=1), chance)
    return run._replace(tokens=(), stop="length")


# --- cache ------------------------------------------------------------------------------------------------------------------


def cropping(rows: Callable[[int, int], int]) -> Callable[[HashRule], RecurrentModel]:
    """Sessions that forget rows(surplus, held) rows where `surplus` are to go."""

    class Session(RecurrentModel):
        def crop(self, surplus: int) -> None:
            count = min(max(rows(surplus, len(self.states)), 0), len(self.states) - 1)
            if count:
                super().crop(count)

    return Session


class TrustsItsCache(RecurrentModel):
    """The cache is taken to belong to the present request, as far as its length says."""

    def __call__(self, call: Call) -> Reply:
        length = min(len(self.cached), len(call.prefix) - 1)
        self.cached = call.prefix[:length] + self.cached[length:]
        return super().__call__(call)
