"""The tuples that travel between a schedule, a model and the driver.

    init(prompt, limits)               -> State
    request(state)                     -> Call            one Call is one forward pass is one NFE
    model(call)                        -> Reply
    absorb(state, call, reply, chance) -> (State, Step)

All are small and frozen; State and Call are hashable, so that equal situations merge in an exact chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        return self._marked(prefix, emitted) or ("length" if emitted >= self.max_new_tokens else None)

    def end(self, output: Mapping[int, int], resolved: Iterable[int]) -> int:
        """E after the positions `resolved` were added to `output`, {position: token} with holes: the earliest position at which
        an EOS or the last token of a complete marker stands, `max_new_tokens` if none does (STOPSEQ, ALG3.L11).

        Only markers that touch `resolved` are looked for.
        """
        reach = max(map(len, self.stop), default=1)
        near = sorted({j for i in resolved for j in range(i, i + reach) if j in output})
        return next((j for j in near if self._marked(run := _run(output, j, reach), len(run))), self.max_new_tokens)

    def _marked(self, tokens: Tokens, emitted: int) -> Stop | None:
        if emitted and tokens[-1] in self.eos:
            return "eos"
        return "stop" if any(emitted >= len(marker) and tokens[-len(marker) :] == marker for marker in self.stop) else None


def _run(output: Mapping[int, int], last: int, longest: int) -> Tokens:
    """The at most `longest` tokens at consecutive positions that end with position `last`."""
    first = last
    while first - 1 in output and last - first + 1 < longest:
        first -= 1
    return tuple(output[j] for j in range(first, last + 1))


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
    again: int = (
        0  # rows among those that only fill the cache which had been cached before, but had seen what was removed since
    )


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
    order: Tokens = ()  # any-order: pi_t, the output positions in the order verified; () left to right
    end: int | None = None  # any-order: E after the call; what stood beyond is discarded
    again: int = 0  # Reply.again


def text(steps: Iterable[Step]) -> Tokens:
    """The output that the calls of a request leave, in textual order."""
    output: dict[int, int] = {}
    for step in steps:
        if step.end is None:
            output |= enumerate(step.committed, len(output) + 1)
            continue
        resolved = (j for j in step.order[: step.advance] if j <= step.end)
        output |= zip(resolved, step.committed, strict=True)
        output = {j: token for j, token in output.items() if j <= step.end}
    return tuple(output[j] for j in sorted(output))
