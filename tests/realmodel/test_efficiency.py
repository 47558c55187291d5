"""Measuring on the embedded model: who runs when, what a record holds, what times mean, and what an interruption costs."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from realmodel import DualModeModel, efficiency
from realmodel.efficiency import GENERATE, Arm, Protocol, Record, Source, arms, fingerprint, measure, measure_prompt, order
from realmodel.reference import greedy_reference
from simulator import InvalidInput, Limits, Sampled, generate, packed, quadratic

NAMES = ["ar", "linear", "packed", "quadratic"]


@pytest.fixture
def model(load_model):
    return load_model("float32")


@pytest.fixture
def named_prompts(prompts):
    return [(f"p{number}", prompt[:60]) for number, prompt in enumerate(prompts)]


def counts(record: Record):
    """A record without its times and memory."""
    return record._replace(wall=0.0, model=(), peak_memory=0)


def test_arms():
    keys = [arm.key for arm in arms(["ar", "packed", "branches:0,2"], [2, 4])]
    assert keys == [(GENERATE, 0), ("ar", 0), ("packed", 2), ("branches:0,2", 2), ("packed", 4), ("branches:0,2", 4)]
    assert [arm.key for arm in arms(["linear"], [3], "sampled", reference=False)] == [("linear", 3)]
    assert arms(["ar"], [3], "prompt")[1].schedule.opening


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_everyone_has_every_place_as_often(count):
    for begin in (0, count, 3 * count):
        rounds = [order(count, begin + number) for number in range(count)]
        assert all(sorted(places) == list(range(count)) for places in rounds)
        assert all(len(set(column)) == count for column in zip(*rounds, strict=True))
    followers = {pair for number in range(2 * count) for pair in pairwise(order(count, number))}
    assert all((b, a) in followers for a, b in followers)  # nobody always behind another


def test_records(model, named_prompts):
    """All schedules emit generate's tokens; a record is its run, whatever ran before it; the arms take turns."""
    limits = Limits.of(12, model.eos)
    protocol = Protocol(arms(NAMES, [4]), limits, repeats=2)
    result = measure(model, named_prompts[:3], protocol)
    assert (len(result.records), result.reused, result.damaged) == (3 * 2 * 5, 0, ())
    firsts = []
    for number, (name, prompt) in enumerate(named_prompts[:3]):
        expected = greedy_reference(model, prompt, limits)
        for repeat in range(2):
            cells = [r for r in result.records if (r.prompt, r.repeat) == (name, repeat)]
            assert [protocol.arms[i].key for i in order(5, 2 * number + repeat)] == [cell.key for cell in cells]
            assert [cell.turn for cell in cells] == list(range(5))
            firsts.append(cells[0].key)
            for cell in cells:
                assert cell.tokens == expected
                assert not cell.contended
                assert 0 < sum(cell.model) <= cell.wall or cell.name == GENERATE
                assert cell.peak_memory > 1 << 20
                if cell.name == GENERATE:
                    assert (cell.nfe, cell.rows, cell.steps, cell.model) == (len(expected), len(expected), (), ())
                    assert cell.stop == ("length" if len(expected) == 12 else "eos")
                else:
                    schedule = next(arm.schedule for arm in protocol.arms if arm.key == cell.key)
                    assert cell.generation == generate(model.session(), schedule, prompt, limits)
                    assert len(cell.model) == cell.nfe == len(cell.steps)
                    assert cell.rows == sum(step.rows for step in cell.steps)
    assert set(firsts) == {arm.key for arm in protocol.arms}


class Asynchronous:
    """A device in virtual time around real arithmetic: a forward takes a second a row, is only queued when it is asked for,
    which takes 1/8 s, and the first forward on the device takes 1000 s more."""

    def __init__(self, network):
        self.network, self.now, self.free_at, self.cold = network, 0.0, 0.0, 1000.0

    def __getattr__(self, name):
        return getattr(self.network, name)

    def __call__(self, **arguments):
        self.free_at = max(self.now, self.free_at) + arguments["input_ids"].shape[1] + self.cold
        self.now, self.cold = self.now + 1 / 8, 0.0
        return self.network(**arguments)

    def wait(self):
        self.now = max(self.now, self.free_at)


class Virtual(DualModeModel):
    """The host spends 1/4 s a call on the ids and waits for the device whenever it asks for the time."""

    synchronises = True

    def check_ids(self, tokens):
        self.network.now += 1 / 4

    def clock(self):
        if self.synchronises:
            self.network.wait()
        return self.network.now


@pytest.fixture
def virtual(model):
    return Virtual(Asynchronous(model.network), model.tokenizer, model.mask_token, "virtual")


def test_times_are_the_devices(virtual, named_prompts):
    """Each call takes its rows in the network and 1/4 s outside; what was warmed up and what ran before is in no figure."""
    prompt = ("p", named_prompts[0][1][:20])
    protocol = Protocol(arms(NAMES, [4], reference=False), Limits.of(12), repeats=2, padded=True)
    records = measure(virtual, [prompt], protocol).records
    assert virtual.network.cold == 0
    for record in records:
        first, *rest = record.model
        assert rest == [step.rows for step in record.steps[1:]]
        assert first == record.steps[0].rows + 19  # the prompt, in a call of its own or not
        assert record.wall == sum(record.model) + record.nfe / 4


def test_a_clock_that_does_not_wait_shows(virtual, named_prompts):
    """F33: the device is still busy when the time is read, so that the network seems to take the time of a launch."""
    virtual.synchronises = False
    [record] = measure_prompt(virtual, Protocol((Arm(packed(4), 4),), Limits.of(12)), named_prompts[0])
    assert set(record.model) == {1 / 8}


def test_sampling_is_repeatable_and_its_repeats_differ(model, named_prompts):
    protocol = Protocol(arms(["packed"], [4]), Limits.of(24), repeats=2, temperature=1.0, seed=3)
    first, again = (measure_prompt(model, protocol, named_prompts[0]) for _ in range(2))
    assert list(map(counts, first)) == list(map(counts, again))
    assert len({record.tokens for record in first}) == 4  # 2 repeats of 2 arms, none of them greedy
    others = [
        measure_prompt(model, protocol, ("p0", named_prompts[1][1])),
        measure_prompt(model, Protocol(protocol.arms, protocol.limits, 2, 1.0, seed=4), named_prompts[0]),
    ]
    assert not {r.tokens for run in others for r in run} & {r.tokens for r in first}
    greedy_again = generate(model.session(), packed(4), named_prompts[0][1], Limits.of(24), Sampled(0)).tokens
    assert greedy_again not in {r.tokens for r in first}


def test_finished_prompts_are_not_run_again(model, named_prompts, tmp_path, monkeypatch):
    """Interrupted after two prompts of four, then finished: the two come from the folder to the last bit."""
    protocol = Protocol(arms(["packed"], [4]), Limits.of(8))
    kept = []

    def interrupted(done, total):
        assert total == 4
        for number, item in enumerate(done, start=1):
            yield item
            if number == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(model, named_prompts[:4], protocol, tmp_path, progress=interrupted)
    assert len(list(tmp_path.iterdir())) == 2

    run = efficiency._run
    monkeypatch.setattr(efficiency, "_run", lambda *a: kept.append(a[2]) or run(*a))
    whole = measure(model, named_prompts[:4], protocol, tmp_path)
    assert (whole.reused, set(kept)) == (2, {prompt for _, prompt in named_prompts[2:4]})
    kept.clear()
    again = measure(model, named_prompts[:4], protocol, tmp_path)
    assert (again.reused, kept, again.records, again.parameters) == (4, [], whole.records, whole.parameters)
    # More prompts go on from there; any other parameter starts afresh.
    assert measure(model, named_prompts[:5], protocol, tmp_path).reused == 4
    for other in (
        Protocol(arms(["packed"], [5]), Limits.of(8)),
        Protocol(arms(["packed"], [4], "wide"), Limits.of(8)),
        Protocol(arms(["packed"], [4]), Limits.of(9)),
        Protocol(arms(["packed"], [4]), Limits.of(8, eos=3)),
        Protocol(arms(["packed"], [4]), Limits.of(8), repeats=2),
        Protocol(arms(["packed"], [4]), Limits.of(8), temperature=0.5),
        Protocol(arms(["packed"], [4]), Limits.of(8), seed=1),
        Protocol(arms(["packed"], [4]), Limits.of(8), padded=True),
    ):
        assert measure(model, named_prompts[:1], other, tmp_path).reused == 0
    assert measure(model, [("other name", named_prompts[0][1])], protocol, tmp_path).reused == 0
    assert measure(model, [("p0", named_prompts[0][1][1:])], protocol, tmp_path).reused == 0


def test_damaged_files_are_named_and_measured_again(model, named_prompts, tmp_path):
    protocol = Protocol(arms(["packed"], [4]), Limits.of(8))
    first = measure(model, named_prompts[:2], protocol, tmp_path)
    victim = next(file for file in tmp_path.iterdir() if '"p1"' in file.read_text())
    text = victim.read_text()
    victim.write_text(text.replace('"length"', '"eos"', 1))
    second = measure(model, named_prompts[:2], protocol, tmp_path)
    assert second.reused == 1
    [complaint] = second.damaged
    assert complaint.startswith(f"{victim.name} (prompt p1): ")
    assert list(map(counts, second.records)) == list(map(counts, first.records))
    assert measure(model, named_prompts[:2], protocol, tmp_path).damaged == ()


def test_other_weights_have_another_fingerprint(model, load_model):
    assert fingerprint(model) == fingerprint(model) != fingerprint(load_model("float64"))
    weight = next(model.network.parameters())
    before, old = fingerprint(model), weight[0, 0].item()
    with torch.no_grad():
        weight[0, 0] += 1
        changed = fingerprint(model)
        weight[0, 0] = old
    assert changed != before == fingerprint(model)


@pytest.mark.parametrize(
    ("complaint", "make"),
    [
        ("needs arms and repeats", lambda: Protocol((), Limits.of(4))),
        ("needs arms and repeats", lambda: Protocol(arms(["ar"], []), Limits.of(4), repeats=0)),
        ("named once", lambda: Protocol((Arm(packed(4), 4), Arm(packed(4), 4)), Limits.of(4))),
        ("stop sequences", lambda: Protocol(arms(["ar"], []), Limits.of(4, stop=[(1, 2)]))),
    ],
)
def test_protocols_that_cannot_be(complaint, make):
    with pytest.raises(InvalidInput, match=complaint):
        make()


def test_measurements_that_cannot_be(model, named_prompts):
    protocol = Protocol((Arm(quadratic(8), 8),), Limits.of(4))
    for complaint, prompts, workers in (
        ("name of its own", [named_prompts[0]] * 2, 1),
        ("already loaded", named_prompts[:1], 2),
        ("workers must lie in 1 ..", named_prompts[:1], 0),
        ("positions", [("long", (5,) * (model.max_positions - 8))], 1),
    ):
        with pytest.raises(InvalidInput, match=complaint):
            measure(model, prompts, protocol, workers=workers)
    assert measure(model, [], protocol).records == ()


CHILD = """
import os, signal, sys
from pathlib import Path
from realmodel import held_out_prompts
from realmodel.efficiency import Protocol, Source, arms, measure, opened
from simulator import Limits
source = Source()
prompts = [(p.name, tuple(opened(source).tokenizer.encode(p.text).ids)) for p in held_out_prompts(3)]
protocol = Protocol(arms(["ar", "packed"], [4]), Limits.of(8))
"""
DIES = """
def dies_in_the_second(path, text, write=Path.write_text):
    second = any(path.parent.glob("*.json"))
    write(path, text[: len(text) // 2] if second else text)
    if second:
        os.kill(os.getpid(), signal.SIGKILL)

Path.write_text = dies_in_the_second
measure(source, prompts, protocol, Path(sys.argv[1]))
"""


def test_a_killed_run_is_taken_up(tmp_path):
    """kill -9 in the middle of writing the second prompt: the first is there, whole, and is not run again."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.run([sys.executable, "-c", CHILD + DIES, str(tmp_path)], env=environment, check=False)
    assert child.returncode == -signal.SIGKILL
    [finished], [_] = tmp_path.glob("*.json"), tmp_path.glob(".*.part")
    before = finished.stat().st_mtime_ns
    space = {}
    exec(CHILD, space)
    result = measure(space["source"], space["prompts"], space["protocol"], tmp_path)
    assert (result.reused, result.damaged, len(result.records)) == (1, (), 3 * 3)
    assert finished.stat().st_mtime_ns == before
    assert len(list(tmp_path.glob("*.json"))) == 3


@pytest.mark.slow
def test_two_workers(tmp_path, named_prompts):
    """Each loads the model itself; outputs and counts are those of one worker, times are called contended."""
    protocol = Protocol(arms(["linear", "packed"], [4]), Limits.of(16))
    one = measure(Source(), named_prompts[:4], protocol, tmp_path)
    two = measure(Source(), named_prompts[:4], protocol, tmp_path, workers=2)
    assert two.reused == 0  # contended times do not pass for others
    assert [counts(r)._replace(contended=False) for r in two.records] == [counts(r) for r in one.records]
    assert all(r.contended for r in two.records)
    assert not any(r.contended for r in one.records)
    assert measure(Source(), named_prompts[:4], protocol, tmp_path, workers=3).reused == 4
