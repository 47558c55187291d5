"""A schedule as the decoding loop of `generate`.

Rows are processed as `generate` processes them: in float32, by the prepared list of processors, each verifier row with its own
context and each proposal row with the prefix alone. Tokens are committed one by one: each is shown to the stopping criteria, in
the order and with the arguments that `generate` would show them, and what a call had accepted beyond the end is dropped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.generation.stopping_criteria import StoppingCriteriaList, StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput

from realmodel.custom_generate.asked import (
    arguments_of_generate,
    check_arguments,
    check_config,
    check_inputs,
    check_model,
    check_packing,
    check_processors,
)
from realmodel.dualmode import DualModeModel, Session
from realmodel.laws import TorchLaw
from simulator.chance import Sampled, Source
from simulator.decode import decode
from simulator.errors import ContractError, InvalidInput
from simulator.laws import Law, Point
from simulator.processing import processed
from simulator.records import Call, Limits, Reply, Tokens
from simulator.schedule import Schedule
from simulator.schedules import named

if TYPE_CHECKING:
    from transformers import DynamicCache, GenerationConfig, LogitsProcessorList

    from realmodel.adapter import ProposalAdapter


@dataclass
class ScheduleOutput(GenerateDecoderOnlyOutput):
    """What `generate` returns with `return_dict_in_generate`, and the number of forward passes made (NFE)."""

    nfe: int | None = None


@torch.no_grad()
def schedule_generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
    streamer: Any = None,
    *,
    schedule: str | Schedule = "packed",
    width: int = 8,
    start: str = "algorithm",
    mask_token_id: int | None = None,
    pure_processors: Iterable[type] = (),
    adapter: ProposalAdapter | None = None,
    chance: Source | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | ScheduleOutput:
    """A `custom_generate` callable: give it to `generate`, which prepares the arguments before the star.

    schedule, width, start   a name of `simulator.schedules.named` with W and its start, or a Schedule that has both
    mask_token_id            the token whose rows draft; by default the model's own. Any id gives the same output law: only how
                             many drafts are accepted depends on it
    pure_processors          classes of logits processors, besides PURE_PROCESSORS, that you know to be functions of
                             (input_ids, scores) alone; that is believed, not checked
    adapter                  the state of the low-rank adapter in the model's layers that acts on proposal rows, if there is one
    chance                   where coins come from. By default a generator of their own, seeded by one draw from torch's default
                             generator on the CPU: `torch.manual_seed` and `transformers.set_seed` make a run repeatable. It
                             has the law of `generate` under the same settings, not its tokens

    Returns the ids [1, prompt + output], or a ScheduleOutput. Raises InvalidInput for whatever is asked for and not done.
    """
    asked = arguments_of_generate()
    streamer = asked.get("streamer") if streamer is None else streamer
    check_arguments(asked.get("assistant_model"), synced_gpus or asked.get("synced_gpus"))
    check_config(generation_config)
    check_processors(logits_processor, pure_processors)
    check_model(model)
    check_inputs(input_ids, model_kwargs)
    policy = named(schedule, width, start) if isinstance(schedule, str) else schedule
    widest = max(ask.width for ask in policy.opening + policy.cycle)
    dual = DualModeModel(model, None, _mask_token(model, mask_token_id, widest), type(model).__name__)
    dual.adapter = adapter
    prompt: Tokens = tuple(input_ids[0].tolist())
    if stopping_criteria.max_length is None:
        raise InvalidInput("schedule_generate needs a MaxLengthCriteria among the stopping criteria; generate brings one")
    length = max(1, stopping_criteria.max_length - len(prompt))  # generate looks at its criteria after the first token
    dual.check_prompt(prompt, length, widest)
    check_packing(dual)

    rows = _Rows(logits_processor, input_ids.device, bool(generation_config.do_sample), dual.mask_token)
    session = _RawSession(dual, 1.0, dual.pads(None))
    if chance is None:
        chance = Sampled(int(torch.randint(2**63 - 1, ())) if rows.sample else 0)

    def reply(call: Call) -> Reply:
        rows.targets.clear()
        return processed(session, rows.target, rows.proposal)(call)

    told = generation_config.return_dict_in_generate
    scores: Any = () if told and generation_config.output_scores else None
    logits: Any = () if told and generation_config.output_logits else None
    ids: Any = input_ids
    nfe, ended = 0, False
    for step in decode(reply, policy, prompt, Limits.of(length), chance):
        nfe += 1
        for token, (raw, score) in zip(step.committed, rows.targets, strict=False):
            new = input_ids.new_tensor([token])
            ids = torch.cat([ids, new[:, None]], dim=-1)
            scores = None if scores is None else (*scores, score)
            logits = None if logits is None else (*logits, raw)
            ended = bool(stopping_criteria(ids, scores)[0])
            if streamer is not None:
                streamer.put(new.cpu())
            if ended:
                break
        if ended:
            break
    if streamer is not None:
        streamer.end()
    if not told:
        return cast(torch.Tensor, ids)
    cache = session.cache_of(tuple(ids[0].tolist()))
    return ScheduleOutput(sequences=ids, scores=scores, logits=logits, cache=cache, nfe=nfe)


def generate(
    model: Any,
    inputs: torch.Tensor | None = None,
    generation_config: GenerationConfig | None = None,
    stopping_criteria: Iterable[Any] | None = None,
    tokenizer: Any = None,
    **kwargs: Any,
) -> torch.Tensor | ScheduleOutput:
    """`model.generate(inputs, ...)` by a schedule: what a `custom_generate` folder calls.

    It takes what `generate` takes and the keywords of `schedule_generate`. `stop_strings` need `tokenizer`, which `generate`
    does not hand on to a callable; here they do as they do there.
    """
    strings = kwargs.pop("stop_strings", None)
    if strings is None and generation_config is not None and generation_config.stop_strings is not None:
        strings, generation_config = generation_config.stop_strings, copy.deepcopy(generation_config)
        generation_config.stop_strings = None
    if model.generation_config.stop_strings is not None:
        raise InvalidInput(
            "stop_strings in the model's generation_config cannot be done: give them to generate and clear these"
        )
    criteria = StoppingCriteriaList(stopping_criteria or ())
    if strings is not None and not any(type(criterion) is StopStringCriteria for criterion in criteria):
        if tokenizer is None:
            raise InvalidInput("stop_strings need the model's tokenizer: give it to generate as tokenizer=")
        criteria.append(StopStringCriteria(tokenizer, strings))
    # Not model.generate: in a model repository with this folder in it, that is this function.
    output: torch.Tensor | ScheduleOutput = type(model).generate(
        model,
        inputs,
        generation_config=generation_config,
        stopping_criteria=criteria,
        custom_generate=schedule_generate,
        **kwargs,
    )
    return output


class _RawSession(Session):
    """A session whose laws are rows of logits [vocabulary], for `_Rows` to read."""

    def __call__(self, call: Call) -> Reply:
        return self.reply(*self.logits(call))

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        return cast(list[Law], list(logits))

    def cache_of(self, tokens: Tokens) -> DynamicCache:
        """The cache with the rows of all `tokens` but the last, as `generate` leaves it."""
        self._roll_back(tokens[:-1])
        return self.cache


class _Rows:
    """From a row of logits to its law, through the scores that `generate` would compute for that context."""

    def __init__(self, processors: LogitsProcessorList, device: torch.device, sample: bool, mask_token: int) -> None:
        self.processors: Any = processors
        self.device, self.sample, self.mask_token = device, sample, mask_token
        self.targets: list[tuple[torch.Tensor, torch.Tensor]] = []  # logits and scores [1, vocabulary] of the verifier rows

    def target(self, context: Tokens, row: Any) -> Law:
        logits, scores = self._scores(context, row)
        self.targets.append((logits, scores))
        law = self._law(scores)
        if law is None:
            raise ContractError(f"the logits processors leave no law for the token after {len(context)} tokens")
        return law

    def proposal(self, context: Tokens, row: Any) -> Law:
        _, scores = self._scores(context, row)
        scores = scores.index_fill(-1, torch.tensor([self.mask_token], device=self.device), -torch.inf)  # never the mask itself
        return self._law(scores) or Point(0)  # where nothing is left any law will do

    def _scores(self, context: Tokens, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = row[None].to(device=self.device, dtype=torch.float32, copy=True)
        return logits, self.processors(torch.tensor([context], device=self.device), logits)

    def _law(self, scores: torch.Tensor) -> Law | None:
        if not self.sample:
            return Point(int(scores.argmax(dim=-1)))
        probabilities = torch.softmax(scores[0].double(), dim=-1)
        return TorchLaw(probabilities) if bool(torch.isfinite(probabilities).all()) else None


def _mask_token(model: Any, asked: int | None, widest: int) -> int:
    token = getattr(model.config, "mask_token_id", None) if asked is None else asked
    if token is None and widest:
        raise InvalidInput(
            "the model names no mask token: give mask_token_id, any token id; it decides how good the drafts are"
        )
    if token is not None and not 0 <= token < model.config.vocab_size:
        raise InvalidInput(f"mask_token_id must lie in 0 .. {model.config.vocab_size - 1}, got {token}")
    return token or 0
