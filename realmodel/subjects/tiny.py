"""Random models of a few tokens, in float64: their laws are soft, known from a plain forward, and small enough to enumerate."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LETTERS = "abcdefghijklmnop"
_SIZES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 512}
_NO_TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


def random_weights(network: Any, seed: int, scale: float = 0.35) -> Any:
    """The network with normal weights of that scale in every matrix, in float64; as an assistant it drafts 2 tokens."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.copy_(scale * torch.randn(weight.shape, generator=generator))
    network.generation_config = drafting(2)
    return network.double().eval()


def drafting(tokens: int, schedule: str = "constant", confidence: float = 0.0) -> GenerationConfig:
    """How an assistant drafts; transformers reads it from the assistant's own configuration."""
    return GenerationConfig(
        num_assistant_tokens=tokens, num_assistant_tokens_schedule=schedule, assistant_confidence_threshold=confidence
    )


def llama(vocabulary: int, seed: int, layers: int = 2) -> Any:
    """A Llama of `layers` layers."""
    config = LlamaConfig(vocab_size=vocabulary, num_hidden_layers=layers, num_key_value_heads=2, **_SIZES, **_NO_TOKENS)
    return random_weights(LlamaForCausalLM(config), seed)


def gemma(vocabulary: int, seed: int) -> tuple[Any, Any]:
    """A Gemma 4 and an assistant that reads its keys and values."""
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4ForCausalLM, Gemma4TextConfig

    sizes: dict[str, Any] = {
        "vocab_size": vocabulary,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_key_value_heads": 1,
        "head_dim": 8,
        "global_head_dim": 8,
        "sliding_window": 64,
        "vocab_size_per_layer_input": 0,
        "hidden_size_per_layer_input": 0,
    }

    def text(**more: Any) -> Gemma4TextConfig:
        return Gemma4TextConfig(**sizes, **_SIZES, **_NO_TOKENS, **more)

    target = random_weights(Gemma4ForCausalLM(text()), seed, 0.2)
    assistant = Gemma4AssistantForCausalLM(
        Gemma4AssistantConfig(text_config=text(num_kv_shared_layers=2), backbone_hidden_size=_SIZES["hidden_size"])
    )
    return target, random_weights(assistant, seed + 1, 0.2)


def dflash(vocabulary: int, seed: int) -> Any:
    """A block drafter for `llama(vocabulary, ...)`: 2 tokens at a time from the hidden states of its layers."""
    from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

    config = MuseGlimmerAssistantConfig(
        num_hidden_layers=1,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=64,
        block_size=3,
        mask_token_id=vocabulary - 1,
        target_layer_ids=[0, 1],
        **_SIZES,
        **_NO_TOKENS,
    )
    return random_weights(MuseGlimmerAssistantModel(config), seed)


def mtp(vocabulary: int, seed: int) -> tuple[Any, Any]:
    """A GLM 4 MoE and two multi-token-prediction layers for it. Its experts have no float64 kernel but the plain loop."""
    from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
    from transformers.modeling_layers import MtpModel

    sizes: dict[str, Any] = {
        "vocab_size": vocabulary,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "moe_intermediate_size": 16,
        "n_routed_experts": 2,
        "num_experts_per_tok": 1,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "num_mtp_layers": 2,
    }
    config = Glm4MoeConfig(**sizes, **_SIZES, **_NO_TOKENS)
    target = Glm4MoeForCausalLM(config)
    target.set_experts_implementation("eager")
    layers = random_weights(MtpModel(target, 2), seed + 1)
    return random_weights(target, seed), layers  # last: the head and the embeddings are shared


class OrderedVocabulary(PreTrainedTokenizerFast):
    """A tokenizer of single letters whose `get_vocab` has a fixed order: descending by id unless `ascending` is set.

    The order of a fast tokenizer's vocabulary is that of a hash map: another one in every process. Here it is fixed, so that
    what depends on it can be shown twice.
    """

    ascending = False

    def get_vocab(self) -> dict[str, int]:
        ordered = sorted(super().get_vocab().items(), key=lambda item: item[1], reverse=not self.ascending)
        return dict(ordered)


def tokenizer(letters: str, ascending: bool = False) -> OrderedVocabulary:
    """One id per letter, in order; texts are letters without spaces."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({letter: index for index, letter in enumerate(letters)}, unk_token=letters[0]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    made = OrderedVocabulary(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    made.ascending = ascending
    return made
