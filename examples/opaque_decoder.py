"""A decoder of which only the tokens can be seen, against the model it claims to sample from.

Two engines sample from one small language with Packed-SS. One of them draws its corrections from the target instead of the
residual: its acceptance rate is right, every token it emits is plausible, and only a test of the law finds it.

    python examples/opaque_decoder.py
"""

from __future__ import annotations

from collections.abc import Sequence

from proofs_check import check_decoder
from simulator import ArrayLaw, Call, Law, Limits, Reply, Sampled, generate, packed
from simulator.oracles import TabularModel, random_tables

exact = random_tables(vocabulary=6, seed=2)
# Any function from a context to a law will do as the reference; a real model has realmodel.reference.CausalReference.
language = TabularModel(
    lambda context: ArrayLaw([float(p) for p in exact.target(context[-3:]).probabilities]),
    lambda context, offset: ArrayLaw([float(p) for p in exact.proposal(context[-3:], offset).probabilities]),
)


def right(prompt: Sequence[int], max_new_tokens: int, seed: int) -> tuple[int, ...]:
    return generate(language, packed(4), prompt, Limits.of(max_new_tokens), Sampled(seed)).tokens


class NoResidual(ArrayLaw):
    """A target law whose residual is the law itself."""

    def residual(self, proposal: Law) -> ArrayLaw:
        return self


def biased(prompt: Sequence[int], max_new_tokens: int, seed: int) -> tuple[int, ...]:
    def model(call: Call) -> Reply:
        reply = language(call)
        return reply._replace(target=tuple(NoResidual(law) for law in reply.target))

    return generate(model, packed(4), prompt, Limits.of(max_new_tokens), Sampled(seed)).tokens


if __name__ == "__main__":
    prompts = [(0,), (1, 2), (3, 4, 5)]
    for engine in (right, biased):
        print(check_decoder(engine, language, prompts, max_new_tokens=50))
        print()
