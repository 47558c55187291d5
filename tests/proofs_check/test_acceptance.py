"""check_acceptance: right rules pass however they accept; wrong ones are caught, each by its kind of symptom."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proofs_check import acceptance, check_acceptance
from proofs_check.acceptance import FORBIDDEN, RESIDUAL, STAGES, Subject, emitted_law, laws
from proofs_check.blocks import exact_blocks
from simulator.acceptance import accept
from simulator.records import Draft

Row = Sequence[Any]


def residual(p: Row, q: Row) -> list[Any]:
    return [max(a - b, 0) for a, b in zip(p, q, strict=True)]


def ratio(p: Any, q: Any, i: int, token: int) -> bool | Any:
    return p[i][token] / q[i][token]


def corrected(p: Any, q: Any, i: int, token: int) -> list[Any]:
    left = residual(p[i], q[i])
    return left if any(left) else list(p[i])


def rule(
    alpha: Callable[..., Any] = ratio,
    weights: Callable[..., Any] = corrected,
    passes: Callable[[Any, Any], Any] = lambda u, a: u < a,
    coin: Callable[..., Any] = lambda coins, i: coins.random(),
    tested: Callable[[int, int], bool] = lambda i, k: True,
    bonus: int = -1,
) -> Callable[..., Any]:
    """The standard rule, whose parts can be replaced."""

    def made(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        for i, token in enumerate(draft):
            if tested(i, len(draft)) and not passes(coin(coins, i), alpha(p, q, i, token)):
                return (*draft[:i], coins.choose(weights(p, q, i, token)))
        return (*draft, coins.choose(p[bonus]))

    return made


# --- right rules ------------------------------------------------------------------------------------------------------------


def standard(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """As in the module's docstring."""
    for i, token in enumerate(draft):
        if not coins.random() * q[i][token] < p[i][token]:
            left = [max(a - b, 0) for a, b in zip(p[i], q[i], strict=True)]
            return (*draft[:i], coins.choose(left if any(left) else p[i]))
    return (*draft, coins.choose(p[-1]))


def sample_and_match(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """C01: draw from the target, go on while the draft token is what was drawn."""
    out: list[int] = []
    for i, row in enumerate(p):
        out.append(coins.choose(row))
        if i == len(draft) or out[-1] != draft[i]:
            break
    return out


def one_hot_rule(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """C02: accept with probability p(d), else p without d."""
    for i, token in enumerate(draft):
        if not coins() < p[i][token]:
            return [*draft[:i], coins.choose([0 if x == token else w for x, w in enumerate(p[i])])]
    return [*draft, coins.choose(p[-1])]


def block_verification(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """C08 (Sun et al. 2024): the longest prefix that passes, past positions that fail."""
    k, kept, weight, weights = len(draft), 0, Fraction(1), [Fraction(1)]
    for i in range(1, k + 1):
        weight = min(weight * p[i - 1][draft[i - 1]] / q[i - 1][draft[i - 1]], 1)
        weights.append(weight)
        h = weight
        if i < k:
            excess = sum(max(weight * a - b, 0) for a, b in zip(p[i], q[i], strict=True))
            rest = excess + 1 - weight
            h = excess / rest if rest else 1
        if next(coins) < h:
            kept = i
    if kept == k:
        return (*draft, coins.choose(p[k]))
    left = [max(weights[kept] * a - b, 0) for a, b in zip(p[kept], q[kept], strict=True)]
    return (*draft[:kept], coins.choose(left if any(left) else p[kept]))


def in_numpy(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """All tests at once, and inverse CDFs, on arrays of whatever numbers."""
    k = len(draft)
    index = np.arange(k), np.array(draft)
    passed = coins.random(k) * q[index] < p[:k][index]
    h = int(np.cumprod(passed).sum())
    row = np.maximum(p[h] - q[h], 0) if h < k else p[k]
    row = row if row.any() else p[h]
    support = np.flatnonzero(row)
    cumulative = np.cumsum(row[support])[:-1]
    return np.array([*draft[:h], support[np.sum(cumulative <= coins.uniform() * row.sum())]])


def in_floats(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    return in_numpy(np.array(p, dtype=float), np.array(q, dtype=float), draft, coins)


def production(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """Ours: coins by their addresses."""
    return accept(Draft(draft, q), p, coins, 1).tokens


def ignores_the_draft(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """AR."""
    return [coins.choose(p[0])]


def uses_a_coin_left_over(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """The correction by the coin of the next test, which had no say in how far it came."""
    u = coins.random(len(draft) + 1)
    passed = [bool(u[i] * q[i][x] < p[i][x]) for i, x in enumerate(draft)]
    h = [*passed, False].index(False)
    weights = corrected(p, q, h, draft[h]) if h < len(draft) else p[h]
    last = max(x for x, w in enumerate(weights) if w)
    v = u[h + (h < len(draft))]
    return (*draft[:h], next((x for x in range(last) if v * sum(weights) < sum(weights[: x + 1])), last))


def by_upper_coins(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    return rule(passes=lambda u, a: a > 1 - u, coin=lambda coins, i: coins.uniform("test", i))(p, q, draft, coins)


@pytest.mark.claim("LEMB3")
@pytest.mark.parametrize(
    ("right", "options"),
    [
        (standard, {}),
        pytest.param(standard, {"one_hot": True}, marks=pytest.mark.slow),
        (production, {"rows": laws}),
        (sample_and_match, {}),
        (one_hot_rule, {}),
        pytest.param(one_hot_rule, {"one_hot": True}, marks=pytest.mark.slow),
        (block_verification, {}),
        pytest.param(in_numpy, {"rows": np.array}, marks=pytest.mark.slow),
        (in_floats, {}),
        (ignores_the_draft, {}),
        pytest.param(uses_a_coin_left_over, {}, marks=pytest.mark.slow),
        (by_upper_coins, {"one_hot": True}),
    ],
)
def test_right_rules_pass(right: Any, options: Any) -> None:
    report = check_acceptance(right, **options)
    assert report.verdict == "EXACT", str(report)
    assert [stage.outcome for stage in report.stages] == ["passed"] * 7
    rounds = ["equal up to rounding" in stage.detail for stage in report.stages]
    assert any(rounds) == (right is in_floats), str(report)


# --- wrong rules ------------------------------------------------------------------------------------------------------------


def softmax(p: Any, q: Any, i: int, token: int) -> list[float]:
    return [math.exp(a - b) for a, b in zip(p[i], q[i], strict=True)]


def unnormalised(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F07: the inverse CDF of p - q as it is."""
    for i, token in enumerate(draft):
        if not coins() < ratio(p, q, i, token):
            u, total = coins(), 0
            left = residual(p[i], q[i])
            for x, w in enumerate(left):
                total += w
                if u < total:
                    return (*draft[:i], x)
            return (*draft[:i], max(x for x, w in enumerate(p[i]) if w))
    return (*draft, coins.choose(p[-1]))


def eager(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F10: the residual is normalised whether it is needed or not."""
    for i, token in enumerate(draft):
        left = residual(p[i], q[i])
        total = sum(left)
        left = [w / total for w in left]
        if not coins() < ratio(p, q, i, token):
            return (*draft[:i], coins.choose(left))
    return (*draft, coins.choose(p[-1]))


def not_a_number(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F10 in numpy: where nothing is left, NaN, and the first id."""
    p, q = np.array(p, dtype=float), np.array(q, dtype=float)
    for i, token in enumerate(draft):
        if not coins() < min(1, p[i, token] / q[i, token]):
            left = np.maximum(p[i] - q[i], 0)
            with np.errstate(invalid="ignore"):
                left = left / left.sum()
            cumulative = np.cumsum(left)
            cumulative[left.argmax() if np.isnan(left).any() else np.flatnonzero(left)[-1] :] = 1
            return [*draft[:i], int(np.argmax(cumulative > coins()))]
    return standard(p[-1:], q[:0], (), coins) if len(draft) == 0 else [*draft, coins.choose(p[-1])]


def reused(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F12: the coin that failed the test draws the correction."""
    for i, token in enumerate(draft):
        u = coins()
        if not u < ratio(p, q, i, token):
            left = corrected(p, q, i, token)
            last = max(x for x, w in enumerate(left) if w)
            total = sum(left)
            return (*draft[:i], next((x for x in range(last) if u < sum(left[: x + 1]) / total), last))
    return (*draft, coins.choose(p[-1]))


def one_for_all(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F13."""
    u = coins()
    return rule(coin=lambda coins, i: u)(p, q, draft, coins)


def mirrored(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """Two tests share a coin, one of them upside down: each alone is right."""
    u = coins.random()
    return rule(coin=lambda coins, i: u if i % 2 else 1 - u)(p, q, draft, coins)


def bonus_reuses(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """The coin of the last test draws the bonus."""
    made: list[Any] = []

    def coin(coins: Any, i: int) -> Any:
        made.append(coins.random())
        return made[-1]

    out = rule(coin=coin)(p, q, draft, coins)
    if len(out) <= len(draft):
        return out
    u, row = made[-1], p[-1]
    last = max(x for x, w in enumerate(row) if w)
    return (*draft, next((x for x in range(last) if u < sum(row[: x + 1])), last))


def typical(p: Any, q: Any, i: int, token: int) -> int:
    return int(p[i][token] >= max(p[i]) / 2)


def next_prediction(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F17: draft i against prediction i + 1."""
    return rule()((*p[1:], p[-1]), q, draft, coins)


def bonus_too(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F19: a bonus token after a rejection."""
    out = standard(p, q, draft, coins)
    return (*out, coins.choose(p[len(out)])) if len(out) <= len(draft) else out


def shifted(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """F04: the stored laws one position late."""
    return rule(alpha=lambda p, q, i, x: p[i][x] / q[i][x] if q[i][x] else int(p[i][x] > 0))(p, (q[0], *q[:-1]), draft, coins)


def holes(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """Counts the tests passed anywhere, not before the first failure."""
    passed = sum(bool(coins() < ratio(p, q, i, x)) for i, x in enumerate(draft))
    if passed == len(draft):
        return (*draft, coins.choose(p[-1]))
    return (*draft[:passed], coins.choose(corrected(p, q, passed, draft[passed])))


def most_likely(p: Any, q: Any, i: int, token: int) -> list[int]:
    left = corrected(p, q, i, token)
    return [int(x == left.index(max(left))) for x in range(len(left))]


def top_k(k: int) -> Callable[..., Any]:
    def kept(p: Any, q: Any, i: int, token: int) -> list[Any]:
        left = corrected(p, q, i, token)
        least = sorted(left)[-k:][0]
        return [w if w >= least else 0 for w in left]

    return kept


def mirrored_correction(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """The correction by one minus the coin that failed the test."""
    for i, token in enumerate(draft):
        u = coins()
        if not u < ratio(p, q, i, token):
            left = corrected(p, q, i, token)
            last = max(x for x, w in enumerate(left) if w)
            return (*draft[:i], next((x for x in range(last) if (1 - u) * sum(left) < sum(left[: x + 1])), last))
    return (*draft, coins.choose(p[-1]))


def reaches_zero(p: Any, q: Any, draft: Any, coins: Any) -> Any:
    """Inverse CDF by u <= cumulative: at u = 0 a leading token without probability is drawn."""

    def draw(row: Any) -> int:
        u, last = coins() * sum(row), max(x for x, w in enumerate(row) if w)
        return next((x for x in range(last) if u <= sum(row[: x + 1])), last)

    for i, token in enumerate(draft):
        if not coins() < ratio(p, q, i, token):
            return (*draft[:i], draw(corrected(p, q, i, token)))
    return (*draft, draw(p[-1]))


L1, L2, L3, L4, EDGES, FLOATS = "law1", "law2", "law3", "law4", "edges", "floats"

WRONG: dict[str, tuple[Any, str, str]] = {
    "F04 stored laws shifted": (shifted, "law", L2),
    "F07 softmax of the residual": (rule(weights=softmax), "law", L1),
    "F07 residual not normalised": (unnormalised, "law", L1),
    "F08 correction from p": (rule(weights=lambda p, q, i, x: p[i]), "law", L1),
    "F09 correction from p without the token": (
        rule(weights=lambda p, q, i, d: [0 if x == d and len(p[i]) > 1 else w for x, w in enumerate(p[i])]),
        "law",
        L1,
    ),
    "F10 p equals q": (eager, "contract", "contract"),
    "F10 nothing left, in floats": (rule(weights=lambda p, q, i, x: residual(p[i], q[i])), "contract", FLOATS),
    "F10 NaN": (not_a_number, "law", FLOATS),
    "F11 u <= alpha": (rule(passes=lambda u, a: u <= a), "law", EDGES),
    "F12 coin reused": (reused, "law", L1),
    "F13 one coin for all tests": (one_for_all, "law", L2),
    "F15 iff p >= q": (rule(alpha=lambda p, q, i, x: int(p[i][x] >= q[i][x])), "law", L1),
    "F15 typical acceptance": (rule(alpha=typical), "law", L1),
    "F17 prediction i + 1": (next_prediction, "law", L1),
    "F19 bonus after a rejection": (bonus_too, "law", L1),
    "coins of two tests mirrored": (mirrored, "law", L2),
    "coin of the last test draws the bonus": (bonus_reuses, "law", L1),
    "the first token is believed": (rule(tested=lambda i, k: i > 0), "law", L1),
    "the last token of a longer block is believed": (rule(tested=lambda i, k: i + 1 < k or k < 2), "law", L2),
    "the third token is believed": (rule(tested=lambda i, k: i != 2), "law", L3),
    "the fourth token is believed": (rule(tested=lambda i, k: i != 3), "law", L4),
    "tests passed anywhere count": (holes, "law", L2),
    "bonus from the row before": (rule(bonus=-2), "law", L1),
    "residual of the row before": (rule(weights=lambda p, q, i, x: corrected(p, q, max(i - 1, 0), x)), "law", L2),
    "the likeliest correction": (rule(weights=most_likely), "law", L1),
    "correction from the 3 likeliest": (rule(weights=top_k(3)), "law", L1),
    "correction from the 50 likeliest": (rule(weights=top_k(50)), "law", L1),
    "correction by the mirrored coin": (mirrored_correction, "law", L1),
    "accepts at the better of two coins": (
        rule(coin=lambda coins, i: (coins(), coins()), passes=lambda u, a: u[0] < a or u[1] < a),
        "law",
        L1,
    ),
    "believes where the target is sure": (
        rule(alpha=lambda p, q, i, x: 1 if p[i][x] > Fraction(19, 20) else p[i][x] / q[i][x]),
        "law",
        L1,
    ),
    "believes the last id": (rule(alpha=lambda p, q, i, x: 1 if x == len(p[i]) - 1 else p[i][x] / q[i][x]), "law", L1),
    "q not below 1/100": (rule(alpha=lambda p, q, i, x: p[i][x] / max(q[i][x], Fraction(1, 100))), "law", L1),
    "p for the residual after the first": (
        rule(weights=lambda p, q, i, x: p[i] if i else corrected(p, q, i, x)),
        "law",
        L2,
    ),
    "lenient by a millionth": (rule(alpha=lambda p, q, i, x: p[i][x] / q[i][x] + Fraction(1, 10**6)), "law", L1),
    "q kept away from 0": (rule(alpha=lambda p, q, i, x: float(p[i][x]) / (float(q[i][x]) + 1e-10)), "law", L1),
    "inverse CDF by <=": (reaches_zero, "law", EDGES),
    "no tokens": (lambda p, q, draft, coins: (), "contract", "contract"),
    "all and two more": (lambda p, q, draft, coins: (*draft, 0, 0), "contract", "contract"),
    "an id beyond the vocabulary": (lambda p, q, draft, coins: (len(p[0]),), "contract", "contract"),
    "floats for ids": (lambda p, q, draft, coins: [float(x) for x in draft], "contract", "contract"),
    "a generator of its own": (lambda p, q, draft, coins: [random.randrange(len(p[0]))], "determinism", "contract"),
    "raises": (lambda p, q, draft, coins: {}[draft], "contract", "contract"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_caught(name: str) -> None:
    wrong, symptom, stage = WRONG[name]
    report = check_acceptance(wrong)
    assert report.verdict == "NOT EXACT", str(report)
    assert report.exit_code == 1
    failed = {finding.stage: finding.symptom for finding in report.findings}
    assert failed.get(stage) == symptom, str(report)
    assert set(failed) == {stage}, str(report)


def test_what_is_right_for_greedy_drafts_alone_passes_for_them() -> None:
    """F09 is the rule for one-hot q."""
    without = WRONG["F09 correction from p without the token"][0]
    assert check_acceptance(without, one_hot=True).verdict == "EXACT"


def test_how_much_rounding_is_allowed_is_said() -> None:
    """Floats of a rule's own make no fault of it, unless that is what is asked."""

    def single(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        return in_numpy(np.array(p, dtype=np.float32), np.array(q, dtype=np.float32), draft, coins)

    assert check_acceptance(in_floats, rounding=0).findings[0].symptom == "law"
    [finding] = check_acceptance(single).findings
    assert "single precision" in finding.counterexample
    detail = STAGES["law1"](Subject(single, rounding=1e-6))
    assert "equal up to rounding, largest difference" in detail
    assert "e-09" in detail or "e-08" in detail


# --- what it says -----------------------------------------------------------------------------------------------------------


def test_the_counterexample_is_small_and_tells_everything() -> None:
    """F13 needs two tests, so two draft tokens of a vocabulary of two; the coin that serves twice shows in its interval."""
    report = check_acceptance(one_for_all)
    [finding] = report.findings
    assert "for a draft of 2" in finding.statement
    lines = finding.counterexample.splitlines()
    assert lines[1] == "after []: p = (1/2, 1/2), q = (1, 0)"
    assert "the output begins with [0, 0] with probability 1/2, autoregressive 1/3" in lines
    assert "total variation of the first 3 output tokens 1/6 = 0.1667" in lines
    assert any("coin 1 in [0, 1/2)" in line and "emits [0, 0, 0]" in line for line in lines)


@pytest.mark.parametrize("wrong", [one_for_all, reused, bonus_too])
def test_the_program_fails_on_the_wrong_rule_and_passes_on_the_right_one(wrong: Any) -> None:
    finding = check_acceptance(wrong).findings[0]
    assert f"import {wrong.__name__} as subject" in finding.program
    with pytest.raises(AssertionError):
        exec(finding.program, {})
    exec(finding.program.replace(f"import {wrong.__name__} ", "import standard "), {})


def test_the_program_of_an_edge_shows_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    finding = check_acceptance(reaches_zero).findings[0]
    exec(finding.program, {})
    shown = eval(capsys.readouterr().out)
    assert f"it emits {list(shown)}, where" in finding.statement
    assert "coins [" in finding.counterexample


def test_a_program_needs_a_rule_and_rows_that_can_be_imported() -> None:
    assert not check_acceptance(WRONG["F08 correction from p"][0]).findings[0].program
    sourced = check_acceptance(WRONG["F08 correction from p"][0], source="from mine import subject").findings[0].program
    assert "from mine import subject" in sourced
    assert not check_acceptance(reused, rows=lambda rows: rows).findings[0].program


def test_emitted_law_is_that_of_the_run_and_what_follows() -> None:
    half, third = Fraction(1, 2), Fraction(1, 3)
    p = {(): (half, half), (0,): (third, 1 - third), (1,): (1, 0)}
    q = {(): (Fraction(1, 4), Fraction(3, 4))}
    expected = {(0, 0): half * third, (0, 1): half * (1 - third), (1, 0): half}
    assert emitted_law(standard, p, q) == expected
    believed = emitted_law(WRONG["the first token is believed"][0], p, q)
    assert believed == {(0, 0): Fraction(1, 12), (0, 1): Fraction(1, 6), (1, 0): Fraction(3, 4)}


def test_bonus_after_a_rejection_is_named() -> None:
    """The law alone would say little of where to look."""
    report = check_acceptance(bonus_too)
    assert "it goes on after a token that is not the draft's" in report.findings[0].counterexample


# --- what can not be said ---------------------------------------------------------------------------------------------------


def test_a_rule_that_hangs_gets_a_finding() -> None:
    def hangs(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        while len(draft) > 1:
            pass
        return standard(p, q, draft, coins)

    report = check_acceptance(hangs, limit=0.5)
    assert {finding.symptom for finding in report.findings} == {"progress"}


def test_a_rule_that_needs_the_value_of_a_coin_is_not_run_and_told_why() -> None:
    """Right or wrong: u = exp(-e) is as good a coin as any."""

    def logarithmic(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        return rule(passes=lambda u, a: math.log(max(u, 1e-300)) < math.log(a) if a else False)(p, q, draft, coins)

    report = check_acceptance(logarithmic)
    assert report.verdict == "NOT RUN"
    assert report.exit_code == 2
    details = {stage.name: stage.detail for stage in report.stages if stage.outcome == "not run"}
    assert "an enumerated coin has no value" in details[L1]
    assert EDGES not in details


def test_a_loop_without_a_bound_has_no_finite_tree() -> None:
    def rejection_sampling(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        while True:
            x = coins.choose(p[0])
            if coins() < Fraction(1, 2):
                return [x]

    report = check_acceptance(rejection_sampling)
    assert report.verdict == "NOT RUN", str(report)
    assert "no finite tree" in report.stages[1].detail


def test_two_tokens_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual of one token says nothing about how a correction is drawn; then the stage is not run."""
    monkeypatch.setattr(acceptance, "exact_blocks", lambda size: (b for b in exact_blocks(size) if b.vocabulary == 2))
    report = check_acceptance(standard)
    assert report.verdict == "NOT RUN"
    assert report.stages[1].detail == f"never reached: {RESIDUAL}"


def test_laws_without_zeros_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [b for b in exact_blocks(1) if all(all(row) for row in b.target.values())]
    monkeypatch.setattr(acceptance, "exact_blocks", lambda size: blocks)
    monkeypatch.setattr(acceptance, "edge_blocks", lambda: iter(blocks))
    report = check_acceptance(standard)
    assert report.stages[1].detail == f"never reached: {FORBIDDEN}"


def test_a_whole_block_must_have_been_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def timid(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        return standard(p[:2], q[:1], draft[:1], coins)

    report = check_acceptance(timid)
    assert [stage.outcome for stage in report.stages].count("not run") == 3
    assert report.stages[2].detail == "never reached: 2 of 2 draft tokens kept"


def test_a_slow_rule_is_tried_on_fewer_laws() -> None:
    """It is no hanging one: half the time for a stage is spent, and what was reached is told."""

    def slow(p: Any, q: Any, draft: Any, coins: Any) -> Any:
        time.sleep(0.002)
        return standard(p, q, draft, coins)

    report = check_acceptance(slow, limit=0.6)
    assert not report.findings, str(report)
    count = len(list(exact_blocks(1)))
    assert f"{count} targets" in check_acceptance(standard).stages[1].detail
    assert f"{count} targets" not in report.stages[1].detail


def test_blocks_are_laws_with_what_the_check_needs() -> None:
    for size in (1, 2, 3, 4):
        by_position = by_prefix = False
        for block in exact_blocks(size):
            assert block.size == size
            rows = [*block.target.values(), *block.proposal.values()]
            assert all(sum(row) == 1 and min(row) >= 0 for row in rows)
            assert sum(weight for _, weight in block.drafts()) == 1
            assert len(block.proposal) == sum(block.vocabulary**m for m in range(size))
            by_length = itertools.groupby(block.proposal.items(), lambda item: len(item[0]))
            same = all(len({row for _, row in group}) == 1 for _, group in by_length)
            by_position, by_prefix = by_position or same, by_prefix or not same
        assert by_position
        assert by_prefix == (size > 1)
