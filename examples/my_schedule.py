"""A schedule of your own, checked: Branches({0, W}) whose width follows the drafter.

It drafts one token more after a draft that was accepted in full, and fewer after a rejection. The width of the next draft is
chosen by what has been verified, never by the draft tokens themselves, so the output keeps the target's law whatever the rule
(`broken_schedule.py` shows what happens otherwise).

    python examples/my_schedule.py          or          packedss check examples.my_schedule:adaptive
"""

from __future__ import annotations

from proofs_check import check_schedule
from simulator import Ask, Call, Chance, Limits, Reply, Schedule, State, Step, generate, linear, packed
from simulator.oracles import ThresholdModel

WIDEST = 8


class Adaptive(Schedule):
    """The phase of the state is the width of the next draft, less 1: an index into the cycle of calls below."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        width = call.width + 1 if step.accepted == len(step.verified) else step.accepted + 2
        return after._replace(phase=min(width, WIDEST) - 1), step


adaptive = Adaptive("adaptive", (), tuple(Ask(True, (0, width), width) for width in range(1, WIDEST + 1)))

if __name__ == "__main__":
    report = check_schedule(adaptive)  # it declares no policy: nobody has said how many calls it should make
    print(report)
    print()
    # 40 tokens that are easy to draft, then 40 that are only drafted right from their own context.
    drafter = ThresholdModel([k if k > 40 else 0 for k in range(1, 81)])
    for schedule in (linear(WIDEST), packed(WIDEST), adaptive):
        run = generate(drafter, schedule, prompt=(), limits=Limits.of(80))
        print(f"{schedule.name:9} {run.nfe:3} calls, {sum(step.rows for step in run.steps):4} rows for 80 tokens")
    raise SystemExit(report.exit_code)
