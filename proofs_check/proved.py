"""The Rocq proofs as checks of the ledger: what each theorem says, as Rocq prints it, and what it rests on.

In the files of `rocq/` a theorem stands under `(* claim: ID *)` when it proves that claim, and under `(* refuted: ID *)` when
it disproves a version of the claim that promises more. It holds if Rocq compiles the file, which has no command that leaves a
gap, and finds no axiom under the theorem. Without `coqc` on the PATH there are no checks here.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from proofs_check.ledger import Budget, Check, Entry, Outcome

FILES = ("Dominance", "Exactness", "AnyOrder", "Reach")  # Reach needs Dominance, so another process may have to wait for it
INSTALL = "apt-get install coq"
TESTED = "8.16."  # on another version a proof that does not compile says nothing about the claim

_SOURCES = Path(__file__).with_name("rocq")
_ROOT = Path(__file__).parents[1]
_BUILT = _ROOT / "out" / "rocq" if (_ROOT / "Makefile").exists() else Path.home() / ".cache" / "packedss" / "rocq"
_TAG_OR_THEOREM = re.compile(r"^\(\* (claim|refuted): (\S+) \*\)|^(?:Theorem|Lemma|Corollary) ([\w']+)", re.MULTILINE)
_NEEDS = re.compile(r"^From packedss Require (?:Import |Export )?([^.]*)\.", re.MULTILINE)
_COMMENT = re.compile(r"\(\*(?:(?!\(\*|\*\)).)*\*\)", re.DOTALL)  # an innermost one
_GAP = re.compile(r"\b(?:Admitted|admit|give_up|Abort|Axioms?|Parameters?|Conjectures?|Unset\s+\w+\s+Checking|bypass_check)\b")
_CHECKED = re.compile(r"^[\w.']+\n +: ((?:.*\n)(?: .*\n)*)", re.MULTILINE)
_CLOSED = "Closed under the global context"


class Rejected(Exception):  # its text is an entry's, not a fault of ours
    """Rocq does not accept a file; the message is its own."""


class Theorem(NamedTuple):
    """A tagged theorem; one that stands under several tags is listed once for each."""

    name: str
    claim: str
    refutes: bool  # it disproves a stronger version of the claim


@dataclass(frozen=True)
class Library:
    """The .v files of a folder, and the folder that they are compiled into."""

    sources: Path = _SOURCES
    folder: Path = _BUILT

    def text(self, file: str) -> str:
        return (self.sources / f"{file}.v").read_text(encoding="utf-8")

    def theorems(self, file: str) -> tuple[Theorem, ...]:
        """The tagged theorems, in their order."""
        found: list[Theorem] = []
        tags: list[tuple[str, str]] = []
        for tag, claim, name in _TAG_OR_THEOREM.findall(self.text(file)):
            if tag:
                tags.append((tag, claim))
            else:
                found += [Theorem(name, claim, tag == "refuted") for tag, claim in tags]
                tags = []
        return tuple(found)

    def gaps(self, file: str) -> list[str]:
        """Commands in the file that would leave something unproved."""
        text, count = self.text(file), 1
        while count:
            text, count = _COMMENT.subn(" ", text)
        return _GAP.findall(text)

    def compile(self, file: str) -> None:
        """Compile a file and those it needs, unless that was done since they last changed. Raises Rejected."""
        needs = [other for names in _NEEDS.findall(self.text(file)) for other in names.split()]
        for other in needs:
            self.compile(other)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{file}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process compiles, the others wait for it
            if self._is_current(file, needs):
                return
            # Elsewhere first: an interrupted coqc leaves half a file.
            with TemporaryDirectory(dir=self.folder.parent, prefix=".rocq") as scratch:
                shutil.copyfile(self.sources / f"{file}.v", Path(scratch, f"{file}.v"))
                self._coqc(Path(scratch), file)
                for suffix in (".v", ".vo"):
                    os.replace(Path(scratch, file + suffix), self.folder / (file + suffix))

    def _is_current(self, file: str, needs: Iterable[str]) -> bool:
        copy, compiled = self.folder / f"{file}.v", self.folder / f"{file}.vo"
        coqc = shutil.which("coqc")
        if coqc is None or not (copy.exists() and compiled.exists()):
            return False
        older = [copy.stat().st_mtime_ns, Path(coqc).resolve().stat().st_ctime_ns]  # ctime: when it was installed
        older += [(self.folder / f"{other}.vo").stat().st_mtime_ns for other in needs]
        same = copy.read_bytes() == (self.sources / f"{file}.v").read_bytes()
        return same and max(older) < compiled.stat().st_mtime_ns

    def ask(self, commands: str, *files: str) -> str:
        """What Rocq prints for these commands, the files being imported. Raises Rejected."""
        for file in files:
            self.compile(file)
        with TemporaryDirectory(prefix="packedss-rocq-") as scratch:
            imports = "".join(f"From packedss Require Import {file}.\n" for file in files)
            Path(scratch, "Question.v").write_text(imports + commands, encoding="utf-8")
            return self._coqc(Path(scratch), "Question")

    def _coqc(self, where: Path, file: str) -> str:
        command = ["coqc", "-q", "-Q", ".", "packedss", "-Q", str(self.folder), "packedss", f"{file}.v"]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Rejected(" ".join((done.stderr or f"coqc ended with exit code {done.returncode}").split())[:500])
        return done.stdout

    def statements(self, file: str) -> dict[str, str]:
        """What each tagged theorem says, in one line of Rocq, the variables of its section included. Raises Rejected."""
        names = list(dict.fromkeys(theorem.name for theorem in self.theorems(file)))
        imports = "From Coq Require Import Arith List QArith.\nImport ListNotations.\nLocal Open Scope nat_scope.\n"
        needed = [other for names in _NEEDS.findall(self.text(file)) for other in names.split()]
        commands = imports + "Set Printing Width 1000.\nSet Printing Depth 1000.\n"
        commands += "".join(f"Import {other}.\n" for other in (*needed, file)) + "".join(f"Check {name}.\n" for name in names)
        said = [" ".join(found.split()) for found in _CHECKED.findall(self.ask(commands, *needed, file))]
        return dict(zip(names, said, strict=True))

    def axioms(self, file: str, names: Iterable[str]) -> str:
        """What these theorems together rest on without proof; empty if nothing. Raises Rejected."""
        commands = f"Definition together := (I{''.join(f', @{file}.{name}' for name in names)}).\nPrint Assumptions together.\n"
        said = self.ask(commands, file).strip()
        return "" if said == _CLOSED else " ".join(said.split())


def plain(statement: str) -> str:
    """A statement without the types of its variables.

    >>> plain("forall (M : nat -> nat) (W : nat), (fun k : nat => k) = M -> exists n : nat, W < M n")
    'forall M W, (fun k => k) = M -> exists n, W < M n'
    """
    bare = re.sub(r"\((?!fun |forall |exists )([\w' ]+) : [^()]*\)", r"\1", statement)
    return re.sub(r"\b((?:fun|forall|exists)(?: [\w']+)+) : [^,=()]*?(,| =>)", r"\1\2", bare)


def check(file: str, budget: Budget, library: Library | None = None) -> list[Entry]:
    """One entry for each tag in the file."""
    library = library or Library()
    theorems = library.theorems(file)
    try:
        said, gaps = library.statements(file), library.gaps(file)
        axioms = dict.fromkeys(said, library.axioms(file, said))
        if any(axioms.values()):  # together they rest on something; which of them does?
            axioms = {name: library.axioms(file, [name]) for name in said}
    except Rejected as error:
        version = subprocess.run(["coqc", "--print-version"], capture_output=True, text=True, check=True).stdout.split()[0]
        outcome: Outcome = "violated" if version.startswith(TESTED) else "not run"
        wrong = f"coqc {version} does not accept {file}.v (written for {TESTED}x): {error}"
        claims = dict.fromkeys(theorem.claim for theorem in theorems)
        return [Entry(claim, f"Rocq accepts {file}.v", "proved", "all sizes", outcome, wrong) for claim in claims]

    def entry(theorem: Theorem) -> Entry:
        name, claim, refutes = theorem
        statement = f"{name}{' disproves a stronger claim' * refutes}: {plain(said[name])}"
        wrong = [f"rests on {axioms[name]}"] * bool(axioms[name]) + [f"{file}.v says {gap}" for gap in gaps]
        outcome: Outcome = "violated" if wrong else "holds"
        bound = "an instance" if refutes else "all sizes"
        return Entry(claim, statement, "proved", bound, outcome, "; ".join(wrong) or "closed under the global context")

    return list(map(entry, theorems))


def _check(file: str) -> Check:
    claims = dict.fromkeys(theorem.claim for theorem in Library().theorems(file))
    return Check(f"proved/{file}", tuple(claims), partial(check, file))


CHECKS = tuple(map(_check, FILES)) if shutil.which("coqc") else ()
