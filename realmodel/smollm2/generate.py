"""Training text: the frozen model's greedy continuations of `corpus` prompts.

    python -m realmodel.smollm2.generate --out DIR --minutes 9 --part 0 --parts 2 &
    python -m realmodel.smollm2.generate --out DIR --minutes 9 --part 1 --parts 2

Each process takes every `parts`-th batch, one thread, bfloat16, and writes DIR/train-*.jsonl or DIR/held-*.jsonl, one batch a
file: {"module": .., "prompt": ids, "output": ids}. Batches found in DIR are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch

BATCH = 64
NEW_TOKENS = 128
HELD_BATCHES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    args = parser.parse_args()
    begun = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)

    from transformers import AutoModelForCausalLM, AutoTokenizer

    from realmodel.smollm2.attention import GROUPED
    from realmodel.smollm2.chat import chat, problems
    from realmodel.smollm2.corpus import functions
    from realmodel.smollm2.fetch import weights_folder

    folder = weights_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation=GROUPED).eval()
    train, held = functions(frozenset(problem["entry_point"] for problem in problems().values()))
    jobs = [(f"held-{start // BATCH:03d}", held[start : start + BATCH]) for start in range(0, HELD_BATCHES * BATCH, BATCH)]
    jobs += [(f"train-{start // BATCH:03d}", train[start : start + BATCH]) for start in range(0, len(train), BATCH)]
    for number, (name, batch) in enumerate(jobs):
        target = args.out / f"{name}.jsonl"
        if number % args.parts != args.part or target.exists():
            continue
        prompts = [tokenizer(chat(tokenizer, function.text))["input_ids"] for function in batch]
        inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        with torch.inference_mode():
            made = model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS)[:, inputs["input_ids"].shape[1] :]
        lines = []
        for function, prompt, output in zip(batch, prompts, made.tolist(), strict=True):
            eos = tokenizer.eos_token_id
            length = output.index(eos) + 1 if eos in output else len(output)
            lines.append(json.dumps({"module": function.module, "prompt": prompt, "output": output[:length]}) + "\n")
        part = target.with_suffix(".part")
        part.write_text("".join(lines))
        os.replace(part, target)
        seconds = time.monotonic() - begun
        print(f"{seconds / 60:5.1f} min  {name}", flush=True)
        if seconds > args.minutes * 60:
            break


if __name__ == "__main__":
    main()
