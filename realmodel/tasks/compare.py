"""The child of `judge`: reads pairs of LaTeX answers as JSON lines, says of each whether math-verify holds them equal.

It is started by its file, so it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import sys

_MEMORY = 4 << 30  # bytes
_SECONDS = 60.0  # of processor time for one pair: should nobody be there any more to stop it


def main() -> None:
    """Answer until the input ends."""
    with contextlib.suppress(OSError, ValueError):  # no Linux
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)  # math-verify logs what it cannot parse
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        pair = json.loads(line)
        same, why = compare(pair["gold"], pair["answer"])
        print(json.dumps({"same": same, "why": why}), flush=True)


def compare(gold: str, answer: str) -> tuple[bool, str]:
    """Whether the two are equal by math-verify with its defaults, and if not, why."""
    from math_verify import LatexExtractionConfig, parse, verify

    def read(latex: str) -> list[object]:
        return list(parse(f"\\boxed{{{latex}}}", extraction_config=[LatexExtractionConfig(boxed_match_priority=0)]))

    try:
        given = read(answer)
        if not given:
            return False, "its boxed answer cannot be read as mathematics"
        right = read(gold)
        if not right:
            return False, "the right answer, of the task's file, cannot be read as mathematics"
        return (True, "") if verify(right, given) else (False, "its boxed answer is not the right one")
    except Exception as error:  # what sympy may raise on an odd expression is no fixed list
        return False, f"its boxed answer cannot be compared ({type(error).__name__})"


if __name__ == "__main__":
    main()
