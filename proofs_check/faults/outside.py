"""The same faults as those see them who bring no schedule: an acceptance rule, a drafter, a decoder that is only its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proofs_check.faults.planting import Rule
from simulator.chance import Chance, Sampled, draw
from simulator.decode import Policy, generate
from simulator.laws import ArrayLaw, Law, RationalLaw
from simulator.oracles import random_tables
from simulator.oracles.answer import Oracle
from simulator.processing import Processing, processed
from simulator.records import Draft, Limits, Tokens
from simulator.schedules import packed


def as_function(rule: Rule) -> Callable[..., Tokens]:
    """A rule of ours as `check_acceptance` wants it: rule(p, q, draft, coins) -> the tokens emitted."""

    def law(row: Sequence[Any]) -> Law:
        return ArrayLaw(row) if isinstance(row[0], float) else RationalLaw(row)

    def function(p: Sequence[Any], q: Sequence[Any], draft: Tokens, coins: Any) -> Tokens:
        return rule(Draft(draft, tuple(map(law, q))), tuple(map(law, p)), coins, 1).tokens

    return function


def drafting(drawn: Callable[[Law], Law], declared: Callable[[Law], Law]) -> Callable[..., Any]:
    """A drafter that draws from one law of its own and declares another."""
    tables = random_tables(3, 5)

    def drafter(context: Tokens, width: int, coins: Chance) -> tuple[Tokens, list[Law]]:
        laws = [tables.proposal(context, j) for j in range(1, width + 1)]
        tokens = tuple(draw(drawn(law), coins, "draft", j) for j, law in enumerate(laws, 1))
        return tokens, [declared(law) for law in laws]

    return drafter


EOS = (7,)
_PACKED = packed(4)


def decoding(
    model: Oracle, asked: Processing, schedule: Policy = _PACKED, wrap: Callable[..., Any] = processed
) -> Callable[[list[int], int, int], Tokens]:
    """A decoder that shows only its tokens."""
    wrapped = wrap(model, asked)

    def run(prompt: list[int], max_new_tokens: int, seed: int) -> Tokens:
        return generate(wrapped, schedule, prompt, Limits.of(max_new_tokens, EOS), Sampled(seed)).tokens

    return run
