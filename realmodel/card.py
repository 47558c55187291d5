"""An embedded model's card, from the record of its training: `python -m realmodel.card FOLDER` writes FOLDER/MODEL_CARD.md."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from realmodel.train import CONFIG, NOISY, VOCAB
from realmodel.train_any_order import BUDGETS, DRAFT_REACH, END_ONE_IN, MASK_ROWS
from realmodel.training import BATCH, CLEAN, GENERATED_PROMPT, MASK, OFFSET_DECAY, OFFSETS

_COLUMNS = " | ".join(f"draft +{j}" for j in OFFSETS)


def card(record: dict[str, Any]) -> str:
    """The text of the card for a `training.json`: that of the any-order model when it has figures for window orders."""
    any_order = "window_accuracy" in record["log"][-1]
    lines = _any_order(record) if any_order else _dual_mode(record)
    return (
        "\n".join([*lines, "", "The training text and the prompts are from the CPython standard library (PSF License)."]) + "\n"
    )


def _dual_mode(record: dict[str, Any]) -> list[str]:
    return [
        "# The embedded dual-mode model",
        "",
        _paragraph(
            f"A {record['parameters']:,}-parameter transformer that predicts causally and drafts blocks of masks in parallel:"
            " a real, small subject for packedss. It writes Python-like text and is of no other use."
        ),
        "",
        _architecture(),
        _data(record, "`prompts.jsonl` holds passages of those files only."),
        _item(
            f"**Training**: `python -m realmodel.train`, {_amount(record, f'{NOISY} noisy')}. One forward over [clean | noisy"
            " blocks]; loss = next-token cross-entropy + masked"
            f" cross-entropy weighted {OFFSET_DECAY}^(offset - 1). From minute {_distil_from(record):.0f} on, half of the steps"
            f" distil the drafting mode on the model's own greedy continuations of training prompts ({GENERATED_PROMPT} tokens"
            " of prompt), with the causal rows' own laws as soft targets; the causal mode never learns from them."
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
        *_history(record["log"], {"loss": ("next_token_loss", 2), "accuracy": ("next_token_accuracy", 3)}),
        "",
        _paragraph(
            "On the model's own greedy continuations of held-out prompts, which is what a greedy schedule drafts, at the end"
            " of training:"
        ),
        "",
        *_own(record["log"][-1], {"": "own"}),
    ]


def _any_order(record: dict[str, Any]) -> list[str]:
    horizons = " and ".join(str(2 * budget) for budget in BUDGETS)
    widths = " and ".join(map(str, BUDGETS))
    lines = [
        "# The embedded any-order model",
        "",
        _paragraph(
            f"A {record['parameters']:,}-parameter transformer that predicts any position, at the row of a mask, from whatever"
            " was accepted before in a generation order: a real, small subject for packedss. It writes Python-like text and is"
            " of no other use. Its tokenizer and its held-out prompts are those of the embedded dual-mode model."
        ),
        "",
        _architecture(),
        _data(record, "the prompts are passages of those files only."),
        _item(
            "**Training**: `python -m realmodel.train_any_order`, from the weights of the embedded dual-mode model,"
            f" {_amount(record, f'{MASK_ROWS} mask')}. One forward over [clean rows in generation order | mask rows], textual"
            " position ids (duplicate masks: Appendix C and D.2 of the paper). A clean row sees the ranks up to its own, a mask"
            " row the clean ranks before its own and itself; the loss is taken at mask rows, against the token at the same"
            " position, without the mask's own column. The prompt (4 to"
            f" {2 * GENERATED_PROMPT} tokens) comes first and is no target. Orders: left to right; staggered noise with horizon"
            f" {horizons}; random scores within a sliding window of {widths}. Further mask rows draft, up to {DRAFT_REACH}"
            f" positions ahead, from contexts that end earlier, weighted {OFFSET_DECAY}^(offset - 1). One sequence in"
            f" {END_ONE_IN} is placed so that a text ends in it. From minute {_distil_from(record):.0f} on, half of the steps"
            " train drafting rows alone on the model's own serial greedy texts, written left to right and in confidence order"
            f" within {widths} positions."
        ),
        _item(
            f"**Limits**: sequences of {CLEAN} positions in training; orders that pass over a position for longer than the"
            " horizon are out of distribution. Greedy texts of a model this small repeat themselves, which makes them easier to"
            " draft than the text they imitate."
        ),
        "",
        "## Held-out files",
        "",
        _paragraph(
            "Loss (nats) and accuracy of the verifier rows left to right, their accuracy in random orders within a window of"
            f" {max(BUDGETS)}, and the accuracy of a draft token by its offset behind a complete prefix, every draft seeing"
            " that prefix and itself alone."
        ),
        "",
        *_history(record["log"], {"loss": ("loss", 2), "accuracy": ("accuracy", 3), "in windows": ("window_accuracy", 3)}),
    ]
    if "own_draft_accuracy_1" in record["log"][-1]:
        lines += [
            "",
            _paragraph(
                "On the model's own serial greedy continuations of held-out prompts, at the end of training, by offset from the"
                " leftmost unresolved position:"
            ),
            "",
            *_own(
                record["log"][-1],
                {"left to right": "own", f"by confidence, window {max(BUDGETS)}": "own_confidence"},
            ),
        ]
    return lines


def _architecture() -> str:
    return _item(
        f"**Architecture**: Qwen3 (stock transformers class), hidden {CONFIG.hidden_size}, {CONFIG.num_hidden_layers}"
        f" layers, {CONFIG.num_attention_heads} heads, {CONFIG.num_key_value_heads} key/value heads, head size"
        f" {CONFIG.head_dim}, intermediate {CONFIG.intermediate_size}, tied embeddings; byte-level BPE, vocabulary"
        f" {VOCAB}; id {MASK} is the mask and never occurs in text. Weights in bfloat16."
    )


def _data(record: dict[str, Any], prompts: str) -> str:
    return _item(
        f"**Data**: {record['data']}, without tests, generated tables and vendored packages. Held out by a hash of the"
        f" file's path: {record['held_out']}; {prompts}"
    )


def _amount(record: dict[str, Any], other_rows: str) -> str:
    arguments = record["arguments"]
    return (
        f"{record['steps']} steps of {BATCH} x ({CLEAN} clean + {other_rows} rows), {record['clean_tokens']:,} clean tokens,"
        f" {arguments['minutes']:g} minutes on one or two busy CPU cores, seed {arguments['seed']}"
    )


def _distil_from(record: dict[str, Any]) -> float:
    minutes: float = record["arguments"]["minutes"] * (1 - record["arguments"]["distil_share"])
    return minutes


def _history(log: list[dict[str, Any]], columns: dict[str, tuple[str, int]]) -> list[str]:
    """The table of a log: about nine of its entries; `columns` are title -> (key, decimals), before those of the drafts."""
    lines = [f"| minutes | steps | {' | '.join(columns)} | {_COLUMNS} |", "|---|---|" + "---|" * (len(columns) + len(OFFSETS))]
    for entry in [*log[: -1 : max(1, len(log) // 8)], log[-1]]:
        figures = [f"{entry[key]:.{decimals}f}" for key, decimals in columns.values()]
        figures += [f"{entry[f'draft_accuracy_{j}']:.3f}" for j in OFFSETS]
        lines.append(f"| {entry['minutes']} | {entry['step']} | {' | '.join(figures)} |")
    return lines


def _own(entry: dict[str, Any], rows: dict[str, str]) -> list[str]:
    """The table of draft accuracies on own texts; `rows` are title -> prefix of the keys, one row without a title alone."""
    titled = len(rows) > 1
    lines = [f"| {'order | ' * titled}{_COLUMNS} |", "|" + "---|" * (len(OFFSETS) + titled)]
    for title, prefix in rows.items():
        figures = " | ".join(f"{entry[f'{prefix}_draft_accuracy_{j}']:.3f}" for j in OFFSETS)
        lines.append(f"| {f'{title} | ' * titled}{figures} |")
    return lines


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120)


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "MODEL_CARD.md").write_text(card(json.loads((folder / "training.json").read_text())))
