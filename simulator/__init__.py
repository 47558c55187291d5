"""The production scheduler, the oracle models that answer it, and the exact law of what it does.

    from simulator import packed, generate, Limits
    from simulator.oracles import ThresholdModel

    run = generate(ThresholdModel([1, 2, 1, 2]), packed(4), prompt=(), limits=Limits.of(4))
    run.tokens, run.nfe

Importing this package loads neither torch nor transformers.
"""

from simulator.chance import Address, Chance, Sampled, Scripted, enumerated
from simulator.decode import Generation, Model, Resumption, decode, generate
from simulator.errors import ContractError, InvalidInput
from simulator.exact import ExactLaw, autoregressive_law, exact_law
from simulator.laws import ArrayLaw, Law, Point, RationalLaw, SparseLaw
from simulator.processing import Processing, greedy, processed
from simulator.records import Call, Draft, Limits, Reply, State, Step
from simulator.schedule import Ask, Schedule
from simulator.schedules import ar, branches, linear, named, packed, quadratic

__all__ = [
    "Address",
    "ArrayLaw",
    "Ask",
    "Call",
    "Chance",
    "ContractError",
    "Draft",
    "ExactLaw",
    "Generation",
    "InvalidInput",
    "Law",
    "Limits",
    "Model",
    "Point",
    "Processing",
    "RationalLaw",
    "Reply",
    "Resumption",
    "Sampled",
    "Schedule",
    "Scripted",
    "SparseLaw",
    "State",
    "Step",
    "ar",
    "autoregressive_law",
    "branches",
    "decode",
    "enumerated",
    "exact_law",
    "generate",
    "greedy",
    "linear",
    "named",
    "packed",
    "processed",
    "quadratic",
]
