"""The tuples that travel between a schedule, a model and the driver.

    init(prompt, limits)               -> State
    request(state)                     -> Call            one Call is one forward pass is one NFE
    model(call)                        -> Reply
    absorb(state, call, reply, chance) -> (State, Step)

All are small and frozen; State and Call are hashable, so that equal situations merge in an exact chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, SupportsIndex, TypeAlias

from simulator.errors import InvalidInput
from simulator.laws import Law

Tokens: TypeAlias = tuple[int, ...]
Stop: TypeAlias = Literal["eos", "stop", "length"]


class Limits(NamedTuple):
    """When a request ends. Build it with `Limits.of`, which checks."""

    max_new_tokens: int  # L >= 0
    eos: frozenset[int] = frozenset()  # any of these ids ends the output, itself included
    stop: tuple[Tokens, ...] = ()  # multi-token end markers (STOPSEQ): the output ends with the first one completed in it

    @classmethod
    def of(cls, max_new_tokens: int, eos: int | Iterable[int] | None = None, stop: Iterable[Sequence[int]] = ()) -> Limits:
        """Limits with L = `max_new_tokens`, no, one or several EOS ids, and end markers of one or more tokens.

        Raises InvalidInput for L < 0, a negative id or an empty marker.
        """
        ids = frozenset(() if eos is None else eos if isinstance(eos, Iterable) else (eos,))
        if not isinstance(max_new_tokens, SupportsIndex) or max_new_tokens < 0:
            raise InvalidInput(f"max_new_tokens must be an integer >= 0, got {max_new_tokens}")
        if any(token < 0 for token in ids):
            raise InvalidInput(f"EOS ids must be >= 0, got {sorted(ids)}")
        markers = tuple(map(tuple, stop))
        if not all(markers):
            raise InvalidInput("a stop sequence must have at least 1 token, got an empty one")
        return cls(int(max_new_tokens), ids, markers)

    def reached(self, prefix: Tokens, prompt_length: int) -> Stop | None:
        """Why the output, prefix[prompt_length:], ends with its last token; None when it goes on.

        An EOS wins over a marker and both over the length, when they fall on one token. A marker lies wholly in the output.
        """
        emitted = len(prefix) - prompt_length
        if emitted and prefix[-1] in self.eos:
            return "eos"
        if any(emitted >= len(marker) and prefix[-len(marker) :] == marker for marker in self.stop):
            return "stop"
        return "length" if emitted >= self.max_new_tokens else None


class Draft(NamedTuple):
    """D_t with its stored laws: token i follows the verified prefix by i positions and was drawn from law i (ALG2.L12)."""

    tokens: Tokens = ()
    laws: tuple[Law, ...] = ()


class State(NamedTuple):
    """What the next step needs, and nothing else."""

    prefix: Tokens  # P_{t-1}, prompt included
    prompt_length: int  # |P|
    draft: Draft  # D_{t-1}, Q_{t-1}
    phase: int  # where the policy stands: an index into its opening calls, then into its cycle
    limits: Limits

    @property
    def emitted(self) -> int:
        """Number of verified output tokens, |P_{t-1}| - |P|."""
        return len(self.prefix) - self.prompt_length

    @property
    def stop(self) -> Stop | None:
        """Why the request has ended, None while it runs. An EOS that ends the prompt stops nothing (ALG1.L2)."""
        return self.limits.reached(self.prefix, self.prompt_length)


class Call(NamedTuple):
    """What one forward pass is asked for.

    With `verify`, the target law after prefix + draft[:i] for i = 0 .. |draft|. For every branch b <= |draft|, `width` proposal
    laws for the positions that follow prefix + draft[:b], each given that context alone (never each other). A branch
    b > |draft| asks for nothing; a layout of fixed shape may still reserve its rows. A call that neither verifies nor drafts
    only processes the prompt.
    """

    prefix: Tokens
    draft: Tokens
    verify: bool
    branches: Tokens  # accepted-draft counts b whose continuations are drafted
    width: int  # W: proposals per branch; also the draft slots of a padded layout
    anchored: bool = (
        True  # drafting blocks begin with a copy of their last context token (LAYD1); else they are all masks (E.2)
    )

    @property
    def slots(self) -> int:
        """Draft slots of the verifier region, padding included: W in a regular call, none spare in a first call of masks."""
        return max(self.width, len(self.draft)) if self.anchored else len(self.draft)

    @property
    def padded_rows(self) -> int:
        """Rows of the paper's layout, padding included: B = W + 1 to verify and B for each branch asked for (TAB2)."""
        return (self.slots + 1) * self.verify + (self.width + self.anchored) * len(self.branches)


class Reply(NamedTuple):
    """A model's answer to a Call."""

    target: tuple[Law, ...]  # p^{(i)}, |draft| + 1 laws, or () without `verify`
    proposals: tuple[tuple[Law, ...] | None, ...]  # one entry per branch asked: `width` laws, None where b > |draft|
    rows: int  # token rows the forward evaluated, padding included, rows that only fill the cache excluded (TAB2)


class Step(NamedTuple):
    """What an observer may want to know of one call."""

    verified: Tokens  # D_{t-1}: the draft that was tested ((), when the call verified nothing)
    predictions: tuple[int | None, ...]  # v_t where the target law is a point mass, None elsewhere; one per verifier row
    accepted: int  # h_t: leading draft tokens accepted
    advance: int  # A_t = h_t + 1, or 0 without verification; before the stopping rule
    committed: Tokens  # C_t after the stopping rule; a = len(committed)
    branch: int | None  # whose proposals became the next draft
    discarded: int  # leading proposals of that branch whose positions were resolved meanwhile
    retained: int  # |D_t|
    stop: Stop | None
    rows: int  # Reply.rows
    fallback: bool  # a float residual had mass 0 after a rejection and the correction came from the target law
