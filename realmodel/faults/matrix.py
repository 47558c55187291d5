"""The kill matrix of the model layer: every planted binding through the certificate, every harness through its audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

import torch

from proofs_check.faults.matrix import Result, judged
from proofs_check.faults.table import Checker
from proofs_check.findings import Report, Stage
from realmodel.adapter import with_random_adapter
from realmodel.any_order.certificate import Output as AnyOrderOutput
from realmodel.any_order.certificate import certify as certify_any_order
from realmodel.any_order.session import AnyOrderModel
from realmodel.binding import torch_dtype
from realmodel.certificate import Certificate, certify
from realmodel.dualmode import DualModeModel
from realmodel.faults import any_order
from realmodel.faults.binding import Planted, likes_masks
from realmodel.faults.harness import audit_harness
from realmodel.faults.table import ROWS, AnyOrderSubject, Subject
from realmodel.loading import held_out_prompts, load
from realmodel.numerics import Output
from realmodel.precision import in_dtype
from realmodel.reference import greedy_reference
from simulator.decode import Generation, generate
from simulator.errors import InvalidInput
from simulator.records import Limits, Tokens

_WIDTH = 4
_PROMPTS, _TIES = (0, 2), (8, 9, 10, 24)  # held-out prompts; on some of the second list bfloat16 decides ties by layout
_TOKENS = 32
_RANDOM_PROMPTS = (("first", (7, 3, 11, 5)), ("second", (4, 4, 9)))
_SHRINKING = (0, 9)  # seed of the weights and EOS: it removes pairs that others, which stay, have seen


@lru_cache(maxsize=8)
def _loaded(dtype: str, adapter: bool, masks: bool, role: str) -> DualModeModel:
    """A network of its own per role: what a fault leaves in one must not reach what it is compared with."""
    model = load("embedded", dtype)
    model = with_random_adapter(model, rank=4, scale=0.05) if adapter else model
    return likes_masks(model) if masks else model


def certificate_of(subject: Subject) -> Certificate:
    """What the certificate says of a binding."""
    model = Planted(_of(subject, subject.dtype, "model"), subject.kind)
    planted = Planted(_of(subject, "float64", "binding"), subject.kind)
    reference = _of(subject, "float64", "reference")
    limits, padded = Limits.of(_TOKENS, model.eos), subject.padded
    prompts = _prompts(_TIES if subject.ties else _PROMPTS)
    outputs = []
    try:
        for name, prompt in prompts:
            expected = greedy_reference(_of(subject, subject.dtype, "baseline"), prompt, limits)
            got = generate(model.session(padded=padded), subject.schedule, prompt, limits).tokens
            outputs.append(Output(name, prompt, expected, got))
    except Exception:  # conformance, which runs the same prompts, says what it was
        outputs = [Output(name, prompt, (), ()) for name, prompt in prompts]
    return certify(model, reference, subject.schedule, outputs, limits, _WIDTH, binding=planted, padded=padded)


def _of(subject: Subject, dtype: str, role: str) -> DualModeModel:
    # An adapter has a state, in which a fault may leave something.
    return _loaded(dtype, subject.adapter, subject.masks, f"{role} of {subject.kind.__name__}" if subject.adapter else role)


@lru_cache(maxsize=2)
def _prompts(which: tuple[int, ...]) -> tuple[tuple[str, Tokens], ...]:
    encode = _loaded("float64", False, False, "reference").tokenizer.encode
    items = held_out_prompts(max(which) + 1)
    return tuple((items[index].name, tuple(encode(items[index].text).ids)) for index in which)


@lru_cache(maxsize=4)
def _random(dtype: str, seed: int, masks: bool) -> AnyOrderModel:
    """A tiny network with random weights that looks far: what it predicts depends on everything."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=19, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=12, max_position_embeddings=256, initializer_range=1.0, eos_token_id=None, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    torch.manual_seed(seed)
    network = Qwen3ForCausalLM(config).eval()
    network = in_dtype(network, torch_dtype(dtype))
    model = AnyOrderModel(network, None, 1, "random")
    return likes_masks(model) if masks else model


def any_order_certificate_of(subject: AnyOrderSubject) -> Certificate:
    """What the certificate says of an any-order binding."""
    seed, end = _SHRINKING if subject.shrinks else (0, None)
    reference = _random("float64", seed, subject.masks)
    model, planted = (
        any_order.Planted(_random(dtype, seed, subject.masks), subject.kind) for dtype in (subject.dtype, "float64")
    )
    limits, padded = Limits.of(24, end), subject.padded
    try:
        runs = [
            generate(model.session(padded=padded), cast(Any, subject.schedule), prompt, limits) for _, prompt in _RANDOM_PROMPTS
        ]
    except Exception:  # conformance, which runs the same prompts, says what it was
        runs = [Generation((), (), "length") for _ in _RANDOM_PROMPTS]
    outputs = [AnyOrderOutput(name, prompt, run) for (name, prompt), run in zip(_RANDOM_PROMPTS, runs, strict=True)]
    return certify_any_order(model, reference, subject.schedule, outputs, limits, binding=planted, padded=padded)


def _certificate(subject: Subject | AnyOrderSubject, name: str) -> Report:
    if isinstance(subject, AnyOrderSubject):
        found = any_order_certificate_of(subject)
        stages = found.report().stages
        if subject.shrinks and not found.findings and not found.layer("conformance").figures["again"]:
            stages = (*stages, Stage("shrinks", "not run", "no pair was removed that another one had seen"))
        return Report(name, None, stages, found.report().findings)
    found = certificate_of(subject)
    report = found.report()
    if subject.ties and found.verdict == "EXACT":
        stages = (*report.stages, Stage("ties", "not run", "no token was tied"))
        return Report(name, None, stages, report.findings)
    return Report(name, None, report.stages, report.findings)


CHECKERS: dict[Checker, Callable[[Any, str], Report]] = {"certificate": _certificate, "harness": audit_harness}


def run_member(identifier: str, index: int) -> Result:
    """One member of one row."""
    torch.set_num_threads(1)
    row = ROWS[identifier]
    return judged(row, row.members[index], CHECKERS)


def kill_matrix(ids: Iterable[str] = (), workers: int = 2) -> Iterator[Result]:
    """Every member of these rows, or of all, in the order of the table, as `proofs_check.faults.matrix.kill_matrix`.

    Raises InvalidInput for an unknown id.
    """
    from joblib import Parallel, delayed

    wanted = list(ids) or list(ROWS)
    unknown = [identifier for identifier in wanted if identifier not in ROWS]
    if unknown:
        raise InvalidInput(f"unknown row {unknown[0]!r}; allowed: {', '.join(ROWS)}")
    tasks = [(identifier, index) for identifier in wanted for index in range(len(ROWS[identifier].members))]
    yield from Parallel(n_jobs=workers, return_as="generator")(delayed(run_member)(*task) for task in tasks)
