"""Order policies by themselves: the named ones are what their texts say, wrong ones get a finding."""

from __future__ import annotations

from typing import Any

import pytest

from proofs_check import check_order
from proofs_check.any_order_policy import STAGES
from simulator import InvalidInput
from simulator.any_order import Known, confidence, left_to_right, peak, right_to_left, shuffled, within
from simulator.any_order.orders import along


@pytest.mark.claim("ANY-ORDER-ADAPTIVE")
@pytest.mark.parametrize(
    ("policy", "sees"),
    [
        (left_to_right, []),
        (right_to_left, []),
        (along((2, 1, 3)), []),
        (within(right_to_left, 2), []),
        (peak, ["the laws of the draft", "scores"]),
        (lambda known: sorted(known.window, key=lambda j: hash((j, known.accepted)) % 97), ["accepted tokens"]),
        (lambda known: known.window[:: -1 if known.end % 2 else 1], ["E"]),
    ],
)
def test_orders_that_sampling_may_have(policy: Any, sees: list[str]) -> None:
    report = check_order(policy)
    assert report.verdict == "EXACT", str(report)
    assert report.exit_code == 0
    [detail] = [stage.detail for stage in report.stages if stage.name == "sight"]
    for name in sees:
        assert name in detail
    assert ("laws" in detail) == ("the laws of the draft" in sees)


def test_the_number_of_accepted_tokens_is_no_secret() -> None:
    assert check_order(shuffled(1)).verdict == "EXACT"


calls: list[int] = []


def moody(known: Known) -> Any:
    calls.append(1)
    return known.window[:: 1 if len(calls) % 3 else -1]


def vandal(known: Known) -> Any:
    known.scores.clear()  # type: ignore[attr-defined]
    return known.window


def raises(known: Known) -> Any:
    raise KeyError(known.window)


@pytest.mark.parametrize(
    ("policy", "symptom", "stage"),
    [
        (confidence, "law", "sight"),
        (
            lambda known: sorted(known.window, key=lambda j: (known.draft[j].token if j in known.draft else 0, j)),
            "law",
            "sight",
        ),
        (lambda known: known.window[1:], "contract", "permutation"),
        (lambda known: None, "contract", "permutation"),
        (raises, "contract", "permutation"),
        (moody, "determinism", "purity"),
        (vandal, "contract", "purity"),
    ],
)
def test_others_get_a_finding(policy: Any, symptom: str, stage: str) -> None:
    report = check_order(policy)
    assert [(found.symptom, found.stage) for found in report.findings] == [(symptom, stage)], str(report)
    assert report.findings[0].counterexample.startswith("window [")
    assert [each.name for each in report.stages] == list(STAGES)


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidInput, match="an order policy is a function of what is known, got 3"):
        check_order(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="the seed must be >= 0, got -1"):
        check_order(left_to_right, seed=-1)


END = 151_643


def _first(known: Known, wanted: Any) -> Any:
    return sorted(known.window, key=lambda j: (not (j in known.draft and wanted(known.draft[j].token)), j))


def end_first(known: Known) -> Any:
    return _first(known, lambda token: token == END)


def end_in_a_set_first(known: Known) -> Any:
    return _first(known, lambda token: token in {END})


def drawn_in_a_wide_window(known: Known) -> Any:
    return _first(known, lambda token: token == 0) if len(known.window) > 8 else known.window


@pytest.mark.parametrize("policy", [end_first, drawn_in_a_wide_window])
def test_a_look_at_a_rare_token_or_in_a_wide_window_is_found(policy: Any) -> None:
    report = check_order(policy)
    assert [(found.symptom, found.stage) for found in report.findings] == [("law", "sight")], str(report)


def test_a_look_that_made_no_difference_is_not_called_exact() -> None:
    report = check_order(end_in_a_set_first)
    assert (report.verdict, report.findings) == ("NOT RUN", ())
    assert "looks at which draft tokens were drawn" in str(report)
