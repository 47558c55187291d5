"""What `generate` was asked for: everything is on a list of what is honoured, or refused by name.

So a setting, processor or model that a later transformers brings is refused until someone has looked at it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import DynamicCache, GenerationConfig, GenerationMixin
from transformers.cache_utils import DynamicLayer
from transformers.generation import logits_process

from realmodel.dualmode import DualModeModel
from realmodel.parity import packed_parity
from realmodel.reference import causal_logits
from simulator.errors import InvalidInput
from simulator.records import Call

PURE_PROCESSORS: frozenset[type] = frozenset(
    {
        logits_process.EncoderNoRepeatNGramLogitsProcessor,
        logits_process.EncoderRepetitionPenaltyLogitsProcessor,
        logits_process.EpsilonLogitsWarper,
        logits_process.EtaLogitsWarper,
        logits_process.ExponentialDecayLengthPenalty,
        logits_process.ForcedBOSTokenLogitsProcessor,
        logits_process.ForcedEOSTokenLogitsProcessor,
        logits_process.LogitNormalization,
        logits_process.MinLengthLogitsProcessor,
        logits_process.MinNewTokensLengthLogitsProcessor,
        logits_process.MinPLogitsWarper,
        logits_process.NoBadWordsLogitsProcessor,
        logits_process.NoRepeatNGramLogitsProcessor,
        logits_process.RepetitionPenaltyLogitsProcessor,
        logits_process.SequenceBiasLogitsProcessor,
        logits_process.SuppressTokensAtBeginLogitsProcessor,
        logits_process.SuppressTokensLogitsProcessor,
        logits_process.TemperatureLogitsWarper,
        logits_process.TopHLogitsWarper,
        logits_process.TopKLogitsWarper,
        logits_process.TopPLogitsWarper,
        logits_process.TypicalLogitsWarper,
        logits_process.WatermarkLogitsProcessor,  # seeds its generator anew from the context in every call
    }
)
"""Classes of transformers that are functions of (input_ids, scores) alone: a verifier may ask them about any context, in any
order. A subclass is another class."""

# By way of the prepared processors and stopping criteria, or read here.
_HONOURED = frozenset(
    {
        *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "max_time", "stop_strings"),
        *("do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"),
        *("repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
        *("bad_words_ids", "sequence_bias", "suppress_tokens", "begin_suppress_tokens", "renormalize_logits"),
        *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"),
        *("guidance_scale", "watermarking_config"),  # their processors are looked at by class
        *("return_dict_in_generate", "output_scores", "output_logits"),
        *("pad_token_id", "bos_token_id", "eos_token_id"),
        *("disable_compile", "transformers_version"),  # nothing here compiles
        "decoder_start_token_id",  # of models with an encoder, which are refused
    }
)
_NEUTRAL: dict[str, Any] = {
    **GenerationConfig._get_default_generation_params(),
    "cache_implementation": "dynamic",
}
_FORWARD = ("input_ids", "position_ids", "attention_mask", "cache", "use_cache", "logits_to_keep")
_PACKS: WeakKeyDictionary[Any, object] = WeakKeyDictionary()  # how a network was when its packed rows were compared


def arguments_of_generate() -> Mapping[str, Any]:
    """The arguments of the `generate` that is running: transformers hands a callable neither its streamer nor its assistant.

    Empty where no `generate` is running.
    """
    code, frame = inspect.unwrap(GenerationMixin.generate).__code__, inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame.f_locals if frame else {}


def check_arguments(assistant_model: Any, synced_gpus: Any) -> None:
    """Raise InvalidInput for what only the arguments of `generate` show."""
    if assistant_model is not None:
        raise _refused("assistant_model", "the model drafts for itself")
    if synced_gpus:
        raise _refused("synced_gpus", "calls differ in number between processes")


def check_config(config: GenerationConfig) -> None:
    """Raise InvalidInput for the first setting that is neither honoured nor left at a value that asks for nothing."""
    for name, value in vars(config).items():
        if name.startswith("_") or name in _HONOURED or value is None or value is False:
            continue
        if name not in _NEUTRAL or value != _NEUTRAL[name]:
            raise _refused(f"{name}={value!r}", "leave it out")
    if config.use_cache is False:
        raise _refused("use_cache=False", "every schedule caches")


def check_processors(processors: Iterable[Any], pure: Iterable[type] = ()) -> None:
    """Raise InvalidInput for a processor that may remember the rows it has seen: verifier rows may be rows of no output."""
    allowed = PURE_PROCESSORS | set(pure)
    for processor in processors:
        if type(processor) not in allowed:
            name = type(processor).__name__
            raise _refused(
                f"the logits processor {name}",
                "it is not known to be a function of (input_ids, scores) alone; if it is, name its class in pure_processors",
            )


def check_inputs(input_ids: torch.Tensor, inputs: Mapping[str, Any]) -> None:
    """Raise InvalidInput for anything but one sequence of token ids from its beginning.

    `inputs` are the keyword arguments that `generate` prepared for the model.
    """
    inputs = dict(inputs)
    if input_ids.shape[0] != 1:
        raise _refused(f"a batch of {input_ids.shape[0]} sequences", "call generate once for each")
    length = input_ids.shape[1]
    if length == 0:
        raise _refused("a prompt without token ids", "give at least 1; inputs_embeds are not taken")
    mask = inputs.pop("attention_mask", None)
    if mask is not None and not bool((mask == 1).all()):
        raise _refused("an attention_mask with zeros", "leave the padding out of the one sequence")
    positions = inputs.pop("position_ids", None)
    if positions is not None and positions.flatten().tolist() != list(range(length)):
        raise _refused("position_ids of your own", "positions count from 0")
    cache = inputs.pop("cache", None)
    if cache is not None and (getattr(cache, "_is_user_defined", False) or cache.get_seq_length()):
        raise _refused("a cache of your own", "a schedule keeps its own")
    if (rows := inputs.pop("logits_to_keep", None)) not in (None, 1):
        raise _refused(f"logits_to_keep={rows}", "the schedule decides which rows are read")
    inputs.pop("use_cache", None)  # of the configuration, which is checked
    for name, value in inputs.items():
        if value is not None:
            raise _refused(f"the model input {name}", "the model is given token ids alone")


def check_model(model: Any) -> None:
    """Raise InvalidInput for a model whose rows cannot be packed, or not without changing its outputs."""
    config, name = model.config, type(model).__name__
    if config.is_encoder_decoder:
        raise _refused(name, "it is an encoder-decoder model")
    if model.training:
        raise _refused(f"{name} in training mode", "call model.eval() first")
    missing = [x for x in _FORWARD if x not in inspect.signature(model.forward).parameters]
    if missing:
        raise _refused(name, f"its forward does not take {', '.join(missing)}")
    lacks = [x for x in ("vocab_size", "max_position_embeddings") if type(getattr(config, x, None)) is not int]
    lacks += [x for x in ("eos_token_id",) if not hasattr(config, x)]
    if lacks:
        raise _refused(name, f"its config has no {', '.join(lacks)}")
    if (attention := config._attn_implementation) not in ("sdpa", "eager"):
        raise _refused(f"the attention implementation {attention!r}", "packed rows need 'sdpa' or 'eager'")
    if model.dtype not in (torch.float64, torch.float32, torch.bfloat16):
        raise _refused(f"the dtype {model.dtype}", "allowed: float64, float32, bfloat16")
    layers = sorted({type(layer).__name__ for layer in DynamicCache(config=config).layers if type(layer) is not DynamicLayer})
    if layers or getattr(model, "_is_stateful", False):
        kept = ", ".join(layers) or "a state of its own"
        raise _refused(name, f"rejected drafts cannot be cropped from its cache ({kept}); only full attention can")


def check_packing(model: DualModeModel) -> None:
    """Raise InvalidInput unless the verifier rows of a packed call are the model's causal rows, up to rounding.

    Compared once for each network: one packed call after a shorter one, against plain forwards. It finds models that make
    something else of a 4D mask or of positions than the layout means. The bound is 4 sqrt(eps) of the range of the logits.
    """
    state = (model.dtype, model.network.config._attn_implementation)
    if _PACKS.get(model.network) == state:
        return
    tokens = tuple((7 * index + 1) % model.vocabulary for index in range(8))
    call = Call(tokens[:6], tokens[6:], True, (0, 1), 2)
    try:
        gap = packed_parity(model, call, warm_prefix=3, padded=True).verifier
    except Exception as error:
        raise _refused(model.name, f"it fails on packed rows ({(str(error) or repr(error)).splitlines()[0]})") from error
    logits = causal_logits(model, tokens)
    bound = 4 * max(torch.finfo(model.dtype).eps, torch.finfo(torch.float32).eps) ** 0.5
    if not gap <= bound * float(logits.max() - logits.min()):
        raise _refused(
            model.name, f"its logits differ by {gap:.2g} when rows are packed: it does not heed 4D masks or positions"
        )
    _PACKS[model.network] = state


def _refused(what: str, why: str) -> InvalidInput:
    return InvalidInput(f"schedule_generate does not take {what}: {why}")
