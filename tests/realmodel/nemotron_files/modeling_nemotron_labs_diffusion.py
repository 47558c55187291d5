"""The stand-in's model class: attributes, calls, decoders and quirks of the released one."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationMixin
from transformers.utils import ModelOutput

from .configuration_nemotron_labs_diffusion import NemotronLabsDiffusionConfig
from .modeling_ministral import (
    Ministral3Attention,
    Ministral3Model,
    Ministral3PreTrainedModel,
    NemotronLabsDiffusionFlexAttention,
)


@dataclass
class NemotronLabsDiffusionOutputWithPast(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    causal_logits: torch.Tensor | None = None
    past_key_values: DynamicCache | None = None
    hidden_states: tuple | None = None
    attentions: tuple | None = None


class NemotronLabsDiffusionModel(Ministral3PreTrainedModel, GenerationMixin):
    config_class = NemotronLabsDiffusionConfig

    def __init__(self, config):
        super().__init__(config)
        self.mask_token_id = config.mask_token_id
        inner = copy.deepcopy(config)
        inner.diffusion_lm = True
        if config.dlm_paradigm == "bidirectional":
            inner.attn_class = Ministral3Attention
        elif config.dlm_paradigm == "autoregressive":
            inner.attn_class, inner.diffusion_lm = Ministral3Attention, False
        elif config.dlm_paradigm == "block_diff":
            inner.attn_class = NemotronLabsDiffusionFlexAttention
        else:
            raise ValueError(f"Unsupported DLM paradigm: {config.dlm_paradigm}")
        self.encoder = Ministral3Model(inner)
        self.diffusion_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.diffusion_head

    def forward(
        self,
        input_ids,
        attention_mask=None,
        position_ids=None,
        labels=None,
        past_key_values=None,
        output_last_hidden_states_only=False,
        skip_loss=False,
        **kwargs,
    ):
        output = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            is_training=self.training,
            **kwargs,
        )
        if output_last_hidden_states_only:
            return output
        logits = self.diffusion_head(output.last_hidden_state)
        return NemotronLabsDiffusionOutputWithPast(logits=logits, past_key_values=output.past_key_values)

    def _set_diffusion_lm(self, value):
        for layer in self.encoder.layers:
            layer.self_attn.diffusion_lm = value

    def _toggle_adapters(self, enabled):
        for module in self.modules():
            if hasattr(module, "_disable_adapters"):
                module._disable_adapters = not enabled

    @staticmethod
    def _next(logits, temperature):
        if temperature > 0:
            laws = torch.softmax(logits / temperature, dim=-1)
            return torch.multinomial(laws.reshape(-1, laws.shape[-1]), 1).view(laws.shape[:-1])
        return logits.argmax(dim=-1)

    @torch.no_grad()
    def ar_generate(
        self,
        prompt_ids,
        max_new_tokens=128,
        temperature=0.0,
        eos_token_id=None,
        max_thinking_tokens=None,
        end_think_token_id=None,
    ):
        eos_token_id = self.config.eos_token_id if eos_token_id is None else eos_token_id
        self._set_diffusion_lm(False)
        device, size = prompt_ids.device, prompt_ids.shape[1]
        cache_position = torch.arange(size, device=device)
        output = self.encoder(
            input_ids=prompt_ids,
            position_ids=cache_position[None],
            cache_position=cache_position,
            past_key_values=DynamicCache(),
            use_cache=True,
        )
        tokens, nfe = [], 0
        while len(tokens) < max_new_tokens:
            token = self._next(self.diffusion_head(output.last_hidden_state[:, -1]), temperature)
            tokens.append(token)
            nfe += 1
            if eos_token_id is not None and (token == eos_token_id).all():
                break
            cache_position = torch.tensor([size + len(tokens) - 1], device=device)
            output = self.encoder(
                input_ids=token[:, None],
                position_ids=cache_position[None],
                cache_position=cache_position,
                past_key_values=output.past_key_values,
                use_cache=True,
            )
        return torch.cat([prompt_ids, torch.stack(tokens, dim=1)], dim=1), nfe

    @torch.no_grad()
    def linear_spec_generate(
        self,
        prompt_ids,
        max_new_tokens=128,
        block_length=32,
        temperature=0.0,
        mask_token_id=None,
        eos_token_id=None,
        max_thinking_tokens=None,
        end_think_token_id=None,
        threshold=0.0,
    ):
        if prompt_ids.shape[0] != 1:
            raise ValueError("linear_spec_generate takes one prompt")
        mask = self.mask_token_id if mask_token_id is None else mask_token_id
        eos_token_id = self.config.eos_token_id if eos_token_id is None else eos_token_id
        self._set_diffusion_lm(False)
        self._toggle_adapters(False)
        output = self.encoder(input_ids=prompt_ids, past_key_values=DynamicCache(), use_cache=True, use_causal_mask=True)
        cache, nfe = output.past_key_values, 1
        seed = self._next(self.diffusion_head(output.last_hidden_state[:, -1]), temperature)
        generated = [int(seed)]
        while generated[-1] != eos_token_id and len(generated) < max_new_tokens:
            block = torch.full((1, block_length), mask, device=prompt_ids.device)
            block[0, 0] = generated[-1]
            self._set_diffusion_lm(True)
            self._toggle_adapters(True)
            while (block == mask).any():
                hidden = self.encoder(input_ids=block, past_key_values=cache, use_cache=False).last_hidden_state
                nfe += 1
                confidence, drafted = torch.softmax(self.diffusion_head(hidden), dim=-1).max(dim=-1)
                confidence = torch.where(block == mask, confidence, -1.0)
                take = (block == mask) & ((confidence >= threshold) | (confidence == confidence.max()))
                block = torch.where(take, drafted, block)
                if threshold <= 0:
                    break
            self._set_diffusion_lm(False)
            self._toggle_adapters(False)
            past = cache.get_seq_length()
            hidden = self.encoder(
                input_ids=block, past_key_values=cache, use_cache=True, use_causal_mask=True
            ).last_hidden_state
            nfe += 1
            verified = self._next(self.diffusion_head(hidden), temperature)[0].tolist()
            drafted, accepted = block[0].tolist(), 1
            while accepted < block_length and verified[accepted - 1] == drafted[accepted]:
                accepted += 1
            cache.crop(past + accepted)  # a length; transformers 5.18 and later want a negative count
            emitted = verified[:accepted]
            if eos_token_id in emitted:
                generated += emitted[: emitted.index(eos_token_id) + 1]
                break
            generated += emitted  # may be more than max_new_tokens
        return torch.cat([prompt_ids, torch.tensor([generated], device=prompt_ids.device)], dim=1), nfe

    @torch.no_grad()
    def generate(
        self,
        prompt_ids,
        max_new_tokens,
        block_length,
        threshold=None,
        causal_context=True,
        temperature=0.0,
        eos_token_id=None,
        **kwargs,
    ):
        """Not transformers' generate. Denoises block after block; leaves the model in diffusion mode."""
        if max_new_tokens % block_length:
            raise ValueError("max_new_tokens must be a multiple of block_length")
        self._set_diffusion_lm(False)
        output = self.encoder(input_ids=prompt_ids, past_key_values=DynamicCache(), use_cache=True, use_causal_mask=True)
        cache, ids, nfe = output.past_key_values, prompt_ids, 0
        hidden = output.last_hidden_state
        for _ in range(max_new_tokens // block_length):
            block = torch.full((1, block_length), self.mask_token_id, device=ids.device)
            block[0, 0] = self.diffusion_head(hidden[:, -1]).argmax()
            for _ in range(block_length):
                if not (block == self.mask_token_id).any():
                    break
                self._set_diffusion_lm(True)
                hidden = self.encoder(input_ids=block, past_key_values=cache, use_cache=False).last_hidden_state
                nfe += 1
                confidence, drafted = torch.softmax(self.diffusion_head(hidden), dim=-1).max(dim=-1)
                confidence = torch.where(block == self.mask_token_id, confidence, -1.0)
                take = confidence == confidence.max()
                if threshold is not None:
                    take |= confidence >= threshold
                block = torch.where(take & (block == self.mask_token_id), drafted, block)
            self._set_diffusion_lm(False)
            hidden = self.encoder(
                input_ids=block, past_key_values=cache, use_cache=True, use_causal_mask=True
            ).last_hidden_state
            nfe += 1
            ids = torch.cat([ids, block], dim=1)
            if eos_token_id is not None and (block == eos_token_id).any():
                break
        self._set_diffusion_lm(True)
        return ids, nfe
