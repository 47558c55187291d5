"""Numbers nobody wrote down before come out the same from independent paths: the chain, the engines, the laws, and spec/."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import factorial

import numpy as np
import pytest

from proofs_check.declared import declared_nfe
from proofs_check.exhaustive import counts
from simulator import Limits, exact_law, linear, packed, quadratic
from simulator.laws import RationalLaw
from simulator.nfe import count
from simulator.nfe.laws import Chain, acceptance
from simulator.oracles import TabularModel, ThresholdModel
from spec import greedy
from spec.run import Given
from spec.thresholds import threshold_model

MAKERS = {"linear": linear, "packed": packed, "quadratic": quadratic}


@pytest.mark.claim("NFE-CONV")
@pytest.mark.parametrize("start", ["algorithm", "wide", "sampled"])
@pytest.mark.parametrize("name", ["linear", "packed"])
def test_sums_over_all_thresholds(name: str, start: str) -> None:
    """L = 5, W = 3: chain, both compiled engines, spec."""
    length, width = 5, 3
    vectors = list(itertools.product(*(range(k + 1) for k in range(1, length + 1))))
    assert len(vectors) == factorial(length + 1)
    array = np.array(vectors)
    schedule = MAKERS[name](width, start)
    by_kernel = int(counts(array, width, name, start).sum())
    by_engine = int(count(np.arange(1, length + 1) - array, [schedule]).sum())
    by_chain = by_spec = Fraction(0)
    for thresholds in vectors:
        by_chain += exact_law(schedule, ThresholdModel(thresholds), (), Limits.of(length)).expected_nfe
        p, q = threshold_model(thresholds)
        by_spec += greedy.run(name, Given((), width, length, p, q), start).NFE
    assert by_kernel == by_engine == by_chain == by_spec


@pytest.mark.claim("NFE-CONV")
@pytest.mark.parametrize("start", ["algorithm", "sampled"])
@pytest.mark.parametrize("name", MAKERS)
def test_expectations_when_every_draft_token_has_the_same_odds(name: str, start: str) -> None:
    """L = 5, W = 3, laws that do not depend on the context: a draft token is accepted with probability sum min(p, q)."""
    p, q = RationalLaw.weighted((1, 2, 4)), RationalLaw.weighted((4, 2, 1))
    odds = sum((min(a, b) for a, b in zip(p.probabilities, q.probabilities, strict=True)), Fraction(0))
    model, limits = TabularModel(lambda prefix: p, lambda prefix, offset: q), Limits.of(5)
    schedule = MAKERS[name](3, start)
    chain = exact_law(schedule, model, (), limits)
    by_spec = declared_nfe(name, start, model, 3, 3, (), limits)
    by_law = Chain(schedule, acceptance(odds)).nfe_law(5)
    assert chain.nfe == by_spec == {calls: mass for calls, mass in enumerate(by_law) if mass}
    assert len(chain.nfe) > 1
