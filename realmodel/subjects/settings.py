"""What a request asks `generate` for, and plain `generate` under the same settings: the reference for everything assisted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from realmodel.subjects.draws import replaced
from simulator.processing import Processing
from simulator.records import Tokens

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Settings(NamedTuple):
    """Options of `generate`, and what checks need to know of them."""

    options: Mapping[str, Any] = _NOTHING
    greedy: bool = False
    processing: Processing = Processing()  # what the options do to a law, where that is all they do
    plain: bool = True  # whether it is; only such settings are asked of models whose reference is a plain forward pass
    eos: tuple[int, ...] = ()
    stop: tuple[Tokens, ...] = ()  # the ids of `stop_strings`


SETTINGS: dict[str, Settings] = {
    "greedy": Settings(greedy=True),
    "sample": Settings(),
    "filtered": Settings(
        {"temperature": 0.8, "top_k": 4, "top_p": 0.9}, processing=Processing(temperature=0.8, top_k=4, top_p=0.9)
    ),
    "penalised": Settings(
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 4, "min_new_tokens": 3, "min_p": 0.05}, plain=False, eos=(2,)
    ),
    "greedy-penalised": Settings(
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 4, "min_new_tokens": 3}, greedy=True, plain=False, eos=(2,)
    ),
    "processors": Settings(
        {
            "sequence_bias": [[[1], 0.7], [[1, 2], -0.9]],
            "bad_words_ids": [[0, 1, 0]],
            "begin_suppress_tokens": [0],
            "exponential_decay_length_penalty": (1, 1.3),
            "forced_eos_token_id": 2,
        },
        plain=False,
        eos=(2,),
    ),
    "warpers": Settings(
        {"typical_p": 0.95, "epsilon_cutoff": 0.02, "eta_cutoff": 0.02, "min_p": 0.05, "renormalize_logits": True}, plain=False
    ),
    "guidance": Settings({"guidance_scale": 1.7}, plain=False),
    "greedy-guidance": Settings({"guidance_scale": 1.7}, greedy=True, plain=False),
    "watermark": Settings(
        {"watermarking_config": {"keys": [1, 2, 3], "ngram_len": 2, "sampling_table_size": 16, "context_history_size": 4}},
        plain=False,
    ),
    "stop-strings": Settings({"stop_strings": ["bc"]}, plain=False, stop=((1, 2),)),
}


@torch.inference_mode()
def request(network: Any, prompt: Tokens, length: int, settings: Settings, keywords: Mapping[str, Any] = _NOTHING) -> Tokens:
    """The continuation that `network.generate` returns. `keywords` say how it is to be assisted."""
    from transformers import GenerationConfig, SynthIDTextWatermarkingConfig

    options = dict(settings.options)
    if "watermarking_config" in options:
        options["watermarking_config"] = SynthIDTextWatermarkingConfig(**options["watermarking_config"])
    if not settings.greedy:
        options = {"top_k": 0, "top_p": 1.0, "temperature": 1.0} | options
    config = GenerationConfig(
        do_sample=not settings.greedy,
        max_new_tokens=length,
        eos_token_id=list(settings.eos) or None,
        pad_token_id=0,
        **options,
    )
    inputs = torch.tensor([prompt], device=network.device)
    keywords = dict(keywords)
    if "stop_strings" not in options and "assistant_tokenizer" not in keywords:
        keywords.pop("tokenizer", None)
    output = network.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=config, **keywords)
    return tuple(output[0, len(prompt) :].tolist())


class PlainGenerate:
    """The laws that plain `generate` draws from along a given output: run with its draws replaced by that output's tokens.

    So whatever the settings ask for (penalties, minimum lengths, guidance) is done by transformers itself, token after token.
    """

    def __init__(self, network: Any, settings: Settings, length: int, keywords: Mapping[str, Any] = _NOTHING) -> None:
        self.network, self.length, self.keywords = network, length, keywords  # some processors know the length asked for
        self.settings = settings._replace(greedy=False)
        self.vocabulary: int = network.config.get_text_config().vocab_size

    def laws(self, prompt: Tokens, output: Tokens) -> list[list[float]]:
        """float32 probabilities [len(output), vocabulary]."""
        seen: list[list[float]] = []

        def choose(weights: list[float]) -> int:
            if len(seen) == len(output):
                raise _Enough
            seen.append(weights)
            return output[len(seen) - 1]

        with replaced(choose, _no_coin), suppress(_Enough):
            request(self.network, prompt, self.length, self.settings, self.keywords)
        return seen


class _Enough(Exception):
    """Raised out of a request whose laws are known."""


def _no_coin() -> Any:
    raise AssertionError("plain generation tests no draft")
