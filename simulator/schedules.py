"""The named schedules and their starts: a table of policies, no code of their own.

Starts (INIT): `algorithm` begins with the empty draft, as the theorem does; `sampled` first makes a call that emits one token
and drafts nothing, then a call that only drafts (E.2, temperature 1). Compare schedules only under the same start (NFE-CONV).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from simulator.errors import InvalidInput
from simulator.schedule import Ask, Schedule

STARTS = ("algorithm", "sampled")
NAMES = ("ar", "linear", "packed", "quadratic", "branches:0,2,...")


def ar() -> Schedule:
    """One token a call: the reference every other schedule is measured against."""
    return Schedule("ar", (), (Ask(verify=True),))


def linear(width: int, start: str = "algorithm") -> Schedule:
    """Linear-SS: draft `width` tokens, then verify them; 2 calls an iteration."""
    _check_width(width)
    draft, verify = Ask(False, (0,), width), Ask(True, (), width)
    # Call 1 emits one token; the drafting call that follows is the cycle's own first.
    return Schedule("linear", {"algorithm": (), "sampled": (Ask(True),)}[_start(start)], (draft, verify))


def packed(width: int, start: str = "algorithm") -> Schedule:
    """Packed-SS: verify the draft and propose the next one from the older prefix, in one call (ALG1, ALG2)."""
    return _one_call("packed", (0,), width, start)


def quadratic(width: int, start: str = "algorithm") -> Schedule:
    """Quadratic-SS: one call that prepares a continuation for each of the `width` + 1 possible outcomes."""
    return _one_call("quadratic", tuple(range(width + 1)), width, start)


def branches(accepted_counts: Iterable[int], width: int, start: str = "algorithm") -> Schedule:
    """Branches(S): continuations for the accepted-draft counts in S alone, between Packed-SS and Quadratic-SS (section 5).

    When fewer draft tokens are accepted than the smallest count in S, the next call verifies an empty draft.
    """
    counts = tuple(sorted(set(accepted_counts)))
    if not counts or counts[0] < 0 or counts[-1] > width:
        raise InvalidInput(f"branches need accepted counts between 0 and W = {width}, at least one; got {list(counts)}")
    return _one_call("branches:" + ",".join(map(str, counts)), counts, width, start)


def named(name: str, width: int, start: str = "algorithm") -> Schedule:
    """The schedule called `name` on the command line. Raises InvalidInput for an unknown name, start, or W < 1."""
    makers: dict[str, Callable[[int, str], Schedule]] = {"linear": linear, "packed": packed, "quadratic": quadratic}
    if name == "ar":
        if _start(start) != "algorithm":
            raise InvalidInput(f"ar knows only the start 'algorithm', got {start!r}")
        return ar()
    if name in makers:
        return makers[name](width, start)
    if re.fullmatch(r"branches:\d+(,\d+)*", name):
        return branches(map(int, name.removeprefix("branches:").split(",")), width, start)
    raise InvalidInput(f"unknown schedule {name!r}; allowed: {', '.join(NAMES)}")


def _one_call(name: str, counts: tuple[int, ...], width: int, start: str) -> Schedule:
    _check_width(width)
    opening = {"algorithm": (), "sampled": (Ask(True), Ask(False, (0,), width))}[_start(start)]
    return Schedule(name, opening, (Ask(True, counts, width),))


def _check_width(width: int) -> None:
    if width < 1:
        raise InvalidInput(f"the speculative width W must be >= 1, got {width}")


def _start(start: str) -> str:
    if start not in STARTS:
        raise InvalidInput(f"unknown start {start!r}; allowed: {', '.join(STARTS)}")
    return start
