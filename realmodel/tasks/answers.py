r"""Finding the answer in what a model wrote: a program in its code fences, an expression in its last \boxed{}.

The text is untrusted and may be long; everything here takes time in proportion to its length.
"""

from __future__ import annotations

import re

# Codex (Chen et al., 2021) ends the completion of a function where top-level code begins again.
STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\nassert ", "\n@", "\n```")
_STARTS = ("import ", "from ", "def ", "class ", "@", "async def ")
_FENCE = re.compile(r"([ \t>]*)(```+|~~~+)(.*)", re.DOTALL)
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)


def spoken(text: str) -> str:
    """The answer without the thoughts before it, should a model have written them all the same."""
    return text.rpartition("</think>")[2]


def program(text: str, entry: str | None) -> str | None:
    """The program in a chat answer: its first fenced block that defines `entry` (any function, if None), else its first block.

    Without a fence, the lines from the first that begins a program on; None if none does, or if what is there is the indented
    continuation of a function and not a program. A fence that is still open at the end counts (the output cap may have cut it).
    """
    blocks = _blocks(text)
    if blocks:
        return next((block for block in blocks if defines(block, entry)), blocks[0])
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first[:1].isspace() or not defines(text, entry):
        return None
    start = next(number for number, line in enumerate(lines) if line.startswith(_STARTS))
    return "\n".join(lines[start:])


def defines(code: str, entry: str | None) -> bool:
    """Whether a line of the code begins the function `entry`, or any function."""
    return f"\ndef {entry}(" in f"\n{code}" if entry else "\ndef " in f"\n{code}"


def continuation(text: str) -> str:
    """What a model wrote as the rest of a function: up to the first text that ends it."""
    ends = [at for stop in STOPS if (at := text.find(stop)) >= 0]
    return text[: min(ends, default=len(text))]


def _blocks(text: str) -> list[str]:
    """The fenced blocks, nearly as CommonMark has them: a block in a list or a quotation loses the margin of its fence, and the
    fence that ends one is no shorter and not four columns further in (a docstring may hold some); text behind it is let pass.
    """
    blocks: list[list[str]] = []
    margin, fence = "", ""  # of the open block
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not fence:
            if found and not (found[2][0] == "`" and "`" in found[3]):
                margin, fence, _ = found.groups()
                blocks.append([])
        elif found and found[2].startswith(fence) and len(found[1]) < len(margin) + 4:
            fence = ""
        else:
            kept = next((i for i, (c, m) in enumerate(zip(line, margin, strict=False)) if c != m), min(len(line), len(margin)))
            blocks[-1].append(line[kept:])
    return ["\n".join(block) for block in blocks]


def boxed(text: str) -> str | None:
    r"""What the last complete \boxed{...} holds, its braces balanced; None if there is none."""
    last = None
    opened: list[tuple[bool, int]] = []
    for found in _BRACES.finditer(text):
        mark = found.group()
        if mark == "}":
            if opened:
                is_box, start = opened.pop()
                last = text[start : found.start()] if is_box else last
        elif mark.endswith("{") and mark != "\\{":
            opened.append((mark != "{", found.end()))
    return last
