"""Train the embedded dual-mode model: `python -m realmodel.train --out DIR --minutes 100`.

One network learns two modes that differ only in their attention mask (section 2.2 of the paper): causal next-token prediction,
and drafting a block of masks in parallel after a clean prefix. Both losses come from ONE forward over

    [ clean x_1 .. x_L | noisy block | noisy block | ... ]

    clean rows    causal; never see a noisy row
    ANCHORED      [x_a, MASK^W] at positions a .. a+W       sees clean rows strictly before a, and itself both ways (J_B, LAYD1)
    ALL-MASK      [MASK^(W+1)]  at positions a+1 .. a+W+1   sees clean rows up to a, and itself (the `wide` first call, E.2)

so every noisy block looks exactly like the proposal region of a packed call. Two phases share the loop:

    pretrain   real text: next-token loss + masked loss
    distil     half of the steps as before; in the other half the text is the model's own greedy continuation of training
               prompts, on which only the drafting mode learns (targets: the greedy tokens, and the causal rows' own laws)

The loop itself, its schedule and its checkpoints are in `realmodel.training`.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

from realmodel.corpus import passages, split, stdlib_files
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

VOCAB = 2048
NOISY = 336  # noisy rows per sequence
PROMPTS = 60  # held-out passages shipped with the model

CONFIG = Qwen3Config(  # type: ignore[call-arg]
    vocab_size=VOCAB,
    hidden_size=256,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    intermediate_size=640,
    max_position_embeddings=1024,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=EOS,
    pad_token_id=EOS,
    mask_token_id=MASK,  # not Qwen3's own: kept in config.json for whoever loads the model
)


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE; id 0 ends a text, id 1 is the mask and never occurs in text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=["<|end|>", "<|mask|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


@dataclass
class Layout:
    """One packed training forward, shared by a whole batch. R = CLEAN + NOISY rows."""

    positions: torch.Tensor  # [R] position ids
    mask: torch.Tensor  # [1, 1, R, R] bool, True = attend
    source: torch.Tensor  # [NOISY] index of the clean token each noisy row stands for
    masked: torch.Tensor  # [NOISY] bool: the row holds MASK (an anchor row holds its token)
    offset: torch.Tensor  # [NOISY] draft offset 1.. within the block (0 for an anchor)


def sample_layout(rng: random.Random, first_anchor: int) -> Layout:
    """Random blocks filling exactly NOISY rows; anchors a lie in [first_anchor, CLEAN - 2 - W]."""
    spans: list[tuple[int, int, bool]] = []  # (first position, rows, has an anchor row), positions from 0
    left = NOISY
    while left:
        width = min(rng.choice([4, 4, 8, 8, 8, 8, 16, 16, rng.randint(1, 24)]), left - 1)
        if left - (width + 1) == 1:
            width += 1  # never leave a single row
        anchor = rng.randint(first_anchor, CLEAN - 2 - width)
        anchored = rng.random() < 0.88
        spans.append((anchor if anchored else anchor + 1, width + 1, anchored))
        left -= width + 1
    rows = CLEAN + NOISY
    mask = torch.zeros(rows, rows, dtype=torch.bool)
    mask[:CLEAN, :CLEAN] = torch.ones(CLEAN, CLEAN, dtype=torch.bool).tril()
    source: list[int] = []
    masked: list[bool] = []
    offset: list[int] = []
    start = CLEAN
    for first, length, anchored in spans:
        mask[start : start + length, :first] = True
        mask[start : start + length, start : start + length] = True
        source += range(first, first + length)
        masked += [not anchored] + [True] * (length - 1)
        offset += range(0 if anchored else 1, length + (0 if anchored else 1))
        start += length
    source_t = torch.tensor(source)
    return Layout(
        torch.cat([torch.arange(CLEAN), source_t]), mask[None, None], source_t, torch.tensor(masked), torch.tensor(offset)
    )


def losses(model: Qwen3ForCausalLM, clean: torch.Tensor, layout: Layout, own: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(next-token loss, drafting loss) of a batch `clean` [batch, CLEAN].

    With `own` (self-generated text) the next-token loss is 0: the causal mode must not learn from itself.
    """
    batch = clean.shape[0]
    hidden_tokens = layout.masked.expand(batch, -1)
    if not own and random.random() < 0.3:  # partly unmasked blocks: ordinary masked-diffusion training
        keep = torch.rand(batch, layout.masked.shape[0]) < torch.rand(batch, 1)
        hidden_tokens = hidden_tokens & ~keep
    truth = clean[:, layout.source]  # [batch, NOISY]
    noisy = torch.where(hidden_tokens, MASK, truth)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(
            input_ids=torch.cat([clean, noisy], 1),
            position_ids=layout.positions[None],
            attention_mask=layout.mask,
            use_cache=False,
        ).logits  # [batch, R, VOCAB]
    causal, draft = logits[:, :CLEAN].float(), logits[:, CLEAN:].float()
    ar = F.cross_entropy(causal[:, :-1].flatten(0, 1), clean[:, 1:].flatten()) if not own else torch.zeros(())
    weight = OFFSET_DECAY ** (layout.offset - 1).clamp(min=0) * hidden_tokens
    ce = F.cross_entropy(draft.transpose(1, 2), truth, reduction="none")
    if own:
        # Soft targets as well: the causal law one row earlier, which is what a draft is tested against.
        teacher = causal[:, layout.source - 1].detach().log_softmax(-1)
        kl = F.kl_div(draft.log_softmax(-1), teacher, reduction="none", log_target=True).sum(-1)
        ce = 0.7 * ce + 0.3 * kl
    return ar, (ce * weight).sum() / weight.sum()


@torch.no_grad()
def greedy_continuations(model: Qwen3ForCausalLM, stream: torch.Tensor, count: int, rng: random.Random) -> torch.Tensor:
    """Greedy continuations of random training prompts, [count, CLEAN]; MASK and early EOS are suppressed."""
    model.eval()
    prompts = prompts_of(stream, count, rng)
    with torch.autocast("cpu", torch.bfloat16):
        texts: torch.Tensor = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            max_new_tokens=CLEAN - GENERATED_PROMPT,
            suppress_tokens=[EOS, MASK],
        )
    model.train()
    return texts


@torch.no_grad()
def evaluate(model: Qwen3ForCausalLM, stream: torch.Tensor, own: bool = False, batches: int = 6) -> dict[str, float]:
    """Held-out next-token loss and accuracy, and draft accuracy by offset (fixed seed).

    With `own` the text is the model's greedy continuation of held-out prompts: the accuracy a greedy schedule meets.
    """
    model.eval()
    rng = random.Random(1)
    hits, seen = torch.zeros(NOISY + 1), torch.zeros(NOISY + 1)
    loss = accuracy = 0.0
    for _ in range(batches):
        if own:
            clean = greedy_continuations(model, stream, BATCH, rng)
            model.eval()
        else:
            clean = windows(stream, rng)
        layout = sample_layout(rng, GENERATED_PROMPT)
        truth = clean[:, layout.source]
        noisy = torch.where(layout.masked, MASK, truth)
        logits = model(
            input_ids=torch.cat([clean, noisy], 1),
            position_ids=layout.positions[None],
            attention_mask=layout.mask,
            use_cache=False,
        ).logits
        loss += F.cross_entropy(logits[:, : CLEAN - 1].flatten(0, 1), clean[:, 1:].flatten()).item() / batches
        accuracy += (logits[:, : CLEAN - 1].argmax(-1) == clean[:, 1:]).float().mean().item() / batches
        hit = ((logits[:, CLEAN:].argmax(-1) == truth) & layout.masked).float().sum(0)
        hits.index_add_(0, layout.offset, hit)
        seen.index_add_(0, layout.offset, layout.masked.float() * BATCH)
    model.train()
    result = {"next_token_loss": loss, "next_token_accuracy": accuracy}
    result |= {f"draft_accuracy_{j}": (hits[j] / seen[j]).item() for j in OFFSETS if seen[j]}
    return {key: round(value, 4) for key, value in result.items()}


def main() -> None:
    keep_memory("realmodel.train")
    args = arguments(__doc__, minutes=100.0)
    checkpoint = args.out / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    random.seed(args.seed)

    train_files, held_files = split(stdlib_files())
    tokenizer_file = args.out / "tokenizer.json"
    if tokenizer_file.exists():
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    else:
        tokenizer = train_tokenizer([text for _, text in train_files])
        tokenizer.save(str(tokenizer_file))
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    (checkpoint / "prompts.jsonl").write_text("".join(json.dumps(item) + "\n" for item in passages(held_files, PROMPTS)))
    corpus = Corpus.encode(tokenizer)

    model = Qwen3ForCausalLM(CONFIG)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.02 if "embed" in name else 1 / math.sqrt(parameter.shape[1]))
    training = Training(args, model, corpus, peak=(0.02, 0.004))
    rng = training.rng
    own_texts = torch.empty(0, CLEAN, dtype=torch.long)
    own_until = 0.0

    def step() -> dict[str, torch.Tensor]:
        nonlocal own_texts, own_until
        if training.distilling and (not len(own_texts) or training.seconds > own_until):
            own_texts = torch.cat([greedy_continuations(model, corpus.train, 64, rng) for _ in range(8)])
            own_until = training.seconds + (training.total - training.distil_from) / 2
        own = training.distilling and training.steps % 2 == 0
        if own:
            clean = own_texts[torch.tensor([rng.randrange(len(own_texts)) for _ in range(BATCH)])]
        else:
            clean = windows(corpus.train, rng)
        ar, draft = losses(model, clean, sample_layout(rng, GENERATED_PROMPT - 1 if own else 1), own)
        return {"next-token": ar, "draft": draft}

    def figures(final: bool) -> dict[str, float]:
        result = evaluate(model, corpus.held)
        if final:
            result |= {f"own_{k}": v for k, v in evaluate(model, corpus.held, own=True).items() if k.startswith("draft")}
        return result

    training.run(step, figures)


if __name__ == "__main__":
    main()
