"""The any-order scheduler against the specification, over all small models and orders; planted faults are seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import proofs_check.any_order_scheduler as check
from proofs_check.any_order import NONE, ONE
from proofs_check.any_order_scheduler import Space, check_scheduler
from proofs_check.ledger import Entry
from simulator.any_order import Pairs, Schedule, named
from simulator.any_order import schedule as kernel


def outcomes(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in entries}


def violations(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.detail for entry in entries if entry.outcome == "violated"}


@pytest.mark.claim("PROPC1", "ALG3.L5", "PROGRESS")
def test_it_holds_for_all_models_and_orders() -> None:
    entries = list(check_scheduler("quick"))
    assert outcomes(entries) == dict.fromkeys(check.STATEMENTS, "holds"), entries
    assert "of weight 1 in each of" in entries[0].detail


@pytest.mark.slow
@pytest.mark.claim("PROPC1", "ALG3.L5", "PROGRESS")
def test_it_holds_at_full_budget() -> None:
    assert outcomes(list(check_scheduler("full"))) == dict.fromkeys(check.STATEMENTS, "holds")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    family = [Space(name, 2, 2, 2, eos) for name in check.NAMES for eos in (NONE, ONE)]
    monkeypatch.setattr(check, "spaces", lambda budget: [*family, Space("packed", 2, 3, 3, ONE)])


REAL_APPEND, REAL_WINDOW, REAL_ACCEPT = kernel.append, kernel.window, kernel.accept


def keeps_what_is_beyond(state: Any, new: Pairs) -> Any:
    return state.accepted + new, REAL_APPEND(state, new)[1]


def grows_back(state: Any, new: Pairs) -> Any:
    return REAL_APPEND(state._replace(end=state.limits.max_new_tokens), new)


def too_wide(state: Any, width: int) -> Any:
    return REAL_WINDOW(state, width + 1)


def one_fewer(*arguments: Any) -> Any:
    verdict = REAL_ACCEPT(*arguments)
    return verdict._replace(tokens=verdict.tokens[:1], accepted=min(1, verdict.accepted))


def none_at_all(*arguments: Any) -> Any:
    return REAL_ACCEPT(*arguments)._replace(tokens=(), accepted=0)


@pytest.mark.parametrize(
    ("part", "fault", "claim"),
    [
        ("append", keeps_what_is_beyond, "PROPC1"),
        ("append", grows_back, "PROPC1"),
        ("window", too_wide, "ALG3.L5"),
        ("accept", one_fewer, "PROPC1"),
        ("accept", none_at_all, "PROPC1"),
    ],
)
@pytest.mark.usefixtures("small")
def test_planted_faults_are_seen(part: str, fault: Callable[..., Any], claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, part, fault)
    family = check.spaces("quick")
    monkeypatch.setattr(check, "spaces", lambda budget: [Space("packed", 2, 3, 2, NONE), *family])
    assert claim in violations(list(check_scheduler("quick")))


@pytest.mark.usefixtures("small")
def test_a_scheduler_that_accepts_nothing_makes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "accept", none_at_all)
    monkeypatch.setattr(check, "spaces", lambda budget: [Space("serial", 2, 1, 1, NONE)])
    assert violations(list(check_scheduler("quick")))


@pytest.mark.usefixtures("small")
def test_a_policy_asked_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear-SS that orders anew between its two calls."""

    class Anew(Schedule):
        def request(self, state: Any) -> Any:
            return super().request(state._replace(order=()))

    def made(name: str, *arguments: Any) -> Any:
        policy = named(name, *arguments)
        assert isinstance(policy, Schedule)
        return Anew(policy.name, policy.width, policy.order, policy.opening, policy.cycle) if name == "linear" else policy

    monkeypatch.setattr(check, "named", made)
    found = violations(list(check_scheduler("quick")))
    assert "linear, start algorithm, V=2, L=2, W=2: the scheduler asks for more orders" in found["ALG3.L5"]


def test_what_shows_nothing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "spaces", lambda budget: [Space("packed", 2, 1, 1, NONE)])
    entries = list(check_scheduler("quick"))
    assert set(outcomes(entries).values()) == {"not run"}
    for condition in check.REACHED:
        assert condition in entries[0].detail
