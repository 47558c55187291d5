"""A reference model, as the checks of opaque decoders need it: the law of every token of an output, given what came before.

Anything that can say it will do: an object with `laws`, which may take the whole output in one forward pass; a
`TabularModel`; or a function of the context. Nothing here knows torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from simulator.errors import InvalidInput
from simulator.laws import ArrayLaw, Floats, Ids, Law, RationalLaw, entries
from simulator.processing import Processing
from simulator.records import Tokens

Row: TypeAlias = Law | Sequence[float]
"""A law, or its probabilities by token id."""
UNPROCESSED = Processing()
_SUM = 1e-6  # how far from 1 the probabilities of a reference may sum


class Reference(Protocol):
    """The target model at temperature 1, before any processing."""

    @property
    def vocabulary(self) -> int | None:
        """V: the ids are 0 .. V - 1; None if there is no telling."""

    def laws(self, prompt: Tokens, output: Tokens) -> Iterable[Row]:
        """p(. | prompt + output[:t]) for t = 0 .. len(output) - 1, best in float64. Only as many as are asked for are read."""


@dataclass(frozen=True)
class _Pointwise:
    law: Callable[[Tokens], Row]
    vocabulary: int | None = None

    def laws(self, prompt: Tokens, output: Tokens) -> Iterator[Row]:
        return (self.law(prompt + output[:count]) for count in range(len(output)))


def as_reference(model: Any) -> Reference:
    """A `Reference` as it is, an object with `target(context)` such as a TabularModel, or a function of the context.

    Raises InvalidInput for anything else.
    """
    if hasattr(model, "laws"):
        return model  # type: ignore[no-any-return]
    law = getattr(model, "target", model)
    if not callable(law):
        raise InvalidInput("a reference has laws(prompt, output) or target(context), or is a function of the context")
    return _Pointwise(law)


def rows(reference: Reference, prompt: Tokens, output: Tokens) -> Iterator[Row]:
    """The reference's law of each output token. Raises InvalidInput when it has too few."""
    laws = iter(reference.laws(prompt, output))
    for index in range(len(output)):
        row = next(laws, None)
        if row is None:
            raise InvalidInput(f"the reference gave {index} laws for an output of {len(output)} tokens")
        yield row


class Entries(NamedTuple):
    """The tokens of positive probability, ascending, and their probabilities, which sum to 1; both of shape [K]."""

    ids: Ids
    p: Floats


def entries_of(row: Row, processing: Processing = UNPROCESSED) -> Entries:
    """What a law leaves after processing. Raises InvalidInput when it is no law."""
    law: Law = row if hasattr(row, "support") else ArrayLaw(row)  # type: ignore[assignment]
    ids, p = entries(law)
    total = float(p.sum()) if len(p) else 0.0
    if not math.isfinite(total) or abs(total - 1) > _SUM or p.min() < 0:
        raise InvalidInput(f"the reference gave no law: its probabilities sum to {total:.6g}")
    if isinstance(law, RationalLaw) and processing.temperature not in (0, 1):
        law = ArrayLaw(np.array([float(probability) for probability in law.probabilities]))
    processed = processing((), law)
    if processed is not law:
        ids, p = entries(processed)
    return Entries(ids, p / p.sum())


def regret(row: Row, token: int) -> tuple[float, int]:
    """Greedy decoding: by how many nats the log-probability of `token` falls short of the highest, and the token that has it.

    The lowest id among equals. The difference of two log-probabilities is that of their logits.
    """
    ids, p = entries_of(row)
    top = int(p.argmax())
    index = int(np.searchsorted(ids, token))
    emitted = float(p[index]) if index < len(ids) and ids[index] == token else 0.0
    gap = math.inf if emitted == 0 else math.log(float(p[top])) - math.log(emitted)
    return gap, int(ids[top])
