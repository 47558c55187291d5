"""The released class behind the call that `DualModeModel` makes: every call sets mode, adapters, mask and positions itself.

The encoder of the class has two modes, by a flag on every attention layer, `diffusion_lm`. With it (as constructed) it drops
the mask and lets every row see all rows; without it, it obeys a 4D mask, if `use_causal_mask` comes with it. Decoders of the
class leave flags and adapters as they last needed them. Packed calls run without the flag, whoever called before:

    rows        [catch-up | last, D, MASK .. | last, MASK^W], as laid out by `realmodel.layout`
    mask        bool [1, 1, R, K + R], True = attends: right under scaled_dot_product_attention only
    positions   given twice: position_ids turn the rotary embedding, cache_position drives the query scale of long contexts

The cache is cropped by negative counts, which mean the same in every transformers 5.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from simulator.errors import InvalidInput

CLASS = "NemotronLabsDiffusionModel"
_NO_TOKEN = -1  # the class takes None for the EOS of its configuration
_BUILDERS = ("create_causal_mask", "create_sliding_window_causal_mask")
_RENAMED = ({"input_embeds", "inputs_embeds"}, {"past_key_values", "cache"})  # from one transformers 5 to another


class Answer(NamedTuple):
    """As a transformers model answers."""

    logits: torch.Tensor  # [1, rows read, vocabulary], in the dtype of the model
    cache: Any


class NemotronNetwork(nn.Module):
    """`native`, an instance of the released class, called as transformers 5 calls a decoder.

    Raises InvalidInput, in one line, when it is not what the calls of this module rely on.
    """

    def __init__(self, native: Any) -> None:
        super().__init__()
        self.native, self.config = native, native.config
        encoder: Any = getattr(native, "encoder", None)
        head = getattr(native, "diffusion_head", None)
        self._layers: list[Any] = [getattr(layer, "self_attn", None) for layer in getattr(encoder, "layers", ())]
        flags = self._layers and all(hasattr(layer, "diffusion_lm") for layer in self._layers)
        if head is None or not flags or not hasattr(native, "ar_generate"):
            raise InvalidInput(
                f"the model's code is not that of {CLASS}: no encoder, diffusion_head, ar_generate or diffusion_lm flags"
            )
        if encoder.config._attn_implementation != "sdpa":
            raise InvalidInput(f"packed calls need attn_implementation sdpa, got {encoder.config._attn_implementation!r}")
        # Adapters attached by somebody else (PEFT): never on, they act on whole calls.
        self._foreign = [module for module in native.modules() if hasattr(module, "_disable_adapters")]
        bridge(sys.modules[type(encoder).__module__])

    @property
    def model(self) -> Any:
        """The transformer body; its layers are `model.layers`."""
        return self.native.encoder

    @property
    def dtype(self) -> torch.dtype:
        return self.native.diffusion_head.weight.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        return self.native.diffusion_head.weight.device  # type: ignore[no-any-return]

    def set_mode(self, diffusion: bool = False) -> None:
        """The flag of every layer, and adapters of whole calls off: nothing that ran before is trusted to have left them so."""
        for layer in self._layers:
            layer.diffusion_lm = diffusion
        for module in self._foreign:
            module._disable_adapters = True

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        use_cache: bool = False,
        logits_to_keep: int | torch.Tensor = 0,
    ) -> Answer:
        """One forward. Without a mask it is causal, by the class's own mask builder.

        input_ids        [1, R]
        position_ids     [1, R]; by default those behind the cache
        attention_mask   [1, 1, R, K + R], bool or additive
        logits_to_keep   rows to read: a tensor of indices, or the last so many; 0 reads all
        """
        from transformers import DynamicCache

        cache = DynamicCache() if use_cache and cache is None else cache
        if position_ids is None:
            begin = cache.get_seq_length() if cache is not None else 0
            position_ids = torch.arange(begin, begin + input_ids.shape[1], device=input_ids.device)[None]
        if attention_mask is not None and attention_mask.dtype != torch.bool:
            attention_mask = attention_mask == 0
        self.set_mode()
        hidden = self.native.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache_position=position_ids[0],
            past_key_values=cache,
            use_cache=use_cache,
            use_causal_mask=True,
        ).last_hidden_state
        read = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return Answer(self.native.diffusion_head(hidden[:, read]), cache)

    @torch.inference_mode()
    def draft(self, block: torch.Tensor, cache: Any) -> torch.Tensor:
        """The released drafting call, [1, B, vocabulary]: the block in diffusion mode behind a cache, which stays as it is."""
        self.set_mode(diffusion=True)
        hidden = self.native.encoder(input_ids=block, past_key_values=cache, use_cache=False).last_hidden_state
        logits: torch.Tensor = self.native.diffusion_head(hidden)
        return logits

    def generate(self, inputs: torch.Tensor, attention_mask: Any = None, generation_config: Any = None) -> torch.Tensor:
        """The class's own autoregressive decoder, `ar_generate`, as transformers' generate is called: [1, prompt + output].

        `inputs` is one prompt [1, P]; of the configuration the length, the end tokens and the temperature are used.
        """
        del attention_mask  # one prompt has no padding
        how = generation_config
        ends = how.eos_token_id or []
        ends = ends if isinstance(ends, list) else [ends]
        self.set_mode()
        answer = self.native.ar_generate(
            inputs,
            max_new_tokens=how.max_new_tokens,
            temperature=float(how.temperature) if how.do_sample else 0.0,
            eos_token_id=ends[0] if len(ends) == 1 else _NO_TOKEN,
        )
        output: torch.Tensor = answer[0] if isinstance(answer, tuple) else answer
        size = inputs.shape[1]
        output = output[:, : size + how.max_new_tokens]
        stopped = torch.isin(output[0, size:], torch.tensor(ends, dtype=output.dtype, device=output.device)).nonzero()
        return output[:, : size + int(stopped[0]) + 1] if len(stopped) else output


def bridge(module: Any) -> None:
    """Let the code in `module` call transformers' mask builders by the keywords of any transformers 5.

    Between 5.0 and 5.24 `input_embeds` became `inputs_embeds`, `past_key_values` became `cache`, and `cache_position` went.
    """
    for name in _BUILDERS:
        builder = getattr(module, name, None)
        if builder is not None and not hasattr(builder, "bridged"):
            setattr(module, name, _any_keywords(builder))


def _any_keywords(builder: Callable[..., Any]) -> Callable[..., Any]:
    accepted = inspect.signature(builder).parameters
    new_names = {old: next(iter(names & set(accepted)), old) for names in _RENAMED for old in names if old not in accepted}

    @functools.wraps(builder)
    def build(*args: Any, **options: Any) -> Any:
        if "cache_position" not in accepted:
            options.pop("cache_position", None)
        return builder(*args, **{new_names.get(name, name): value for name, value in options.items()})

    build.bridged = True  # type: ignore[attr-defined]
    return build
