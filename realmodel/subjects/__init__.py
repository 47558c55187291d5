"""Decoders nobody here wrote, examined: the speculative decoding of the installed transformers.

    from realmodel.subjects import SUBJECTS, examine
    print(examine("prompt-lookup/sample", seed=0).report)

A subject is WAY/SETTINGS (how drafts come about, what is asked for), `q:CLASS` (does a CandidateGenerator draw from the law it
declares) or `rule:_speculative_sampling`. `realmodel.subjects.ways` and `.settings` say what the words mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from realmodel.subjects.decoders import examine_real, examine_tiny
from realmodel.subjects.proposals import examine_proposals, examine_rule, unbuilt
from realmodel.subjects.settings import SETTINGS
from realmodel.subjects.verdict import Examined
from realmodel.subjects.ways import WAYS, generators
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from simulator.records import Tokens

__all__ = ["REAL", "SUBJECTS", "Examined", "examine"]

_USUAL = ("greedy", "sample", "filtered", "penalised")
_ALSO = ("processors", "warpers")
_OTHER: dict[str, tuple[str, ...]] = {
    "plain": (*_USUAL, *_ALSO, "greedy-penalised", "guidance", "greedy-guidance", "watermark", "stop-strings"),
    "assisted": (*_USUAL, *_ALSO, "greedy-penalised", "guidance", "greedy-guidance", "watermark", "stop-strings"),
    "prompt-lookup": (*_USUAL, *_ALSO, "greedy-penalised", "guidance", "greedy-guidance", "watermark", "stop-strings"),
    "early-exit": (*_USUAL, *_ALSO, "guidance"),
    "confidence": ("sample", "filtered"),
    "heuristic": ("sample",),
    "ensemble": ("sample",),
    "different-tokenizers": ("greedy",),
    "universal": ("sample", "filtered"),
    "universal-ascending": ("sample", "filtered"),
    "universal-subset": ("sample",),
    "mtp-short": ("sample",),
}
_BY_CLASS = {way.generator: name for name, way in reversed(WAYS.items()) if way.generator}

REAL: tuple[str, ...] = tuple(
    f"{way}/{setting}" for way in WAYS if WAYS[way].on for setting in _OTHER.get(way, _USUAL) if SETTINGS[setting].plain
)
"""The subjects that can be examined on a loaded model."""

SUBJECTS: tuple[str, ...] = (
    *(f"{way}/{setting}" for way in WAYS for setting in _OTHER.get(way, _USUAL)),
    "rule:_speculative_sampling",
    *(f"q:{generator}" for generator in generators()),
)
"""Every subject."""


def examine(name: str, seed: int = 0, tokens: int = 2000, model: Any = None, prompts: Sequence[Tokens] = ()) -> Examined:
    """The verdict on a subject.

    seed     of random weights, of prompts, and the first seed handed to the decoder
    tokens   output tokens to sample, where sampling is asked for
    model    a model of `realmodel.loading.load`, with prompts for it; without one, random models of a few tokens

    Raises InvalidInput for a name that is none, and for one that cannot be examined on a loaded model.
    """
    from transformers.utils import logging

    if name not in SUBJECTS:
        raise InvalidInput(f"no subject is called {name!r}; `packedss subjects` lists them")
    if model is not None and name not in REAL:
        raise InvalidInput(f"{name!r} is examined on tiny models alone; on a loaded model: {', '.join(REAL)}")
    if model is not None and not prompts:
        raise InvalidInput("a loaded model needs prompts")
    level, threads = logging.get_verbosity(), torch.get_num_threads()
    logging.set_verbosity_error()  # what it warns of is not about what is examined
    if model is None:
        torch.set_num_threads(1)  # checks run in forked children, where a pool of threads is dead; and tiny models need none
    try:
        kind, _, rest = name.partition(":")
        if kind == "rule":
            return examine_rule(name, seed)
        if kind == "q":
            return examine_proposals(name, WAYS[_BY_CLASS[rest]], seed) if rest in _BY_CLASS else unbuilt(name, seed)
        way, _, setting = name.partition("/")
        if model is not None:
            return examine_real(name, WAYS[way], setting, seed, tokens, model, prompts)
        return examine_tiny(name, WAYS[way], setting, seed, tokens)
    finally:
        logging.set_verbosity(level)
        torch.set_num_threads(threads)
