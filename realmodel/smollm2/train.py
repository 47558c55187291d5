"""Train the proposal adapter of SmolLM2 on a CPU: `python -m realmodel.smollm2.train --data DIR --out DIR --minutes 105`.

The network stays frozen. What learns is a low-rank adapter on every projection and the vector of the mask, on blocks laid out
as the proposal region of a packed call (LAYD1), after cached causal rows of the frozen network:

    [ x_a, MASK^W ]  at positions a .. a+W      sees cached rows strictly before a, and itself both ways

x is the model's own greedy continuation (`generate`), so the label of MASK i is the token a greedy verifier will ask for. Half
of the anchors a are drawn uniformly, half from where rounds would start: one token behind what the drafter, when it last saw
that place, got right. The drafter is tested at just those places, and they are the hard ones.

The learning rate follows the clock, so that a busy machine still ends with a decayed one. Interrupted runs resume from
DIR/state.pt; DIR/adapter.safetensors is rewritten at every checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from realmodel.adapter import AdaptedLinear, MaskEmbedding, ProposalAdapter, attach, projections
from realmodel.smollm2.attention import GROUPED
from realmodel.smollm2.corpus import libraries
from realmodel.training import keep_memory

RANK = 24
SCALE = 1.0
RATE = 2e-3
BATCH = 4  # sequences per step
ROWS = 108  # proposal rows per sequence
WIDTHS = (4, 6, 8, 8)  # one is drawn per step
DECAY = 4.0  # loss weight of offset j is exp(-(j - 1) / DECAY): a later draft token counts only if the earlier ones hold
SHORTEST = 8  # outputs shorter than this are left out


class Continuation(NamedTuple):
    """A prompt and the model's own continuation of it."""

    name: str
    tokens: tuple[int, ...]
    first: int  # the first anchor: the prompt's last token


def read(folder: Path, kind: str) -> list[Continuation]:
    """The sequences of `kind` ("train" or "held") that `generate` wrote."""
    found = []
    for path in sorted(folder.glob(f"{kind}-*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines()):
            row = json.loads(line)
            if len(row["output"]) >= SHORTEST:
                tokens = (*row["prompt"], *row["output"])
                found.append(Continuation(f"{path.stem}-{number}", tokens, len(row["prompt"]) - 1))
    return found


class Prefixes:
    """Cached keys and values of the frozen network, kept on disk: a sequence is read again and again."""

    def __init__(self, network: Any, folder: Path) -> None:
        self.network, self.folder = network, folder
        folder.mkdir(parents=True, exist_ok=True)

    @torch.no_grad()
    def of(self, sequence: Continuation) -> torch.Tensor:
        """[2 * layers, heads, tokens, head size], keys and values in turn."""
        path = self.folder / f"{sequence.name}.pt"
        if path.exists():
            kept: torch.Tensor = torch.load(path, weights_only=True)
            return kept
        cache = self.network.model(torch.tensor([sequence.tokens]), use_cache=True).cache
        made = torch.stack([part[0] for layer in cache.layers for part in (layer.keys, layer.values)])
        torch.save(made, path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)
        return made


def draft(
    network: Any, adapter: ProposalAdapter, prefixes: Prefixes, batch: Sequence[Continuation], anchors: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(last hidden states of the MASK rows that have a label, all labels).

    `anchors`: [batch, blocks]; labels: [batch, blocks, width], -100 past the end of a sequence.
    """
    from transformers import DynamicCache

    kept = [prefixes.of(sequence) for sequence in batch]
    longest = max(prefix.shape[2] for prefix in kept)
    padded = torch.stack([F.pad(prefix, (0, 0, 0, longest - prefix.shape[2])) for prefix in kept], 1)
    cache = DynamicCache(config=network.config)
    for layer in range(network.config.num_hidden_layers):
        cache.update(padded[2 * layer], padded[2 * layer + 1], layer)
    tokens = torch.full((len(batch), longest + width), -100)
    for row, sequence in enumerate(batch):
        tokens[row, : len(sequence.tokens)] = torch.tensor(sequence.tokens)
    positions = anchors[..., None] + torch.arange(width + 1)  # [batch, blocks, width + 1]
    truth = tokens[torch.arange(len(batch))[:, None, None], positions]
    inputs = torch.full_like(truth, network.config.vocab_size)
    inputs[..., 0] = truth[..., 0]
    labels = truth[..., 1:]
    rows = inputs[0].numel()
    block = torch.arange(rows) // (width + 1)
    sees = torch.cat(
        [
            (torch.arange(longest) < anchors[..., None]).repeat_interleave(width + 1, 1),
            (block[:, None] == block).expand(len(batch), -1, -1),
        ],
        -1,
    )
    dtype = network.lm_head.weight.dtype
    adapter.select(rows, 0)
    hidden = network.model(
        input_ids=inputs.flatten(1),
        position_ids=positions.flatten(1),
        attention_mask=torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, torch.finfo(dtype).min)[:, None],
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    adapter.release()
    hidden = hidden.unflatten(1, (-1, width + 1))[:, :, 1:]
    return hidden[labels >= 0], labels


@torch.no_grad()
def judge(network: Any, hidden: torch.Tensor, labels: torch.Tensor, width: int) -> tuple[float, torch.Tensor, torch.Tensor]:
    """(loss, its gradient by `hidden`, leading matches): weighted cross-entropy, differentiated by hand, because the head is
    frozen and its logits are the largest tensors of a step."""
    known = labels[labels >= 0]
    weights = torch.exp(-torch.arange(width) / DECAY).expand_as(labels)[labels >= 0]
    weights /= weights.sum()
    logits = network.lm_head(hidden).float()
    lead = leading(logits, labels)
    law = logits.softmax(-1)
    own = law.gather(1, known[:, None])
    loss = -(own[:, 0].log() * weights).sum()
    law.scatter_(1, known[:, None], own - 1).mul_(weights[:, None])
    return loss.item(), law.to(hidden.dtype) @ network.lm_head.weight, lead


def leading(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """How many labels each block gets right before its first miss, [batch, blocks]."""
    right = torch.zeros_like(labels, dtype=torch.bool)
    right[labels >= 0] = logits.argmax(-1) == labels[labels >= 0]
    return right.long().cumprod(-1).sum(-1)


def trainable(network: Any, adapter: ProposalAdapter, seed: int) -> dict[str, nn.Parameter]:
    """Attach a fresh adapter and mask; its parameters by name, float32."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, owner, attribute in list(projections(network)):
        base = getattr(owner, attribute)
        down = torch.randn(RANK, base.in_features, generator=generator) / base.in_features**0.5
        weights[name] = (down, torch.zeros(base.out_features, RANK))
    network.requires_grad_(False)
    attach(network, adapter, weights, SCALE)
    embedding = network.model.embed_tokens
    network.model.embed_tokens = MaskEmbedding(embedding, embedding.weight[0].float())  # start: a token that text never has
    found = {"mask": network.model.embed_tokens.vector}
    for name, module in network.model.layers.named_modules():
        if isinstance(module, AdaptedLinear):
            found |= {f"{name}.down": module.down, f"{name}.up": module.up}
    for parameter in found.values():
        parameter.requires_grad_(True)
    return found


def starts(sequence: Continuation, lead: torch.Tensor, rng: random.Random) -> list[int]:
    """Where rounds would start, given how far the drafter got at each anchor when it last was there."""
    last = len(sequence.tokens) - 2
    found, anchor = [], sequence.first + rng.randrange(3)
    while anchor <= last:
        found.append(anchor)
        anchor += int(lead[anchor - sequence.first]) + 1
    return found or [sequence.first]


@torch.no_grad()
def evaluate(
    network: Any, adapter: ProposalAdapter, prefixes: Prefixes, held: Sequence[Continuation], width: int = 8, blocks: int = 8
) -> dict[str, Any]:
    """Accuracy by offset and mean leading matches at fixed anchors of held-out sequences."""
    rng = random.Random(1)
    hits, seen, leads = torch.zeros(width), torch.zeros(width), []
    for begin in range(0, len(held) - BATCH + 1, BATCH):
        batch = held[begin : begin + BATCH]
        anchors = torch.tensor([[rng.randint(s.first, len(s.tokens) - 2) for _ in range(blocks)] for s in batch])
        with torch.autocast("cpu", torch.bfloat16):
            hidden, labels = draft(network, adapter, prefixes, batch, anchors, width)
            logits = network.lm_head(hidden)
        known = labels >= 0
        right = torch.zeros_like(known)
        right[known] = logits.argmax(-1) == labels[known]
        hits += right.sum((0, 1))
        seen += known.sum((0, 1))
        leads.append(leading(logits, labels).float().flatten())
    accuracy = [round(x, 3) for x in (hits / seen).tolist()]
    every = torch.cat(leads)
    return {"accuracy": accuracy, "lead": round(every.mean().item(), 3), "held_out_blocks": len(every)}


def save(parameters: dict[str, nn.Parameter], out: Path, record: dict[str, Any]) -> None:
    """DIR/adapter.safetensors, float16, with the record of the training beside it."""
    from safetensors.torch import save_file

    tensors = {name: parameter.detach().to(torch.float16).contiguous() for name, parameter in parameters.items()}
    save_file(tensors, out / "adapter.part", metadata={"scale": str(SCALE), "rank": str(RANK)})
    os.replace(out / "adapter.part", out / "adapter.safetensors")
    (out / "training.part").write_text(json.dumps(record, indent=1) + "\n")
    os.replace(out / "training.part", out / "training.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="what realmodel.smollm2.generate wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for state, adapter and cached prefixes (7 MB each)")
    parser.add_argument("--minutes", type=float, default=105.0, help="wall-clock length of the whole run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    keep_memory("realmodel.smollm2.train")
    torch.set_num_threads(1)

    from transformers import AutoModelForCausalLM

    from realmodel.smollm2.fetch import weights_folder

    network = AutoModelForCausalLM.from_pretrained(weights_folder(), dtype=torch.bfloat16, attn_implementation=GROUPED).eval()
    adapter = ProposalAdapter()
    parameters = trainable(network, adapter, args.seed)
    prefixes = Prefixes(network, args.out / "prefixes")
    sequences, held = read(args.data, "train"), read(args.data, "held")
    leads: dict[str, torch.Tensor] = {}
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    state: dict[str, Any] = {"step": 0, "seconds": 0.0, "blocks": 0, "rows": 0, "log": []}
    state_file = args.out / "state.pt"
    if state_file.exists():
        saved = torch.load(state_file, weights_only=True)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(saved["parameters"][name])
        optimizer.load_state_dict(saved["optimizer"])
        leads, state = saved["leads"], json.loads(saved["state"])
    rng = random.Random(args.seed + state["step"])  # fresh draws after a resumption
    count = sum(parameter.numel() for parameter in parameters.values())
    print(f"{count:,} parameters, {len(sequences)} sequences, {len(held)} held out", flush=True)

    def checkpoint() -> None:
        entry = {"minutes": round(state["seconds"] / 60, 1), "step": state["step"], "blocks": state["blocks"]}
        entry |= evaluate(network, adapter, prefixes, held[:64])
        state["log"].append(entry)
        print(json.dumps(entry), flush=True)
        record = {
            "libraries": libraries(),
            "sequences": len(sequences),
            "output_tokens": sum(len(s.tokens) - 1 - s.first for s in sequences),
            "held_out": len(held),
            "parameters": count,
            "rank": RANK,
            "steps": state["step"],
            "blocks": state["blocks"],
            "rows": state["rows"],
            "arguments": {"minutes": args.minutes, "seed": args.seed},
            "log": state["log"],
        }
        save(parameters, args.out, record)
        content = {
            "parameters": {name: parameter.detach() for name, parameter in parameters.items()},
            "optimizer": optimizer.state_dict(),
            "leads": leads,
            "state": json.dumps(state),
        }
        torch.save(content, state_file.with_suffix(".part"))
        os.replace(state_file.with_suffix(".part"), state_file)

    clock, last_save, average = time.monotonic(), state["seconds"], float("nan")
    queue: list[Continuation] = []
    while state["seconds"] < args.minutes * 60:
        done = state["seconds"] / (args.minutes * 60)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (state["step"] + 1) / 30) * min(1.0, max(0.01, (1 - done) / 0.5))
        if len(queue) < BATCH:
            sequences = read(args.data, "train")  # `generate` may still be adding to it
            queue = rng.sample(sequences, len(sequences))
        batch = [queue.pop() for _ in range(BATCH)]
        width = rng.choice(WIDTHS)
        blocks = ROWS // (width + 1)
        drawn = []
        for sequence in batch:
            lead = leads.setdefault(sequence.name, torch.zeros(len(sequence.tokens), dtype=torch.int8))
            rounds = starts(sequence, lead, rng)
            last = len(sequence.tokens) - 2
            drawn.append([rng.choice(rounds) if b % 2 else rng.randint(sequence.first, last) for b in range(blocks)])
        anchors = torch.tensor(drawn)
        with torch.autocast("cpu", torch.bfloat16):
            hidden, labels = draft(network, adapter, prefixes, batch, anchors, width)
        loss, gradient, got = judge(network, hidden, labels, width)
        hidden.backward(gradient)
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for sequence, at, matches in zip(batch, anchors, got, strict=True):
            leads[sequence.name][at - sequence.first] = matches.to(torch.int8)
        state["step"] += 1
        state["blocks"] += anchors.numel()
        state["rows"] += anchors.numel() * (width + 1)
        average = loss if math.isnan(average) else 0.97 * average + 0.03 * loss
        now = time.monotonic()
        state["seconds"] += now - clock
        clock = now
        if state["step"] % 20 == 0:
            print(f"{state['seconds'] / 60:6.1f} min  step {state['step']}  loss {average:.3f}", flush=True)
        if state["seconds"] - last_save > 300:
            checkpoint()
            last_save = state["seconds"]
            clock = time.monotonic()
    checkpoint()


if __name__ == "__main__":
    main()
