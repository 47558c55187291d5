"""What transformers itself offers against plain decoding, as arms of a measurement: prompt lookup and assisted generation.

    prompt lookup, W     drafts of at most W tokens that followed the last tokens earlier in the text
    first k layers, W    drafts of W tokens from the first k layers of the same weights: assisted generation

Both run on the network under test, so a table shows beside a schedule what it has to beat. Their calls are seen at the network:
forwards of all its layers, the prompt's included. Those of the assistant cost time, and are not counted.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from realmodel.binding import BoundModel
from simulator.errors import InvalidInput
from simulator.records import Limits, Step, Tokens


class Baseline(NamedTuple):
    """One of them: `layers` of the assistant, 0 for prompt lookup."""

    layers: int

    @property
    def name(self) -> str:
        return f"first {self.layers} layers" if self.layers else "prompt lookup"


_ASSISTANTS: WeakKeyDictionary[Any, dict[Baseline, Any]] = WeakKeyDictionary()


def baselines(model: BoundModel) -> tuple[Baseline, ...]:
    """Those of a model: prompt lookup, and assistance by a third of the layers."""
    return Baseline(0), Baseline(max(1, model.network.config.num_hidden_layers // 3))


@torch.inference_mode()
def run_baseline(
    model: BoundModel, baseline: Baseline, width: int, prompt: Tokens, limits: Limits
) -> tuple[Tokens, tuple[Step, ...]]:
    """The greedy continuation, stop token included, and a step per forward, of which its rows alone are known."""
    from transformers import GenerationConfig

    if limits.max_new_tokens == 0:
        return (), ()
    network, inputs = model.network, torch.tensor([prompt], device=model.device)
    own: dict[str, Any] = {"prompt_lookup_num_tokens": width}
    other: dict[str, Any] = {}
    if baseline.layers:
        assistants = _ASSISTANTS.setdefault(network, {})
        if baseline not in assistants:
            assistants[baseline] = first_layers(network, baseline.layers)
        # Always W tokens: a length or a confidence that adapts would carry over from one request to the next.
        assistants[baseline].generation_config = GenerationConfig(
            num_assistant_tokens=width, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
        )
        own, other = {}, {"assistant_model": assistants[baseline]}
    how = GenerationConfig(
        do_sample=False,
        max_new_tokens=limits.max_new_tokens,
        eos_token_id=sorted(limits.eos) or None,
        pad_token_id=model.mask_token,
        **own,
    )
    rows: list[int] = []
    watching = network.register_forward_pre_hook(
        lambda _, args, named: rows.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        output = network.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=how, **other)
    finally:
        watching.remove()
    rows[0] -= len(prompt) - 1
    return tuple(output[0, len(prompt) :].tolist()), tuple(_step(count) for count in rows)


def first_layers(network: Any, count: int) -> Any:
    """A decoder of the first `count` layers of `network`, with its embedding, last norm and head; the weights are shared.

    Raises InvalidInput unless the network has that many layers.
    """
    if not 1 <= count <= network.config.num_hidden_layers:
        raise InvalidInput(f"the network has 1 .. {network.config.num_hidden_layers} layers, {count} were asked for")
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    cut = copy.deepcopy(network, shared)
    cut.model.layers = cut.model.layers[:count]
    cut.config.num_hidden_layers = count
    if getattr(cut.config, "layer_types", None):
        cut.config.layer_types = cut.config.layer_types[:count]
    return cut


def _step(rows: int) -> Step:
    return Step((), (), 0, 0, (), None, 0, 0, None, rows, False)
