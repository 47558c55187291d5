"""What the trainings of the embedded models share: text, optimisers, a schedule by the clock, resumption.

The schedule follows the clock, not a step count, so that a slow or busy machine still ends with a decayed learning rate.
An interrupted run resumes from DIR/state.pt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from realmodel.corpus import split, stdlib_files

EOS, MASK = 0, 1
CLEAN = 320  # clean tokens per sequence
BATCH = 8
GENERATED_PROMPT = 64  # tokens of real text before a self-generated continuation
OFFSET_DECAY = (
    0.85  # loss weight of draft offset j is OFFSET_DECAY^(j-1): a later draft token counts only if the earlier ones hold
)
OFFSETS = (1, 2, 3, 4, 6, 8, 12, 16)  # draft offsets whose accuracy is recorded

# glibc returns every large tensor to the system and faults it in again; keeping the memory makes a step several times faster.
_MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "16000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_ARENA_MAX": "1",
}


def keep_memory(module: str) -> None:
    """Start `python -m module` again with the allocator set for training, unless it is: it reads its settings only once."""
    if any(os.environ.get(key) != value for key, value in _MALLOC.items()):
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, **_MALLOC})


def arguments(description: str | None, minutes: float) -> argparse.Namespace:
    """The command line of a training: out, minutes (with this default), distil_share, seed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the state, the log and checkpoints")
    parser.add_argument("--minutes", type=float, default=minutes, help="wall-clock length of the whole run")
    parser.add_argument("--distil-share", type=float, default=0.35, help="share of the time given to the second phase")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def encode_stream(tokenizer: Tokenizer, files: list[tuple[str, str]]) -> torch.Tensor:
    """All texts in one id stream, each closed by EOS. Shape [tokens]."""
    ids: list[int] = []
    for encoding in tokenizer.encode_batch([text for _, text in files]):
        ids += [*encoding.ids, EOS]
    return torch.tensor(ids)


@dataclass
class Corpus:
    """The text of a training: id streams of the training files and of the held-out files."""

    tokenizer: Tokenizer
    train: torch.Tensor  # [tokens]
    held: torch.Tensor  # [tokens]
    data: str  # what it is, for the record
    held_out: str

    @classmethod
    def encode(cls, tokenizer: Tokenizer) -> Corpus:
        """The standard library through this tokenizer."""
        train_files, held_files = split(stdlib_files())
        train, held = encode_stream(tokenizer, train_files), encode_stream(tokenizer, held_files)
        data = f"CPython {sys.version.split()[0]} standard library, {len(train_files)} files, {len(train)} tokens"
        return cls(tokenizer, train, held, data, f"{len(held_files)} files, {len(held)} tokens")


def windows(stream: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """BATCH windows of CLEAN tokens at random places of a stream. Shape [BATCH, CLEAN]."""
    starts = torch.tensor([rng.randrange(len(stream) - CLEAN) for _ in range(BATCH)])
    return stream[starts[:, None] + torch.arange(CLEAN)]


def prompts_of(stream: torch.Tensor, count: int, rng: random.Random) -> torch.Tensor:
    """Random prompts of a stream for texts of the model's own. Shape [count, GENERATED_PROMPT]."""
    starts = torch.tensor([rng.randrange(len(stream) - GENERATED_PROMPT) for _ in range(count)])
    return stream[starts[:, None] + torch.arange(GENERATED_PROMPT)]


class Training:
    """One run by the clock: step after step on `model`, with checkpoints, from where the state file left off."""

    def __init__(self, args: argparse.Namespace, model: Any, corpus: Corpus, peak: tuple[float, float]) -> None:
        """`peak`: the highest learning rates, of the matrices (Muon) and of everything else (AdamW)."""
        self.args, self.model, self.corpus, self.peak = args, model, corpus, peak
        self.rng = random.Random(args.seed)
        self.total: float = args.minutes * 60
        self.distil_from: float = self.total * (1 - args.distil_share)
        self.seconds, self.steps = 0.0, 0
        self.log: list[dict[str, Any]] = []
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
        self.others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
        self.optimizers = [
            torch.optim.Muon(matrices, lr=peak[0], weight_decay=0.01, momentum=0.95),
            torch.optim.AdamW(self.others, lr=peak[1], betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.state_file: Path = args.out / "state.pt"
        if self.state_file.exists():
            saved = torch.load(self.state_file, weights_only=True)
            model.load_state_dict(saved["model"])
            for optimizer, content in zip(self.optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(content)
            state = json.loads(saved["state"])
            self.steps, self.seconds, self.log = state["step"], state["seconds"], state["log"]
            self.rng.seed(args.seed + self.steps)  # fresh windows after a resumption
        self.parameters = sum(p.numel() for p in model.parameters())
        sizes = f"{len(corpus.train):,} training tokens, {len(corpus.held):,} held out"
        print(f"{self.parameters:,} parameters, {sizes}", flush=True)

    @property
    def distilling(self) -> bool:
        """Whether the second phase has begun."""
        return self.seconds >= self.distil_from

    def run(self, losses: Callable[[], dict[str, torch.Tensor]], evaluate: Callable[[bool], dict[str, float]]) -> None:
        """Step until the time is over. `losses` gives the terms of one step's loss by name, `evaluate(final)` figures."""
        clock = time.monotonic()
        last_save = self.seconds
        average: dict[str, float] = {}
        while self.seconds < self.total:
            done = self.seconds / self.total
            rate = min(1.0, (self.steps + 1) / 40) * min(1.0, max(0.02, (1 - done) / 0.6))
            for optimizer, top in zip(self.optimizers, self.peak, strict=True):
                for group in optimizer.param_groups:
                    group["lr"] = top * rate
            phase = "distil" if self.distilling else "pretrain"
            terms = losses()
            torch.stack(list(terms.values())).sum().backward()
            torch.nn.utils.clip_grad_norm_(self.others, 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.steps += 1
            for name, term in terms.items():
                average[name] = 0.95 * average.get(name, 0.0) + 0.05 * term.item()
            now = time.monotonic()
            self.seconds += now - clock
            clock = now
            if self.steps % 50 == 0:
                means = "  ".join(f"{name} {mean:.3f}" for name, mean in average.items())
                print(f"{self.seconds / 60:6.1f} min  {phase}  step {self.steps}  {means}", flush=True)
            if self.seconds - last_save > 60 * (2 if last_save == 0 else 6):
                self._checkpoint(evaluate(False))
                last_save = self.seconds
                clock = time.monotonic()
        self._checkpoint(evaluate(True))

    def _checkpoint(self, figures: dict[str, float]) -> None:
        entry = {"minutes": round(self.seconds / 60, 1), "step": self.steps} | figures
        self.log.append(entry)
        print(json.dumps(entry), flush=True)
        record = {
            "data": self.corpus.data,
            "held_out": self.corpus.held_out,
            "parameters": self.parameters,
            "steps": self.steps,
            "clean_tokens": self.steps * BATCH * CLEAN,
            "arguments": {"minutes": self.args.minutes, "distil_share": self.args.distil_share, "seed": self.args.seed},
            "log": self.log,
        }
        save(self.model, self.args.out / "checkpoint", record)
        content = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "state": json.dumps({"step": self.steps, "seconds": self.seconds, "log": self.log}),
        }
        torch.save(content, self.state_file.with_suffix(".part"))
        os.replace(self.state_file.with_suffix(".part"), self.state_file)


def save(model: Any, folder: Path, record: dict[str, Any]) -> None:
    """Write config.json, model.safetensors (bfloat16) and training.json; the weights are replaced whole."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the embedding
    }
    save_file(tensors, folder / "model.safetensors.part", metadata={"format": "pt"})
    os.replace(folder / "model.safetensors.part", folder / "model.safetensors")
    model.config.save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
