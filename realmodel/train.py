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

The schedule follows the clock, not a step count, so that a slow or busy machine still ends with a decayed learning rate.
Interrupted runs resume from DIR/state.pt.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# glibc returns every large tensor to the system and faults it in again; keeping the memory makes a step several times faster.
_MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "16000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_ARENA_MAX": "1",
}
if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in _MALLOC.items()):
    os.execve(sys.executable, [sys.executable, "-m", "realmodel.train", *sys.argv[1:]], {**os.environ, **_MALLOC})

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from realmodel.corpus import passages, split, stdlib_files  # noqa: E402

EOS, MASK = 0, 1
VOCAB = 2048
CLEAN = 320  # clean tokens per sequence
NOISY = 336  # noisy rows per sequence
BATCH = 8
PROMPTS = 60  # held-out passages shipped with the model
GENERATED_PROMPT = 64  # tokens of real text before a self-generated continuation
OFFSET_DECAY = (
    0.85  # loss weight of draft offset j is OFFSET_DECAY^(j-1): a later draft token counts only if the earlier ones hold
)

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


def encode_stream(tokenizer: Tokenizer, files: list[tuple[str, str]]) -> torch.Tensor:
    """All texts in one id stream, each closed by EOS. Shape [tokens]."""
    ids: list[int] = []
    for encoding in tokenizer.encode_batch([text for _, text in files]):
        ids += [*encoding.ids, EOS]
    return torch.tensor(ids)


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
    starts = torch.tensor([rng.randrange(len(stream) - GENERATED_PROMPT) for _ in range(count)])
    prompts = stream[starts[:, None] + torch.arange(GENERATED_PROMPT)]
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
            starts = torch.tensor([rng.randrange(len(stream) - CLEAN) for _ in range(BATCH)])
            clean = stream[starts[:, None] + torch.arange(CLEAN)]
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
    result |= {f"draft_accuracy_{j}": (hits[j] / seen[j]).item() for j in (1, 2, 3, 4, 6, 8, 12, 16) if seen[j]}
    return {key: round(value, 4) for key, value in result.items()}


def save(model: Qwen3ForCausalLM, tokenizer: Tokenizer, out: Path, record: dict[str, object]) -> None:
    """Write DIR/checkpoint (bfloat16 safetensors, tokenizer, record); each file is replaced whole."""
    from safetensors.torch import save_file

    folder = out / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the embedding
    }
    save_file(tensors, folder / "model.safetensors.part", metadata={"format": "pt"})
    os.replace(folder / "model.safetensors.part", folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    _, held = split(stdlib_files())
    (folder / "prompts.jsonl").write_text("".join(json.dumps(item) + "\n" for item in passages(held, PROMPTS)))
    model.config.save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the state, the log and checkpoints")
    parser.add_argument("--minutes", type=float, default=100.0, help="wall-clock length of the whole run")
    parser.add_argument("--distil-share", type=float, default=0.35, help="share of the time given to the second phase")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    rng = random.Random(args.seed)

    train_files, held_files = split(stdlib_files())
    tokenizer_file = args.out / "tokenizer.json"
    if tokenizer_file.exists():
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    else:
        tokenizer = train_tokenizer([text for _, text in train_files])
        tokenizer.save(str(tokenizer_file))
    stream, held = encode_stream(tokenizer, train_files), encode_stream(tokenizer, held_files)

    model = Qwen3ForCausalLM(CONFIG)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.02 if "embed" in name else 1 / math.sqrt(parameter.shape[1]))
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=0.004, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peak = [0.02, 0.004]
    state: dict[str, Any] = {"step": 0, "seconds": 0.0, "log": []}
    state_file = args.out / "state.pt"
    if state_file.exists():
        saved = torch.load(state_file, weights_only=True)
        model.load_state_dict(saved["model"])
        for optimizer, content in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(content)
        state = json.loads(saved["state"])
        rng.seed(args.seed + state["step"])  # fresh windows after a resumption
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(stream):,} training tokens, {len(held):,} held out", flush=True)

    total = args.minutes * 60
    distil_from = total * (1 - args.distil_share)
    own_texts = torch.empty(0, CLEAN, dtype=torch.long)
    own_until = 0.0
    clock = time.monotonic()
    last_save = state["seconds"]
    average = [0.0, 0.0]

    def checkpoint(final: bool = False) -> None:
        entry = {"minutes": round(state["seconds"] / 60, 1), "step": state["step"]} | evaluate(model, held)
        if final:
            entry |= {f"own_{k}": v for k, v in evaluate(model, held, own=True).items() if k.startswith("draft")}
        state["log"].append(entry)
        print(json.dumps(entry), flush=True)
        record = {
            "data": f"CPython {sys.version.split()[0]} standard library, {len(train_files)} files, {len(stream)} tokens",
            "held_out": f"{len(held_files)} files, {len(held)} tokens",
            "parameters": parameters,
            "steps": state["step"],
            "clean_tokens": state["step"] * BATCH * CLEAN,
            "arguments": {"minutes": args.minutes, "distil_share": args.distil_share, "seed": args.seed},
            "log": state["log"],
        }
        save(model, tokenizer, args.out, record)
        content = {
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "state": json.dumps(state),
        }
        torch.save(content, state_file.with_suffix(".part"))
        os.replace(state_file.with_suffix(".part"), state_file)

    while state["seconds"] < total:
        done = state["seconds"] / total
        rate = min(1.0, (state["step"] + 1) / 40) * min(1.0, max(0.02, (1 - done) / 0.6))
        for optimizer, top in zip(optimizers, peak, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = top * rate
        distil = state["seconds"] >= distil_from
        if distil and (not len(own_texts) or state["seconds"] > own_until):
            own_texts = torch.cat([greedy_continuations(model, stream, 64, rng) for _ in range(8)])
            own_until = state["seconds"] + (total - distil_from) / 2
        own = distil and state["step"] % 2 == 0
        if own:
            clean = own_texts[torch.tensor([rng.randrange(len(own_texts)) for _ in range(BATCH)])]
        else:
            starts = torch.tensor([rng.randrange(len(stream) - CLEAN) for _ in range(BATCH)])
            clean = stream[starts[:, None] + torch.arange(CLEAN)]
        ar, draft = losses(model, clean, sample_layout(rng, GENERATED_PROMPT - 1 if own else 1), own)
        (ar + draft).backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        state["step"] += 1
        average = [0.95 * average[0] + 0.05 * ar.item(), 0.95 * average[1] + 0.05 * draft.item()]
        now = time.monotonic()
        state["seconds"] += now - clock
        clock = now
        if state["step"] % 50 == 0:
            phase = "distil" if distil else "pretrain"
            minutes = state["seconds"] / 60
            print(
                f"{minutes:6.1f} min  {phase}  step {state['step']}  next-token {average[0]:.3f}  draft {average[1]:.3f}",
                flush=True,
            )
        if state["seconds"] - last_save > 60 * (2 if last_save == 0 else 6):
            checkpoint()
            last_save = state["seconds"]
            clock = time.monotonic()
    checkpoint(final=True)


if __name__ == "__main__":
    main()
