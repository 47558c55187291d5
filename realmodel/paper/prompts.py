"""Problems as token ids: through the chat template of the model with thinking off, or as plain text without one (E.3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realmodel.binding import BoundModel
from realmodel.efficiency import Prompt, Source
from realmodel.loading import SMOLLM2
from realmodel.nemotron.loading import WITH_ADAPTER, folder_of, is_nemotron
from realmodel.setdlm import SetDLM
from realmodel.tasks import Problem
from realmodel.tasks.mathematics import SETDLM_INSTRUCTION
from simulator.errors import InvalidInput
from simulator.records import Tokens


def prompts_of(source: Source, model: BoundModel, problems: Sequence[Problem]) -> list[Prompt]:
    """Every problem by its id, in order, whole: prompts are not truncated.

    Raises InvalidInput when the template of the model cannot be used.
    """
    if isinstance(model, SetDLM):
        return [(problem.id, model.gsm8k_prompt(_question(model, problem))) for problem in problems]
    template = _template(source)
    if template is None:
        return [(problem.id, _encoded(model, problem.text, special=True)) for problem in problems]
    found = []
    for problem in problems:
        try:
            text: str = template.apply_chat_template(
                list(problem.messages), tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except Exception as error:  # a template is a program of others
            raise InvalidInput(
                f"the chat template of {model.name} cannot take {problem.id!r}: {type(error).__name__}"
            ) from error
        ids = _encoded(model, text, special=False)
        first = getattr(template, "bos_token_id", None)
        if first is not None and first not in ids:  # the template leaves it to the tokenizer
            ids = (first, *ids)
        found.append((problem.id, ids))
    return found


def text_of(model: BoundModel, tokens: Tokens) -> str:
    """An output as text, special tokens left out."""
    known = [token for token in tokens if token < model.tokenizer.get_vocab_size()]
    text: str = model.tokenizer.decode(known)
    return text


def _question(model: BoundModel, problem: Problem) -> str:
    asked = problem.messages[-1]["content"]
    if not asked.startswith(SETDLM_INSTRUCTION):
        raise InvalidInput(f"{model.name} answers questions of GSM8K as its authors ask them: the task gsm8k-setdlm")
    return asked.removeprefix(SETDLM_INSTRUCTION)


def _encoded(model: BoundModel, text: str, special: bool) -> Tokens:
    return tuple(model.tokenizer.encode(text, add_special_tokens=special).ids)


def _template(source: Source) -> Any:
    """The tokenizer that renders chats; None for a model without a template."""
    from transformers import AutoTokenizer

    if source.name in SMOLLM2:
        from realmodel.smollm2.fetch import weights_folder

        folder = weights_folder()
    elif is_nemotron(source.name):
        folder = folder_of(source.name.removesuffix(WITH_ADAPTER), source.trust_remote_code)
    else:
        folder = Path(source.name.partition(":")[2] or source.name)
        if not (folder / "tokenizer_config.json").is_file():
            return None
    try:
        found: Any = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=source.trust_remote_code
        )
    except Exception as error:  # a library's, on files of others
        raise InvalidInput(
            f"the tokenizer of {folder.name!r} cannot be read by transformers: {type(error).__name__}"
        ) from error
    return found if found.chat_template else None
