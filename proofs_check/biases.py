"""Samplers with a known bias, and the toy language they speak: what the statistics must reject, to be worth anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from proofs_check.eprocess import Emitted
from proofs_check.reference import UNPROCESSED, Entries, entries_of
from proofs_check.refutations import FreshLaws
from simulator.chance import Chance, Purpose, Sampled, Source, draw
from simulator.decode import Generation, Model, Policy, generate
from simulator.laws import ArrayLaw, Coin, Law
from simulator.oracles.answer import answer
from simulator.processing import Processing
from simulator.records import Call, Draft, Limits, Reply, State, Step, Tokens
from simulator.schedule import Schedule
from simulator.schedules import packed

VOCABULARY = 24
LENGTH = 64  # output tokens per request
WIDTH = 4
_LIMITS = Limits.of(LENGTH)


class Language:
    """A target that depends on the last two tokens, and a drafter that guesses it: well at offset 1, from the unigram beyond.

    Laws are float64, of V = 24 tokens, none of them impossible.
    """

    vocabulary = VOCABULARY

    def __init__(self, seed: int) -> None:
        unigram = self._normal(seed, 0)

        @cache
        def target(last: Tokens) -> ArrayLaw:
            return _softmax(unigram + 1.2 * self._normal(seed, 1, *last[-1:]) + 0.8 * self._normal(seed, 2, *last))

        @cache
        def proposal(last: Tokens, offset: int) -> ArrayLaw:
            known = 1.2 * self._normal(seed, 1, *last[-1:]) if offset == 1 else 0.0
            return _softmax(unigram + known + 0.7 * self._normal(seed, 3, offset, *last))

        self._target, self._proposal = target, proposal
        self._rows: dict[tuple[Tokens, Processing], Entries] = {}

    def target(self, prefix: Tokens) -> ArrayLaw:
        return self._target(prefix[-2:])

    def proposal(self, prefix: Tokens, offset: int) -> ArrayLaw:
        return self._proposal(prefix[-2:], offset)

    def __call__(self, call: Call) -> Reply:
        return answer(call, self.target, self.proposal)

    def row(self, prefix: Tokens, asked: Processing) -> Entries:
        """The target law after processing."""
        key = (prefix[-2:], asked)
        if key not in self._rows:
            self._rows[key] = entries_of(self.target(prefix), asked)
        return self._rows[key]

    @staticmethod
    def _normal(*key: int) -> Any:
        return np.random.default_rng(key).standard_normal(VOCABULARY)


def _softmax(logits: Any) -> ArrayLaw:
    weights = np.exp(logits - logits.max())
    return ArrayLaw(weights / weights.sum())


@dataclass(frozen=True)
class _DrawnFrom(Schedule):
    """Drafts are drawn from processed proposal laws, the unprocessed ones are stored with them."""

    processing: Processing = UNPROCESSED

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        laws = after.draft.laws
        first = after.emitted + 1
        tokens = (draw(self.processing((), law), chance, "draft", first + index) for index, law in enumerate(laws))
        return after._replace(draft=Draft(tuple(tokens), laws)), step


class _Unsubtracted(ArrayLaw):
    """A target whose correction is drawn from itself."""

    def residual(self, proposal: Law) -> ArrayLaw:
        return self


def _corrects_from_target(model: Model) -> Model:
    def run(call: Call) -> Reply:
        reply = model(call)
        return reply._replace(target=tuple(_Unsubtracted(law) for law in reply.target))  # type: ignore[arg-type]

    return run


class _Coins:
    """The coins of `source`, asked for through `ask(coins of the call, purpose, position)`."""

    def __init__(self, source: Source, ask: Callable[[Chance, dict[int, Coin], Purpose, int], Coin]) -> None:
        self.source, self.ask = source, ask

    def at(self, call: int) -> Chance:
        return _CallCoins(self.source.at(call), self.ask)


class _CallCoins:
    def __init__(self, chance: Chance, ask: Callable[[Chance, dict[int, Coin], Purpose, int], Coin]) -> None:
        self.chance, self.ask = chance, ask
        self.tests: dict[int, Coin] = {}

    def uniform(self, purpose: Purpose, position: int) -> Coin:
        return self.ask(self.chance, self.tests, purpose, position)


def _reused(chance: Chance, tests: dict[int, Coin], purpose: Purpose, position: int) -> Coin:
    if purpose == "correct" and position in tests:
        return tests[position]
    coin = chance.uniform(purpose, position)
    if purpose == "test":
        tests[position] = coin
    return coin


def _shared(chance: Chance, tests: dict[int, Coin], purpose: Purpose, position: int) -> Coin:
    return chance.uniform(purpose, 0 if purpose == "test" else position)


def _strict(chance: Chance, tests: dict[int, Coin], purpose: Purpose, position: int) -> Coin:
    return 1 - 2.0**-53 if purpose == "test" else chance.uniform(purpose, position)


def _same(value: Any) -> Any:
    return value


class Bias(NamedTuple):
    """One way to be wrong: what is done to the schedule, the model and the coins of a run, and what the request asks for."""

    what: str
    schedule: Policy = packed(WIDTH)
    model: Callable[[Model], Model] = _same
    chance: Callable[[Source], Source] = _same
    asked: Processing = UNPROCESSED


def _faulty(kind: type[Schedule], **more: Any) -> Schedule:
    right = packed(WIDTH)
    return kind(right.name, right.opening, right.cycle, **more)


SHARP, NUCLEUS = Processing(temperature=0.7), Processing(top_p=0.9)
BIASES: dict[str, Bias] = {
    "argmax draft": Bias("the draft is the argmax, its soft law is stored", _faulty(_DrawnFrom, processing=Processing(0))),
    "top-k draft": Bias(
        "the draft is drawn from the 3 likeliest, the whole law is stored", _faulty(_DrawnFrom, processing=Processing(top_k=3))
    ),
    "residual ignored": Bias("the correction is drawn from p", model=_corrects_from_target),
    "stale q": Bias("the test uses q recomputed from the newer prefix, not the stored one", _faulty(FreshLaws)),
    "filter missing": Bias("verifier laws lack the top-p filter asked for", asked=NUCLEUS),
    "temperature missing": Bias("verifier laws lack the temperature asked for", asked=SHARP),
    "coin reused": Bias("the coin of the failed test draws the correction", chance=lambda source: _Coins(source, _reused)),
    "one coin for all tests": Bias("the tests of a call share one coin", chance=lambda source: _Coins(source, _shared)),
    "no coin for tests": Bias("a draft token passes only if p >= q", chance=lambda source: _Coins(source, _strict)),
}


def runs(language: Language, bias: Bias, seed: int, limits: Limits = _LIMITS) -> Iterator[Generation]:
    """Requests with the empty prompt, without end, each under coins of its own."""
    model = bias.model(language)
    for request in count():
        yield generate(model, bias.schedule, (), limits, bias.chance(Sampled(seed, request)))


def emitted(language: Language, tokens: Tokens, asked: Processing = UNPROCESSED) -> list[Emitted]:
    """An output to the empty prompt, with the laws it should have been drawn from."""
    return [Emitted(token, language.row(tokens[max(0, index - 2) : index], asked)) for index, token in enumerate(tokens)]
