"""The Rocq proofs: closed, tagged, told in the docs, and about the code that runs. Without coqc only the texts are read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proofs_check import proved, rocq_tie
from proofs_check.beyond import BEYOND
from proofs_check.ledger import Budget
from proofs_check.proved import FILES, INSTALL, Library, Rejected
from proofs_check.refutations import FAULTS, make
from proofs_check.rocq_tie import (
    ALL_STARTS,
    SETS,
    TIES,
    WIDTHS,
    Case,
    Tables,
    compare,
    laws,
    matrices,
    orders,
    positions,
    tokens,
)
from simulator import Schedule
from spec.claims import CLAIMS

ROOT = Path(__file__).parents[2]
rocq = pytest.mark.skipif(shutil.which("coqc") is None, reason=f"the Rocq proofs need coqc: {INSTALL}")


# The texts


@pytest.mark.parametrize("file", FILES)
def test_tags_name_claims_and_every_refuted_variant_is_of_a_proved_claim(file: str) -> None:
    theorems = Library().theorems(file)
    assert len(theorems) == len(re.findall(r"^\(\* (?:claim|refuted): ", Library().text(file), flags=re.MULTILINE))
    assert {theorem.claim for theorem in theorems} <= CLAIMS.keys() | BEYOND.keys()
    assert {t.claim for t in theorems if t.refutes} <= {t.claim for t in theorems if not t.refutes}


def test_the_main_claims_are_proved_and_a_stronger_variant_of_each_refuted() -> None:
    theorems = [theorem for file in FILES for theorem in Library().theorems(file)]
    assert {t.claim for t in theorems if not t.refutes} >= {
        *("EQ6", "LEMB1", "LEMB2", "THM3.2", "EQ5", "LEMB3", "LEMB4", "EQ7", "THM3.3", "COR-GREEDY", "BRANCH0"),
        *("PROPC1", "PROGRESS", "STOP", "DRAFTLEN", "DOM-WIDE", "DOM-SAMPLED", "DOM-ANYORDER"),
        *("ASM-NEEDED", "ASM-REACH", "BOUND-2D", "BOUND-RATIO"),
    }
    assert {t.claim for t in theorems if t.refutes} >= {
        *("LEMB1", "LEMB2", "THM3.2", "EQ5", "THM3.3", "PROPC1", "PROGRESS", "STOP", "DRAFTLEN"),
        *("DOM-WIDE", "DOM-SAMPLED", "DOM-ANYORDER", "ASM-NEEDED", "ASM-REACH", "BOUND-2D", "BOUND-RATIO"),
    }


@pytest.mark.parametrize("file", FILES)
def test_no_command_leaves_a_gap(file: str) -> None:
    assert not Library().gaps(file)
    assert "Theorem" in Library().text(file)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Admitted.", ["Admitted"]),
        ("Axiom choice : 1 = 1.", ["Axiom"]),
        ("Parameters x y : nat.", ["Parameters"]),
        ("Unset Guard Checking.", ["Unset Guard Checking"]),
        ("(* not Admitted (* nor an Axiom *) here *)", []),
        ("Definition Axiomatic := 1.", []),
    ],
)
def test_planted_gaps_are_found(line: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "Planted.v").write_text(f"Lemma a : True.\n{line}\n")
    assert Library(tmp_path).gaps("Planted") == found


def test_the_docs_name_theorems_that_exist_and_every_claim_that_was_proved() -> None:
    text = (ROOT / "docs" / "proofs.md").read_text()
    theorems = [theorem for file in FILES for theorem in Library().theorems(file)]
    known = {file: {theorem.name for theorem in Library().theorems(file)} for file in FILES}
    rows = re.findall(rf"^\| ({'|'.join(FILES)})\b.*?\|(.*?)\|(.*)\|$", text, flags=re.MULTILINE)
    assert {file for file, _, _ in rows} == set(FILES)
    for file, _, names in rows:
        assert set(re.findall(r"`(\w+)`", names)) <= known[file], file
    assert set(re.findall(r"`(\w+_\w+)`", text)) <= set().union(*known.values())
    assert {theorem.claim for theorem in theorems} <= set(re.findall(r"[A-Z][A-Z0-9.-]*\w", text))
    assert len(text.splitlines()) <= 60  # one screen


# What Rocq says of them

STATEMENTS = {
    "Dominance": (
        "LEMB1_monotone: forall W c_star c c', c <= c' -> F W c_star c <= F W c_star c'",
        "THM32: forall M W st c_star, ASM31 (evaluated M W st) W M c_star ->"
        " forall n, pos M (linear W st) n <= pos M (packed W st) n",
        "EQ5: forall M W st c_star eos L, ASM31 (fun c => evaluated M W st c /\\ c < stop eos L) W M c_star ->"
        " NFE M (packed W st) eos L <= NFE M (linear W st) eos L",
    ),
    "Exactness": (
        "THM3_3: forall V p, (forall P, is_law V (p P)) -> forall L ends W q, (forall P i, is_law V (q P i)) ->"
        " output_law V p L ends (packed V W q) L ~~ ar_law V p L ends",
    ),
    "AnyOrder": ("finished_output: forall L ends t, finished L ends t = true -> ~ In None (output (state L ends t))",),
    "Reach": (
        "LEMB2_any_drafter: forall M W s, reach M W (verified s) <= verified (step M (Both W) (step M (Both W) s))",
        "BOUND_RATIO: forall M W st eos L, 2 * NFE M (packed W st) eos L <= Nat.max 2 W * NFE M (linear W st) eos L",
    ),
}


@rocq
@pytest.mark.claim("EQ6")
@pytest.mark.claim("LEMB1")
@pytest.mark.claim("LEMB2")
@pytest.mark.claim("THM3.2")
@pytest.mark.claim("EQ5")
@pytest.mark.claim("LEMB3")
@pytest.mark.claim("LEMB4")
@pytest.mark.claim("EQ7")
@pytest.mark.claim("THM3.3")
@pytest.mark.claim("COR-GREEDY")
@pytest.mark.claim("PROPC1")
@pytest.mark.claim("PROGRESS")
@pytest.mark.claim("STOP")
@pytest.mark.claim("DRAFTLEN")
@pytest.mark.claim("BRANCH0")
@pytest.mark.parametrize("file", FILES)
def test_every_theorem_is_closed_under_the_global_context_and_says_what_it_should(file: str) -> None:
    entries = proved.check(file, "quick")
    assert {entry.statement for entry in entries} >= set(STATEMENTS[file])
    assert [(entry.claim, entry.statement.split()[0].rstrip(":")) for entry in entries] == [
        (theorem.claim, theorem.name) for theorem in Library().theorems(file)
    ]
    for entry in entries:
        assert (entry.method, entry.outcome, entry.detail) == ("proved", "holds", "closed under the global context")
        assert entry.bound == ("an instance" if "disproves a stronger claim: ~ (" in entry.statement else "all sizes")


def small(folder: Path, text: str) -> Library:
    """A library of one file, S.v."""
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources" / "S.v").write_text(text)
    return Library(folder / "sources", folder / "built")


HONEST = "(* claim: EQ5 *)\nTheorem honest : 1 = 1. Proof. reflexivity. Qed.\n"


@rocq
def test_a_theorem_on_an_axiom_is_violated_and_the_others_are_not(tmp_path: Path) -> None:
    text = (
        "Require Import Classical.\n(* claim: STOP *)\nTheorem bad : forall P, P \\/ ~ P. Proof. exact classic. Qed.\n" + HONEST
    )
    bad, honest = proved.check("S", "quick", small(tmp_path, text))
    assert (bad.claim, bad.outcome, bad.statement) == ("STOP", "violated", "bad: forall P, P \\/ ~ P")
    assert bad.detail == "rests on Axioms: Classical_Prop.classic : forall P : Prop, P \\/ ~ P"
    assert (honest.claim, honest.outcome, honest.detail) == ("EQ5", "holds", "closed under the global context")


@rocq
def test_an_admitted_lemma_is_a_violation_wherever_it_stands(tmp_path: Path) -> None:
    text = HONEST + "(* claim: STOP *)\nTheorem bad : 1 = 2. Proof. Admitted.\n"
    honest, bad = proved.check("S", "quick", small(tmp_path, text))
    assert (honest.outcome, honest.detail) == ("violated", "S.v says Admitted")
    assert (bad.outcome, bad.detail) == ("violated", "rests on Axioms: bad : 1 = 2; S.v says Admitted")


@rocq
def test_what_does_not_compile_is_violated_on_the_version_it_was_written_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = small(tmp_path, HONEST + "(* refuted: STOP *)\nTheorem bad : 1 = 2. Proof. reflexivity. Qed.\n")
    version = subprocess.run(["coqc", "--print-version"], capture_output=True, text=True, check=True).stdout.split()[0]
    for tested, outcome in ((version, "violated"), ("7.", "not run")):
        monkeypatch.setattr(proved, "TESTED", tested)
        entries = proved.check("S", "quick", library)
        assert [(entry.claim, entry.outcome) for entry in entries] == [("EQ5", outcome), ("STOP", outcome)]
        assert all('Unable to unify "2" with "1"' in entry.detail for entry in entries)


@rocq
def test_files_are_compiled_again_when_they_or_what_they_need_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = small(tmp_path, "Definition s := 1.\n")
    (library.sources / "T.v").write_text("From packedss Require Import S.\nDefinition t := s.\n")
    compiled: list[str] = []
    real = Library._coqc

    def counted(self: Library, where: Path, file: str) -> str:
        compiled.append(file)
        return real(self, where, file)

    monkeypatch.setattr(Library, "_coqc", counted)
    for text, expected in ((None, ["S", "T"]), (None, []), ("Definition s := 2.\n", ["S", "T"]), (None, [])):
        if text:
            (library.sources / "S.v").write_text(text)
        compiled.clear()
        library.compile("T")
        assert compiled == expected
    assert "= 2" in library.ask("Eval compute in t.\n", "T")
    (library.folder / "T.vo").unlink()
    compiled.clear()
    library.compile("T")
    assert compiled == ["T"]
    (library.sources / "T.v").write_text("Definition t := s.\n")
    with pytest.raises(Rejected, match="reference s was not found"):
        library.compile("T")


@rocq
@pytest.mark.slow
def test_coqchk_finds_no_axiom_down_to_the_standard_library() -> None:
    for file in FILES:
        Library().compile(file)
    command = ["coqchk", "-silent", "-o", "-Q", ".", "packedss", *(f"packedss.{file}" for file in FILES)]
    done = subprocess.run(command, cwd=Library().folder, capture_output=True, text=True, check=True)
    assert "* Axioms: <none>" in done.stdout + done.stderr


def test_without_coqc_there_are_no_checks_and_make_says_how_to_get_it(tmp_path: Path) -> None:
    for program in ("make", "sh"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    asked = "from proofs_check import proved, rocq_tie; print(proved.CHECKS, rocq_tie.CHECKS)"
    done = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "() ()\n"
    done = subprocess.run(["make", "-s", "proofs"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"make proofs needs coqc: {INSTALL}"


# The tie to the code


@rocq
@pytest.mark.claim("THM3.2")
@pytest.mark.claim("EQ6")
def test_positions_are_those_of_the_code_for_every_threshold_vector() -> None:
    """All vectors to L = 6 and W <= 4 under start `algorithm`, and to L = 4 under the others."""
    tie = compare(case for L in range(7) for case in positions(Library(), L, WIDTHS, ("algorithm",)))
    assert tie == (4 * (1 + 2) * (1 + 2 + 6 + 24 + 120 + 720 + 5040), "")
    tie = compare(case for L in range(5) for case in positions(Library(), L, WIDTHS, ALL_STARTS[1:]))
    assert tie == (4 * (1 + 6) * (1 + 2 + 6 + 24 + 120), "")
    assert compare(positions(Library(), 3, WIDTHS, ALL_STARTS, SETS)) == (24 * 4 * (1 + 4 * 8 * 2), "")


@rocq
@pytest.mark.claim("THM3.3")
@pytest.mark.claim("COR-GREEDY")
@pytest.mark.claim("PROPC1")
@pytest.mark.claim("BOUND-2D")
@pytest.mark.parametrize("name", [name for name in TIES if name != "positions"])
def test_laws_tokens_orders_and_arbitrary_drafters_are_those_of_the_code(name: str) -> None:
    (entry,) = rocq_tie.check(name, "quick")
    assert (entry.outcome, entry.claim) == ("holds", TIES[name].claim)
    assert int(entry.detail.split()[0]) >= 35


@rocq
@pytest.mark.slow
@pytest.mark.parametrize("name", TIES)
def test_ties_in_full(name: str) -> None:
    (entry,) = rocq_tie.check(name, "full")
    assert entry.outcome == "holds"


def definitions(folder: Path, file: str = "", old: str = "", new: str = "") -> Library:
    """The files without their theorems, which a wrong definition would break first, one definition changed."""
    (folder / "sources").mkdir()
    for name in FILES:
        text = re.sub(
            r"^(?:Lemma|Theorem) .*?\bQed\.|^(?:Print|Ltac) .*?$", "", Library().text(name), flags=re.DOTALL | re.MULTILINE
        )
        if name == file:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (folder / "sources" / f"{name}.v").write_text(text)
    return Library(folder / "sources", folder / "built")


def few(library: Library, name: str) -> Iterator[Case]:
    """Instances enough to see a difference."""
    small: dict[str, Callable[[], Iterator[Case]]] = {
        "positions": lambda: positions(library, 4, (2,), ALL_STARTS),
        "matrices": lambda: matrices(library, 8, (3, 4), 20, seed=0),
        "tokens": lambda: tokens(library, 6, (2,), (0, 1)),
        "laws": lambda: laws(library, Tables(2, 5, 2, (), seed=3)),
        "any-order": lambda: orders(library, [(3, 5)], (1, 2)),
    }
    return small[name]()


@rocq
@pytest.mark.slow
def test_the_definitions_alone_agree(tmp_path: Path) -> None:
    library = definitions(tmp_path)
    assert [compare(few(library, name)).mismatch for name in TIES] == [""] * 5


CHANGED = {  # the instances that show it; where it is written, and how wrongly
    "a shorter draft": ("positions", "Dominance", "(verified s + w)\n  end.", "(verified s + w - 1)\n  end."),
    "EOS is seen one late": ("tokens", "Dominance", "nth (i - 1) C 0", "nth i C 0"),
    "shrunk also when equal": ("matrices", "Reach", "(reach M W c'' <? Nat.min", "(reach M W c'' <=? Nat.min"),
    "laws kept one late": ("laws", "Exactness", "(output t) (length (block c))\n", "(output t) (S (length (block c)))\n"),
    "EQ8 without earlier ranks": ("any-order", "AnyOrder", "v (P ++ firstn r d)", "v P"),
}
CHANGED_TOO = {
    "EQ6 with c*_k >= c": ("positions", "Dominance", "(fun k => c <? c_star k)", "(fun k => c <=? c_star k)"),
    "Linear-SS verifies first": ("positions", "Dominance", "then Draft W else Verify", "then Verify else Draft W"),
    "the start wide drafts W": ("positions", "Dominance", "wide, 0 => Both (W + 1)", "wide, 0 => Both W"),
    "tokens kept one late": ("tokens", "Dominance", "(skipn a (proposals", "(skipn (S a) (proposals"),
    "corrections from the target": ("laws", "Exactness", "Some (_, q) => residual v q", "Some (_, q) => v"),
    "Branches uses the smallest": ("laws", "Exactness", "Nat.max x b", "Nat.min x b"),
    "Quadratic drafts from P alone": ("any-order", "AnyOrder", "(fst (state t) ++ firstn (h c) (C c))", "(fst (state t))"),
}


@rocq
@pytest.mark.parametrize("name", [*CHANGED, *(pytest.param(name, marks=pytest.mark.slow) for name in CHANGED_TOO)])
def test_a_definition_that_drifts_from_the_code_is_seen(name: str, tmp_path: Path) -> None:
    kind, file, old, new = (CHANGED | CHANGED_TOO)[name]
    tie = compare(few(definitions(tmp_path, file, old, new), kind))
    assert "Rocq" in tie.mismatch
    assert "spec" in tie.mismatch or "the scheduler" in tie.mismatch


@rocq
@pytest.mark.parametrize(("kind", "fault"), [("positions", "one-late"), ("tokens", "one-early"), ("laws", "fresh-laws")])
def test_a_scheduler_that_drifts_from_the_proofs_is_seen(kind: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rocq_tie.named

    def faulty(name: str, width: int, start: str) -> Schedule:
        return make(FAULTS[fault][0], width) if (name, start) == ("packed", "algorithm") else real(name, width, start)

    monkeypatch.setattr(rocq_tie, "named", faulty)
    mismatch = compare(few(Library(), kind)).mismatch
    assert mismatch.startswith("packed, start algorithm, ")
    assert "the scheduler" in mismatch.split("Rocq")[1]


def test_what_a_comparison_amounts_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(cases: Callable[[Library, Budget], Iterator[Case]]) -> tuple[str, str]:
        monkeypatch.setitem(TIES, "laws", TIES["laws"]._replace(cases=cases))
        (entry,) = rocq_tie.check("laws", "quick")
        return entry.outcome, entry.detail

    def rejects(library: Library, budget: Budget) -> Iterator[Case]:
        raise Rejected("File x")

    same, other = Case("one", 1, {"spec": 1}), Case("two", 1, {"spec": 1, "the scheduler": 2})
    assert outcome(lambda library, budget: iter([same])) == ("holds", "1 values agree")
    assert outcome(lambda library, budget: iter([same, other, same])) == ("violated", "two: Rocq 1, the scheduler 2")
    assert outcome(lambda library, budget: iter([])) == ("not run", "0 values agree")
    assert outcome(rejects) == ("not run", "Rocq does not accept it: File x")
