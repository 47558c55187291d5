"""The named schedules and their starts: a table of policies, no code of their own.

Starts (INIT). Compare schedules only under the same start (NFE-CONV).

    algorithm   the empty first draft, as in the theorem
    wide        the first call also drafts, W + 1 positions from masks alone (E.2, greedy)
    sampled     call 1 emits one token and drafts nothing, call 2 only drafts (E.2, temperature 1)
    prompt      a counted call that only processes the prompt, then `algorithm` (E.2, SetDLM)

For Linear-SS `wide` and `sampled` are the same: call 1 emits one token, then 2 calls an iteration, 1 + 2T in all.

A width is one number, or several that the cycle goes through in turn; 0 drafts nothing in that call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from simulator.errors import InvalidInput
from simulator.records import Tokens
from simulator.schedule import Ask, Schedule

STARTS = ("algorithm", "wide", "sampled", "prompt")
NAMES = ("ar", "linear", "packed", "quadratic", "branches:0,2,...")
Width: TypeAlias = int | Sequence[int]
_VERIFY, _PROCESS_PROMPT = Ask(verify=True), Ask(verify=False)


def ar(start: str = "algorithm") -> Schedule:
    """One token a call: the reference every other schedule is measured against. Starts: algorithm, prompt."""
    if start not in ("algorithm", "prompt"):
        raise InvalidInput(f"ar knows only the starts algorithm and prompt, got {start!r}")
    return Schedule("ar", (_PROCESS_PROMPT,) if start == "prompt" else (), (_VERIFY,))


def linear(width: Width, start: str = "algorithm") -> Schedule:
    """Linear-SS: draft `width` tokens, then verify them; 2 calls an iteration."""
    cycle = tuple(ask for w in _widths(width) for ask in (Ask(False, (0,), w), Ask(True, (), w)))
    # The drafting call that follows the first token is the cycle's own first.
    openings = {"algorithm": (), "wide": (_VERIFY,), "sampled": (_VERIFY,), "prompt": (_PROCESS_PROMPT,)}
    return Schedule("linear", openings[_start(start)], cycle)


def packed(width: Width, start: str = "algorithm") -> Schedule:
    """Packed-SS: verify the draft and propose the next one from the older prefix, in one call (ALG1, ALG2).

    No more calls than `linear` under ASM3.1 (THM3.2); real drafters break it on some positions, and then it may make more.
    """
    return _one_call("packed", (0,), _widths(width), start)


def quadratic(width: Width, start: str = "algorithm") -> Schedule:
    """Quadratic-SS: one call that prepares a continuation for each of the W + 1 possible outcomes."""
    widths = _widths(width)
    return _one_call("quadratic", tuple(range(max(widths) + 1)), widths, start)


def branches(accepted_counts: Iterable[int], width: Width, start: str = "algorithm") -> Schedule:
    """Branches(S): continuations for the accepted-draft counts in S alone, between Packed-SS and Quadratic-SS (section 5).

    When fewer draft tokens are accepted than the smallest count in S, the next call verifies an empty draft.
    """
    widths, counts = _widths(width), tuple(sorted(set(accepted_counts)))
    if not counts or counts[0] < 0 or counts[-1] > max(widths):
        raise InvalidInput(f"branches need accepted counts between 0 and W = {max(widths)}, at least one; got {list(counts)}")
    return _one_call("branches:" + ",".join(map(str, counts)), counts, widths, start)


def named(name: str, width: int, start: str = "algorithm") -> Schedule:
    """The schedule called `name` on the command line. Raises InvalidInput for an unknown name, start, or W < 1."""
    makers: dict[str, Callable[[int, str], Schedule]] = {"linear": linear, "packed": packed, "quadratic": quadratic}
    if name == "ar":
        return ar(_start(start))
    if name in makers:
        return makers[name](width, start)
    if re.fullmatch(r"branches:\d+(,\d+)*", name):
        return branches(map(int, name.removeprefix("branches:").split(",")), width, start)
    raise InvalidInput(f"unknown schedule {name!r}; allowed: {', '.join(NAMES)}")


def _one_call(name: str, counts: Tokens, widths: Tokens, start: str) -> Schedule:
    first = widths[0]
    openings = {
        "algorithm": (),
        "wide": (Ask(True, (0,), first + 1, anchored=False),),
        "sampled": (_VERIFY, Ask(False, (0,), first)),
        "prompt": (_PROCESS_PROMPT,),
    }
    return Schedule(name, openings[_start(start)], tuple(Ask(True, counts, w) for w in widths))


def _widths(width: Width) -> Tokens:
    if not isinstance(width, Sequence):
        if width < 1:
            raise InvalidInput(f"the speculative width W must be >= 1, got {width}")
        return (width,)
    if not width or min(width) < 0 or max(width) < 1:
        raise InvalidInput(f"widths that change between calls must be >= 0, one of them >= 1; got {list(width)}")
    return tuple(width)


def _start(start: str) -> str:
    if start not in STARTS:
        raise InvalidInput(f"unknown start {start!r}; allowed: {', '.join(STARTS)}")
    return start
