"""The table of faults of a binding, in the form of `proofs_check.faults.table`, and the control that must pass.

What is put to the certificate is a class of sessions under some schedule and dtype: see `Subject`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from proofs_check.faults.table import Member, Row
from proofs_check.findings import Symptom
from realmodel.any_order.session import AnyOrderSession
from realmodel.dualmode import Session
from realmodel.faults import any_order, binding, harness
from simulator import any_order as family
from simulator.schedule import Schedule
from simulator.schedules import branches, linear, packed, quadratic

P, L, Q, B = packed(4), linear(4), quadratic(4), branches((0, 2), 4)
ANY_P, ANY_L, ANY_Q = (make(6, "confidence") for make in (family.packed, family.linear, family.quadratic))
BACKWARDS = family.packed(10, "rtl"), family.linear(10, "rtl"), family.quadratic(10, "rtl")


class Subject(NamedTuple):
    """A binding, and what is run on it."""

    kind: type[Session]
    schedule: Schedule = P
    dtype: str = "float32"
    padded: bool | None = None
    adapter: bool = False  # on a model with a proposal-only adapter
    masks: bool = False  # on a model that likes to draft masks
    ties: bool = False  # only a run with certified ties is of interest


class AnyOrderSubject(NamedTuple):
    """An any-order binding, and what is run on it: a random network."""

    kind: type[AnyOrderSession]
    schedule: family.Schedule = ANY_P
    dtype: str = "float32"
    padded: bool | None = None
    masks: bool = False  # on a model that likes to predict masks
    shrinks: bool = False  # with an EOS that removes pairs which others have seen


def _any_order(kind: type[AnyOrderSession], schedule: family.Schedule = ANY_P, name: str = "", **more: object) -> Member:
    subject = AnyOrderSubject(kind, schedule, **more)  # type: ignore[arg-type]
    words = [
        "any-order",
        name or _words(kind),
        f"{schedule.name} {schedule.width}",
        subject.dtype * (subject.dtype != "float32"),
    ]
    return Member(", ".join(filter(None, words)), "certificate", lambda: subject)


def _session(kind: type[Session], schedule: Schedule = P, name: str = "", **more: object) -> Member:
    subject = Subject(kind, schedule, **more)  # type: ignore[arg-type]
    words = [name or _words(kind), f"{schedule.name} 4", subject.dtype * (subject.dtype != "float32")]
    return Member(", ".join(filter(None, words)), "certificate", lambda: subject)


def _words(kind: type) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).strip()


def _harness(name: str, make: Callable[[], harness.Harness]) -> Member:
    return Member(name, "harness", make)


_ROWS = """\
F26 | law, count | conformance | mlx-lm#1109, aprender#2014 | the cache is not cropped, or by a row too few or many; stale rows
F27 | law, count | conformance | loop | rows of drafting blocks, which saw masks, stay in the cache as if causal
F28 | law, count | conformance | several | positions go on from the verifier's rows into the drafting blocks, or are off by one
F29 | law, count | conformance | several | rows see what they may not, or not what they must
F30 | law, count | conformance | transformers 5 | the mask is dropped, or added as 0 and 1
F31 | law, count | conformance | paper, D.1 | masks are drafted, or padding is read
F33 | count | timing, warm-up, aggregates | several | times without synchronisation, warm-up inside, means of ratios
F34 | law, count, determinism | conformance | several | an adapter, a cache or its rows are left over for what comes next
F35 | law, count | conformance | sglang fork | the adapter acts on verifier rows, or not on all proposal rows
F41 | law, count | conformance | loop | accepted pairs keep rows that saw a pair which an EOS has removed
C10 | - | - | numerics, not logic | a low-precision run that differs at certified ties alone
"""

_MEMBERS: dict[str, tuple[Member, ...]] = {
    "F26": (
        _session(binding.Uncropped),
        _session(binding.Uncropped, L),
        _session(binding.CroppedToNothing),
        _session(binding.RowTooMany),
        _session(binding.RowTooMany, Q),
        _session(binding.RowTooMany, dtype="bfloat16"),
        _session(binding.RowTooFew),
        _session(binding.StaleRow, dtype="bfloat16"),
        _session(binding.StaleRow, Q),
        _session(binding.StaleWholeRow, dtype="bfloat16"),
        _any_order(any_order.RowTooMany),
        _any_order(any_order.SkipsCorrections),
        _any_order(any_order.SkipsCorrections, ANY_L),
    ),
    "F27": (
        _session(binding.KeepsTheBlocksRow),
        _session(binding.KeepsTheBlocksRow, Q),
        _session(binding.KeepsProposals, L),
        _any_order(any_order.KeepsTheMasksRow),
        _any_order(any_order.KeepsTheMasksRow, ANY_Q),
    ),
    "F28": (
        _session(binding.PositionsContinue),
        _session(binding.PositionsContinue, Q),
        _session(binding.PositionsOneLate),
        _session(binding.PositionsOneLate, L),
        _any_order(any_order.PositionsContinue),
        _any_order(any_order.MasksOneLate, ANY_L),
    ),
    "F29": (
        _session(binding.ProposalsSeeDraft),
        _session(binding.VerifierSeesProposals),
        _session(binding.VerifierSeesProposals, Q),
        _session(binding.MasksSeeLaterDraft, Q),
        _session(binding.MasksSeeLaterDraft, B),
        _session(binding.CatchUpSeesAll, dtype="bfloat16"),
        _session(binding.CausalBlock),
        _session(binding.ColumnHidden),
        _any_order(any_order.ProposalsSeeDraft),
        _any_order(any_order.ProposalsSeeDraft, ANY_Q),
        _any_order(any_order.DraftSeesLater),
        _any_order(any_order.MasksSeeTheirToken),
        _any_order(any_order.MasksSeeTheirToken, ANY_L),
        _any_order(any_order.MasksSeeEachOther),
        _any_order(any_order.MasksDoNotSeeCorrection),
        _any_order(any_order.CatchUpSeesAll),
    ),
    "F30": (
        _session(binding.MaskDropped),
        _session(binding.MaskDropped, L),
        _session(binding.MaskAdded),
        _session(binding.MaskAdded, dtype="bfloat16"),
    ),
    "F31": (
        _session(binding.MaskProposed, masks=True),
        _session(binding.MaskProposed, L, masks=True),
        _session(binding.ReadsPadding, padded=True),
        _any_order(any_order.MaskProposed, masks=True),
        _any_order(any_order.NotRenormalised, masks=True),
    ),
    "F33": (
        _harness("times not synchronised", harness.unsynchronised),
        _harness("warm-up inside", harness.cold),
        _harness("means of ratios", harness.averaging),
    ),
    "F34": (
        _session(binding.SharedCache),
        _session(binding.TrustsLength),
        _session(binding.AdapterStaysOn, L, adapter=True),
        _any_order(any_order.TrustsLength),
    ),
    "F35": (
        _session(binding.AdapterOnVerifier, adapter=True),
        _session(binding.AdapterOnVerifier, Q, adapter=True),
        _session(binding.AdapterOff, adapter=True),
        _session(binding.AdapterOff, L, adapter=True),
        _session(binding.AdapterOnMasksAlone, adapter=True),
    ),
    "F41": tuple(_any_order(any_order.KeepsStaleRows, schedule, shrinks=True) for schedule in BACKWARDS),
    "C10": (
        _session(Session, name="ties", dtype="bfloat16", ties=True),
        _session(Session, Q, name="ties", dtype="bfloat16", ties=True),
        _session(Session, L, name="adapter", adapter=True),
        _session(Session, name="adapter", adapter=True, padded=True),
        _session(Session, B, name="masks", masks=True),
        *(_any_order(AnyOrderSession, schedule, name="an end that removes pairs", shrinks=True) for schedule in BACKWARDS),
        _any_order(AnyOrderSession, name="padded", padded=True),
        _any_order(AnyOrderSession, ANY_Q, name="masks", masks=True),
        _any_order(AnyOrderSession, ANY_L, name="ties", dtype="bfloat16"),
        _harness("our own harness", harness.ours),
    ),
}


def _rows() -> dict[str, Row]:
    rows = {}
    for line in _ROWS.splitlines():
        identifier, symptoms, stages, source, planted = line.split(" | ")
        named, where = (() if text == "-" else tuple(text.split(", ")) for text in (symptoms, stages))
        rows[identifier] = Row(
            identifier, "M", cast("tuple[Symptom, ...]", named), where, source, planted, _MEMBERS[identifier]
        )
    return rows


ROWS = _rows()
