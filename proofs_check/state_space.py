"""Linear-SS and Packed-SS side by side, call by call, under every drafter of ASM3.1 at once: one finite transition system.

No drafter is chosen beforehand. A threshold c*_k is an interval of values still possible; when a call drafts position k from c
tokens the interval splits at c, and the system goes both ways. Calls are made by the production scheduler, on a model that
answers so. What a state has learnt of positions that neither schedule will draft again is forgotten, so states merge, and the
(L+1)! threshold vectors of length L fit into a few hundred states that can be looked at one by one.

Tokens are as told apart as can be: each position has a right token and a wrong one of its own, every wrong one would end the
output, and a drafted token carries the context that it was proposed from.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import factorial
from typing import Any, NamedTuple, TypeAlias

from proofs_check.ledger import Budget, Check, Entry
from simulator.chance import Chance, Scripted, enumerated
from simulator.laws import Point
from simulator.oracles.answer import answer
from simulator.records import Call, Limits, State, Step, Tokens
from simulator.schedule import Schedule
from simulator.schedules import linear, packed

Interval: TypeAlias = tuple[int, int]
"""Least and largest value a threshold can still have."""
_NO_COINS = Scripted({}).at(1)  # greedy decoding asks for none


class Drafted(Point):
    """A proposal for output position `position` made from `context` tokens. Its token is right or wrong at that position."""

    __slots__ = ("context", "position")

    def __init__(self, position: int, context: int, right: bool) -> None:
        super().__init__(2 * position + (not right))
        self.position, self.context = position, context

    @property
    def right(self) -> bool:
        return self.token % 2 == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drafted) and (self.token, self.context) == (other.token, other.context)

    def __hash__(self) -> int:
        return hash((self.token, self.context))


class Joint(NamedTuple):
    """A state of both schedules and of what they have seen of their drafter."""

    packed: State
    linear: State
    known: tuple[Interval, ...]  # of c*_1 .. c*_L

    @property
    def finished(self) -> bool:
        return self.packed.stop is not None and self.linear.stop is not None


class Move(NamedTuple):
    """One call of each schedule that still runs."""

    after: Joint
    known: tuple[Interval, ...]  # before anything is forgotten
    calls: dict[str, tuple[State, Call, State, Step]]


class Pair(NamedTuple):
    """Calls made by the two schedules."""

    packed: int
    linear: int


@dataclass
class Space:
    """The reachable states for one width and length, from one root for each end of the output."""

    width: int
    length: int
    graph: Any  # networkx.DiGraph over Joint; edges: `pair` of calls made, `known`, `share` of the drafters that go there
    roots: list[Joint]
    broken: dict[str, str] = field(default_factory=dict)  # claim -> the first place where it fails, of fewest calls
    reached: set[str] = field(default_factory=set)

    def root(self, state: Joint) -> Joint:
        """Where the paths to `state` begin."""
        return next(root for root in self.roots if root.packed.limits == state.packed.limits)

    def instance(self, path: Sequence[Joint]) -> str:
        """A drafter, with all else that makes the schedules take that path from a root."""
        return f"W={self.width}, L={self.length}, EOS at {_end(path[0])}, c* = {self.drafter(path)}"

    def drafter(self, path: Sequence[Joint]) -> list[int]:
        """Thresholds under which the schedules take that path."""
        least, most = [0] * self.length, list(range(1, self.length + 1))
        for before, after in itertools.pairwise(path):
            for index, (low, high) in enumerate(self.graph.edges[before, after]["known"]):
                least[index], most[index] = max(least[index], low), min(most[index], high)
        return most

    def calls(self, root: Joint) -> Counter[Pair]:
        """How many of the (L+1)! threshold vectors make both schedules take how many calls, from the root to their ends."""
        import networkx as nx

        paths: dict[Joint, dict[Pair, Fraction]] = {root: {Pair(0, 0): Fraction(factorial(self.length + 1))}}
        ends: Counter[Pair] = Counter()
        reachable = self.graph.subgraph({root} | nx.descendants(self.graph, root))
        for state in nx.topological_sort(reachable):
            here = paths.pop(state)
            if state.finished:
                for pair, vectors in here.items():
                    ends[pair] += int(vectors)
            for after, edge in reachable[state].items():
                there = paths.setdefault(after, {})
                for pair, vectors in here.items():
                    sum_ = Pair(pair.packed + edge["pair"].packed, pair.linear + edge["pair"].linear)
                    there[sum_] = there.get(sum_, Fraction(0)) + vectors * edge["share"]
        return ends

    def longest(self, root: Joint, packed: Fraction | int, linear: Fraction | int) -> list[Joint]:
        """The path to an end with the largest packed * NFE_packed + linear * NFE_linear; the graph must be acyclic."""
        import networkx as nx

        lengths, paths = nx.single_source_bellman_ford(
            self.graph, root, weight=lambda _u, _v, edge: -packed * edge["pair"].packed - linear * edge["pair"].linear
        )
        route: list[Joint] = paths[min((state for state in lengths if state.finished), key=lengths.__getitem__)]
        return route


def explore(width: int, length: int, ends: Sequence[int | None] = (None,)) -> Space:
    """All reachable states for W = `width`, L = `length`, with the first EOS of the continuation at each of `ends`."""
    import networkx as nx

    schedules = {"packed": packed(width), "linear": linear(width)}
    wrong = [2 * k + 1 for k in range(1, length + width + 1)]
    space = Space(width, length, nx.DiGraph(), [])
    for end in ends:
        limits = Limits.of(length, wrong if end is None else [2 * end, *wrong])
        begin = {name: schedule.init((), limits) for name, schedule in schedules.items()}
        space.roots.append(Joint(**begin, known=tuple((0, k) for k in range(1, length + 1))))
    space.graph.add_nodes_from(space.roots)
    pending = deque(space.roots)
    while pending:
        state = pending.popleft()
        if state.finished:
            continue
        for share, move in enumerated(partial(_move, schedules, state)):
            if move.after not in space.graph:
                pending.append(move.after)
            pair = Pair(*(int(name in move.calls) for name in schedules))
            if space.graph.has_edge(state, move.after):
                space.graph.edges[state, move.after]["share"] += share
            else:
                space.graph.add_edge(state, move.after, pair=pair, known=move.known, share=Fraction(share))
            space.reached |= _conditions(move)
            for claim, fault in _faults(space, move):
                if claim not in space.broken:
                    route = nx.shortest_path(space.graph, space.root(state), state)
                    space.broken[claim] = f"{fault}; {space.instance([*route, move.after])}"
    return space


def _move(schedules: dict[str, Schedule], state: Joint, chance: Chance) -> Move:
    """One call of each running schedule, for one outcome of what they draft.

    A coin of `chance` stands for a threshold, uniform on its interval, so that outcomes are weighted by their thresholds.
    """
    known = list(state.known)

    def propose(context: Tokens, offset: int) -> Drafted:
        c, k = len(context), len(context) + offset
        if k > len(known):
            return Drafted(k, c, right=True)
        low, high = state.known[k - 1]
        right = chance.uniform("draft", k) < Fraction(c - low + 1, high - low + 1)  # c*_k <= c
        low, high = known[k - 1]
        known[k - 1] = (low, min(high, c)) if right else (max(low, c + 1), high)
        return Drafted(k, c, right)

    calls, after = {}, {"packed": state.packed, "linear": state.linear}
    for name, schedule in schedules.items():
        before = after[name]
        if before.stop is None:
            call = schedule.request(before)
            reply = answer(call, lambda context: Point(2 * len(context) + 2), propose)
            after[name], step = schedule.absorb(before, call, reply, _NO_COINS)
            calls[name] = (before, call, after[name], step)
    shortest = min((one.emitted for one in after.values() if one.stop is None), default=len(known))
    kept = tuple((0, k) if k <= shortest else interval for k, interval in enumerate(known, start=1))
    return Move(Joint(after["packed"], after["linear"], kept), tuple(known), calls)


def _end(state: Joint) -> int | None:
    """Position of the EOS, None without."""
    return next((token // 2 for token in state.packed.limits.eos if token % 2 == 0), None)


def _faults(space: Space, move: Move) -> Iterator[tuple[str, str]]:
    """(claim, what is wrong) of one move: the safety invariants."""
    after = move.after
    end = min(_end(after) or space.length, space.length)
    for name, (before, call, state, step) in move.calls.items():
        where = f"{name} after {before.emitted} tokens"
        if state.prefix != tuple(2 * k for k in range(1, state.emitted + 1)) or state.emitted > end:
            yield (
                "COR-GREEDY",
                f"{where}: the output {list(state.prefix)} is not the greedy continuation 2, 4, .. to its end {end}",
            )
        if (state.stop is None) != (state.emitted < end):
            yield "COR-GREEDY", f"{where}: {state.emitted} tokens are out, the end is {end}, stop is {state.stop}"
        if call.verify and not step.committed:
            yield "PROGRESS", f"{where}: a verifying call accepted nothing"
        if state.stop is None:
            wanted = max(0, space.width - step.advance) if name == "packed" else 0 if call.verify else space.width
            kept = [(law.position, law.context) for law in state.draft.laws if isinstance(law, Drafted)]
            if len(kept) != wanted or (name == "packed" and len(kept) >= space.width):
                yield "DRAFTLEN", f"{where}: a draft of {len(kept)} tokens is kept, not {wanted}"
            if kept != [(state.emitted + i, before.emitted) for i in range(1, len(kept) + 1)]:
                yield "DRAFTLEN", f"{where}: (position, context) of the kept draft are {kept}, {state.emitted} tokens are out"
            if state.draft.tokens != tuple(law.certain for law in state.draft.laws):
                yield "DRAFTLEN", f"{where}: draft tokens {list(state.draft.tokens)} do not belong to their laws"
    if after.linear.phase == 0 and after.packed.emitted < after.linear.emitted:
        yield (
            "THM3.2",
            f"packed has {after.packed.emitted} tokens out where linear has {after.linear.emitted}, between iterations",
        )


CONDITIONS = {
    "a rejected draft token": ("COR-GREEDY", "PROGRESS"),
    "a token accepted that was drafted from a prefix shorter by 2 or more": ("COR-GREEDY", "DRAFTLEN"),
    "a draft of 2 or more accepted": ("COR-GREEDY", "PROGRESS"),
    "a call that keeps nothing": ("DRAFTLEN",),
    "a call that keeps a draft": ("DRAFTLEN",),
    "an output cut inside a block": ("COR-GREEDY", "EQ5"),
    "Packed-SS ahead between iterations": ("THM3.2",),
    "Packed-SS level between iterations": ("THM3.2",),
    "Packed-SS with fewer calls": ("EQ5",),
    "Packed-SS with as many calls": ("EQ5",),
}


def _conditions(move: Move) -> set[str]:
    found = set()
    if "packed" in move.calls:
        before, _, state, step = move.calls["packed"]
        met = {
            "a rejected draft token": step.accepted < len(step.verified),
            "a token accepted that was drafted from a prefix shorter by 2 or more": any(
                isinstance(law, Drafted) and law.context <= before.emitted - 2 for law in before.draft.laws[: step.accepted]
            ),
            "a draft of 2 or more accepted": step.accepted == len(step.verified) >= 2,
            "a call that keeps nothing": state.stop is None and not state.draft.tokens,
            "a call that keeps a draft": bool(state.draft.tokens),
            "an output cut inside a block": len(step.committed) < step.advance,
        }
        found = {condition for condition, holds in met.items() if holds}
    if "linear" in move.calls and move.after.linear.phase == 0:
        ahead = move.after.packed.emitted > move.after.linear.emitted
        found.add("Packed-SS ahead between iterations" if ahead else "Packed-SS level between iterations")
    return found


STATEMENTS = {
    "COR-GREEDY": "in every state both prefixes are the greedy continuation, and they end at its EOS or at L",
    "DRAFTLEN": "every kept draft is max(0, W - A) tokens right behind the prefix, proposed from the prefix before the call",
    "PROGRESS": "every verifying call accepts a token, no state comes back, and every path ends with both outputs complete",
    "THM3.2": "in every state after 2t calls Packed-SS is where t iterations of Linear-SS are, or further",
    "EQ5": "on every path Packed-SS makes no more calls than Linear-SS",
}


def check(sizes: Sequence[tuple[int, int]], with_eos: bool) -> list[Entry]:
    """The entries for all (W, L) of `sizes`; with the first EOS at each position in turn and nowhere, or nowhere only."""
    import networkx as nx

    broken: dict[str, str] = {}
    incomplete: dict[str, str] = {}  # claim -> why not all of it was looked at
    reached: set[str] = set()
    ranges: list[str] = []
    states = moves = 0
    for width, length in sizes:
        space = explore(width, length, [*range(1, length + 1), None] if with_eos else [None])
        states, moves = states + len(space.graph), moves + space.graph.number_of_edges()
        broken = space.broken | broken
        reached |= space.reached
        if not nx.is_directed_acyclic_graph(space.graph):
            state = nx.find_cycle(space.graph)[0][0]
            route = nx.shortest_path(space.graph, space.root(state), state)
            incomplete["EQ5"] = "some path does not end"
            broken.setdefault("PROGRESS", f"a state comes back ({_label(state)}); {space.instance(route)}")
            continue
        for root in space.roots:
            calls = space.calls(root)
            if calls.total() != factorial(length + 1):
                lost = f"{calls.total():,} of {factorial(length + 1):,} threshold vectors were followed, W={width}, L={length}"
                incomplete |= dict.fromkeys(STATEMENTS, lost)
                continue
            worst = max(calls, key=lambda pair: Fraction(*pair))
            route = space.longest(root, 1, -Fraction(*worst))
            if worst.packed > worst.linear:
                fault = f"Packed-SS makes {worst.packed} calls, Linear-SS {worst.linear}"
                broken.setdefault("EQ5", f"{fault}; {space.instance(route)}")
            reached |= {f"Packed-SS with {'as many' if pair.packed == pair.linear else 'fewer'} calls" for pair in calls}
            if _end(root) is None:
                ranges.append(f"W={width}, L={length}: {_ranges(calls)} (at c* = {space.drafter(route)})")
    details = dict.fromkeys(STATEMENTS, f"{states:,} states, {moves:,} moves")
    details["EQ5"] += "; " + "; ".join(ranges)
    bound = "every drafter of ASM3.1, " + ", ".join(f"W={width} L={length}" for width, length in sizes)
    entry = partial(Entry, method="exhaustive", bound=bound + (", EOS at each position or none" if with_eos else ", no EOS"))
    entries = []
    for claim, statement in STATEMENTS.items():
        missing = [condition for condition, claims in CONDITIONS.items() if claim in claims and condition not in reached]
        if claim in broken:
            entries.append(entry(claim, statement, outcome="violated", detail=broken[claim]))
        elif missing or claim in incomplete:
            why = incomplete.get(claim) or f"never reached: {', '.join(missing)}"
            entries.append(entry(claim, statement, outcome="not run", detail=why))
        else:
            entries.append(entry(claim, statement, outcome="holds", detail=details[claim]))
    return entries


def _ranges(calls: Counter[Pair]) -> str:
    ratios = [Fraction(*pair) for pair in calls]
    (least, fewest), (most, highest) = ([bound(counts) for counts in zip(*calls, strict=True)] for bound in (min, max))
    return f"Packed-SS {least}..{most}, Linear-SS {fewest}..{highest} calls, their ratio {min(ratios)}..{max(ratios)}"


def draw(width: int = 2, length: int = 3) -> str:
    """The transition system without EOS, in the DOT language: `dot -Tsvg` makes a picture of it.

    A state shows, for each schedule, the tokens that are out and the draft behind them, + right, - wrong; below, what it knows
    of thresholds to come. An arrow shows what its calls learn. The default is the smallest system in which Packed-SS accepts a
    token that it has kept.
    """
    space = explore(width, length)
    number = {state: index for index, state in enumerate(space.graph)}
    lines = [f"digraph states {{ // W = {width}, L = {length}", '  node [shape=box fontname="monospace"];']
    for state, index in number.items():
        known = "\\n".join([_label(state), " ".join(filter(None, _thresholds(state.known)))])
        lines.append(f'  {index} [label="{known}"{" peripheries=2" if state.finished else ""}];')
    for before, after, edge in space.graph.edges(data=True):
        learnt = [now for now, old in zip(_thresholds(edge["known"]), _thresholds(before.known), strict=True) if now != old]
        lines.append(f'  {number[before]} -> {number[after]} [label="{", ".join(learnt)}"];')
    return "\n".join([*lines, "}"])


def _thresholds(known: Sequence[Interval]) -> list[str]:
    """What is known of each threshold, '' for nothing."""

    def show(k: int, low: int, high: int) -> str:
        bounds = f"c*{k}={low}" if low == high else f"{f'{low}<=' if low else ''}c*{k}{f'<={high}' if high < k else ''}"
        return "" if (low, high) == (0, k) else bounds

    return [show(k, *interval) for k, interval in enumerate(known, start=1)]


def _label(state: Joint) -> str:
    def show(one: State) -> str:
        draft = "".join("+" if token % 2 == 0 else "-" for token in one.draft.tokens)
        return f"{one.emitted}{draft or ('' if one.stop is None else ' end')}"

    return f"packed {show(state.packed)}, linear {show(state.linear)}"


def _lengths(budget: Budget) -> list[Entry]:
    return check([(1, 8), (2, 8), (3, 8)] if budget == "quick" else [(1, 10), (2, 10), (3, 10), (4, 9), (8, 7)], with_eos=False)


def _ends(budget: Budget) -> list[Entry]:
    return check([(1, 6), (2, 6), (3, 6)] if budget == "quick" else [(1, 8), (2, 8), (3, 8), (4, 7), (7, 6)], with_eos=True)


CHECKS = (Check("states/length", tuple(STATEMENTS), _lengths), Check("states/eos", tuple(STATEMENTS), _ends))
