"""Train the embedded any-order model: `python -m realmodel.train_any_order --out DIR --minutes 70`.

It starts from the embedded dual-mode weights and learns to predict any position from any set of accepted ones that its orders
allow (Appendix C, D.2). All losses come from ONE forward over

    [ clean tokens in generation order | mask rows ]            position ids are textual, in both parts

    clean row, rank r   sees clean ranks <= r
    VERIFIER row        the mask of the position of rank r: sees clean ranks < r and itself
    DRAFTING row        the mask of a position up to DRAFT_REACH - 1 behind the leftmost one that is unresolved after b ranks:
                        sees clean ranks < b and itself, as a row of R in a packed call

The prompt comes first, in text order, and is no target. Loss on mask rows only, against the token AT the position (no shift),
the mask's own column excluded. Orders come from three families, so that windows of 8 and 16 positions are in distribution:

    left to right
    staggered   independent noise whose level falls along the text: no position before another that lies a horizon earlier
    window      the best of random, frozen scores among the unresolved positions of a sliding window, again and again: what a
                confidence policy does, with chance in place of confidence

One sequence in END_ONE_IN is placed so that a text ends inside its targets. In the second phase half of the steps train
drafting rows alone on the model's own serial greedy texts, in the orders it wrote them: left to right, and by confidence in a
window.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AttentionInterface, DynamicCache, Qwen3ForCausalLM

from realmodel.any_order.reference import duplicate_mask
from realmodel.loading import EMBEDDED, load
from realmodel.training import (
    BATCH,
    CLEAN,
    EOS,
    GENERATED_PROMPT,
    MASK,
    OFFSET_DECAY,
    OFFSETS,
    Corpus,
    Training,
    arguments,
    keep_memory,
    prompts_of,
    windows,
)

BUDGETS = (8, 16)  # S of the staggered orders and width of the window orders
STAGGERED_LENGTH = 1024  # N of the staggered noise: it sets how slowly the level falls, whatever the length of a text
DRAFT_REACH = 16
MASK_ROWS = 384  # per sequence
END_ONE_IN = 8
MASKED_OUT = -1e12  # logit of the mask's own column


def staggered_times(count: int, budget: int, dice: torch.Generator) -> torch.Tensor:
    """StaggeredNoise of Set Diffusion (arXiv 2607.01775): a random time for each position 0 .. count - 1, float64 [count].

    Decoding goes by descending time. Position i comes before every j >= i + 2 * budget, the horizon; within the band where the
    order is open, about budget / 2 positions are unresolved.
    """
    length, horizon = STAGGERED_LENGTH, 2 * budget
    band = horizon / (length + horizon - 1)
    half = budget / (2 * length)
    power = half / (band - half)
    level = (1 - band) * (1 - torch.arange(count, dtype=torch.float64) / (length - 1))
    waited = torch.empty(count, dtype=torch.float64).exponential_(generator=dice)
    return level + band * (1 - torch.exp(-waited / power))


def window_order(scores: Sequence[float], width: int) -> list[int]:
    """The order of 0 .. len(scores) - 1 in which each next position is the best-scored unresolved one among the `width`
    positions from the leftmost unresolved one."""
    unresolved = list(range(len(scores)))
    order = []
    while unresolved:
        inside = [position for position in unresolved[:width] if position < unresolved[0] + width]
        best = max(inside, key=scores.__getitem__)
        unresolved.remove(best)
        order.append(best)
    return order


def random_order(prompt: int, rng: random.Random, dice: torch.Generator) -> torch.Tensor:
    """A generation order of the CLEAN positions of a sequence: the prompt in text order, then one of the three families."""
    count, budget, kind = CLEAN - prompt, rng.choice(BUDGETS), rng.random()
    if kind < 0.3:
        targets = list(range(count))
    elif kind < 0.65:
        targets = staggered_times(count, budget, dice).argsort(descending=True, stable=True).tolist()
    else:
        targets = window_order([rng.random() for _ in range(count)], budget)
    return torch.tensor([*range(prompt), *(prompt + position for position in targets)])


@dataclass
class Layout:
    """One training forward; every sequence of a batch has an order of its own. R = CLEAN + mask rows."""

    order: torch.Tensor  # [batch, CLEAN] text positions in generation order
    source: torch.Tensor  # [batch, mask rows] text position of each mask row
    bound: torch.Tensor  # [batch, mask rows] it sees the clean rows of rank < bound
    offset: (
        torch.Tensor
    )  # [batch, mask rows] 0 for a verifier row, else the draft offset: 1 is the leftmost unresolved position

    @property
    def positions(self) -> torch.Tensor:
        """Position ids, [batch, R]."""
        return torch.cat([self.order, self.source], 1)

    @property
    def mask(self) -> torch.Tensor:
        """Who sees whom, bool [batch, 1, R, R], True = attend."""
        return duplicate_mask(torch.arange(CLEAN).expand_as(self.order), self.bound)[:, None]


def sample_layout(order: torch.Tensor, prompt: int, verifying: bool, drafting: int, dice: torch.Generator) -> Layout:
    """The verifier rows of all positions behind the prompt, where wanted, and `drafting` random drafting rows per sequence."""
    batch = len(order)
    leftmost = order.flip(1).cummin(1).values.flip(1)  # [batch, CLEAN]: by number of resolved ranks
    rank = order.argsort(1)
    bound = torch.randint(prompt, CLEAN, (batch, drafting), generator=dice)
    left = leftmost.gather(1, bound)
    # The first of four tries that is unresolved and inside the text; if there is none, the leftmost position, which always is.
    tries = left[..., None] + torch.randint(0, DRAFT_REACH, (batch, drafting, 4), generator=dice)
    tries = torch.cat([tries, left[..., None]], -1)
    rank_of_try = rank.gather(1, tries.clamp(max=CLEAN - 1).flatten(1)).view_as(tries)
    fits = (tries < CLEAN) & (rank_of_try >= bound[..., None])
    source = tries.gather(-1, fits.int().argmax(-1, keepdim=True))[..., 0]
    offset = source - left + 1
    if verifying:
        source = torch.cat([order[:, prompt:], source], 1)
        bound = torch.cat([torch.arange(prompt, CLEAN).expand(batch, -1), bound], 1)
        offset = torch.cat([torch.zeros(batch, CLEAN - prompt, dtype=torch.long), offset], 1)
    return Layout(order, source, bound, offset)


def split_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lower: torch.Tensor, scaling: float, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attention under `duplicate_mask` without the pairs it forbids: less than half of the work of the whole square.

    Clean rows are causal; a mask row sees the clean rows that `lower` [batch, 1, mask rows, clean rows] adds 0 to, and itself.
    query, key, value [batch, heads or key/value heads, rows, size] -> [batch, rows, heads, size].
    """
    clean = lower.shape[-1]
    key, value = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (key, value))
    k, v, own = key[:, :, :clean], value[:, :, :clean], query[:, :, clean:] * scaling
    upper = F.scaled_dot_product_attention(query[:, :, :clean], k, v, is_causal=True, scale=scaling)
    scores = torch.cat([own @ k.mT + lower.to(own.dtype), (own * key[:, :, clean:]).sum(-1, keepdim=True)], -1)
    weights = scores.float().softmax(-1).to(value.dtype)
    rest = weights[..., :clean] @ v + weights[..., clean:] * value[:, :, clean:]
    return torch.cat([upper, rest], 2).transpose(1, 2), None


AttentionInterface.register("split", split_attention)


@contextmanager
def splitting(model: Qwen3ForCausalLM) -> Iterator[None]:
    """Within it, the model attends by `split_attention`."""
    before = model.config._attn_implementation
    model.config._attn_implementation = "split"
    try:
        yield
    finally:
        model.config._attn_implementation = before


def mask_logits(model: Qwen3ForCausalLM, clean: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Float32 logits of the mask rows, [batch, mask rows, vocabulary], for texts `clean` [batch, CLEAN]."""
    masks = torch.full_like(layout.source, MASK)
    lower = layout.mask[..., CLEAN:, :CLEAN]
    with splitting(model):
        logits: torch.Tensor = model(
            input_ids=torch.cat([clean.gather(1, layout.order), masks], 1),
            position_ids=layout.positions,
            attention_mask=torch.zeros(lower.shape).masked_fill(~lower, -torch.inf),
            logits_to_keep=masks.shape[1],
            use_cache=False,
        ).logits.float()
    column = torch.arange(logits.shape[-1]) == MASK
    return logits.masked_fill(column, MASKED_OUT)


def losses(model: Qwen3ForCausalLM, clean: torch.Tensor, layout: Layout) -> dict[str, torch.Tensor]:
    """Mean loss of the verifier rows, if there are any, and of the drafting rows, weighted by offset."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = mask_logits(model, clean, layout)
    ce = F.cross_entropy(logits.transpose(1, 2), clean.gather(1, layout.source), reduction="none")
    verifier = layout.offset == 0
    weight = OFFSET_DECAY ** (layout.offset - 1) * ~verifier
    terms = {"draft": (ce * weight).sum() / weight.sum()}
    if verifier.any():
        terms["verify"] = ce[verifier].mean()
    return terms


def texts_with_ends(stream: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Random windows of a stream, [BATCH, CLEAN]; one in END_ONE_IN has the end of a text behind its first GENERATED_PROMPT."""
    clean = windows(stream, rng)
    ends = (stream == EOS).nonzero()[:, 0]
    for row in range(BATCH):
        if rng.randrange(END_ONE_IN) == 0:
            start = int(ends[rng.randrange(len(ends))]) - rng.randrange(GENERATED_PROMPT, CLEAN)
            start = min(max(start, 0), len(stream) - CLEAN)
            clean[row] = stream[start : start + CLEAN]
    return clean


@torch.no_grad()
def own_texts(model: Qwen3ForCausalLM, prompts: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's serial greedy continuations of `prompts` [count, P] and the orders written in: both [count, CLEAN].

    Each call resolves the most confident of the unresolved positions among the `width` from the leftmost one; width 1 is left
    to right. EOS and the mask are suppressed.
    """
    model.eval()
    count, start = prompts.shape
    texts = torch.cat([prompts, torch.zeros(count, CLEAN - start, dtype=torch.long)], 1)
    order = torch.arange(CLEAN).repeat(count, 1)
    unresolved = order >= start
    newest = torch.full((count, 1), start - 1)
    cache = DynamicCache(config=model.config)
    with torch.autocast("cpu", torch.bfloat16):
        model(prompts[:, :-1], cache=cache, use_cache=True, logits_to_keep=1)
        for rank in range(start, CLEAN):
            window = unresolved.int().argmax(1, keepdim=True) + torch.arange(width)
            inside = window.clamp(max=CLEAN - 1)
            mask = torch.ones(1 + width, rank + width, dtype=torch.bool)  # [newest | window] sees [cached | newest | window]
            mask[:, rank:] = torch.eye(1 + width, dtype=torch.bool)[:, 1:]
            logits = model(
                input_ids=torch.cat([texts.gather(1, newest), torch.full((count, width), MASK)], 1),
                position_ids=torch.cat([newest, inside], 1),
                attention_mask=mask[None, None],
                cache=cache,
                use_cache=True,
                logits_to_keep=width,
            ).logits.float()
            cache.crop(-width)
            logits[..., [EOS, MASK]] = MASKED_OUT
            confidence, tokens = logits.softmax(-1).max(-1)
            confidence[(window >= CLEAN) | ~unresolved.gather(1, inside)] = -1.0
            best = confidence.argmax(1, keepdim=True)
            newest = inside.gather(1, best)
            texts.scatter_(1, newest, tokens.gather(1, best))
            unresolved.scatter_(1, newest, False)
            order[:, rank] = newest[:, 0]
    model.train()
    return texts, order


@torch.no_grad()
def mask_row_figures(model: Qwen3ForCausalLM, texts: torch.Tensor, order: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
    """Sums over the mask rows of one forward, float64 [3, DRAFT_REACH + 1]: hits, losses and rows by draft offset; offset 0 is
    the verifier rows."""
    layout = sample_layout(order, GENERATED_PROMPT, True, MASK_ROWS, dice)
    logits, truth = mask_logits(model, texts, layout), texts.gather(1, layout.source)
    loss = F.cross_entropy(logits.transpose(1, 2), truth, reduction="none")
    figures = (logits.argmax(-1) == truth, loss, torch.ones_like(loss))
    return torch.stack([torch.bincount(layout.offset.flatten(), x.flatten().double(), DRAFT_REACH + 1) for x in figures])


@torch.no_grad()
def evaluate(model: Qwen3ForCausalLM, stream: torch.Tensor, final: bool) -> dict[str, float]:
    """Held-out figures with a fixed seed: loss and accuracy of the verifier rows left to right, their accuracy in window
    orders, and the accuracy of a draft by its offset behind a complete prefix.

    At the end also draft accuracies on the model's own texts, left to right and in confidence order within 16 positions.
    """
    model.eval()
    rng, dice = random.Random(1), torch.Generator().manual_seed(1)
    ltr = torch.arange(CLEAN).expand(BATCH, -1)
    straight, window = torch.zeros(2, 3, DRAFT_REACH + 1, dtype=torch.float64)
    for _ in range(24 if final else 4):
        clean = windows(stream, rng)
        straight += mask_row_figures(model, clean, ltr, dice)
        scores = [[rng.random() for _ in range(CLEAN - GENERATED_PROMPT)] for _ in range(BATCH)]
        targets = torch.tensor([window_order(row, max(BUDGETS)) for row in scores])
        window += mask_row_figures(model, clean, torch.cat([ltr[:, :GENERATED_PROMPT], GENERATED_PROMPT + targets], 1), dice)
    hits, loss, rows = straight
    result = {"loss": loss[0] / rows[0], "accuracy": hits[0] / rows[0], "window_accuracy": window[0, 0] / window[2, 0]}
    result |= {f"draft_accuracy_{j}": hits[j] / rows[j] for j in OFFSETS}
    if final:
        for name, width in (("own", 1), ("own_confidence", max(BUDGETS))):
            texts, orders = own_texts(model, prompts_of(stream, 8 * BATCH, rng), width)
            model.eval()
            parts = zip(texts.split(BATCH), orders.split(BATCH), strict=True)
            hits, _, rows = torch.stack([mask_row_figures(model, part, order, dice) for part, order in parts]).sum(0)
            result |= {f"{name}_draft_accuracy_{j}": hits[j] / rows[j] for j in OFFSETS}
    model.train()
    return {key: round(float(value), 4) for key, value in result.items()}


def main() -> None:
    keep_memory("realmodel.train_any_order")
    args = arguments(__doc__, minutes=70.0)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    corpus = Corpus.encode(Tokenizer.from_file(str(EMBEDDED / "tokenizer.json")))
    model = load("embedded").network.train()
    model.config.dtype = None  # of these weights in memory, not of those saved
    training = Training(args, model, corpus, peak=(0.01, 0.002))  # half of the dual-mode model's: it goes on from there
    rng = training.rng
    dice = torch.Generator().manual_seed(args.seed + training.steps)
    own: tuple[torch.Tensor, torch.Tensor] | None = None
    own_until = 0.0

    def step() -> dict[str, torch.Tensor]:
        nonlocal own, own_until
        if training.distilling and (own is None or training.seconds > own_until):
            written = [own_texts(model, prompts_of(corpus.train, 64, rng), width) for width in (1, *BUDGETS)]
            own = torch.cat([texts for texts, _ in written]), torch.cat([order for _, order in written])
            own_until = training.seconds + (training.total - training.distil_from) / 2
        if own is not None and training.steps % 2 == 0:
            chosen = torch.tensor([rng.randrange(len(own[0])) for _ in range(BATCH)])
            return losses(model, own[0][chosen], sample_layout(own[1][chosen], GENERATED_PROMPT, False, MASK_ROWS, dice))
        prompt = rng.randint(4, 2 * GENERATED_PROMPT)
        order = torch.stack([random_order(prompt, rng, dice) for _ in range(BATCH)])
        drafting = MASK_ROWS - (CLEAN - prompt)
        return losses(model, texts_with_ends(corpus.train, rng), sample_layout(order, prompt, True, drafting, dice))

    training.run(step, lambda final: evaluate(model, corpus.held, final))


if __name__ == "__main__":
    main()
