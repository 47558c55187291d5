"""Property tests: they hold, planted faults come back as programs that fail, and what was not reached is not run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs_check.properties as properties
import simulator
import simulator.schedule
from proofs_check.properties import PROPERTIES, Property, check_property, program, verify
from proofs_check.strategies import GreedyRequest, SampledRequest, greedy_requests, sampled_requests, thresholds
from simulator import Limits, Resumption, Schedule
from simulator.acceptance import Verdict
from simulator.oracles import ThresholdModel

BY_CLAIM = {prop.claim: prop for prop in PROPERTIES}
REAL_ABSORB = Schedule.absorb


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.claim("STOP")
@pytest.mark.claim("NFE-CONV")
@pytest.mark.claim("PROGRESS")
@pytest.mark.claim("DRAFTLEN")
@pytest.mark.claim("THM3.2")
@pytest.mark.claim("DOM-WIDE")
@pytest.mark.claim("DOM-SAMPLED")
@pytest.mark.claim("LEMB1")
@pytest.mark.claim("LEMB2")
@pytest.mark.claim("ALG1.L13")
@pytest.mark.claim("ALG2.L16")
@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("claim", BY_CLAIM)
def test_they_hold_and_reach_what_they_must(claim: str) -> None:
    (entry,) = check_property(BY_CLAIM[claim], "quick")
    assert (entry.outcome, entry.method, entry.claim) == ("holds", "property", claim), entry.detail
    assert entry.bound.startswith("60 examples (the same ones in every run) and ")


@pytest.mark.slow
@pytest.mark.parametrize("claim", BY_CLAIM)
def test_they_hold_on_many_examples(claim: str) -> None:
    (entry,) = check_property(BY_CLAIM[claim], "full", seed=1)
    assert entry.outcome == "holds", entry.detail
    assert "seed 1)" in entry.bound


def test_quick_is_the_same_every_time_and_full_states_its_seed() -> None:
    prop = BY_CLAIM["LEMB2"]
    assert list(check_property(prop, "quick", examples=20)) == list(check_property(prop, "quick", examples=20))
    bounds = [next(iter(check_property(prop, "full", examples=5))).bound for _ in range(2)]
    assert bounds[0] != bounds[1]
    assert all("seed" in bound for bound in bounds)


def test_profiles_are_registered() -> None:
    counts = [settings.get_profile(name).max_examples for name in ("dev", "ci", "nightly")]
    assert counts == sorted(counts)
    assert settings.get_profile("ci").derandomize
    assert set(properties.PROFILES.values()) == {"ci", "nightly"}


def test_what_was_not_reached_is_not_run() -> None:
    prop = PROPERTIES[0]._replace(reached=("L = 0", "a blue moon"))
    (entry,) = check_property(prop, "quick", examples=20)
    assert (entry.outcome, entry.detail) == ("not run", "never reached: a blue moon")
    small = PROPERTIES[0]._replace(requests=greedy_requests(max_length=20, max_width=4), corners=lambda: ())
    (entry,) = check_property(small, "quick", examples=20)
    assert entry.outcome == "not run"
    assert "L >= 1,000, W >= 48" in entry.detail


# --- planted faults ----------------------------------------------------------------------------------------------------------


def dropping(count: int, names: Any = ("packed",)) -> Any:
    """`absorb` that loses the last `count` draft tokens."""

    def absorb(self: Schedule, *arguments: Any) -> Any:
        after, step = REAL_ABSORB(self, *arguments)
        if self.name not in names or not after.draft.tokens:
            return after, step
        keep = max(0, len(after.draft.tokens) - count)
        draft = after.draft._replace(tokens=after.draft.tokens[:keep], laws=after.draft.laws[:keep])
        return after._replace(draft=draft), step._replace(retained=keep)

    return absorb


def miscounting(self: Schedule, *arguments: Any) -> Any:
    after, step = REAL_ABSORB(self, *arguments)
    return after, step._replace(rows=step.rows + bool(step.retained))


def believe(draft: Any, target: Any, chance: Any, first_position: int) -> Any:
    """F16: the first draft token is never checked."""
    verdict = simulator.acceptance.accept(draft, target, chance, first_position)
    return verdict if verdict.accepted or not draft.tokens else Verdict(1, (draft.tokens[0],), False)


def silent(draft: Any, target: Any, chance: Any, first_position: int) -> Any:
    """Accepted matches alone are emitted; a call without one emits nothing."""
    verdict = simulator.acceptance.accept(draft, target, chance, first_position)
    return verdict._replace(tokens=verdict.tokens[:-1])


def uncut(tokens: Any, state: Any) -> Any:
    """F22: only the last token of a block is looked at."""
    return tokens, state.limits.reached(state.prefix + tokens, state.prompt_length)


def forgetful_of_calls(state: Any, calls: int) -> Resumption:
    return Resumption(state, 0)


FAULTS: list[tuple[str, Any, str, Any]] = [
    ("COR-GREEDY", simulator.schedule, "accept", believe),
    ("STOP", simulator.schedule, "_cut", uncut),
    ("NFE-CONV", Schedule, "absorb", miscounting),
    ("PROGRESS", simulator.schedule, "accept", silent),
    ("DRAFTLEN", Schedule, "absorb", dropping(1)),
    ("THM3.2", Schedule, "absorb", dropping(99)),
    ("DOM-WIDE", Schedule, "absorb", dropping(99)),
    ("DOM-SAMPLED", Schedule, "absorb", dropping(99)),
    ("LEMB1", Schedule, "absorb", dropping(1, ("linear",))),
    ("LEMB2", Schedule, "absorb", dropping(99)),
    ("ALG1.L13", Schedule, "absorb", dropping(1, ("quadratic",))),
    ("ALG2.L16", simulator.schedule, "accept", believe),
    ("THM3.3", simulator, "Resumption", forgetful_of_calls),
]


@pytest.mark.parametrize(("claim", "place", "name", "fault"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_comes_back_as_a_program(
    claim: str, place: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program fails as long as the fault is there, and says what the ledger says; without the fault it runs through."""
    monkeypatch.setattr(place, name, fault)
    if name == "Resumption":
        monkeypatch.setattr(properties, name, fault)
    (entry,) = check_property(BY_CLAIM[claim], "quick")
    assert entry.outcome == "violated"
    message, text = entry.detail.split("\n", 1)
    assert text.startswith(("from ", "import "))
    with pytest.raises((AssertionError, simulator.ContractError)) as caught:
        exec(compile(text, "program", "exec"), {})
    assert str(caught.value).split("\n")[0] == message
    monkeypatch.undo()
    exec(compile(text, "program", "exec"), {})


def test_the_program_is_small_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgetful Packed-SS, shrunk: a perfect drafter, 4 tokens. As a file of its own it runs, here without the fault."""
    monkeypatch.setattr(Schedule, "absorb", dropping(99))
    (entry,) = check_property(BY_CLAIM["THM3.2"], "quick")
    message, text = entry.detail.split("\n", 1)
    assert message == "3 tokens: Packed-SS 3 calls, Linear-SS 2"
    assert "prompt = ()\nlimits = Limits.of(3)\nmodel = ThresholdModel((0, 0, 0), (0, 0, 0), 3, 0)\n" in text
    assert "schedule = packed(2, 'algorithm')\nrival = linear(2, 'algorithm')\nresume = None\n" in text
    assert len(text.splitlines()) < 40
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hypothesis_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure is reported in the ledger alone."""
    monkeypatch.setattr(simulator.schedule, "accept", believe)
    assert [entry.outcome for entry in check_property(BY_CLAIM["COR-GREEDY"], "quick")] == ["violated"]
    assert capsys.readouterr() == ("", "")


# --- requests and strategies -------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.one_of(greedy_requests(max_length=60), sampled_requests()), st.data())
def test_every_request_has_a_program_for_every_property_of_its_kind(request: Any, data: Any) -> None:
    greedy = isinstance(request, GreedyRequest)
    names = ["same_output", "truncation", "counters_close", "progress"] if greedy else ["interruption"]
    check = getattr(properties, data.draw(st.sampled_from(names)))
    verify(request, check)
    exec(compile(program(request, check), "program", "exec"), {})


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(thresholds())
def test_thresholds_are_in_range(c_star: tuple[int, ...]) -> None:
    ThresholdModel(c_star)
    assert len(c_star) <= 2_000


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(greedy_requests())
def test_a_resumed_request_still_runs(request: GreedyRequest) -> None:
    limits = Limits.of(request.length, request.eos, request.stop)
    out = request.truth[: request.resumed or 0]
    assert len(request.draft) <= max(request.widths)
    assert all(limits.reached(out[:n], 0) is None for n in range(len(out) + 1)) or request.length == 0


def test_a_scripted_request_by_hand() -> None:
    """Properties take requests written by hand: a draft token with alpha 0 under the coin 0."""
    request = SampledRequest("packed", "algorithm", 3, 3, 7, 2, "Scripted({}, otherwise=Fraction(0))", (1,), 9)
    (run,) = verify(request, properties.same_as_algorithm_2)
    assert len(run.tokens) == 9
    with pytest.raises(AssertionError, match="literally"):
        verify(request._replace(name="linear"), _other_schedule)


def _other_schedule(model: Any, schedule: Any, prompt: Any, limits: Any, coins: Any) -> Any:
    return properties.same_as_algorithm_2(model, schedule, "packed", "algorithm", prompt, limits, coins)


def test_a_property_names_what_it_needs() -> None:
    assert all(isinstance(prop, Property) and prop.check.__doc__ for prop in PROPERTIES)
    assert {check.claims[0] for check in properties.CHECKS} == set(BY_CLAIM)
