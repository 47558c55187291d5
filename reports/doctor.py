"""`packedss doctor`: what is installed, and what can run here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from reports.environment import environment, package_version
from reports.options import Json, Quiet
from reports.output import terminal, write_json

_REALMODEL = ("torch", "transformers", "tokenizers", "safetensors")


class Ability(NamedTuple):
    """Something the toolkit does."""

    what: str
    here: bool
    why: str  # what it runs on, or what is missing and how to get it


def doctor(json_file: Json = None, quiet: Quiet = False) -> int:
    """Versions, device, caches, and what can run here. Exits with 0 whatever is missing: each extra is a choice."""
    found, able, kept = environment(), list(abilities()), list(caches())
    if not quiet:
        console = terminal()
        console.print(f"packedss {package_version('packedss') or 'from a checkout'}, revision {found['revision'] or 'unknown'}")
        memory = memory_gib()
        console.print(
            f"Python {found['python']} on {found['system']}, {found['cores']} cores" + (f", {memory:.0f} GiB" if memory else "")
        )
        console.print(", ".join(f"{name} {number}" for name, number in found["packages"].items()))
        table = Table(title="What can run here", title_justify="left")
        for column in ("", "", "with"):
            table.add_column(column)
        for each in able:
            table.add_row(each.what, "[green]yes[/]" if each.here else "[yellow]no[/]", escape(each.why))  # packedss[extra]
        console.print(table)
        for folder, size in kept:
            console.print(f"cache: {folder} ({size / 2**20:.0f} MiB)", markup=False)
    rows = [{"what": each.what, "here": each.here, "why": each.why} for each in able]
    write_json(json_file, "doctor", {}, rows)
    return 0


def abilities() -> Iterator[Ability]:
    """Each part of the toolkit, from the lightest up."""
    yield Ability("prove, check, simulate, sweep, check-trace", True, "the base installation")
    coqc = shutil.which("coqc")
    yield Ability("prove: Rocq proofs", coqc is not None, "coqc" if coqc else "apt-get install coq")
    missing = [name for name in _REALMODEL if find_spec(name) is None]
    yield _extra("validate, audit, check-outputs with a model", missing, "realmodel", "torch on the CPU")
    if not missing:
        yield _cuda()
        from realmodel.tasks.sandbox import probed
        from simulator.errors import InvalidInput

        try:
            yield Ability("grading of programs that a model wrote", True, probed().name)
        except InvalidInput as error:
            yield Ability("grading of programs that a model wrote", False, str(error))
    pictures = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    yield _extra("report, --plot", pictures, "report", "matplotlib, jinja2")
    for engine in ("dask", "ray"):
        yield _extra(f"sweep --engine {engine}", [engine] if find_spec(engine) is None else [], engine, engine)


def _extra(what: str, missing: list[str], extra: str, otherwise: str) -> Ability:
    here = not missing
    return Ability(what, here, otherwise if here else f"{', '.join(missing)} missing: pip install 'packedss[{extra}]'")


def _cuda() -> Ability:
    import torch

    if not torch.cuda.is_available():
        return Ability("--device cuda", False, "no CUDA device, or a torch built without it")
    return Ability("--device cuda", True, ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))


def caches() -> Iterator[tuple[Path, int]]:
    """Folders outside the project that the toolkit fills, and their sizes in bytes."""
    if find_spec("torch") is not None:
        from realmodel.smollm2.fetch import cache_folder

        folder = cache_folder()
        if folder.is_dir():
            yield folder, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def memory_gib() -> float | None:
    """Physical memory, None where the system does not say."""
    names: dict[str, Any] = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= names.keys():
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
