"""At temperature 0 the output is AR's token for token, with drafters good, bad and broken, and ends wherever AR's ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from proofs_check.system import (
    Instance,
    NotReached,
    System,
    compare_greedy,
    described,
    found,
    picture,
    program,
    traced,
    watched,
)
from simulator.oracles import ThresholdModel
from simulator.records import Limits, Step, Tokens

_VOCABULARY = 40
_TRUTH: Tokens = tuple(range(3, 33))  # every position has its own token, so that a shift shows


def adversarial(seed: int) -> list[str]:
    """Python of models whose drafters are as good as can be, useless, stuck, lagging, or outside the vocabulary (C06, F40)."""
    truth = f"ThresholdModel((), truth={_TRUTH}, vocabulary={_VOCABULARY})"
    late = f"ThresholdModel({tuple(k - k % 4 for k in range(1, 31))}, truth={_TRUTH}, vocabulary={_VOCABULARY})"
    noisy = "NoisyModel({}, share={}, seed={})"
    tables = "random_tables({}, seed={}).greedy()"
    return [
        truth,
        f"always_wrong({truth}, {_VOCABULARY})",
        f"constant({truth}, 5)",
        f"constant({truth}, {10**6})",
        f"constant({truth}, -1)",
        f"eos_happy({truth}, 9)",
        late,
        f"stale({late}, 2)",
        f"stale({truth}, 3)",
        *(noisy.format(late, share, 2 * seed + number) for number, share in enumerate((0.2, 0.5))),
        *(tables.format(vocabulary, 3 * seed + number) for number, vocabulary in enumerate((2, 3, 5))),
    ]


def greedy(system: System) -> str:
    """Every adversarial drafter at many lengths, with and without a prompt and an EOS."""
    seen = Seen()
    runs = 0
    for instance in system.in_time(_greedy(system.seed)):
        steps = compare_greedy(system, instance).generation.steps
        runs += 1
        seen.steps(steps)
    seen.require(seen.rejected, "a rejected draft token")
    seen.require(seen.window or seen.longest < 2, "a fully accepted draft of 2 or more")
    return f"{runs} runs, {len(adversarial(0))} drafters, drafts of up to {seen.longest} tokens"


def _greedy(seed: int) -> Iterator[Instance]:
    for source in adversarial(seed):
        model = made(source)
        for length, prompt, eos in product((1, 2, 3, 5, 8, 13, 24), ((), (1, 2)), (None, 9)):
            yield Instance(model, source, Limits.of(length, eos), prompt)


def counters(system: System) -> str:
    """What the steps of a run report is what the model was asked, and adds up to the output."""
    runs = 0
    for instance in system.in_time(_greedy(system.seed)):
        run = watched(system, instance)
        runs += 1
        if run.miscount:
            steps = run.generation.steps
            evidence = described(instance) + "\n" + picture(steps)
            found("count", run.miscount, evidence, program(system, instance), traced(instance, steps, run.miscount))
    return f"{runs} runs"


def events(system: System) -> str:
    """EOS, end marker and length limit at every place of a block, alone and two of them within reach of each other."""
    seen = Seen()
    runs = inside = 0
    for thresholds, limits, eos, prompt in system.in_time(_events()):
        truth = list(_TRUTH)
        for position in eos:
            truth[position - 1] = 0
        length = f", prompt_length={len(prompt)}" if prompt else ""
        source = f"ThresholdModel({thresholds}, truth={tuple(truth)}, vocabulary={_VOCABULARY}{length})"
        run = compare_greedy(system, Instance(made(source), source, limits, prompt)).generation
        runs += 1
        seen.steps(run.steps)
        inside += bool(run.steps) and len(run.steps[-1].committed) < run.steps[-1].advance
    seen.require(inside, "a stop inside an accepted block")
    return f"{runs} runs, {inside} of them cut inside a block"


def _events() -> Iterator[tuple[Tokens, Limits, Tokens, Tokens]]:
    """(thresholds, limits, positions of the EOS, id 0, prompt) of every run."""
    far = 14
    never = tuple(range(1, far + 1))
    drafters: list[Tokens] = [(), (0, 0, 0, 0, 4, 4, 4, 4, 4, 9, 9, 9, 9), tuple(k - k % 3 for k in range(1, far)), never]
    ends_in_eos = (5, 0)
    for thresholds in drafters:
        for j in range(far):
            yield thresholds, Limits.of(j, 0), (), ()
            yield thresholds, Limits.of(j), (), ends_in_eos
            yield thresholds, Limits.of(far, 0), (j + 1,), ()
            yield thresholds, Limits.of(far, (0, _VOCABULARY - 1)), (j + 1,), ends_in_eos
            yield thresholds, Limits.of(far, (1, _TRUTH[j], _VOCABULARY - 1)), (), ends_in_eos
            yield thresholds, Limits.of(far, stop=[_TRUTH[j : j + 2]]), (), ()
            yield thresholds, Limits.of(far, stop=[_TRUTH[j : j + 3], _TRUTH[j + 1 : j + 2]]), (), ()
            yield thresholds, Limits.of(far, stop=[(99,), _TRUTH[j : j + 5]]), (), ()
            yield thresholds, Limits.of(far, stop=[_TRUTH[j : j + 2], (99, 98)]), (), ()
            yield thresholds, Limits.of(far, stop=[(99,), (98, 97), (96,), _TRUTH[j : j + 8]]), (), ()
            # What stands in the prompt ends nothing, nor begins a marker that does.
            yield thresholds, Limits.of(j, 0, stop=[(0, *_TRUTH[:1])]), (), ends_in_eos
        for i, gap in product(range(1, far), (0, 1, 2, 3)):
            yield thresholds, Limits.of(i + gap, 0), (i,), ()  # an EOS, then the limit
            yield thresholds, Limits.of(i, 0), (i + gap,), ()  # the limit, then an EOS
            yield thresholds, Limits.of(far, 0), (i, i + gap), ()
            yield thresholds, Limits.of(far, 0, stop=[_TRUTH[i : i + 2]]), (max(1, i + 2 - gap),), ()
            yield thresholds, Limits.of(i + gap, stop=[_TRUTH[i - 1 : i + 1]]), (), ()


def made(source: str) -> ThresholdModel:
    """The model that this Python makes."""
    from simulator import oracles

    names = {name: getattr(oracles, name) for name in oracles.__all__}
    model: ThresholdModel = eval(source, names)  # our own texts, above and in the other stages
    return model


@dataclass
class Seen:
    """What the drafts of some runs went through. Of a schedule that never drafts nothing can be asked."""

    longest: int = 0  # draft verified
    rejected: bool = False
    window: bool = False  # a fully accepted draft of 2 or more

    def steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.longest = max(self.longest, len(step.verified))
            self.rejected |= step.accepted < len(step.verified)
            self.window |= step.accepted == len(step.verified) >= 2

    def require(self, reached: object, condition: str) -> None:
        """Raises NotReached unless the condition was met, or no draft token was ever verified."""
        if self.longest and not reached:
            raise NotReached(f"never reached: {condition}")
