"""WritingBench: prompts that measure speed. Nothing here judges the quality of a text, and no accuracy is reported."""

from __future__ import annotations

from realmodel.tasks.problems import Grade, Problem, Row, user


def writing_bench(row: Row) -> Problem | None:
    """A row of WritingBench's benchmark file: index, lang, query. The paper runs the English ones; others are left out."""
    language, query = row.text("lang"), row.text("query")
    return Problem(row.name("index"), user(query), query, {}) if language.lower() == "en" else None


def not_graded(problem: Problem, text: str) -> Grade:
    """No verdict, whatever the text."""
    return Grade(None, "the quality of writing is not graded; this task measures speed")
