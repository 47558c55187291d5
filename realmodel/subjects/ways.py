"""The ways in which transformers drafts: each a CandidateGenerator, and what `generate` is given to use it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

from realmodel.subjects import tiny


@dataclass
class Ready:
    """A target model and the keywords with which its `generate` is assisted."""

    network: Any
    keywords: dict[str, Any] = field(default_factory=dict)
    within: Callable[[], AbstractContextManager[Any]] = nullcontext  # what must hold while it generates


class Way(NamedTuple):
    """How drafts come about."""

    generator: str  # the CandidateGenerator that makes them, empty for none
    build: Callable[[int, int], Ready]  # a tiny model, by vocabulary and seed
    on: Callable[[Any], Ready] | None = None  # the same for any causal model of transformers
    about: str = ""
    greedy_only: bool = False  # the class is used without sampling only
    shortest: int = 1  # the shortest prompt it is asked about


def truncated(network: Any, layers: int) -> Any:
    """A copy of a decoder-only model that ends after its first layers."""
    cut = copy.deepcopy(network)
    body = getattr(cut, cut.base_model_prefix)
    body.layers = body.layers[:layers]
    cut.config.num_hidden_layers = layers
    if getattr(cut.config, "layer_types", None):
        cut.config.layer_types = cut.config.layer_types[:layers]
    cut.generation_config = tiny.drafting(2)
    return cut


def _early(network: Any) -> int:
    layers: int = network.config.num_hidden_layers
    return max(1, layers // 3)


def _on_truncated(network: Any) -> Ready:
    return Ready(network, {"assistant_model": truncated(network, _early(network))})


def _on_early_exit(network: Any) -> Ready:
    network.generation_config = tiny.drafting(2)
    return Ready(network, {"assistant_early_exit": _early(network)})


def _on_lookup(network: Any) -> Ready:
    return Ready(network, {"prompt_lookup_num_tokens": 2})


def _assisted(vocabulary: int, seed: int, **drafting: Any) -> Ready:
    assistant = tiny.llama(vocabulary, seed + 1, layers=1)
    assistant.generation_config = tiny.drafting(**{"tokens": 2} | drafting)
    return Ready(tiny.llama(vocabulary, seed), {"assistant_model": assistant})


def _ensemble(vocabulary: int, seed: int) -> Ready:
    ready = _assisted(vocabulary, seed)
    ready.keywords["assistant_ensemble_weight"] = 0.5
    return ready


def _different(vocabulary: int, seed: int, extra: int = 1, ascending: bool = False) -> Ready:
    """Letters of the assistant: the target's, and one of its own; with extra = -1 it lacks one of the target's."""
    letters = tiny.LETTERS[: vocabulary + extra]
    return Ready(
        tiny.llama(vocabulary, seed),
        {
            "assistant_model": tiny.llama(len(letters), seed + 1, layers=1),
            "tokenizer": tiny.tokenizer(tiny.LETTERS[:vocabulary]),
            "assistant_tokenizer": tiny.tokenizer(letters, ascending),
        },
    )


def _universal(vocabulary: int, seed: int, extra: int = 1, ascending: bool = False) -> Ready:
    from transformers.generation.candidate_generator import AssistantVocabTranslatorCache

    ready = _different(vocabulary, seed, extra, ascending)
    given = ready.keywords
    # The first sampled request of such a pair prunes the assistant's output layer, and draws random numbers in making the new
    # one. Done here, so that a seed means the same in every request.
    AssistantVocabTranslatorCache.get_translator(
        given["tokenizer"], given["assistant_tokenizer"], vocabulary, given["assistant_model"], assistant_prune_lm_head=True
    )
    return ready


def _single_position(vocabulary: int, seed: int) -> Ready:
    target, assistant = tiny.gemma(vocabulary, seed)
    return Ready(target, {"assistant_model": assistant})


def _dflash(vocabulary: int, seed: int) -> Ready:
    keywords = {"assistant_model": tiny.dflash(vocabulary, seed + 1), "speculation_type": "dflash"}
    return Ready(tiny.llama(vocabulary, seed), keywords)


def _mtp(vocabulary: int, seed: int) -> Ready:
    from transformers.modeling_layers import MtpModel

    target, layers = tiny.mtp(vocabulary, seed)
    # Its weights come from files of a checkpoint; here they are random ones in memory, and nothing else is other.
    return Ready(target, {"use_mtp": True}, lambda: mock.patch.object(MtpModel, "from_pretrained", return_value=layers))


WAYS: dict[str, Way] = {
    "plain": Way(
        "", lambda v, s: Ready(tiny.llama(v, s)), lambda n: Ready(n), "generate without assistance: the control of the checks"
    ),
    "assisted": Way("AssistedCandidateGenerator", _assisted, None, "assistant_model: another random model"),
    "truncated": Way(
        "AssistedCandidateGenerator",
        lambda v, s: _on_truncated(tiny.llama(v, s)),
        _on_truncated,
        "assistant_model: a copy of the target cut to its first layers",
    ),
    "confidence": Way(
        "AssistedCandidateGenerator",
        lambda v, s: _assisted(v, s, tokens=4, confidence=0.4),
        None,
        "assistant_model with assistant_confidence_threshold 0.4: a draft stops after a token of lower probability",
    ),
    "heuristic": Way(
        "AssistedCandidateGenerator",
        lambda v, s: _assisted(v, s, schedule="heuristic_transient"),
        None,
        "assistant_model with num_assistant_tokens_schedule 'heuristic_transient'",
    ),
    "ensemble": Way(
        "AssistedCandidateGenerator",
        _ensemble,
        None,
        "assistant_ensemble_weight 0.5, documented to be lossy: shows that such a bias is seen",
    ),
    "early-exit": Way(
        "EarlyExitCandidateGenerator",
        lambda v, s: _on_early_exit(tiny.llama(v, s)),
        _on_early_exit,
        "assistant_early_exit: the target's own first layers",
    ),
    "prompt-lookup": Way(
        "PromptLookupCandidateGenerator",
        lambda v, s: _on_lookup(tiny.llama(v, s)),
        _on_lookup,
        "prompt_lookup_num_tokens 2",
    ),
    "different-tokenizers": Way(
        "AssistedCandidateGeneratorDifferentTokenizers",
        _different,
        None,
        "assistant_model with a vocabulary of its own, greedy",
        greedy_only=True,
    ),
    "universal": Way(
        "UniversalSpeculativeDecodingGenerator",
        _universal,
        None,
        "assistant_model with a vocabulary of its own, of which one letter is not the target's; get_vocab in descending order",
    ),
    "universal-ascending": Way(
        "UniversalSpeculativeDecodingGenerator",
        lambda v, s: _universal(v, s, ascending=True),
        None,
        "the same with get_vocab in ascending order: a control",
    ),
    "universal-subset": Way(
        "UniversalSpeculativeDecodingGenerator",
        lambda v, s: _universal(v, s, extra=-1),
        None,
        "assistant_model whose letters are all letters of the target",
    ),
    "single-position": Way(
        "SinglePositionMultiTokenCandidateGenerator",
        _single_position,
        None,
        "assistant_model: a Gemma 4 assistant that reads the target's keys and values",
    ),
    "mtp": Way(
        "MTPCandidateGenerator",
        _mtp,
        None,
        "use_mtp: two multi-token-prediction layers of GLM 4 MoE, prompts of 2 tokens or more",
        shortest=2,
    ),
    "mtp-short": Way("MTPCandidateGenerator", _mtp, None, "the same, prompts of 1 token among them"),
    "dflash": Way(
        "DFlashTokenCandidateGenerator", _dflash, None, "speculation_type 'dflash': a Muse Glimmer assistant drafts blocks"
    ),
}


def generators() -> list[str]:
    """Every CandidateGenerator class of the installed transformers, in the order of its source."""
    from transformers.generation import candidate_generator as module

    base = module.CandidateGenerator
    classes = [item for item in vars(module).values() if inspect.isclass(item) and issubclass(item, base) and item is not base]
    return [item.__name__ for item in classes]
