"""What travels between an any-order schedule, a model and the driver; Reply and Step are those of `simulator.records`.

A position is an output position, 1 after the prompt; a pair is (position, token).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from simulator.laws import Law
from simulator.records import Limits, Stop, Tokens

Pairs: TypeAlias = tuple[tuple[int, int], ...]


class Drafted(NamedTuple):
    """A draft token at its position, with the law it was drawn from."""

    position: int
    token: int
    law: Law


class State(NamedTuple):
    """What the next step needs, and nothing else."""

    prompt: Tokens
    accepted: Pairs  # P_{t-1} without the prompt, in acceptance order
    draft: tuple[Drafted, ...]  # D_{t-1} with its stored laws, by ascending position
    scores: tuple[
        tuple[int, float], ...
    ]  # Linear-SS: the verifier's highest probability at positions it left unresolved (CONF)
    end: int  # E: the last position to generate
    order: Tokens  # pi_t where the call before has fixed it: Linear-SS verifies in the order it drafted under; else ()
    unread: int  # accepted pairs, the last ones, that no call has been given: |N_t|
    phase: int  # where the policy stands: an index into its opening calls, then into its cycle
    limits: Limits

    @property
    def text(self) -> dict[int, int]:
        """The accepted tokens by position."""
        return dict(self.accepted)

    @property
    def prefix(self) -> Tokens:
        """The prompt and the accepted tokens in textual order; once the request has ended, there are no holes in between."""
        return self.prompt + tuple(token for _, token in sorted(self.accepted))

    @property
    def prompt_length(self) -> int:
        """|P|."""
        return len(self.prompt)

    @property
    def stop(self) -> Stop | None:
        """Why the request has ended, None while a position up to E is unresolved (ALG3.L2)."""
        return self.limits.reached(self.prefix, len(self.prompt)) if len(self.accepted) == self.end else None


class Call(NamedTuple):
    """What one forward pass is asked for.

    With `verify`, the verifier's law at order[r], given the accepted pairs and then the draft pairs of the ranks before r, for
    r = 0 .. min(kappa, u - 1) (EQ8). For every branch b <= kappa, the drafter's laws at order[b:], each given the accepted
    pairs and the first b draft pairs alone; a branch b > kappa asks for nothing, but a layout of fixed shape may reserve its
    rows. A call that neither verifies nor drafts only processes the prompt.
    """

    prompt: Tokens
    accepted: Pairs  # in acceptance order
    order: Tokens  # pi_t, a permutation of U_t: u positions
    draft: Pairs  # the draft tokens at hand, in rank order
    verify: bool
    branches: Tokens
    unread: int  # accepted pairs, the last ones, that no call has been given (a token row each, N_t)

    @property
    def kappa(self) -> int:
        """kappa_t: how many leading ranks have a draft token."""
        ranks = enumerate(zip(self.order, self.draft, strict=False))
        return next((r for r, (j, (drafted, _)) in ranks if j != drafted), len(self.draft))

    @property
    def asked(self) -> int:
        """The number of verifier laws asked for, min(kappa + 1, u), or 0."""
        return min(self.kappa + 1, len(self.order)) if self.verify else 0

    @property
    def padded_rows(self) -> int:
        """Rows of the paper's layout, padding included: |N| + 2u to verify and u for each branch (TAB2)."""
        return self.unread + len(self.order) * (2 * self.verify + len(self.branches))
