"""A subtle fault, and the report it gets: Packed-SS that verifies only the draft tokens it is confident in.

It keeps a draft up to the first token whose own proposal probability is below a half. That looks harmless, for every token is
still tested against the law it was drawn from. But whether a token is tested now depends on which token it is, so among those
that are tested it no longer has that law (Lemma B.4), and the output is not the target's.

    python examples/broken_schedule.py
"""

from __future__ import annotations

from itertools import takewhile

from proofs_check import check_schedule
from simulator import Call, Chance, Draft, Reply, Schedule, State, Step, packed


class Confident(Schedule):
    """Packed-SS, less the draft tokens that follow an unlikely one."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        pairs = zip(*after.draft, strict=True)
        kept = list(takewhile(lambda pair: pair[1].probability(pair[0]) >= 1 / 2, pairs))
        draft = Draft(tuple(token for token, _ in kept), tuple(law for _, law in kept))
        return after._replace(draft=draft), step._replace(retained=len(kept))


confident = Confident("confident", (), packed(4).cycle)

if __name__ == "__main__":
    print(check_schedule(confident, source="from examples.broken_schedule import confident as schedule"))
