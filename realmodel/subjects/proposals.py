"""Two halves of speculative sampling by themselves: is a draft drawn from the law declared for it, and is the rule exact?

`_speculative_sampling` takes `candidate_logits` for the law that the candidates were drawn from. Here a CandidateGenerator
drafts under enumerated coins, and every draft token's law, given the tokens before it, is compared with
softmax(candidate_logits).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from proofs_check import check_acceptance, check_drafter
from proofs_check.coins import Coins
from proofs_check.findings import Report
from realmodel.subjects.draws import ROUNDING, coins
from realmodel.subjects.settings import SETTINGS, request
from realmodel.subjects.verdict import Examined, told
from realmodel.subjects.ways import Ready, Way
from simulator.records import Tokens

_SMALL = 3
_CONTEXTS: tuple[Tokens, ...] = ((1, 2, 1, 2), (0,), (2, 2, 0))
_BLIND_Q = (
    "whether that law is any good",
    f"contexts other than {', '.join(map(str, map(list, _CONTEXTS)))} and weights other than this seed's",
    "drafts after the first of a request, whose caches hold rejected tokens",
)
_BLIND_RULE = ("whether the loop around it hands over the right p and q", "drafts of more than 4 tokens", "float32 arithmetic")


class _Drafted(Exception):
    """Ends the request with its first draft."""

    def __init__(self, tokens: Tokens, logits: torch.Tensor | None) -> None:
        super().__init__()
        self.tokens, self.logits = tokens, logits


def first_draft(ready: Ready, prompt: Tokens, setting: str = "sample") -> tuple[Tokens, torch.Tensor | None]:
    """The first draft of a request for 4 tokens, and the logits declared for it; no tokens if it drafts nothing."""
    build = type(ready.network)._get_candidate_generator

    def spied(self: Any, *args: Any, **more: Any) -> Any:
        generator = build(self, *args, **more)
        propose = generator.get_candidates

        def get_candidates(input_ids: torch.Tensor, *args: Any, **more: Any) -> Any:
            ids, logits = propose(input_ids, *args, **more)
            if ids.shape[1] > input_ids.shape[1]:
                raise _Drafted(tuple(ids[0, input_ids.shape[1] :].tolist()), logits)
            return ids, logits

        generator.get_candidates = get_candidates
        return generator

    with ready.within(), mock.patch.object(type(ready.network), "_get_candidate_generator", spied):
        try:
            request(ready.network, prompt, 4, SETTINGS[setting], ready.keywords)
        except _Drafted as draft:
            return draft.tokens, draft.logits
    return (), None


def examine_proposals(name: str, way: Way, seed: int) -> Examined:
    """The q-contract of a way's CandidateGenerator, on a model of 3 tokens, exactly."""
    ready = way.build(_SMALL, seed)
    about = f"{way.generator}: are candidates drawn from softmax(candidate_logits)? ({way.about})"

    def unanswered(reason: str) -> Examined:
        return Examined(name, about, "tiny", seed, "NOT RUN", missing=(reason,))

    if way.greedy_only:
        return unanswered("transformers uses it without sampling only; it returns no candidate_logits")
    try:
        tokens, logits = first_draft(ready, _CONTEXTS[0])
    except Exception as error:
        said = f"contract: it raises {type(error).__name__}: {error}"
        return Examined(name, about, "tiny", seed, "NOT EXACT", (said,), blind=_BLIND_Q, report=said)
    if tokens and logits is None:
        return unanswered(
            "it declares no law: candidate_logits is None, and candidates are compared with the target's own draws"
        )

    reports = []
    for setting in ("sample", "filtered"):  # where q is of unprocessed logits, only processing shows it

        def drafter(context: Tokens, width: int, source: Coins, setting: str = setting) -> tuple[Tokens, list[list[float]]]:
            with coins(source):
                drafted, declared = first_draft(ready, context, setting)
            if declared is None:
                return (), []
            return drafted, torch.softmax(declared[0, : len(drafted)].double(), -1).tolist()

        reports.append(check_drafter(drafter, contexts=_CONTEXTS, width=2, rounding=ROUNDING, limit=120.0, name=name))
        if reports[-1].exit_code:
            break
    examined = _of(reports[-1], name, about, seed, _BLIND_Q)
    return replace(examined, report="\n\n".join(map(str, reports)))


def examine_rule(name: str, seed: int) -> Examined:
    """`_speculative_sampling` as an accept rule, on every small block of laws, in float64."""
    from transformers.generation.utils import _speculative_sampling

    def rule(p: Any, q: Any, draft: Tokens, source: Coins) -> list[int]:
        new, old = (torch.tensor([[list(map(float, row)) for row in laws]], dtype=torch.float64).log() for laws in (p, q))
        with coins(source):
            tokens, _ = _speculative_sampling(torch.tensor([draft]), old, len(draft), new)
        emitted: list[int] = tokens[0].tolist()
        return emitted

    report = check_acceptance(rule, rounding=1e-9, limit=120.0, name=name)
    return _of(report, name, "_speculative_sampling, the accept rule of all sampled assistance", seed, _BLIND_RULE)


def _of(report: Report, name: str, about: str, seed: int, blind: tuple[str, ...]) -> Examined:
    findings, missing = told(report)
    return Examined(name, about, "tiny", seed, report.verdict, findings, missing, blind=blind, report=str(report))


def unbuilt(name: str, seed: int) -> Examined:
    """A CandidateGenerator class that no way here builds."""
    return Examined(name, name, "tiny", seed, "NOT RUN", missing=("no way to build it on a tiny model is known here",))
