"""The independent autoregressive path: transformers' own generate, and plain causal forwards with no schedule in them."""

from __future__ import annotations

import numpy as np
import torch

from realmodel.binding import BoundModel
from realmodel.dualmode import DualModeModel
from simulator.records import Limits, Tokens


@torch.inference_mode()
def greedy_reference(model: BoundModel, prompt: Tokens, limits: Limits) -> Tokens:
    """The continuation by `generate(do_sample=False)`, stop token included."""
    from transformers import GenerationConfig

    if limits.max_new_tokens == 0:
        return ()
    inputs = torch.tensor([prompt], device=model.device)
    # A configuration of its own: the checkpoint's may suppress tokens, penalise repetitions or sample.
    how = GenerationConfig(
        do_sample=False,
        max_new_tokens=limits.max_new_tokens,
        eos_token_id=sorted(limits.eos) or None,
        pad_token_id=model.mask_token,
    )
    output = model.network.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=how)
    return tuple(output[0, len(prompt) :].tolist())


@torch.inference_mode()
def causal_logits(model: DualModeModel, tokens: Tokens, one_by_one: bool = False) -> torch.Tensor:
    """Plain causal logits after every token, [len(tokens), vocabulary], float64: in one forward, or cached row by row."""
    inputs = torch.tensor([tokens], device=model.device)
    if not one_by_one:
        logits: torch.Tensor = model.network(inputs, use_cache=False).logits[0]
        return logits.double()
    cache, rows = None, []
    for index in range(len(tokens)):
        output = model.network(inputs[:, index : index + 1], cache=cache, use_cache=True)
        cache = output.cache
        rows.append(output.logits[0, 0].double())
    return torch.stack(rows)


class CausalReference:
    """The target law of every token of an output, from one plain causal forward: what `proofs_check` takes as a reference."""

    def __init__(self, model: DualModeModel) -> None:
        self.model, self.vocabulary = model, model.vocabulary

    def laws(self, prompt: Tokens, output: Tokens) -> np.ndarray:
        """p(. | prompt + output[:t]) for t = 0 .. len(output) - 1, float64 [len(output), vocabulary].

        Raises InvalidInput for a prompt or an output that the model cannot take.
        """
        self.model.check_prompt(prompt, len(output))
        self.model.check_ids(output)
        logits = causal_logits(self.model, prompt + output[:-1])[len(prompt) - 1 :]
        laws: np.ndarray = torch.softmax(logits, -1).cpu().numpy()
        return laws
