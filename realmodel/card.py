"""The model card, from the record of a training: `python -m realmodel.card FOLDER` writes FOLDER/MODEL_CARD.md."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from realmodel.train import BATCH, CLEAN, CONFIG, GENERATED_PROMPT, MASK, NOISY, OFFSET_DECAY, VOCAB

_OFFSETS = (1, 2, 3, 4, 6, 8, 12, 16)


def card(record: dict[str, Any]) -> str:
    """The text of the card for a `training.json`."""
    log, arguments = record["log"], record["arguments"]
    last = log[-1]
    distil_from = arguments["minutes"] * (1 - arguments["distil_share"])
    columns = " | ".join(f"draft +{j}" for j in _OFFSETS)
    lines = [
        "# The embedded dual-mode model",
        "",
        _paragraph(
            f"A {record['parameters']:,}-parameter transformer that predicts causally and drafts blocks of masks in parallel:"
            " a real, small subject for packedss. It writes Python-like text and is of no other use."
        ),
        "",
        _item(
            f"**Architecture**: Qwen3 (stock transformers class), hidden {CONFIG.hidden_size}, {CONFIG.num_hidden_layers}"
            f" layers, {CONFIG.num_attention_heads} heads, {CONFIG.num_key_value_heads} key/value heads, head size"
            f" {CONFIG.head_dim}, intermediate {CONFIG.intermediate_size}, tied embeddings; byte-level BPE, vocabulary"
            f" {VOCAB}; id {MASK} is the mask and never occurs in text. Weights in bfloat16."
        ),
        _item(
            f"**Data**: {record['data']}, without tests, generated tables and vendored packages. Held out by a hash of the"
            f" file's path: {record['held_out']}; `prompts.jsonl` holds passages of those files only."
        ),
        _item(
            f"**Training**: `python -m realmodel.train`, {record['steps']} steps of {BATCH} x ({CLEAN} clean + {NOISY} noisy"
            f" rows), {record['clean_tokens']:,} clean tokens, {arguments['minutes']:g} minutes on one or two busy CPU cores,"
            f" seed {arguments['seed']}. One forward over [clean | noisy blocks]; loss = next-token cross-entropy + masked"
            f" cross-entropy weighted {OFFSET_DECAY}^(offset - 1). From minute {distil_from:.0f} on, half of the steps distil"
            f" the drafting mode on the model's own greedy continuations of training prompts ({GENERATED_PROMPT} tokens of"
            " prompt), with the causal rows' own laws as soft targets; the causal mode never learns from them."
        ),
        _item(
            f"**Limits**: sequences of {CLEAN} positions in training. Greedy continuations of a model this small repeat"
            " themselves, which makes them easier to draft than the text they imitate. The drafter breaks Assumption 3.1 on"
            " some positions."
        ),
        "",
        "## Held-out files",
        "",
        _paragraph(
            "Next-token loss (nats) and accuracy, and the accuracy of a draft token by its offset after the last clean token,"
            " all masks."
        ),
        "",
        f"| minutes | steps | loss | accuracy | {columns} |",
        "|---|---|---|---|" + "---|" * len(_OFFSETS),
    ]
    for entry in [*log[: -1 : max(1, len(log) // 8)], last]:
        accuracies = [f"{entry[f'draft_accuracy_{j}']:.3f}" for j in _OFFSETS]
        figures = [f"{entry['next_token_loss']:.2f}", f"{entry['next_token_accuracy']:.3f}", *accuracies]
        lines.append(f"| {entry['minutes']} | {entry['step']} | {' | '.join(figures)} |")
    lines += [
        "",
        _paragraph(
            "On the model's own greedy continuations of held-out prompts, which is what a greedy schedule drafts, at the end"
            " of training:"
        ),
        "",
        f"| {columns} |",
        "|" + "---|" * len(_OFFSETS),
        "| " + " | ".join(f"{last[f'own_draft_accuracy_{j}']:.3f}" for j in _OFFSETS) + " |",
        "",
        "The training text and the prompts are from the CPython standard library (PSF License).",
    ]
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120)


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "MODEL_CARD.md").write_text(card(json.loads((folder / "training.json").read_text())))
