"""What only a GPU can show, in one run of a few minutes, as JSON:

    certificate   the embedded model certified in bfloat16 and float32 on the device (`realmodel.validate`, as it is)
    syncs         how often the host waits for the device per call, from the profiler
    cost          seconds of a call against its rows, on random weights in the shapes of large models: time does not depend on
                  the weights

Every part writes its piece as soon as it is done, and the costs do so curve by curve, so that a time limit loses nothing. The
curves feed the cost model: `simulator.nfe.cost.measured(load_curve(FILE, "nemotron-3b/128/call"))`.

    python -m realmodel.device_check --json FILE                             on a GPU; scripts/device_check.sh sets up for it
    python -m realmodel.device_check --device cpu --shape tiny --json FILE   the same code, anywhere

Exit status: 0 all as it should be, or no GPU; 1 a certificate is missing, a call waits more than once, or a part failed; 2
transformers is too old.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from realmodel.bootstrap import Interval
from realmodel.dualmode import DualModeModel, Session, torch_dtype
from realmodel.efficiency import Protocol, arms
from realmodel.loading import held_out_prompts, load
from realmodel.validate import validate
from simulator.decode import decode
from simulator.errors import InvalidInput
from simulator.records import Call, Limits
from simulator.schedules import named

PARTS = ("certificate", "syncs", "cost")
SCHEDULES = ("ar", "linear", "packed", "quadratic")
_TRANSFORMERS = (5, 24)  # the first release whose models take the cache as this binding hands it over
_WARM_CALLS, _CALLS = 4, 12  # of a request, before and within the profile
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
_CLOCKS = ("call", "network", "busy")  # see `timed`
_READS = ("aten::item", "aten::_local_scalar_dense", "Memcpy DtoH", "Memcpy HtoD")


class Shape(NamedTuple):
    """The sizes of a network of random weights, and the calls that are timed on it."""

    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    prefixes: tuple[int, ...] = (128, 1024)
    blocks: tuple[int, ...] = (4, 8, 16, 32)  # B = W + 1
    quadratic: int = 16  # the largest block that quadratic calls are timed at
    rounds: int = 21


SHAPES = {  # Ministral 3 bodies, untied embeddings
    "nemotron-3b": Shape(26, 3072, 9216, 32, 8, 128, 131072),
    "nemotron-8b": Shape(34, 4096, 14336, 32, 8, 128, 131072),
    "tiny": Shape(2, 64, 96, 4, 2, 16, 256, (16, 40), (2, 4), 4, 7),
}


# --- certificate ------------------------------------------------------------------------------------------------------------


def certificates(
    device: str, dtype: str, prompts: int = 6, max_new_tokens: int = 48, width: int = 8, schedules: Sequence[str] = SCHEDULES
) -> dict[str, Any]:
    """The embedded model in `dtype` against itself in float64, both on the device: `Validation.plain`."""
    model, reference = load("embedded", dtype, device), load("embedded", "float64", device)
    texts = [(item.name, tuple(model.tokenizer.encode(item.text).ids)) for item in held_out_prompts(prompts)]
    protocol = Protocol(arms(schedules, [width]), Limits.of(max_new_tokens, model.eos))
    return validate(model, reference, texts, protocol).plain()


# --- synchronisations -------------------------------------------------------------------------------------------------------


def waits(model: DualModeModel, schedule: str, width: int = 8, calls: int = _CALLS) -> dict[str, Any]:
    """How often the host waits for the device, per call of a greedy request that is under way.

    `waits` counts the synchronising calls of the CUDA runtime, `events` those and the reads and copies behind them, by name;
    `places` has the lines of Python that waited, as torch's own debug mode sees them. All 0 and empty on a CPU but `events`.
    """
    prompt = tuple(model.tokenizer.encode(held_out_prompts(1)[0].text).ids)
    limits = Limits.of((width + 1) * (_WARM_CALLS + 2 * calls))
    steps = decode(model.session(padded=True), named(schedule, width), prompt, limits)
    for _ in islice(steps, _WARM_CALLS):
        pass
    with _profiled(model) as idle:  # what the profiler itself does
        pass
    with _profiled(model) as counts:
        done = sum(1 for _ in islice(steps, calls))
    with _debugged(model) as places:
        again = sum(1 for _ in islice(steps, calls))
    if min(done, again) < calls:
        raise InvalidInput(f"the request ended after {done + again} calls: too few to look at")
    counts.subtract(idle)
    events = {name: count / done for name, count in sorted(counts.items()) if count > 0}
    return {
        "schedule": schedule,
        "width": width,
        "calls": done,
        "waits": sum(events.get(name, 0) for name in _WAITS),
        "events": events,
        "places": {place: count / again for place, count in places.most_common()},
    }


@contextmanager
def _profiled(model: DualModeModel) -> Iterator[Counter[str]]:
    from torch.profiler import ProfilerActivity, profile

    cuda = model.device.type == "cuda"
    counts: Counter[str] = Counter()
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]) as run:
        yield counts
    for event in run.key_averages():
        name = next((name for name in (*_WAITS, *_READS) if event.key == name or event.key.startswith(f"{name} ")), None)
        if name:
            counts[name] += event.count


@contextmanager
def _debugged(model: DualModeModel) -> Iterator[Counter[str]]:
    places: Counter[str] = Counter()
    if model.device.type != "cuda":
        yield places
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "synchroniz" in str(warning.message):
            places[f"{Path(warning.filename).name}:{warning.lineno}"] += 1


# --- cost -------------------------------------------------------------------------------------------------------------------


def random_model(shape: Shape, name: str, device: str, dtype: str) -> DualModeModel:
    """A network of that shape whose weights are drawn on the device itself. Nobody reads what it says."""
    from transformers import AutoModelForCausalLM, Ministral3Config

    config = Ministral3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.mlp, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, tie_word_embeddings=False,
        eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        network = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch_dtype(dtype)).eval()
    return DualModeModel(network, None, mask_token=min(100, shape.vocabulary - 1), name=name)


class Cell(NamedTuple):
    """One kind of call at one block size."""

    kind: str
    block: int  # B
    call: Call


def cells(shape: Shape, prefix: int) -> list[Cell]:
    """What is timed behind `prefix` tokens: the calls of AR, Linear-SS (two), Packed-SS and Quadratic-SS."""
    tokens = tuple((7 * index + 3) % shape.vocabulary for index in range(prefix + max(shape.blocks)))
    context = tokens[:prefix]
    found = [Cell("ar", 1, Call(context, (), True, (), 0))]
    for block in shape.blocks:
        width = block - 1
        draft = tokens[prefix : prefix + width]
        found += [
            Cell("draft", block, Call(context, (), False, (0,), width)),
            Cell("verify", block, Call(context, draft, True, (), width)),
            Cell("packed", block, Call(context, draft, True, (0,), width)),
        ]
        if block <= shape.quadratic:
            found.append(Cell("quadratic", block, Call(context, draft, True, tuple(range(block)), width)))
    return found


def timed(model: DualModeModel, todo: Sequence[Cell], rounds: int) -> list[dict[str, Any]]:
    """Seconds of the cells, which take turns: medians of `rounds` calls with intervals (`median`), after two to warm up.

    `call` is the whole call as a decoder waits for it, `network` the forward in it, between events on the device, and `busy`,
    on a GPU, the sum over its kernels: what is left of the call when the host launches them in no time.
    """
    session = model.session(padded=True)
    session(Call(todo[0].call.prefix, (), False, (), 0))
    rows = [0] * len(todo)
    whole: list[list[float]] = [[] for _ in todo]
    inside: list[list[float]] = [[] for _ in todo]
    for turn in range(rounds + 2):
        for index, cell in enumerate(todo):
            before = session.model_seconds
            begun = model.clock()
            rows[index] = session(cell.call).rows
            ended = model.clock()
            if turn >= 2:
                whole[index].append(ended - begun)
                inside[index].append(session.model_seconds - before)
    return [
        {
            "kind": cell.kind,
            "block": cell.block,
            "rows": rows[index],
            "call": median(whole[index])._asdict(),
            "network": median(inside[index])._asdict(),
            "busy": _busy(session, cell.call),
        }
        for index, cell in enumerate(todo)
    ]


def _busy(session: Session, call: Call, repeats: int = 3) -> dict[str, float] | None:
    """Seconds of kernels and copies per call, as `Interval` has its estimate; None on a CPU."""
    if session.model.device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as run:
        for _ in range(repeats):
            session(call)
    kernels = [event for event in run.key_averages() if event.device_type.name == "CUDA"]
    return {"estimate": float(sum(event.self_device_time_total for event in kernels)) / repeats / 1e6}


def median(values: Sequence[float]) -> Interval:
    """The median and an interval between two of the values that covers the true one in at least 95 % of all samples, whatever
    the law of a value; no interval from fewer than 6 values. Values are taken as independent."""
    from scipy.stats import binom

    ordered, count = sorted(values), len(values)
    rank = int(binom.ppf(0.025, count, 0.5))  # values below the interval; the chance that fewer lie below the median is < 2.5 %
    if rank < 1:
        return Interval(statistics.median(ordered), None, None)
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[count - rank])


def curves(name: str, prefix: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """{rows: seconds} as the cost model takes it, one curve per clock. Calls of equal rows are averaged."""
    found = []
    for clock in _CLOCKS:
        seconds: defaultdict[int, list[float]] = defaultdict(list)
        for row in rows:
            if row[clock]:
                seconds[row["rows"]].append(row[clock]["estimate"])
        if seconds:
            times = {str(count): statistics.fmean(several) for count, several in sorted(seconds.items())}
            found.append({"name": f"{name}/{prefix}/{clock}", "times": times})
    return found


# --- the run ----------------------------------------------------------------------------------------------------------------


class Check:
    """One run: what is found, and the file that holds it so far."""

    def __init__(self, device: str, file: Path, seconds: float) -> None:
        self.device, self.file, self.ends = device, file, time.monotonic() + seconds
        self.begun = time.monotonic()
        self.problems: list[str] = []
        self.found: dict[str, Any] = {"command": "device-check", "environment": environment(device), "curves": []}

    @property
    def late(self) -> bool:
        """Whether the time is up: what has not begun is not begun."""
        return time.monotonic() >= self.ends

    def say(self, line: str) -> None:
        """One line, with the seconds so far."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {line}", flush=True)

    def wrong(self, line: str) -> None:
        """A line that makes the exit status 1."""
        self.problems.append(line)
        self.say(line)

    def write(self) -> None:
        """The file as a whole or not at all."""
        part = self.file.with_name(f".{self.file.name}.part")
        content = self.found | {"problems": self.problems, "seconds": time.monotonic() - self.begun}
        part.write_text(json.dumps(_plain(content), indent=1, allow_nan=False), encoding="utf-8")
        os.replace(part, self.file)

    def attempt(self, name: str, piece: Callable[[], None]) -> None:
        """Do a piece of the work and write what is there. What it raises is a finding, and the next piece has its turn."""
        if self.late:
            self.wrong(f"{name}: not run, the time is up")
        else:
            try:
                piece()
            except Exception as error:
                self.wrong(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}")
        self.write()

    def certificate(self, dtype: str, **sizes: Any) -> None:
        """Part 1, one dtype."""
        result = certificates(self.device, dtype, **sizes)
        self.found.setdefault("certificate", {})[dtype] = result
        for each in result["certificates"]:
            (self.say if each["certified"] else self.wrong)(f"certificate {dtype} {each['schedule']}: {each['verdict']}")

    def syncs(self, dtype: str) -> None:
        """Part 2."""
        model = load("embedded", dtype, self.device)

        def count(schedule: str) -> None:
            result = waits(model, schedule)
            self.found.setdefault("syncs", []).append(result)
            line = f"syncs {schedule}: the host waits {result['waits']:g} times a call {result['places'] or ''}"
            (self.wrong if result["waits"] > 1 else self.say)(line.rstrip())

        for schedule in SCHEDULES:
            self.attempt(f"syncs {schedule}", partial(count, schedule))

    def cost(self, name: str, dtype: str) -> None:
        """Part 3, one shape."""
        shape = SHAPES[name]
        model = random_model(shape, name, self.device, dtype)

        def curve(prefix: int) -> None:
            rows = timed(model, cells(shape, prefix), shape.rounds)
            self.found.setdefault("cost", []).append({"shape": name, "prefix": prefix, "dtype": dtype, "cells": rows})
            self.found["curves"] += curves(name, prefix, rows)
            for row in rows:
                self.say(f"cost {name} behind {prefix}: {_shown(row)}")

        for prefix in shape.prefixes:
            self.attempt(f"cost {name} behind {prefix}", partial(curve, prefix))


def environment(device: str) -> dict[str, Any]:
    """Where the figures come from."""
    cuda = torch.device(device).type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine()
    return {
        "device": device,
        "name": name,
        "memory": torch.cuda.get_device_properties(device).total_memory if cuda else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "packedss": _version("packedss"),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this module; returns the exit status."""
    parser = argparse.ArgumentParser(prog="device_check", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="again and again; by default both nemotrons")
    parser.add_argument("--part", action="append", choices=PARTS, help="again and again; by default all")
    parser.add_argument("--json", type=Path, default=Path("device_check.json"))
    parser.add_argument("--seconds", type=float, default=210.0, help="after which nothing new is begun")
    options = parser.parse_args(arguments)
    device, parts, shapes = options.device, options.part or PARTS, options.shape or ["nemotron-3b", "nemotron-8b"]
    small = shapes == ["tiny"]
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        print("skipped: there is no CUDA device here")
        return 0
    found = _version("transformers")
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < _TRANSFORMERS:
        print(f"needs transformers >= {'.'.join(map(str, _TRANSFORMERS))}, found {found}", file=sys.stderr)
        return 2

    options.json.parent.mkdir(parents=True, exist_ok=True)
    check = Check(device, options.json, options.seconds)
    # The costs come before the certificates: of all this they need the device most, and they are done in a minute.
    if "syncs" in parts:
        check.attempt("syncs", partial(check.syncs, "bfloat16"))
    if "cost" in parts:
        for shape in shapes:
            check.attempt(f"cost {shape}", partial(check.cost, shape, "bfloat16"))
    if "certificate" in parts:
        sizes = {"prompts": 1, "max_new_tokens": 8, "width": 3, "schedules": ("packed",)} if small else {}
        for dtype in ("bfloat16", "float32"):
            check.attempt(f"certificate {dtype}", partial(check.certificate, dtype, **sizes))
    check.say(f"{len(check.problems)} problems; {options.json}")
    return 1 if check.problems else 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout
        return "unknown"


def _shown(row: dict[str, Any]) -> str:
    call, network, busy = ({key: 1e3 * each for key, each in (row[clock] or {}).items() if each} for clock in _CLOCKS)
    between = f" ({call['low']:.3f} .. {call['high']:.3f})" if "low" in call else ""
    kernels = f", kernels {busy['estimate']:.3f}" if busy else ""
    of = f"{row['kind']:9} B = {row['block']:2}, {row['rows']:3} rows"
    return f"{of}: call {call['estimate']:.3f} ms{between}, network {network['estimate']:.3f}{kernels}"


def _plain(value: Any) -> Any:
    """For JSON, which knows no infinity: numbers that are not finite are words."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
