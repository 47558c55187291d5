"""Acceptance rules: the production rule in one function whose every part can be replaced, wrong rules, and other right ones.

All have the signature of `simulator.acceptance.accept`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from proofs_check.faults.planting import Rule
from simulator.acceptance import Verdict, acceptance_probability
from simulator.chance import Chance, draw
from simulator.laws import Coin, Law, Point, Probability, RationalLaw
from simulator.records import Draft


def _strictly(coin: Coin, alpha: Probability) -> bool:
    return bool(coin < alpha)


def _test(chance: Chance, position: int, index: int) -> Coin:
    return chance.uniform("test", position)


def _residual(target: Law, stored: Law, token: int) -> Law | None:
    return target.residual(stored)


def rule(
    alpha: Callable[[Law, Law, int], Probability] = acceptance_probability,
    passes: Callable[[Coin, Probability], bool] = _strictly,
    coin: Callable[[Chance, int, int], Coin] = _test,
    corrected: Callable[[Law, Law, int], Law | None] = _residual,
    correction: Callable[[Law, Chance, int, bool], int] = lambda law, chance, position, rejected: draw(
        law, chance, "correct", position
    ),
    row: int = 0,
    trusted: Callable[[int, int], bool] = lambda index, token: False,
) -> Rule:
    """Accept-or-correct. `row` is added to the index of the target law a token is tested against; `trusted` skips a test."""

    def accept(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
        h = 0
        for index, (token, stored) in enumerate(zip(draft.tokens, draft.laws, strict=True)):
            law = target[min(max(index + row, 0), len(target) - 1)]
            if not trusted(index, token):
                bound = alpha(law, stored, token)
                if bound < 1 and not passes(coin(chance, first + index, index), bound):
                    break
            h += 1
        rejected = h < len(draft.tokens)
        residual = corrected(target[h], draft.laws[h], draft.tokens[h]) if rejected else target[h]
        token = correction(target[h] if residual is None else residual, chance, first + h, rejected)
        return Verdict(h, (*draft.tokens[:h], token), residual is None)

    return accept


# --- parts that are wrong ---------------------------------------------------------------------------------------------------


def mass(target: Law, stored: Law) -> dict[int, Fraction]:
    """[p - Q]+, not normalised."""
    left = {x: Fraction(target.probability(x)) - Fraction(stored.probability(x)) for x in target.support}
    return {x: m for x, m in left.items() if m > 0}


def law_of(weights: dict[int, Any], of: Law) -> Law | None:
    """The law proportional to these weights, of the kind and size of another law; None for no weight at all."""
    total = sum(weights.values())
    if not total:
        return None
    size = max([*weights, *of.support]) + 1
    return RationalLaw(Fraction(weights.get(x, 0)) / Fraction(total) for x in range(size))


def softmax_residual(target: Law, stored: Law, token: int) -> Law | None:
    """The positive part, through a softmax in place of a division."""
    left = mass(target, stored)
    return law_of({x: Fraction(math.exp(float(left.get(x, 0)))) for x in target.support}, target)


def absolute_residual(target: Law, stored: Law, token: int) -> Law | None:
    """|p - Q| in the place of [p - Q]+."""
    ids = sorted({*target.support, *stored.support})
    return law_of({x: abs(Fraction(target.probability(x)) - Fraction(stored.probability(x))) for x in ids}, target)


def ratio_residual(target: Law, stored: Law, token: int) -> Law | None:
    """max(0, 1 - Q / p) in the place of [p - Q]+."""
    return law_of({x: m / Fraction(target.probability(x)) for x, m in mass(target, stored).items()}, target)


class Unnormalised:
    """Inverse CDF over masses that do not sum to 1: what is missing falls to the last token."""

    certain = None

    def __init__(self, masses: dict[int, Fraction]) -> None:
        self.masses = masses

    def draw(self, coin: Coin) -> int:
        total = Fraction(0)
        for token, m in sorted(self.masses.items()):
            total += m
            if coin < total:
                return token
        return max(self.masses)


def unnormalised_residual(target: Law, stored: Law, token: int) -> Any:
    """[p - Q]+ as it is."""
    if target.certain is not None:
        return target.residual(stored)
    left = mass(target, stored)
    return Unnormalised(left) if left else None


def without_rejected(target: Law, stored: Law, token: int) -> Law | None:
    """p with the rejected token removed: the residual of a point mass, whatever the stored law is."""
    return target.residual(Point(token))


def from_target(target: Law, stored: Law, token: int) -> Law:
    """p itself."""
    return target


def divided(target: Law, stored: Law, token: int) -> Law:
    """The residual of a rule that knows no mass of 0."""
    residual = target.residual(stored)
    if residual is None:
        raise ZeroDivisionError("the residual has mass 0")
    return residual


class NotANumber:
    """What inverse CDF makes of a law of NaNs: no comparison holds, so the last id of the vocabulary is drawn."""

    certain = None

    def __init__(self, last: int) -> None:
        self.last = last

    def draw(self, coin: Coin) -> int:
        return self.last


def not_a_number(target: Any, stored: Law, token: int) -> Any:
    """0 / 0 in floating point."""
    residual = target.residual(stored)
    last = len(getattr(target, "probabilities", target.support)) - 1
    return NotANumber(last) if residual is None else residual


def whole(target: Law, stored: Law, token: int) -> Probability:
    """Accept iff p >= q: no uniform."""
    return int(target.probability(token) >= stored.probability(token))


def typical(target: Law, stored: Law, token: int) -> Probability:
    """Typical acceptance: accept iff p exceeds a bound that falls with the entropy of the target."""
    p = [float(target.probability(x)) for x in target.support]
    entropy = -sum(x * math.log(x) for x in p)
    return int(float(target.probability(token)) > min(0.3, 0.6 * math.exp(-entropy)))


def lenient(target: Law, stored: Law, token: int) -> Probability:
    """The ratio doubled: faster, and not exact."""
    return min(1, 2 * acceptance_probability(target, stored, token))


def padded(fill: int, width: int) -> Rule:
    """Draft slots that were only padding count as matches, and their fill token is emitted."""
    production = rule()

    def accept(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
        verdict = production(draft, target, chance, first)
        spare = width - len(draft.tokens) if verdict.accepted == len(draft.tokens) else 0
        return Verdict(verdict.accepted, (*verdict.tokens, *(fill,) * spare), verdict.fallback)

    return accept


def bonus_after_rejection(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
    """The token of the next verifier row is emitted after the correction: A = h + 2."""
    verdict = rule()(draft, target, chance, first)
    if verdict.accepted == len(draft.tokens):
        return verdict
    extra = draw(target[verdict.accepted + 1], chance, "correct", first + verdict.accepted + 1)
    return verdict._replace(tokens=(*verdict.tokens, extra))


def not_reverted(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
    """The whole draft stays, and the correction comes after it."""
    verdict = rule()(draft, target, chance, first)
    return verdict._replace(tokens=(*draft.tokens, verdict.tokens[-1]))


def one_uniform(chance: Chance, position: int, index: int) -> Coin:
    """The same coin for every test of a call."""
    return chance.uniform("test", position - index)


def reused(law: Law, chance: Chance, position: int, rejected: bool) -> int:
    """The correction drawn with the uniform of the test that failed."""
    return draw(law, chance, "test" if rejected else "correct", position)


# --- right rules of another kind --------------------------------------------------------------------------------------------


def sample_and_match(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
    """C01: draw from the target, go on while the draft says the same, always emit what was drawn."""
    tokens: tuple[int, ...] = ()
    for index, law in enumerate(target):
        tokens += (draw(law, chance, "correct", first + index),)
        if index == len(draft.tokens) or draft.tokens[index] != tokens[-1]:
            break
    return Verdict(len(tokens) - 1, tokens, False)


one_hot = rule(alpha=lambda target, stored, token: target.probability(token), corrected=without_rejected)
"""C02: accept with probability p(d), else draw from p with d removed. Right for one-hot proposals, and only for them."""


def block_verification(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
    """C08 (Sun et al. 2024): the longest accepted sub-block, also past a position that would fail alone."""
    n = len(draft.tokens)
    joint: list[Any] = [Fraction(1)]
    for i, (token, stored) in enumerate(zip(draft.tokens, draft.laws, strict=True)):
        ratio = Fraction(target[i].probability(token)) / Fraction(stored.probability(token))
        joint.append(min(Fraction(1), joint[-1] * ratio))

    def left(i: int) -> dict[int, Fraction]:
        """[joint_i p - Q]+ at the position after i draft tokens."""
        return {
            x: m
            for x in target[i].support
            if (m := joint[i] * Fraction(target[i].probability(x)) - Fraction(draft.laws[i].probability(x))) > 0
        }

    h = 0
    for i in range(n, 0, -1):
        rest = sum(left(i).values(), Fraction(0)) if i < n else Fraction(0)
        bound = joint[n] if i == n else rest / (rest + 1 - joint[i]) if rest else Fraction(0)
        if bound >= 1 or (bound > 0 and chance.uniform("test", first + i - 1) < bound):
            h = i
            break
    residual = target[n] if h == n else law_of(left(h), target[h])
    token = draw(target[h] if residual is None else residual, chance, "correct", first + h)
    return Verdict(h, (*draft.tokens[:h], token), residual is None)


def block_bound_alone(draft: Draft, target: Sequence[Law], chance: Chance, first: int) -> Verdict:
    """Block verification whose correction is the token-by-token residual: not exact."""
    verdict = block_verification(draft, target, chance, first)
    h = verdict.accepted
    if h == len(draft.tokens):
        return verdict
    law = target[h].residual(draft.laws[h])
    return verdict._replace(tokens=(*draft.tokens[:h], draw(law or target[h], chance, "correct", first + h)))
