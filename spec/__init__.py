"""The paper (arXiv 2610.33379), executable: slow, literal, obvious. Read it beside the paper; `# ALG1.L7` marks line 7.

    run.py         line 0 of the algorithms (`Given`), starts and stops, the state between two calls, what a run leaves behind
    greedy.py      Algorithm 1 (Packed-SS), and AR, Linear-SS and Quadratic-SS, at temperature 0
    sampling.py    Algorithm 2 (Packed-SS, stored Q), and AR, Linear-SS and Quadratic-SS, with rejection sampling
    any_order.py   Algorithm 3 (Packed-SS), and Linear-SS, Quadratic-SS and Native, over (position, token) pairs
    thresholds.py  ASM3.1 and EQ6: drafters that are right from a threshold c*_k on
    layouts.py     Appendix D: the rows of a call and their attention
    claims.py      what all these ids say; SPEC.md states the rules in words

`run` is the whole algorithm, `call` ONE forward pass of it, a pure function of a state: one call is one NFE and one record.

    >>> from spec import Given, greedy
    >>> given = Given(prompt=(5,), W=2, L=4, p=lambda P: len(P), q=lambda P, i: len(P) + i - 1)
    >>> greedy.run("packed", given).P, greedy.run("packed", given).NFE, greedy.run("linear", given).NFE
    ((5, 1, 2, 3, 4), 3, 4)
"""

from __future__ import annotations

from spec import any_order, claims, greedy, layouts, sampling, thresholds
from spec.run import SCHEDULES, Given, Phase, Record, Run, Schedule, Start, State, Tokens

__all__ = ["SCHEDULES", "Given", "Phase", "Record", "Run", "Schedule", "Start", "State", "Tokens"]
__all__ += ["any_order", "claims", "greedy", "layouts", "sampling", "thresholds"]
