"""Measuring what decoding costs (METRICS): prompts x repeats x arms, each run timed alone and kept as a record.

An arm is a schedule with a width, or transformers' own generate, plain or as one of `realmodel.baselines`. The arms of a prompt
run one after the other in an order that rotates from prompt to prompt, generate among them, so that a drifting machine hits all
alike. A record keeps the tokens and every step of its run: whoever certifies outputs and whoever counts calls read the same
evidence.

    cells = measure(Source("embedded"), prompts, Protocol(arms(["ar", "linear", "packed"], [8]), Limits.of(64)))
    summary = summarise(cells.records, {("packed", 8): Verdict(True, "EXACT"), ...})        # realmodel.figures
"""

from __future__ import annotations

import hashlib
import platform
import re
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch

from realmodel.any_order.loading import is_any_order, load_any_order
from realmodel.baselines import Baseline, run_baseline
from realmodel.binding import BoundModel
from realmodel.loading import load
from realmodel.reference import greedy_reference
from realmodel.results import Damaged, Parameters, Results, digest
from simulator import engines
from simulator.chance import Sampled
from simulator.decode import Generation, generate
from simulator.errors import InvalidInput
from simulator.records import Call, Limits, Reply, Step, Stop, Tokens
from simulator.schedules import named

Key: TypeAlias = tuple[str, int]
"""An arm by name and width."""
Prompt: TypeAlias = tuple[str, Tokens]
"""A prompt's name and its token ids."""

GENERATE = "transformers generate"
_WARM_TOKENS = 8
_WARM: WeakKeyDictionary[BoundModel, Protocol] = WeakKeyDictionary()


class Source(NamedTuple):
    """Where a worker gets its model from."""

    name: str = "embedded"  # as in `realmodel.load`, or `realmodel.any_order.load_any_order`
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    trust_remote_code: bool = False


@lru_cache(maxsize=1)
def opened(source: Source) -> BoundModel:
    """The model of `source`, loaded once per process, which then runs it with that many threads."""
    torch.set_num_threads(source.threads)
    if is_any_order(source.name):
        return load_any_order(source.name, source.dtype, source.device)
    return load(source.name, source.dtype, source.device, source.trust_remote_code)


class Arm(NamedTuple):
    """One of the things compared: a schedule with its width W (0 for AR), or without a schedule transformers' generate."""

    schedule: Any  # of the family that the model serves, left to right or any-order
    width: int = 0
    baseline: Baseline | None = None  # how generate is helped

    @property
    def key(self) -> Key:
        helped = self.baseline.name if self.baseline else GENERATE
        return (self.schedule.name if self.schedule else helped, self.width)


def arms(
    names: Iterable[str],
    widths: Iterable[int],
    start: str = "algorithm",
    reference: bool = True,
    baselines: Iterable[Baseline] = (),
) -> tuple[Arm, ...]:
    """Every named schedule and every baseline at every width, AR once, and transformers' generate with `reference`."""
    names, widths, found = list(names), list(widths), [Arm(None)] if reference else []
    if "ar" in names:  # which drafts nothing: the starts that differ in the first draft are one to it
        found.append(Arm(named("ar", 1, start if start == "prompt" else "algorithm")))
    found += [Arm(named(name, width, start), width) for width in widths for name in names if name != "ar"]
    found += [Arm(None, width, baseline) for width in widths for baseline in baselines]
    return tuple(found)


@dataclass(frozen=True)
class Protocol:
    """What is run on every prompt. Raises InvalidInput when two arms have one key, or nothing would be run."""

    arms: tuple[Arm, ...]
    limits: Limits
    repeats: int = 1
    temperature: float = 0.0
    seed: int = 0
    padded: bool | None = None  # as in `BoundModel.session`

    def __post_init__(self) -> None:
        if not self.arms or self.repeats < 1:
            raise InvalidInput(f"a measurement needs arms and repeats, got {len(self.arms)} and {self.repeats}")
        if len({arm.key for arm in self.arms}) < len(self.arms):
            raise InvalidInput(f"every arm may be named once, got {[arm.key for arm in self.arms]}")
        if self.limits.stop and any(arm.schedule is None for arm in self.arms):
            raise InvalidInput("transformers' generate is run without stop sequences: leave one of the two out")
        if self.temperature and (helped := [arm.baseline.name for arm in self.arms if arm.baseline]):
            raise InvalidInput(f"{helped[0]} runs at temperature 0 only, where generate says what its output has to be")


class Record(NamedTuple):
    """One cell: one run of one arm on one prompt. Times in seconds, device-synchronised, prompt processing included."""

    prompt: str  # its name
    repeat: int
    name: str  # the arm's
    width: int
    turn: int  # place in the order in which this prompt's arms ran
    tokens: Tokens  # the output, stop token included
    stop: Stop
    steps: tuple[Step, ...]  # one per call, of a baseline with its rows alone; none for transformers' generate
    wall: float
    model: tuple[float, ...]  # the part of `wall` inside the network, call by call
    peak_memory: int  # bytes: allocated on the device during the run; on a CPU of the whole process so far
    contended: bool  # several workers shared the machine: no honest speed

    @property
    def key(self) -> Key:
        return self.name, self.width

    @property
    def nfe(self) -> int:
        """Forward passes; for transformers' generate one a token."""
        return len(self.steps) or len(self.tokens)

    @property
    def generation(self) -> Generation:
        """The run as a decoder returned it; its steps are empty for transformers' generate."""
        return Generation(self.tokens, self.steps, self.stop)

    @property
    def rows(self) -> int:
        """Token rows evaluated, padding included, prompt rows excluded."""
        return sum(step.rows for step in self.steps) if self.steps else len(self.tokens)


@dataclass(frozen=True)
class Measurement:
    """The result of `measure`."""

    parameters: Parameters  # of the whole run, prompts excluded
    records: tuple[Record, ...]  # prompt by prompt, in the order of the prompts
    reused: int  # prompts whose records the folder already held
    damaged: tuple[str, ...]  # files of the folder that had to be measured again, and why


def measure(
    model: Source | BoundModel,
    prompts: Sequence[Prompt],
    protocol: Protocol,
    folder: Path | None = None,
    workers: int = 1,
    progress: Callable[[Iterable[None], int], Iterable[None]] = lambda done, total: done,
    engine: str = "local",
    address: str | None = None,
) -> Measurement:
    """Run every arm on every prompt, `repeats` times, after a warm-up outside all figures.

    With a `folder` each finished prompt is kept there, and found again by a later call with the same parameters; workers on
    other machines need it at the same path. Prompts run where `simulator.engines` runs them. Whatever is not this process
    alone needs a Source, and makes every time contended. `progress` wraps what yields once per prompt, with their number.
    Raises InvalidInput for a prompt the model cannot take, or two prompts of one name.
    """
    engines.check(engine, workers, address)
    elsewhere = engine != "local" or workers > 1
    if elsewhere and not isinstance(model, Source):
        raise InvalidInput(f"a model that is already loaded runs in this process alone, not on {workers} {engine} workers")
    loaded = opened(model) if isinstance(model, Source) else model
    if len({name for name, _ in prompts}) < len(prompts):
        raise InvalidInput("every prompt needs a name of its own")
    for _, ids in prompts:
        loaded.check_prompt(ids, protocol.limits.max_new_tokens, max(arm.width for arm in protocol.arms))
    common = _parameters(loaded, protocol, elsewhere)
    store = Results(folder.resolve()) if folder else None
    found: dict[str, list[Record]] = {}
    damaged = []
    for prompt in prompts if store else ():
        assert store is not None
        try:
            rows = store.read(_of_prompt(common, prompt))
            if rows is not None:
                found[prompt[0]] = [_record(row) for row in rows]
        except (Damaged, TypeError, ValueError) as error:
            damaged.append(f"{store.file(_of_prompt(common, prompt)).name} (prompt {prompt[0]}): {error}")
    reused = len(found)

    def finished() -> Iterator[None]:
        yield from [None] * reused
        tasks = [
            (model, protocol, prompts[0][1], prompt, number, store, common)
            for number, prompt in enumerate(prompts)
            if prompt[0] not in found
        ]
        for records in engines.run(_task, tasks, engine, workers, address):
            found[records[0].prompt] = records
            yield None

    for _ in progress(finished(), len(prompts)):
        pass
    return Measurement(common, tuple(record for name, _ in prompts for record in found[name]), reused, tuple(damaged))


def measure_prompt(
    model: BoundModel, protocol: Protocol, prompt: Prompt, number: int = 0, contended: bool = False
) -> list[Record]:
    """All cells of one prompt. `number` is the prompt's place among all, which decides who goes first."""
    records = []
    for repeat in range(protocol.repeats):
        for turn, which in enumerate(order(len(protocol.arms), number * protocol.repeats + repeat)):
            arm = protocol.arms[which]
            coins = int(digest([prompt[1], prompt[0], repeat, arm.key])[:16], 16)
            tokens, stop, steps, wall, times, peak = _run(model, arm, prompt[1], protocol, coins)
            records.append(Record(prompt[0], repeat, *arm.key, turn, tokens, stop, steps, wall, times, peak, contended))
    return records


def order(count: int, round_: int) -> list[int]:
    """Who runs when: a rotation, so that `count` rounds put each in each place once; then the same backwards, so that nobody
    always runs behind the same other."""
    places = [(round_ + place) % count for place in range(count)]
    return places if round_ // count % 2 == 0 else places[::-1]


def fingerprint(model: BoundModel) -> str:
    """SHA-256 of the weights as they are in memory, of their names, types and shapes, and of the configuration."""
    seal = hashlib.sha256(model.network.config.to_json_string().encode())
    for name, tensor in sorted(model.network.state_dict().items()):
        seal.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        seal.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    return seal.hexdigest()


def _run(
    model: BoundModel, arm: Arm, prompt: Tokens, protocol: Protocol, coins: int
) -> tuple[Tokens, Stop, tuple[Step, ...], float, tuple[float, ...], int]:
    cuda = model.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(model.device)
    limits, steps, marks = protocol.limits, tuple[Step, ...](), [0.0]
    if arm.schedule is None:
        begun = model.clock()
        if arm.baseline:
            tokens, steps = run_baseline(model, arm.baseline, arm.width, prompt, limits)
        else:
            tokens = _generate(model, prompt, limits, protocol, coins)
        wall = model.clock() - begun
        stop = limits.reached(prompt + tokens, len(prompt)) or "length"
    else:
        chance = Sampled(protocol.seed, coins)
        begun = model.clock()
        session = model.session(protocol.temperature, protocol.padded)

        def answer(call: Call) -> Reply:
            reply = session(call)
            marks.append(session.model_seconds)
            return reply

        tokens, steps, stop = generate(answer, arm.schedule, prompt, limits, chance)
        wall = model.clock() - begun
    peak = torch.cuda.max_memory_allocated(model.device) if cuda else _resident_peak()
    return tokens, stop, steps, wall, tuple(np.diff(marks).tolist()), peak


def _generate(model: BoundModel, prompt: Tokens, limits: Limits, protocol: Protocol, coins: int) -> Tokens:
    if protocol.temperature == 0:
        return greedy_reference(model, prompt, limits)
    from transformers import GenerationConfig

    if limits.max_new_tokens == 0:
        return ()
    torch.manual_seed(coins ^ protocol.seed)
    inputs = torch.tensor([prompt], device=model.device)
    how = GenerationConfig(
        do_sample=True,
        temperature=protocol.temperature,
        top_k=0,  # the full vocabulary (E.4)
        max_new_tokens=limits.max_new_tokens,
        eos_token_id=sorted(limits.eos) or None,
        pad_token_id=model.mask_token,
    )
    with torch.inference_mode():
        output = model.network.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=how)
    return tuple(output[0, len(prompt) :].tolist())


def _resident_peak() -> int:
    unit = 1 if platform.system() == "Darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(": ")[-1] for line in lines if line.startswith("model name")), platform.processor())


def _task(task: tuple[Source | BoundModel, Protocol, Tokens, Prompt, int, Results | None, Parameters]) -> list[Record]:
    """One prompt, in whichever process: its records are kept before anyone waits for them."""
    model, protocol, warm, prompt, number, store, common = task
    loaded = opened(model) if isinstance(model, Source) else model
    _warm_up(loaded, protocol, warm)
    records = measure_prompt(loaded, protocol, prompt, number, common["contended"])
    if store:
        store.write(_of_prompt(common, prompt), records)
    return records


def _warm_up(model: BoundModel, protocol: Protocol, prompt: Tokens) -> None:
    """Once per process: the first calls of every shape also allocate, compile and choose kernels."""
    if _WARM.get(model) == protocol:
        return
    _WARM[model] = protocol
    few = Limits.of(min(_WARM_TOKENS, protocol.limits.max_new_tokens))
    for arm in protocol.arms:
        _run(model, arm, prompt, Protocol((arm,), few, 1, protocol.temperature, protocol.seed, protocol.padded), 0)


def _parameters(model: BoundModel, protocol: Protocol, contended: bool) -> Parameters:
    try:
        package = version("packedss")
    except PackageNotFoundError:  # run from a checkout
        package = "unknown"
    cuda = model.device.type == "cuda"
    return {
        "packedss": package,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "hardware": torch.cuda.get_device_name(model.device) if cuda else _processor(),
        "model": model.name,
        "weights": fingerprint(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        "padded": model.device.type != "cpu" if protocol.padded is None else protocol.padded,
        "contended": contended,
        "arms": [[*arm.key, _described(arm.schedule)] for arm in protocol.arms],
        "max_new_tokens": protocol.limits.max_new_tokens,
        "eos": sorted(protocol.limits.eos),
        "stop": protocol.limits.stop,
        "repeats": protocol.repeats,
        "temperature": protocol.temperature,
        "seed": protocol.seed,
    }


def _described(schedule: object) -> str:
    """The calls of a schedule and of its start, and its order; not where in memory a function lies."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(schedule))


def _of_prompt(common: Parameters, prompt: Prompt) -> Parameters:
    return common | {"prompt": prompt[0], "prompt_ids": prompt[1]}


def _record(row: list[Any]) -> Record:
    """A record as JSON gave it back. Raises TypeError when it has other fields."""
    record = Record(*row)
    steps = []
    for step in record.steps:
        fields: list[Any] = [tuple(field) if isinstance(field, list) else field for field in step]
        steps.append(Step(*fields))
    return record._replace(tokens=tuple(record.tokens), steps=tuple(steps), model=tuple(record.model))
