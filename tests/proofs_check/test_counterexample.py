"""Counterexamples: true, the smallest of the list, and played again by a script of coins."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import simulator.schedule
from proofs_check.counterexample import (
    Finding,
    calls_finding,
    find,
    graded,
    int_width,
    law_finding,
    smallest_first,
)
from proofs_check.declared import declared_nfe
from proofs_check.refutations import FAULTS, FreshLaws, OneEarly, OneLate, ShiftedTokens, make
from simulator import Call, Limits, Reply, Schedule, Scripted, State, autoregressive_law, exact_law, generate, named, packed
from simulator.acceptance import Verdict, accept
from simulator.chance import Chance, draw
from simulator.errors import InvalidInput
from simulator.oracles import random_tables

Make = Callable[[int], Any]


def in_accept(change: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(simulator.schedule, "accept", change)
    return packed


def plain_correction(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
    verdict = accept(draft, target, chance, first)
    h = verdict.accepted
    return verdict._replace(tokens=(*draft.tokens[:h], draw(target[h], chance, "correct", first + h)))


def first_unchecked(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
    if not draft.tokens:
        return accept(draft, target, chance, first)
    rest = accept(type(draft)(draft.tokens[1:], draft.laws[1:]), target[1:], chance, first + 1)
    return rest._replace(accepted=rest.accepted + 1, tokens=(draft.tokens[0], *rest.tokens))


def one_coin(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
    """All tests of a call share a coin: needs a draft of two."""

    class Shared:
        def uniform(self, purpose: str, position: int) -> Any:
            return chance.uniform(purpose, first if purpose == "test" else position)

    return accept(draft, target, Shared(), first)


def no_eos(tokens: Any, state: State) -> Any:
    """The drafted EOS goes unseen unless it stands last."""
    tokens = tokens[: state.limits.max_new_tokens - state.emitted]
    return tokens, tokens and state.limits.reached(state.prefix + tokens, state.prompt_length)


class EndsEarly(Schedule):
    """A request is cut one token short of its limit."""

    def init(self, prompt: Any, limits: Limits) -> State:
        return super().init(prompt, limits._replace(max_new_tokens=max(0, limits.max_new_tokens - 1)))


def ends_early(width: int) -> Schedule:
    schedule = packed(width)
    return EndsEarly(schedule.name, schedule.opening, schedule.cycle)


def true(found: Finding | None, factory: Make) -> Finding:
    """The numbers told are those of the law; the path is one, and its script plays it."""
    assert found
    assert found.difference
    instance, (prefix, token, ours, right, variation) = found.instance, found.difference
    schedule = factory(int_width(instance))
    law = exact_law(schedule, instance.model, instance.prompt, instance.limits).output
    expected = autoregressive_law(instance.laws.target, instance.prompt, instance.limits)
    conditional: list[dict[int | None, Fraction]] = []
    for output in (law, expected):
        after: defaultdict[int | None, Fraction] = defaultdict(Fraction)
        for tokens, weight in output.items():
            if tokens[: len(prefix)] == prefix:
                after[tokens[len(prefix)] if len(tokens) > len(prefix) else None] += weight
        total = sum(after.values())
        conditional.append({x: weight / total for x, weight in after.items()} if total else {})
    assert (conditional[0].get(token, 0), conditional[1].get(token, 0)) == (ours, right)
    assert ours > right
    gaps = [abs(conditional[0].get(x, 0) - conditional[1].get(x, 0)) for x in conditional[0].keys() | conditional[1].keys()]
    assert sum(gaps) / 2 == variation
    played = generate(instance.model, schedule, instance.prompt, instance.limits, Scripted(found.coins, Fraction(1, 2)))
    goal = prefix if token is None else (*prefix, token)
    assert played.tokens[: len(goal)] == goal
    if token is None:
        assert played.tokens == goal
    assert [move.step for move in found.path] == list(played.steps[: len(found.path)])
    return found


LAW_FAULTS = [
    (lambda monkeypatch: lambda width: make(FreshLaws, width), "V=2, L=2, W=2: a fair coin, proposals by offset"),
    (lambda monkeypatch: lambda width: make(ShiftedTokens, width), "V=2, L=2, W=2: a fair coin, proposals by offset"),
    (lambda monkeypatch: in_accept(plain_correction, monkeypatch), "V=2, L=2, W=2: a fair coin, all proposals (1/4, 3/4)"),
    (lambda monkeypatch: in_accept(first_unchecked, monkeypatch), "V=2, L=2, W=2: a fair coin, all proposals (1/4, 3/4)"),
    (lambda monkeypatch: in_accept(one_coin, monkeypatch), "V=2, L=3, W=3: "),
    (lambda monkeypatch: ends_early, "V=2, L=1, W=1: a fair coin, all proposals (1/4, 3/4)"),
]


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize(("fault", "where"), LAW_FAULTS)
def test_a_wrong_law_is_found_where_it_is_smallest(fault: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = fault(monkeypatch)
    found = true(find(factory), factory)
    assert found.kind == "law"
    assert str(found.instance).startswith(where)
    for instance in itertools.takewhile(lambda instance: str(instance) != str(found.instance), smallest_first(4, 3)):
        law = exact_law(factory(int_width(instance)), instance.model, instance.prompt, instance.limits).output
        assert law == autoregressive_law(instance.laws.target, instance.prompt, instance.limits)


def test_a_block_not_cut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator.schedule, "_cut", no_eos)
    found = true(find(packed), packed)
    assert found.difference
    assert found.difference.autoregressive == 0
    assert found.instance.limits.eos or found.instance.limits.stop


def test_the_text_tells_the_way() -> None:
    """By hand: draft 1 for position 2 was drawn from (1/4, 3/4) and is tested with (3/4, 1/4), so p / Q = 2 accepts it."""
    found = find(lambda width: make(FreshLaws, width))
    assert found
    assert found.text == "\n".join(
        (
            "law differs: after the output [0] the token 1 comes with probability 5/6, autoregressive 1/2"
            " (total variation 1/3)",
            "  instance: V=2, L=2, W=2: a fair coin, proposals by offset",
            "  a way there (purpose@position: what is known of that coin):",
            "    call 1 after []; target (1/2, 1/2); proposals from branch 0 (3/4, 1/4) (1/4, 3/4)",
            "      emits [0] (correct@1 in [0, 1/2)); keeps 1 with law (1/4, 3/4) (draft@2 in [1/4, 1))",
            "    call 2 after [0]; target (1/2, 1/2) (1/2, 1/2); proposals from branch 0 (3/4, 1/4) (1/4, 3/4)",
            "      draft token 1 of stored law (1/4, 3/4) accepted without a coin; the rule's probability is 2/3",
            "      emits [1] (correct@3 in [0, 1/2))",
            "      accepting 1 and emitting [1] has probability 1 in this call, 2/3 by the rule",
        )
    )


@pytest.mark.claim("NFE-CONV")
@pytest.mark.parametrize(("fault", "where"), [(OneLate, "V=2, L=3, W=2"), (OneEarly, "V=2, L=3, W=1")])
def test_other_calls_with_an_exact_law_are_found_as_such(fault: type[Schedule], where: str) -> None:
    factory: Make = lambda width: make(fault, width)  # noqa: E731
    found = find(factory, "packed", max_length=3, max_width=2)
    assert found
    assert (found.kind, found.path, found.difference) == ("calls", (), None)
    assert str(found.instance) == where + ": a fair coin, all proposals (1/4, 3/4)"
    looked = len(list(smallest_first(3, 2)))
    assert found.text.startswith(f"law exact in all {looked:,} instances. Call count does not match the declared policy packed")
    instance = found.instance
    ours = exact_law(factory(int_width(instance)), instance.model, (), instance.limits)
    declared = exact_law(packed(int_width(instance)), instance.model, (), instance.limits)
    rows = {row[0]: row[1:] for row in map(str.split, found.text.splitlines()[2:])}
    assert rows.pop("calls") == ["here", "declared"]
    assert rows.pop("expected") == [str(ours.expected_nfe), str(declared.expected_nfe)]
    assert {int(n): [Fraction(x) for x in law] for n, law in rows.items()} == {
        n: [ours.nfe.get(n, 0), declared.nfe.get(n, 0)] for n in ours.nfe.keys() | declared.nfe.keys()
    }
    assert find(factory, max_length=3, max_width=2) is None  # no policy declared, no calls compared


@pytest.mark.parametrize("start", ["algorithm", "wide", "sampled", "prompt"])
@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
def test_nothing_is_found_in_a_right_schedule(name: str, start: str) -> None:
    assert find(lambda width: named(name, width, start), name, start, max_length=2, max_width=2) is None


def test_quadratic_under_the_name_of_packed_is_seen() -> None:
    """What it keeps after an accepted token matters only if two more are missing: L = 5, W = 3."""
    instance = next(
        x for x in smallest_first(5, 3) if x.limits == Limits.of(5) and x.width == 3 and x.name == "random tables 0 of 2 tokens"
    )
    law = exact_law(named("quadratic", 3), instance.model, (), instance.limits)
    assert calls_finding(law.nfe, "quadratic", "algorithm", instance) is None
    assert calls_finding(law.nfe, "packed", "algorithm", instance)


def test_a_run_without_end_is_told_as_an_error() -> None:
    class Stalls(Schedule):
        def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> Any:
            return state, super().absorb(state, call, reply, chance)[1]

    found = find(lambda width: Stalls("stalls", (), packed(width).cycle))
    assert found
    assert found.kind == "error"
    assert re.match(r"some path is still running after 6 calls\n  instance: V=2, L=1, W=1", found.text)


def test_one_instance_by_itself() -> None:
    instance = next(x for x in smallest_first(3, 2) if x.limits == Limits.of(3) and x.width == 2)
    assert law_finding(packed(2), instance) is None
    law = exact_law(packed(2), instance.model, (), instance.limits)
    assert calls_finding(law.nfe, "packed", "algorithm", instance) is None
    found = calls_finding(law.nfe, "linear", "algorithm", instance)
    assert found
    assert "declared policy linear, start algorithm" in found.text


def test_the_list_is_graded() -> None:
    """By L, then W; each size has every model, each model every way to end; zeros and point masses come last."""
    names = [name for name, _, _ in graded()]
    assert len(set(names)) == len(names) == 17
    sizes = [(x.limits.max_new_tokens, int_width(x)) for x in smallest_first(2, 2)]
    assert sizes == sorted(sizes)
    assert len(sizes) == 3 * 2 * 17 * 4
    plain = [x for x in smallest_first(0, 1) if not (x.limits.eos or x.limits.stop)]
    assert [x.name for x in plain] == names


# --- the declared policy ----------------------------------------------------------------------------------------------------


@pytest.mark.claim("BRANCH0")
def test_branches_lie_between_packed_and_quadratic() -> None:
    tables = random_tables(3, 1)

    def law(policy: str, start: str) -> dict[int, Fraction]:
        return declared_nfe(policy, start, tables, 3, 3, (), Limits.of(5, 2))

    for start in ("algorithm", "wide", "sampled", "prompt"):
        assert law("branches:0", start) == law("packed", start)
        assert law("branches:0,1,2,3", start) == law("quadratic", start)
        assert law("branches:1", start) == exact_law(named("branches:1", 3, start), tables, (), Limits.of(5, 2)).nfe


def test_the_declared_calls_by_hand() -> None:
    """A fair coin, proposals (1/3, 2/3), L = 3, W = 2: the one draft token is accepted with probability 5/6."""
    from simulator import RationalLaw
    from simulator.oracles import TabularModel

    tables = TabularModel(lambda prefix: RationalLaw.weighted((1, 1)), lambda prefix, j: RationalLaw.weighted((1, 2)))
    for prompt in ((), (1,)):
        law = declared_nfe("packed", "algorithm", tables, 2, 2, prompt, Limits.of(3))
        assert law == {2: Fraction(5, 6), 3: Fraction(1, 6)}
    assert declared_nfe("ar", "prompt", tables, 2, 2, (), Limits.of(3)) == {4: 1}
    assert declared_nfe("linear", "algorithm", tables, 2, 2, (), Limits.of(0)) == {0: 1}


def test_unknown_policies_and_starts_are_refused() -> None:
    tables = random_tables(2, 0)
    with pytest.raises(InvalidInput, match="no policy is called 'tree'"):
        declared_nfe("tree", "algorithm", tables, 2, 1, (), Limits.of(1))
    with pytest.raises(ValueError, match="start is 'wide'"):
        declared_nfe("ar", "wide", tables, 2, 1, (), Limits.of(1))


def test_every_fault_of_the_refutations_is_a_schedule() -> None:
    assert all(issubclass(fault, Schedule) for fault, *_ in FAULTS.values())
