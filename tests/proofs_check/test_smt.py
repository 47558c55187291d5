"""SMT obligations: proved, and every way in which one must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from proofs_check import smt
from proofs_check.ledger import Entry
from proofs_check.smt import OBLIGATIONS, Drafting, Formula, Obligation, Symbols, Values, prove, smt_lib


@pytest.mark.claim("LEMB1")
@pytest.mark.claim("LEMB2")
@pytest.mark.claim("LEMB3")
@pytest.mark.claim("THM3.2")
@pytest.mark.claim("EQ5")
@pytest.mark.parametrize("name", OBLIGATIONS)
def test_every_obligation_is_proved_and_its_mutant_refuted(name: str) -> None:
    entry = prove(name)
    assert (entry.outcome, entry.method, entry.bound) == ("holds", "SMT", "unbounded"), entry.detail
    assert "negation unsat" in entry.detail
    assert f"mutated ({OBLIGATIONS[name].mutant}) refuted by" in entry.detail
    assert smt_lib(name).startswith(f"; {name}: {OBLIGATIONS[name].text}\n")


def test_the_text_says_the_same_to_any_solver_that_reads_it() -> None:
    import z3

    for name in OBLIGATIONS:
        reader = z3.Solver()
        reader.from_string(smt_lib(name))
        assert str(reader.check()) == "unsat", name
        assert smt_lib(name) == smt_lib(name)
        assert "'" not in smt_lib(name).split("(set-logic", 1)[1]  # no legal character of an SMT-LIB symbol
    with pytest.raises(KeyError):
        smt_lib("LEMB9/none")


def planted(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> Entry:
    """The verdict on an obligation with some of its fields replaced."""
    monkeypatch.setitem(OBLIGATIONS, name, replace(OBLIGATIONS[name], **changes))
    return prove(name)


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_a_mutant_in_the_place_of_the_statement_is_violated_with_a_counterexample(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = OBLIGATIONS[name]
    entry = planted(
        monkeypatch,
        name,
        formula=lambda s, mutated: old.formula(s, True),
        plain=lambda v, mutated: old.plain(v, True),
    )
    assert entry.outcome == "violated"
    assert entry.detail.startswith("counterexample: ")


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_a_true_statement_in_the_place_of_the_mutant_is_not_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing refutes it, so nothing shows that the encoding can be refuted at all."""
    old = OBLIGATIONS[name]
    entry = planted(
        monkeypatch,
        name,
        formula=lambda s, mutated: old.formula(s, False),
        plain=lambda v, mutated: old.plain(v, False),
    )
    assert entry.outcome == "not run"
    assert entry.detail == f"not refuted, though false: {old.mutant}: unsat"


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_contradictory_assumptions_are_not_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing everything follows: unsat alone proves nothing."""
    old = OBLIGATIONS[name]

    def impossible(s: Any, mutated: bool) -> Formula:
        formula = old.formula(s, mutated)
        return formula if mutated else replace(formula, given=s.z3.And(formula.given, s.z3.BoolVal(False)))

    entry = planted(monkeypatch, name, formula=impossible)
    assert entry.outcome == "not run"
    assert entry.detail == "the assumptions have no model in which the claim says something: unsat"


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_a_formula_that_is_not_what_python_says_is_not_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models are replayed: a witness whose assumptions fail there, and a mutant that is true there, do not count."""
    old = OBLIGATIONS[name]
    entry = planted(monkeypatch, name, plain=lambda v, mutated: (False, True))
    assert entry.outcome == "not run"
    assert entry.detail.startswith(
        "the assumptions have no model in which the claim says something: plain Python disagrees (assumptions False"
    )
    entry = planted(monkeypatch, name, plain=lambda v, mutated: (True, True))
    assert entry.outcome == "not run"
    assert "plain Python disagrees (assumptions True, claim True)" in entry.detail
    monkeypatch.setitem(OBLIGATIONS, name, old)


def test_a_wrong_encoding_of_b1_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One relation wrong, the statements and their Python twins right: no obligation about it may hold."""
    is_f, verified = Drafting.is_f, Drafting.verified
    monkeypatch.setattr(smt, "TIMEOUT_MS", {"quick": 200})

    def outcomes(*names: str) -> set[str]:
        return {prove(name).outcome for name in names}

    # F without its cap c + W + 1: no longer where a fresh draft ends, no longer reached in two passes.
    def uncapped(self: Drafting, f: Any, c: Any, *, mutated: bool = False) -> Any:
        return self.z3.And(f > c, self.every(c, f, lambda k: self.c_star(k) <= c), self.c_star(f) > c)

    monkeypatch.setattr(Drafting, "is_f", uncapped)
    assert outcomes("LEMB1/fresh", "LEMB2/two-passes", "THM3.2/step-by-F") <= {"violated", "not run"}
    monkeypatch.setattr(Drafting, "is_f", is_f)

    # Packed-SS that keeps one proposal too few: both lemmas' consequences fail.
    def shorter(self: Drafting, end: Any, context: Any, begin: Any, extra: int = 0) -> Any:
        return verified(self, end, context, begin, extra - (begin is not context))

    monkeypatch.setattr(Drafting, "verified", shorter)
    names = ("LEMB2/two-passes", "THM3.2/step-by-F", "THM3.2/step", "ASM-REACH/two-passes", "ASM-REACH/step", "BOUND-2D/step")
    assert outcomes(*names) == {"not run"}  # z3 refutes them, but with models that are no runs of Packed-SS


def test_the_same_fault_in_both_the_formula_and_python_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed-SS that keeps one proposal too few, as a schedule and not as a slip: the theorem is false of it."""
    verified, plain = Drafting.verified, Values.verified

    def shorter(self: Any, end: Any, context: Any, begin: Any, extra: int = 0) -> Any:
        return verified(self, end, context, begin, extra - (begin is not context))

    monkeypatch.setattr(Drafting, "verified", shorter)
    monkeypatch.setattr(
        Values, "passes", lambda v: v["c"] < v["c1"] and v["c2"] == [plain(v, v.numbers["c"], v.numbers["c1"], extra=-1)]
    )
    entry = prove("THM3.2/step")
    assert entry.outcome == "violated"
    assert entry.detail.startswith("counterexample: W = ")


def test_an_unknown_is_not_run_with_the_reason_z3_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """x^3 + y^3 = z^3 over positive integers, and no time for it."""

    def fermat(s: Symbols, mutated: bool) -> Formula:
        x, y, z = s.ints("x y z")
        return Formula(s.z3.And(x > 0, y > 0, z > 0), x * x * x + y * y * y != z * z * z)

    monkeypatch.setattr(smt, "TIMEOUT_MS", {"quick": 50, "full": 50})
    obligation = Obligation("LEMB1", "Fermat, n = 3", "", Symbols, fermat, lambda v, mutated: (True, True))
    monkeypatch.setitem(OBLIGATIONS, "fermat", obligation)
    entry = prove("fermat")
    assert entry.outcome == "not run"
    assert entry.detail.startswith("z3 answers unknown (")


def test_a_bounded_copy_asks_about_every_position_and_none_beyond() -> None:
    """Without c + W + 1 <= BOUND a draft could run past the tables that the models are read into."""
    s = Drafting(bound=smt.BOUND)
    c, end = s.ints("c end")
    formula = s.verified(end, c, c)
    solver = s.z3.Solver()
    solver.add(*s.domain, formula, c + s.width + 1 > smt.BOUND)
    assert str(solver.check()) == "unsat"


def test_values_read_like_a_counterexample() -> None:
    points = range(smt.BOUND + 1)
    z = {(k, c): int(k == 2) for k in points for c in points}
    values = Values({"W": 2, "c": 0}, {"x": dict.fromkeys(((k,) for k in points), 1), "z": z})
    assert str(values) == "W = 2, c = 0, drafted right: [2] from 0, [2] from 1"
    assert values.verified(0, 0) == 1
    assert values.verified(0, 1) == 3  # position 2 right, and a token behind the last proposal
    assert values.verified(0, 4) == 5  # nothing is left of the proposals


def test_checks_list_one_name_per_obligation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check.name for check in smt.CHECKS] == [f"smt/{name}" for name in OBLIGATIONS]
    run: Callable[..., Any] = smt.CHECKS[0].run
    (entry,) = run("full")
    assert (entry.claim, entry.outcome) == ("LEMB1", "holds")
