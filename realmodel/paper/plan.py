"""What is run: every task at every temperature as the paper has it (PROTO), a job each; the block-size probe first (F.1).

Left-to-right models start `wide` at temperature 0 and `sampled` at temperature 1, so every call is counted, that of the prompt
included, and Linear-SS makes 1 + 2T calls (INIT, NFE-CONV). Any-order models start with a counted call for the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from realmodel.any_order.loading import is_any_order
from realmodel.any_order.session import AnyOrderModel
from realmodel.any_order.validate import LTR
from realmodel.any_order.validate import arms as any_order_arms
from realmodel.binding import BoundModel
from realmodel.decomposition import PROBE_PROMPTS, adapter_rows, iteration_calls
from realmodel.efficiency import Arm, Protocol, Source
from realmodel.paper.study import PROBE
from realmodel.setdlm import SetDLM
from realmodel.tasks import TASKS, Problem, Task
from simulator.errors import InvalidInput
from simulator.records import Limits
from simulator.schedules import named

SCHEDULES = ("linear", "packed", "quadratic")
ANY_ORDER_SCHEDULES = (*SCHEDULES, "native")
PAPER_BLOCKS = {"linear": 32, "packed": 32, "quadratic": 8}
PROBE_BLOCKS = (4, 8, 16, 32, 64)
PROBE_CAP, PROBE_TASK, PROBE_LARGEST = 512, "gsm8k", {"quadratic": 16}  # at 64, Quadratic-SS would evaluate 4,160 rows a call
MAX_BLOCK = 1024
STARTS = {0.0: "wide", 1.0: "sampled"}
ANY_ORDER_START = "prompt"


class Contender(NamedTuple):
    """An arm, and what it is called in tables."""

    schedule: str
    order: str
    width: int
    arm: Arm
    evaluated: int | None = None  # as in `study.Method`
    selected: int | None = None


class Job(NamedTuple):
    """One cell to run: a task at a temperature."""

    kind: str
    task: Task
    problems: tuple[Problem, ...]
    contenders: tuple[Contender, ...]
    temperature: float
    cap: int
    draws: int
    start: str

    @property
    def name(self) -> str:
        return (
            f"the probe on {self.task.name}" if self.kind == PROBE else f"{self.task.name} at temperature {self.temperature:g}"
        )

    def limits(self, model: BoundModel) -> Limits:
        """When an output ends."""
        return model.limits(self.cap) if isinstance(model, AnyOrderModel) else Limits.of(self.cap, model.eos)

    def protocol(self, model: BoundModel, seed: int, padded: bool | None) -> Protocol:
        """What `measure` runs."""
        arms = tuple(each.arm for each in self.contenders)
        return Protocol(arms, self.limits(model), self.draws, self.temperature, seed, padded)


@dataclass(frozen=True)
class Plan:
    """A run of the protocol. Raises InvalidInput, before anything is loaded, for what cannot be run."""

    source: Source
    tasks: tuple[tuple[str, Path | None], ...]  # names of TASKS, and their files
    schedules: tuple[str, ...] = ()  # default: the paper's for the kind of model
    blocks: tuple[tuple[str, int], ...] | None = None  # B of every schedule; None: by the probe
    probe: tuple[int, ...] = PROBE_BLOCKS
    temperatures: tuple[float, ...] = (0.0, 1.0)
    orders: tuple[str, ...] = (LTR, "confidence")  # any-order models
    width: int | None = None  # any-order models: W of all schedules; None: SetDLM's own, 8 for others
    limit: int | None = None  # problems of each task
    cap: int | None = None  # instead of each task's own
    draws: int | None = None  # at temperature 1, instead of each task's own
    seed: int = 0
    padded: bool | None = None

    def __post_init__(self) -> None:
        if not self.tasks or len({name for name, _ in self.tasks}) < len(self.tasks):
            raise InvalidInput(f"a run needs tasks, each once, got {[name for name, _ in self.tasks]}")
        for name, _ in self.tasks:
            if name not in TASKS:
                raise InvalidInput(f"unknown task {name!r}; allowed: {', '.join(TASKS)}")
        for option, value, least in (("limit", self.limit, 1), ("cap", self.cap, 1), ("draws", self.draws, 1), ("seed", self.seed, 0)):  # fmt: skip # noqa: E501
            if value is not None and value < least:
                raise InvalidInput(f"{option} must be >= {least}, got {value}")
        if not self.temperatures or not set(self.temperatures) <= set(STARTS):
            raise InvalidInput(f"the paper's temperatures are 0 and 1, got {list(self.temperatures)}")
        if self.any_order:
            self._any_order(self.width or 8, None)
            return
        if unknown := set(self.named) - {"ar", *SCHEDULES}:
            raise InvalidInput(f"unknown schedule {sorted(unknown)[0]!r}; allowed: ar, {', '.join(SCHEDULES)}")
        if self.blocks is None:
            if PROBE_TASK not in dict(self.tasks):
                raise InvalidInput(
                    f"the block-size probe runs on the first {PROBE_PROMPTS} problems of {PROBE_TASK}: name that task, or give"
                    f" every schedule its block size ({','.join(f'{name}={PAPER_BLOCKS[name]}' for name in SCHEDULES)} is the"
                    " paper's choice)"
                )
            sizes = self.probe
        else:
            missing = [name for name in self.named if name != "ar" and name not in dict(self.blocks)]
            if missing:
                raise InvalidInput(f"{missing[0]} has no block size")
            sizes = tuple(size for _, size in self.blocks)
        for size in sizes:
            if not 2 <= size <= MAX_BLOCK:
                raise InvalidInput(f"a block size B = W + 1 must lie in 2 .. {MAX_BLOCK}, got {size}")
        if not sizes:
            raise InvalidInput("the probe needs block sizes")

    @property
    def any_order(self) -> bool:
        return is_any_order(self.source.name)

    @property
    def named(self) -> tuple[str, ...]:
        """The schedules, each once."""
        default = ANY_ORDER_SCHEDULES if self.any_order else SCHEDULES
        return tuple(dict.fromkeys(self.schedules or default))

    def problems(self) -> dict[str, tuple[Problem, ...]]:
        """By task. Raises InvalidInput for a file that is missing or malformed, or answers that cannot be graded here."""
        found = {}
        for name, path in self.tasks:
            found[name] = tuple(TASKS[name].problems(path, self.limit))
            TASKS[name].ready()
        return found

    def probing(self, problems: dict[str, tuple[Problem, ...]]) -> Job | None:
        """The probe, if there has to be one."""
        if self.any_order or self.blocks is not None:
            return None
        pairs = [
            (name, size)
            for name in self.named
            for size in dict.fromkeys(self.probe)
            if name != "ar" and size <= max(PROBE_LARGEST.get(name, MAX_BLOCK), min(self.probe))
        ]
        contenders = tuple(_contender(name, size - 1, STARTS[0.0]) for name, size in pairs)
        few = problems[PROBE_TASK][:PROBE_PROMPTS]
        cap = PROBE_CAP if self.cap is None else self.cap
        return Job(PROBE, TASKS[PROBE_TASK], few, contenders, 0.0, cap, 1, STARTS[0.0])

    def jobs(self, problems: dict[str, tuple[Problem, ...]], blocks: dict[str, int], model: BoundModel) -> list[Job]:
        """Every task at every temperature, with the block size of every schedule; an any-order model's are greedy."""
        found = []
        for temperature in (0.0,) if self.any_order else self.temperatures:
            start = ANY_ORDER_START if self.any_order else STARTS[temperature]
            if self.any_order:
                own = (model.window, model.horizon) if isinstance(model, SetDLM) else (8, None)
                contenders = self._any_order(self.width or own[0], own[1])
            else:
                contenders = tuple(_contender(name, blocks.get(name, 1) - 1, start) for name in self.named)
            for name, _ in self.tasks:
                task = TASKS[name]
                draws = 1 if temperature == 0 else self.draws or task.draws
                cap = self.cap or task.cap
                found.append(Job("task", task, problems[name], contenders, temperature, cap, draws, start))
        return found

    def _any_order(self, width: int, horizon: int | None) -> tuple[Contender, ...]:
        chosen = any_order_arms(self.named, [width], self.orders, ANY_ORDER_START, horizon)
        return tuple(Contender(each.name, each.order, each.width, each.arm) for each in chosen)


def _contender(name: str, width: int, start: str) -> Contender:
    if name == "ar":  # which drafts nothing
        return Contender(name, "", 0, Arm(named("ar", 1)))
    schedule = named(name, width, start)
    rows = adapter_rows(iteration_calls(schedule))
    return Contender(name, "", width, Arm(schedule, width), *rows)


def tasks_of(words: Sequence[str]) -> tuple[tuple[str, Path | None], ...]:
    """Tasks as given on a command line: names or NAME=FILE, one a word or separated by commas."""
    found = []
    for word in (part for given in words for part in given.split(",")):
        name, equals, file = word.strip().partition("=")
        if not name or (equals and not file):
            raise InvalidInput(f"a task is given as NAME or NAME=FILE, got {word!r}")
        found.append((name, Path(file) if file else None))
    return tuple(found)


def blocks_of(text: str) -> tuple[tuple[str, int], ...]:
    """Block sizes as given on a command line: `paper`, one number for all schedules, or linear=32,packed=32,quadratic=8."""
    if text == "paper":
        return tuple(PAPER_BLOCKS.items())
    if text.isdecimal():
        return tuple((name, int(text)) for name in SCHEDULES)
    found = {}
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if name not in SCHEDULES or not size.isdecimal() or name in found:
            raise InvalidInput(
                f"block sizes are given as linear=32,packed=32,quadratic=8, one number, or 'paper'; got {text!r}"
            )
        found[name] = int(size)
    return tuple(found.items())
