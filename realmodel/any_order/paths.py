"""What a run accepted, in the order in which it did, and plain logits for it: what any-order outputs are judged by.

A token that an end marker removed later was predicted too, and is part of the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch

from realmodel.any_order.reference import duplicate_mask, row_logits, training_logits
from simulator.any_order.records import Pairs
from simulator.records import Limits, Step, Tokens


class Path(NamedTuple):
    """Everything that a greedy run verified and accepted.

    A segment is (pairs held, first): from `first` on its pairs were predicted one after the other, each given all before it.
    The next segment begins when pairs were removed, with those that were left.
    """

    segments: tuple[tuple[Pairs, int], ...]
    groups: tuple[Tokens, ...]  # the positions accepted by each call, in verification order; one by one if nothing was removed
    output: Pairs  # what was left at the end, in acceptance order

    @property
    def predicted(self) -> Pairs:
        """Every (position, token) that was accepted, in order."""
        return tuple(chain.from_iterable(pairs[first:] for pairs, first in self.segments))

    @property
    def contexts(self) -> Iterable[Pairs]:
        """What each of `predicted` was predicted from."""
        return (pairs[:index] for pairs, first in self.segments for index in range(first, len(pairs)))


def path_of(steps: Iterable[Step]) -> Path:
    """The path of a run. Calls that do not verify add nothing to it: those of the native decoder, for one."""
    verified = [step for step in steps if step.predictions]
    pairs = (zip(step.order[: step.advance], step.predictions, strict=False) for step in verified)
    return _path(
        [
            (tuple((j, token) for j, token in each if token is not None), step.end)
            for each, step in zip(pairs, verified, strict=True)
        ]
    )


def _path(calls: Iterable[tuple[Pairs, int | None]]) -> Path:
    """From what each call accepted, and E after it."""
    held: Pairs = ()
    segments: list[tuple[Pairs, int]] = []
    groups: list[Tokens] = []
    first = 0
    for accepted, end in calls:
        held += accepted
        groups.append(tuple(j for j, _ in accepted))
        left = tuple(pair for pair in held if end is None or pair[0] <= end)
        if len(left) < len(held):
            segments.append((held, first))
            first, held = len(left), left
    if not segments:
        groups = [(j,) for group in groups for j in group]
    if len(held) > first:
        segments.append((held, first))
    return Path(tuple(segments), tuple(groups), held)


def at_once(network: Any, prompt: Sequence[int], path: Path, mask_token: int) -> torch.Tensor:
    """Plain logits of everything predicted, float64 [predicted, vocabulary]: one pass of training for every segment."""
    parts = [training_logits(network, prompt, pairs, mask_token)[first:] for pairs, first in path.segments]
    return readable(torch.cat(parts), mask_token) if parts else torch.empty(0, network.config.vocab_size, dtype=torch.float64)


@torch.inference_mode()
def one_by_one(network: Any, prompt: Sequence[int], path: Path, mask_token: int) -> torch.Tensor:
    """The same by serial decoding without a schedule: a forward a token, of the pair before it and one mask, behind a cache."""
    read = []
    for pairs, first in path.segments:
        known = (*enumerate(prompt), *((len(prompt) - 1 + j, token) for j, token in pairs))
        begin, cache = 0, None
        for index in range(first, len(pairs)):
            end = len(prompt) + index
            entries = (*known[begin:end], (known[end][0], mask_token))
            answer = ordered(network, entries, cache, begin, 1)
            cache, begin = answer.cache, end
            cache.crop(-1)
            read.append(answer.logits[0, -1].double())
    return readable(torch.stack(read), mask_token) if read else torch.empty(0, network.config.vocab_size, dtype=torch.float64)


def serial(network: Any, prompt: Sequence[int], path: Path, limits: Limits, mask_token: int) -> Path:
    """The path of the serial reference of Proposition C.1 under the orders and groups of another, token by token.

    As `reference.serial_greedy`, under any limits.
    """
    held: Pairs = ()
    end = limits.max_new_tokens
    calls: list[tuple[Pairs, int | None]] = []
    for group in path.groups:
        before = len(held)
        for position in group:
            token = int(row_logits(network, prompt, held, position, mask_token).argmax())
            held += ((position, token),)
        end = min(end, limits.end(dict(held), group))
        calls.append((held[before:], end))
        held = tuple(pair for pair in held if pair[0] <= end)
    return _path(calls)


def mask_rows(
    network: Any, prompt: Sequence[int], pairs: Pairs, rows: Sequence[tuple[int, int]], mask_token: int
) -> torch.Tensor:
    """Plain logits at masks, float64 [rows, vocabulary]: row (j, count) stands at j and sees the first `count` pairs."""
    clean = len(prompt) + len(pairs)
    bounds = torch.tensor([len(prompt) + count for _, count in rows])
    sees = duplicate_mask(torch.arange(clean), bounds)
    where = [*range(len(prompt)), *(len(prompt) - 1 + j for j, _ in (*pairs, *rows))]
    tokens = [*prompt, *(token for _, token in pairs), *[mask_token] * len(rows)]
    logits = ordered(network, tuple(zip(where, tokens, strict=True)), None, 0, len(rows), sees).logits[0]
    return readable(logits.double(), mask_token)


@torch.inference_mode()
def ordered(
    network: Any,
    entries: Sequence[tuple[int, int]],
    cache: Any = None,
    cached: int = 0,
    keep: int = 1,
    sees: torch.Tensor | None = None,
) -> Any:
    """A plain forward of rows (position, token) behind `cached` rows, each of which sees those before it unless `sees` says
    otherwise: the logits of the last `keep` rows, and the cache."""
    if sees is None:
        sees = torch.ones(len(entries), cached + len(entries), dtype=torch.bool).tril(cached)
    additive = torch.zeros(sees.shape, dtype=network.dtype).masked_fill_(~sees, -torch.inf)
    return network(
        input_ids=torch.tensor([[token for _, token in entries]], device=network.device),
        position_ids=torch.tensor([[position for position, _ in entries]], device=network.device),
        attention_mask=additive[None, None].to(network.device),
        cache=cache,
        use_cache=True,
        logits_to_keep=keep,
    )


def readable(logits: torch.Tensor, mask_token: int) -> torch.Tensor:
    """`logits` whose mask column, which is in no law, is as low as the lowest of the others: no infinity is in the way."""
    logits = logits.clone()
    column = logits[:, mask_token : mask_token + 1]
    column.fill_(torch.inf)
    column.copy_(logits.min(-1, keepdim=True).values[:, : column.shape[1]])
    return logits
