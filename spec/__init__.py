"""The paper (arXiv 2610.33379), executable: slow, literal, obvious. Read it beside the paper; `# ALG1.L7` marks line 7.

    run.py         line 0 of the algorithms (`Given`), the state between two calls, and what a run leaves behind
    stopping.py    STOP: the loop condition and the ending condition that all algorithms share
    greedy.py      Algorithm 1 (Packed-SS), and AR, Linear-SS and Quadratic-SS, at temperature 0
    sampling.py    Algorithm 2 (Packed-SS, stored Q), and AR, Linear-SS and Quadratic-SS, with rejection sampling
    thresholds.py  ASM3.1 and EQ6: greedy runs as arithmetic on the thresholds c*_k

`greedy.run` and `sampling.run` are the whole algorithm. `packed_call` and its neighbours are ONE forward pass of it, a pure
function of a hashable state: one call is one NFE and one record, whatever the schedule.

    >>> from spec import Given, greedy
    >>> given = Given(prompt=(5,), W=2, L=4, p=lambda P: len(P), q=lambda P, i: len(P) + i - 1)
    >>> greedy.run("packed", given).P, greedy.run("packed", given).NFE, greedy.run("linear", given).NFE
    ((5, 1, 2, 3, 4), 3, 4)
"""

from __future__ import annotations

from spec import greedy, sampling, stopping, thresholds
from spec.run import SCHEDULES, Given, Phase, Record, Run, Schedule, Start, State, Tokens

__all__ = ["SCHEDULES", "Given", "Phase", "Record", "Run", "Schedule", "Start", "State", "Tokens"]
__all__ += ["greedy", "sampling", "stopping", "thresholds"]
