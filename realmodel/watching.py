"""A run of a session with its logits kept: what layers two and three of a certificate look at.

The session is driven by the loop and makes the calls of any other run; only its answers are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch

from realmodel.binding import BoundSession
from realmodel.laws import TorchLaw
from realmodel.layout import Rows
from simulator.chance import Scripted, Source
from simulator.decode import Generation, Model, Policy, generate
from simulator.laws import Law, Peak
from simulator.records import Call, Limits, Reply, Step, Tokens

_NO_COINS = Scripted({})
_READING = 1e-9  # between two softmaxes of the same logits, in float64

KeysValues: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]
"""Per layer, each of shape [key/value heads, rows, head size]."""


class Seen(NamedTuple):
    """One call and its answer."""

    call: Call
    rows: Rows
    logits: torch.Tensor  # [rows, vocabulary]: of the verifier rows; where kept, those of the proposal rows, branch by branch
    reply: Reply
    misread: str  # which law of the reply is not that of its logits; empty if all are
    cached: tuple[Any, ...]  # whose causal rows the session says are in its cache after the call
    stale: int  # rows that it says lie behind them
    held: int  # rows that lie in the cache
    cache: KeysValues | None  # the cache after the call, where kept


class Watched(NamedTuple):
    """A run and all of its calls."""

    name: str  # of the prompt
    prompt: Tokens
    run: Generation
    seen: tuple[Seen, ...]

    def verifier_logits(self) -> torch.Tensor:
        """The session's own logits for every output token, [tokens, vocabulary]."""
        pairs = zip(self.seen, self.run.steps, strict=True)
        return torch.cat([seen.logits[: len(step.committed)].double() for seen, step in pairs if step.committed])


def watch(
    session: BoundSession[Any, Any],
    schedule: Policy,
    name: str,
    prompt: Tokens,
    limits: Limits,
    chance: Source = _NO_COINS,
    keep: Callable[[int], bool] = lambda call: False,
    plant: Callable[[Model], Model] = lambda model: model,
) -> Watched:
    """Run the request; `keep` says of which calls, numbered from 1, everything is kept. The last is always one of them.

    `plant` may put something between the session and the schedule.
    """
    seen: list[Seen] = []
    last: list[torch.Tensor] = []

    def model(call: Call) -> Reply:
        rows, logits = session.logits(call)
        reply = session.reply(rows, logits)
        kept, wrong = keep(len(seen) + 1), misread(rows, logits, reply, session)
        last[:] = [logits]
        state = session.cached, session.stale, session.cache.get_seq_length()
        cache = snapshot(session.cache) if kept else None
        seen.append(Seen(call, rows, logits if kept else logits[: len(rows.verifier)].clone(), reply, wrong, *state, cache))
        return reply

    run = generate(plant(model), schedule, prompt, limits, chance)
    if seen:
        seen[-1] = seen[-1]._replace(logits=last[0], cache=snapshot(session.cache))
    return Watched(name, prompt, run, tuple(seen))


@torch.inference_mode()
def misread(rows: Rows, logits: torch.Tensor, reply: Reply, session: BoundSession[Any, Any]) -> str:
    """The laws of a reply are those of its logits: the argmax or the softmax, without the mask where it is excluded (PAD).

    Which row is read as something else, in words; empty if none.
    """
    laws: list[Law] = [*reply.target, *(law for block in reply.proposals for law in block or ())]
    if not laws:
        return ""
    verifier, mask, temperature = len(rows.verifier), session.model.mask_token, session.temperature
    logits = logits.to(torch.float64, copy=True)
    logits[session.masked_from(rows) :, mask : mask + 1] = -torch.inf
    if temperature == 0:
        tokens = torch.tensor([-1 if law.certain is None else law.certain for law in laws], device=logits.device)
        best = logits[: len(laws)].gather(1, tokens.clamp(min=0)[:, None])[:, 0]
        wrong = (tokens < 0) | (best < logits[: len(laws)].amax(-1))
        said = [law.confidence if isinstance(law, Peak) else torch.nan for law in laws]
        top = torch.softmax(logits[: len(laws)], -1).amax(-1)
        wrong |= (top - torch.tensor(said, dtype=torch.float64, device=logits.device)).abs() > _READING
    else:
        expected = torch.softmax(logits[: len(laws)] / temperature, -1)
        zero = torch.zeros_like(expected[0])
        mine = torch.stack([law.probabilities if isinstance(law, TorchLaw) else zero for law in laws])
        wrong = (mine - expected).abs().amax(-1) > _READING
    if not wrong.any():
        return ""
    row = int(wrong.nonzero()[0, 0])
    return f"verifier row {row}" if row < verifier else f"proposal row {row - verifier}"


def snapshot(cache: Any) -> KeysValues:
    """A copy of what a transformers cache holds for its one sequence."""
    return [(layer.keys[0].clone(), layer.values[0].clone()) for layer in cache.layers]


def drafting(steps: Iterable[Step]) -> tuple[int, int, int]:
    """(drafts tested, draft tokens accepted, drafts of which a token was rejected)."""
    drafts = [step for step in steps if step.verified]
    return len(drafts), sum(s.accepted for s in drafts), sum(s.accepted < len(s.verified) for s in drafts)
