"""Families of random drafters: a few numbers with a meaning, and any number of runs.

geometric   independent lags, geometric           Geometric(mean=3)
histogram   independent lags, given weights       Histogram(weights=(5, 3, 1))
barrier     surprises that waste every draft      Barrier(rate=0.1)
mixture     surprises that waste some             Mixture(rate=0.0956, rho=0.7)
markov      easy and hard stretches               Markov(easy=12, hard=1, easy_run=40, hard_run=20)
drift       difficulty that depends on position   Drift(early=12, late=2, turn=200)

All take `noise`, the share of (position, context) pairs whose correctness is flipped. Without it ASM3.1 and ASM-REACH hold,
with it neither is promised. `lags` and `model` give single runs, `simulator.nfe.simulate` counts calls over millions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from simulator.errors import InvalidInput
from simulator.oracles.families.barrier import Barrier
from simulator.oracles.families.drift import Drift
from simulator.oracles.families.family import Family, Process
from simulator.oracles.families.iid import Geometric, Histogram
from simulator.oracles.families.markov import Markov
from simulator.oracles.families.mixture import Mixture

T = TypeVar("T")
FAMILIES: dict[str, type[Family]] = {family.name: family for family in (Geometric, Histogram, Barrier, Mixture, Markov, Drift)}

__all__ = ["FAMILIES", "Barrier", "Drift", "Family", "Geometric", "Histogram", "Markov", "Mixture", "Process", "parse", "read"]


def parse(text: str) -> Family:
    """The family that a text like "mixture:rate=0.0956,rho=0.7" names; several numbers are joined by colons, weights=5:3:1.

    Raises InvalidInput, in one line, for an unknown family or parameter, one that is missing or twice there, no number, or a
    number out of range.
    """
    return read(text, FAMILIES)


def read(text: str, families: Mapping[str, type[T]]) -> T:
    """`parse` for other families: dataclasses whose fields are `parameter`s."""
    name, _, rest = text.partition(":")
    if name not in families:
        raise InvalidInput(f"unknown drafter family {name!r}; allowed: {', '.join(families)}")
    family: Any = families[name]
    given: dict[str, float | tuple[float, ...]] = {}
    parameters = {parameter.name: parameter for parameter in fields(family)}
    for part in rest.split(",") if rest else ():
        key, _, value = part.partition("=")
        if key not in parameters:
            raise InvalidInput(f"{name} has no parameter {key!r}; allowed: {', '.join(parameters)}")
        if key in given:
            raise InvalidInput(f"{name}: {key} is given twice")
        try:
            numbers = tuple(map(float, value.split(":")))
        except ValueError:
            raise InvalidInput(f"{name}: {key} must be a number, got {value!r}") from None
        if "tuple" in str(parameters[key].type):
            given[key] = numbers
        elif len(numbers) == 1:
            [given[key]] = numbers
        else:
            raise InvalidInput(f"{name}: {key} must be one number, got {value!r}")
    missing = [p for p in parameters.values() if p.default is MISSING and p.name not in given]
    if missing:
        low, high = missing[0].metadata["range"]
        raise InvalidInput(f"{name} needs {missing[0].name}, {missing[0].metadata['is']}, in {low:g} .. {high:g}")
    made: T = family(**given)
    return made
