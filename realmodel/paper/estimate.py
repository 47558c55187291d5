"""How long a run takes and what memory it needs, before it starts: a few warm prompts, then prompts x caps.

The time is an upper bound as far as the warm prompts are like the rest: it takes every output to its cap. Grading and
certificates come on top and are not in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch

from realmodel.binding import BoundModel
from realmodel.efficiency import Prompt, measure
from realmodel.paper.plan import Job
from simulator.errors import InvalidInput

_PROMPTS, _TOKENS = 2, 32  # of a job's first arms


class Time(NamedTuple):
    """Of one job: seconds per output token of all its arms together, and seconds if every output reaches its cap."""

    name: str
    prompts: int
    draws: int
    cap: int
    arms: int
    per_token: float
    most: float


class Memory(NamedTuple):
    """Bytes: what is there, and what is needed at most while outputs are certified (the larger of the two phases)."""

    weights: int
    reference: int
    cache: int  # keys and values of the longest prompt, its output and a call's rows
    logits: int  # of the longest output, as the certificates hold them
    available: int | None

    @property
    def needed(self) -> int:
        return self.weights + self.reference + self.cache + self.logits


def time_of(model: BoundModel, job: Job, prompts: Sequence[Prompt], seed: int, padded: bool | None) -> Time:
    """Measured on the first prompts, with a few tokens each."""
    few = job._replace(cap=min(_TOKENS, job.cap), draws=1)
    protocol = few.protocol(model, seed, padded)
    records = measure(model, prompts[:_PROMPTS], protocol).records
    per_token = 0.0
    for each in job.contenders:
        mine = [record for record in records if record.key == each.arm.key]
        per_token += sum(record.wall for record in mine) / max(1, sum(len(record.tokens) for record in mine))
    most = per_token * job.cap * len(prompts) * job.draws
    return Time(job.name, len(prompts), job.draws, job.cap, len(job.contenders), per_token, most)


def memory_of(model: BoundModel, reference_dtype: str, longest: int, cap: int, rows: int) -> Memory:
    """From the sizes of the weights and of the cache. `longest`: tokens of the longest prompt; `rows`: of a call."""
    config = model.network.config
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.network.state_dict().values())
    numbers = sum(tensor.numel() for tensor in model.network.state_dict().values())
    size = torch.empty((), dtype=getattr(torch, reference_dtype)).element_size()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    positions = longest + cap + rows
    cache = 2 * config.num_hidden_layers * heads * width * positions * max(size, model.dtype.itemsize)
    logits = 3 * 8 * (longest + cap) * model.vocabulary
    return Memory(weights, numbers * size, cache, logits, _available(model.device))


def _available(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    try:
        import os

        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def fits(job: Job, model: BoundModel, prompts: Sequence[Prompt]) -> int:
    """How many of the prompts go, with their outputs, past the length that the model was trained on.

    Raises InvalidInput, naming the task, for a prompt that the model cannot take.
    """
    past = 0
    for name, ids in prompts:
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                model.check_prompt(ids, job.cap, max(each.width for each in job.contenders))
            past += bool(warned)
        except InvalidInput as error:
            raise InvalidInput(f"{job.task.name}, problem {name[:60]}: {error}") from error
    return past
