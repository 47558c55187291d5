"""The adapter's card: `python -m realmodel.smollm2.card` writes MODEL_CARD.md from training.json beside it.

With the JSON of a `packedss validate --model smollm2 --baselines` as argument, what it measured is kept in training.json first.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from realmodel.smollm2.chat import REQUEST
from realmodel.smollm2.fetch import GGUF_SHA256, PACKAGE, VERSION
from realmodel.smollm2.train import BATCH, DECAY, RATE, ROWS, WIDTHS

FOLDER = Path(__file__).parent


def card(record: dict[str, Any]) -> str:
    """The text of the card for a `training.json`."""
    log, arguments = record["log"], record["arguments"]
    last = log[-1]
    libraries = ", ".join(f"{name} {version}" for name, version in record["libraries"].items())
    first = REQUEST.split("\n")[0].removesuffix(":")
    lines = [
        "# A proposal adapter for SmolLM2-135M-Instruct",
        "",
        _paragraph(
            f"A low-rank adapter (rank {record['rank']} on every projection) and an input vector for a mask token, together"
            f" {record['parameters']:,} numbers in float16. On the proposal rows of a packed call they make a block drafter of"
            " a chat model that has none; on all other rows the network is the original, bit for bit. What the model says is"
            " its own; the adapter decides only how many forwards that takes."
        ),
        "",
        _item(
            f"**Network**: SmolLM2-135M-Instruct by HuggingFaceTB (Apache-2.0), as the Q4_1 GGUF in {PACKAGE} {VERSION},"
            f" SHA-256 `{GGUF_SHA256}`, dequantised to float32. It is not part of this package."
        ),
        _item(
            f"**Data**: {record['sequences']:,} greedy continuations by the network itself, of at most 128 tokens"
            f" ({record['output_tokens']:,} tokens), of signatures and docstrings with up to three doctest examples, from"
            f" {libraries} (PSF and BSD licences), as a user's message: `{first}`. Functions named as one of HumanEval's are"
            f" left out; nothing of HumanEval is used. Held out by module: {record['held_out']} continuations."
        ),
        _item(
            f"**Training**: `python -m realmodel.smollm2.generate`, then `python -m realmodel.smollm2.train`, seed"
            f" {arguments['seed']}: {last['minutes']:g} minutes on one busy CPU core, {record['steps']:,} steps,"
            f" {record['blocks']:,} blocks, {record['rows']:,} proposal rows ({BATCH} sequences x {ROWS} rows a step), W drawn"
            f" from {sorted(set(WIDTHS))}, bfloat16 with float32 weights of the adapter. Hard labels, weight"
            f" exp(-(offset - 1) / {DECAY:g}); half of the blocks start where rounds of the drafter at that time would. AdamW,"
            f" learning rate {RATE:g}, linear to 0 in the second half."
        ),
        _item("**Licence**: that of this package. **Use**: to test decoders; text other than completed Python is untested."),
        "",
        "## Held-out continuations",
        "",
        _paragraph(
            f"At {last['held_out_blocks']} fixed places: share of drafted tokens that are the network's own greedy ones, by"
            " offset, and the mean number right before the first wrong one, of 8."
        ),
        "",
        "| minutes | steps | " + " | ".join(f"+{j}" for j in range(1, 9)) + " | leading |",
        "|---|---|" + "---|" * 9,
    ]
    for entry in [*log[: -1 : max(1, len(log) // 8)], last]:
        accuracy = " | ".join(f"{share:.3f}" for share in entry["accuracy"])
        lines.append(f"| {entry['minutes']} | {entry['step']} | {accuracy} | {entry['lead']:.2f} |")
    if "decoding" in record:
        lines += ["", *_decoding(record["decoding"])]
    return "\n".join(lines) + "\n"


def _decoding(measured: dict[str, Any]) -> list[str]:
    lines = [
        "## Decoding HumanEval",
        "",
        _paragraph(
            f"`{measured['command']}`: {measured['prompts']} prompts x {measured['tokens']} tokens, {measured['dtype']},"
            f" greedy, {measured['threads']} threads of {measured['hardware']}. Every forward counts, the prompt's included; of"
            " assisted generation, those of the full network."
        ),
        "",
        "| decoder | W | output | tokens | NFE | tokens/NFE | ms/NFE | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in measured["rows"]:
        tokens, nfe, wall = (row[key] for key in ("tokens", "nfe", "wall"))
        cells = [row["name"], row["width"] or "", row["words"], f"{tokens:,}", f"{nfe:,}", f"{tokens / nfe:.3f}"]
        cells += [f"{1000 * wall / nfe:.1f}", f"{tokens / wall:.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def measured(report: dict[str, Any]) -> dict[str, Any]:
    """What a card keeps of the JSON of a validation."""
    (result,) = report["rows"]
    parameters = result["parameters"]
    return {
        "command": report["replay"],
        "prompts": result["summary"]["prompts"],
        "tokens": parameters["max_new_tokens"],
        "dtype": parameters["dtype"],
        "threads": parameters["threads"],
        "hardware": parameters["hardware"],
        "rows": [
            {"name": row["name"], "width": row["width"], "words": row["verdict"]["words"]}
            | {key: row["figures"][key] for key in ("tokens", "nfe", "wall")}
            for row in result["summary"]["rows"]
            if row["figures"]
        ],
    }


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120)


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ")


if __name__ == "__main__":
    kept = json.loads((FOLDER / "training.json").read_text())
    if sys.argv[1:]:
        kept["decoding"] = measured(json.loads(Path(sys.argv[1]).read_text()))
        (FOLDER / "training.json").write_text(json.dumps(kept, indent=1) + "\n")
    (FOLDER / "MODEL_CARD.md").write_text(card(kept))
