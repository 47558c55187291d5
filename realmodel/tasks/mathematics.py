r"""GSM8K and MATH-500: answers in a \boxed{}, compared by math-verify; and GSM8K as SetDLM's authors ask and grade it."""

from __future__ import annotations

import re

from realmodel.tasks import answers, judge
from realmodel.tasks.problems import Grade, Problem, Row, user

# Nemotron: the instructions of its authors' evaluator, zero-shot, in the user's turn.
_NUMBER = "Solve the following math problem. Put the final numerical answer inside \\boxed{} at the very end.\n\n"
_ANSWER = "Solve the following math problem. Put the final answer inside \\boxed{} at the very end.\n\n"
SETDLM_INSTRUCTION = "Please reason step by step, and put your final answer within $\\boxed{}$. "
_ENDS = ("Question:", "</s>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>")
_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def gsm8k(row: Row) -> Problem:
    """A row of GSM8K's test.jsonl: question, and answer ending in `#### number`. The id is its place in the file."""
    return _gsm8k(row, _NUMBER)


def gsm8k_setdlm(row: Row) -> Problem:
    """The same row with the instruction of SetDLM's authors."""
    return _gsm8k(row, SETDLM_INSTRUCTION)


def _gsm8k(row: Row, instruction: str) -> Problem:
    question, (_, mark, gold) = row.text("question").strip(), row.text("answer").rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or not _PLAIN.fullmatch(gold):
        raise row.wrong(f"'answer' must end in '#### ' and a number, not {row.fields['answer'][-40:]!r}")
    number = row.where.rpartition(" ")[2]
    return Problem(number, user(instruction + question), f"Question: {question}\nAnswer:", {"gold": gold})


def math_500(row: Row) -> Problem:
    """A row of MATH-500's test.jsonl: problem, answer (LaTeX), unique_id."""
    asked, gold = row.text("problem").strip(), row.text("answer").strip()
    if len(gold) > judge.LONGEST:
        raise row.wrong(f"'answer' has {len(gold)} characters; at most {judge.LONGEST} are compared")
    return Problem(row.name("unique_id"), user(_ANSWER + asked), f"Problem: {asked}\nAnswer:", {"gold": gold})


def grade_boxed(problem: Problem, text: str) -> Grade:
    r"""Whether the last complete \boxed{} of the answer equals the gold answer."""
    answer = answers.boxed(answers.spoken(text))
    if answer is None:
        return Grade(False, "it has no complete \\boxed{} answer")
    return Grade(*judge.same(problem.secret["gold"], answer))


def grade_setdlm(problem: Problem, text: str) -> Grade:
    r"""SetDLM's rule: normalized final answers are the same text.

    The answer ends at an end marker or a new question; its final answer is what the first \boxed{ holds up to the first brace
    that closes, else what follows `####`. Normalized: without commas, dollar signs, blanks around and one full stop at the end.
    """
    ends = [at for end in _ENDS if (at := text.find(end)) >= 0]
    text = text[: min(ends, default=len(text))]
    _, box, rest = text.partition("boxed{")
    final, closed, _ = rest.partition("}")
    if not (box and closed):
        _, mark, rest = text.partition("#### ")
        words = rest.split(maxsplit=1)
        if not (mark and words):
            return Grade(False, "it has no final answer: neither a complete \\boxed{} nor '#### '")
        final = words[0]
    final = final.replace(",", "").replace("$", "").strip().removesuffix(".")
    same = final == problem.secret["gold"]
    return Grade(same, "" if same else f"its final answer is {final[:40]!r}, not {problem.secret['gold']!r}")
