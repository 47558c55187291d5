"""A way of assistance under some settings: its tokens against plain `generate`, and on tiny models its law, enumerated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from proofs_check import check_decoder
from proofs_check.decoder import BLIND, BLIND_GREEDY
from proofs_check.eprocess import EProcess
from proofs_check.findings import Verdict
from realmodel.subjects import tiny
from realmodel.subjects.draws import ROUNDING, output_law, total_variation
from realmodel.subjects.settings import SETTINGS, PlainGenerate, Settings, request
from realmodel.subjects.verdict import Examined, told
from realmodel.subjects.ways import Ready, Way
from simulator.errors import ContractError
from simulator.processing import Processing
from simulator.records import Tokens

ALPHA = 0.01
TOLERANCE = 1e-3  # nats: float32 logits of one row and of many differ by less
_VOCABULARY, _LENGTH = 6, 24  # of the model that is sampled
_SMALL, _FIRST = 3, 3  # of the one that is enumerated: its words, and output tokens
_CONTEXT: Tokens = (1, 2, 1, 2)
_REAL_LENGTH = 32
_SAMPLED = (
    f"the draws of {_VOCABULARY} tokens of one random model; biases that only other weights, prompts or lengths bring out"
)
_NUMERICS = f"differences below {TOLERANCE:g} nats, put down to float32"


def examine_tiny(name: str, way: Way, setting: str, seed: int, tokens: int) -> Examined:
    """On random models: about `tokens` output tokens, and the joint law of the first 3 of a model of 3 tokens."""
    settings = SETTINGS[setting]
    ready = way.build(_VOCABULARY, seed)
    chooser = random.Random(seed)
    prompts = [tuple(chooser.randrange(_VOCABULARY) for _ in range(length)) for length in (4, 1, 2, 6, 8, 3)]
    prompts = [prompt for prompt in prompts if len(prompt) >= way.shortest]
    if settings.greedy:
        prompts += [tuple(chooser.randrange(_VOCABULARY) for _ in range(5)) for _ in range(18)]
    reference = PlainGenerate(ready.network, settings, _LENGTH, _tokenizer(settings))
    sampled = _checked(name, way, ready, reference, prompts, setting, seed, tokens, _LENGTH, "tiny", UNPROCESSED, (_SAMPLED,))
    if settings.greedy or sampled.verdict == "NOT RUN" or any("contract" in finding for finding in sampled.findings):
        return sampled
    return _enumerated(sampled, way.build(_SMALL, seed), settings)


def examine_real(name: str, way: Way, setting: str, seed: int, tokens: int, model: Any, prompts: Sequence[Tokens]) -> Examined:
    """On a loaded model (`realmodel.loading.load`), against plain forward passes."""
    from realmodel.reference import CausalReference

    assert way.on is not None
    kept = model.network.generation_config
    try:
        ready = way.on(model.network)
        blind = (f"biases that only prompts other than these {len(prompts)} bring out",)
        reference = CausalReference(model)
        asked = SETTINGS[setting].processing
        return _checked(name, way, ready, reference, prompts, setting, seed, tokens, _REAL_LENGTH, model.name, asked, blind)
    finally:
        model.network.generation_config = kept


UNPROCESSED = Processing()  # PlainGenerate has done the processing


def _tokenizer(settings: Settings) -> dict[str, Any]:
    return {"tokenizer": tiny.tokenizer(tiny.LETTERS[:_VOCABULARY])} if settings.stop else {}


def _checked(
    name: str,
    way: Way,
    ready: Ready,
    reference: Any,
    prompts: Sequence[Tokens],
    setting: str,
    seed: int,
    tokens: int,
    length: int,
    model: str,
    processing: Processing,
    blind: tuple[str, ...],
) -> Examined:
    settings = SETTINGS[setting]
    keywords = _tokenizer(settings) | ready.keywords

    def generate(prompt: list[int], most: int, chance: int) -> Tokens:
        torch.manual_seed(chance)
        return request(ready.network, tuple(prompt), most, settings, keywords)

    with ready.within():
        report = check_decoder(
            generate,
            reference,
            prompts,
            processing=Processing(temperature=0) if settings.greedy else processing,
            max_new_tokens=length,
            eos=settings.eos,
            stop=settings.stop,
            tokens=tokens,
            alpha=ALPHA,
            tolerance=TOLERANCE if settings.greedy else 0.0,
            seed=seed,
            limit=None,  # in this process: torch's threads do not survive a fork
            name=name,
        )
    findings, missing = told(report)
    seen = EProcess(ALPHA * 0.9, settings.eos)
    seen.tokens = report.tokens
    return Examined(
        name,
        f"{way.about}; {setting}",
        model,
        seed,
        report.verdict,
        findings,
        missing,
        tokens,
        report.tokens,
        None if settings.greedy else ALPHA,
        None if settings.greedy or not report.tokens else seen.detectable / 2,
        blind=((*BLIND_GREEDY, _NUMERICS) if settings.greedy else BLIND) + blind,
        report=str(report),
    )


def _enumerated(sampled: Examined, ready: Ready, settings: Settings) -> Examined:
    """With the joint law of the first tokens, computed: a gap beyond rounding is a bias whatever the samples say."""
    small = settings._replace(stop=())
    if settings.stop:
        return sampled
    keywords = ready.keywords
    try:
        with ready.within():
            request(ready.network, _CONTEXT, _FIRST, small, keywords)  # some ways change their assistant when first used
            law, runs = output_law(lambda: request(ready.network, _CONTEXT, _FIRST, small, keywords))
        plain, _ = output_law(lambda: request(ready.network, _CONTEXT, _FIRST, small))
    except ContractError as error:
        return replace(sampled, missing=(*sampled.missing, f"enumeration: {error}"), verdict=_worse(sampled.verdict, "NOT RUN"))
    gap = total_variation(law, plain)
    text = f"enumerated: total variation {gap:.2g} between the joint law of {_FIRST} tokens and plain generate's, {runs} runs"
    found = () if gap <= ROUNDING else (f"law: {text}",)
    return replace(
        sampled,
        verdict="NOT EXACT" if found else sampled.verdict,
        findings=sampled.findings + found,
        gap=gap,
        enumerated=runs,
        report=f"{sampled.report}\n{text}",
    )


def _worse(verdict: Verdict, other: Verdict) -> Verdict:
    return verdict if verdict == "NOT EXACT" else other
