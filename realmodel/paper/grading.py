"""Grades: every answer once, after it was decoded, kept by task, problem, arm and the answers of its draws.

A grade depends on the answer's text; so that none can be mistaken for that of another arm, draw or run, the file's name holds
all of them. What an answer does to its grader (a time-out, a crash) is a wrong answer with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import NamedTuple

from realmodel.results import Damaged, Parameters, Results, digest
from realmodel.tasks import Grade, Problem, Task

_GRADERS = 4  # at a time: each waits for a process of its own


class Answers(NamedTuple):
    """What an arm answered to a problem, draw by draw."""

    problem: Problem
    arm: str  # a digest of everything that makes it this arm
    texts: tuple[str, ...]


def grade(
    task: Task,
    answers: Sequence[Answers],
    store: Results,
    progress: Callable[[Iterable[None], int], Iterable[None]] = lambda done, total: done,
) -> dict[tuple[str, str], list[Grade]]:
    """By (problem's id, arm), draw by draw. `progress` wraps what yields once per problem, with their number.

    Raises NoSandbox or InvalidInput where nothing here can grade.
    """
    by_problem: dict[str, list[Answers]] = {}
    for each in answers:
        by_problem.setdefault(each.problem.id, []).append(each)
    found: dict[tuple[str, str], list[Grade]] = {}

    def finished() -> Iterator[None]:
        with ThreadPoolExecutor(min(_GRADERS, os.cpu_count() or 1)) as pool:
            waiting = [pool.submit(_problem, task, group, store) for group in by_problem.values()]
            try:
                for done in waiting:
                    found.update(done.result())
                    yield None
            finally:
                for rest in waiting:
                    rest.cancel()

    for _ in progress(finished(), len(by_problem)):
        pass
    return found


def _problem(task: Task, answers: Sequence[Answers], store: Results) -> dict[tuple[str, str], list[Grade]]:
    """All arms' answers to one problem; equal texts are graded once."""
    known: dict[str, Grade] = {}
    found = {}
    for each in answers:
        name = _name(task, each)
        grades = _kept(store, name, len(each.texts))
        if grades is None:
            for text in each.texts:
                if text not in known:
                    known[text] = task.grade(each.problem, text)
            grades = [known[text] for text in each.texts]
            store.write(name, grades)
        found[each.problem.id, each.arm] = grades
    return found


def _kept(store: Results, name: Parameters, draws: int) -> list[Grade] | None:
    try:
        rows = store.read(name)
    except Damaged:
        return None
    return None if rows is None or len(rows) != draws else [Grade(*row) for row in rows]


def _name(task: Task, each: Answers) -> Parameters:
    return {
        "grades": task.name,
        "problem": digest(each.problem),
        "arm": each.arm,
        "answers": [sha256(text.encode(errors="surrogatepass")).hexdigest() for text in each.texts],
    }
