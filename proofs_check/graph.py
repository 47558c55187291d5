"""The chain of one request as a graph: to draw it, and to solve it a second way.

A node is a state whatever number of calls led to it, an edge the merged probability of all outcomes between two states. Summed
in topological order, instead of layer by layer, the same chain must give the same law of outputs and the same E[NFE].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from proofs_check.chain import RUNS, SCHEDULES
from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.chance import enumerated
from simulator.decode import Model, Policy
from simulator.errors import InvalidInput
from simulator.exact import exact_law
from simulator.oracles import random_tables
from simulator.records import Limits, State, Tokens

LARGEST = 100_000  # transitions of a graph that is built


def chain_graph(schedule: Policy, model: Model, prompt: Sequence[int], limits: Limits, max_transitions: int = LARGEST) -> Any:
    """A networkx DiGraph of `State`; edges carry `probability`, a Fraction, and `steps`, the Steps that were merged.

    Its attributes `start` and `transitions` are the first state and the number of outcomes before merging. Raises InvalidInput
    when there are more than `max_transitions`: use `simulator.exact.visits`, which stores nothing.
    """
    import networkx as nx

    start = schedule.init(prompt, limits)
    graph = nx.DiGraph(start=start, transitions=0)
    graph.add_node(start)
    pending = [start]
    while pending:
        state = pending.pop()
        if state.stop is not None:
            continue
        call = schedule.request(state)
        for share, (after, step) in enumerated(partial(schedule.absorb, state, call, model(call))):
            graph.graph["transitions"] += 1
            if graph.graph["transitions"] > max_transitions:
                raise InvalidInput(f"the chain has more than {max_transitions:,} transitions, too many to keep as a graph")
            if after not in graph:
                pending.append(after)
            if not graph.has_edge(state, after):
                graph.add_edge(state, after, probability=Fraction(0), steps=[])
            edge = graph.edges[state, after]
            edge["probability"] += share
            edge["steps"].append(step)
    return graph


class Absorption(NamedTuple):
    """What an absorbing chain comes to, by sums along its topological order."""

    output: dict[Tokens, Fraction]
    calls_ahead: Fraction  # expected number of calls from the start, each state's from those of its successors
    visits: Fraction  # expected number of visits to states that make a call, from the start on: the same number


def absorbed(graph: Any) -> Absorption:
    """Raises InvalidInput when the graph has a cycle: then some run need not end."""
    import networkx as nx

    try:
        order = list(nx.topological_sort(graph))
    except nx.NetworkXUnfeasible:
        raise InvalidInput("the chain has a cycle") from None
    weight = dict.fromkeys(order, Fraction(0)) | {graph.graph["start"]: Fraction(1)}
    for state in order:
        for _, after, edge in graph.out_edges(state, data=True):
            weight[after] += weight[state] * edge["probability"]
    ahead: dict[State, Fraction] = {}
    for state in reversed(order):
        edges = graph.out_edges(state, data=True)
        ahead[state] = sum((edge["probability"] * ahead[after] for _, after, edge in edges), Fraction(bool(edges)))
    output: dict[Tokens, Fraction] = {}
    for state in order:
        if not graph.out_degree(state):
            tokens = state.prefix[state.prompt_length :]
            output[tokens] = output.get(tokens, Fraction(0)) + weight[state]
    visits = sum((weight[state] for state in order if graph.out_degree(state)), Fraction(0))
    return Absorption(output, ahead[graph.graph["start"]], visits)


def dot(graph: Any) -> str:
    """The graph in the language of Graphviz. A node shows the output and, after a bar, the draft."""
    names = {state: f"s{index}" for index, state in enumerate(graph)}
    lines = ["digraph chain {", "  rankdir=LR;"]
    for state, name in names.items():
        lines.append(f'  {name} [label="{_label(state)}"{", shape=box" * bool(state.stop)}];')
    lines += [f'  {names[a]} -> {names[b]} [label="{p}"];' for a, b, p in graph.edges(data="probability")]
    return "\n".join([*lines, "}"])


def mermaid(graph: Any) -> str:
    """The graph as a Mermaid flowchart."""
    names = {state: f"s{index}" for index, state in enumerate(graph)}
    lines = ["flowchart LR"]
    for state, name in names.items():
        left, right = ("[", "]") if state.stop else ("(", ")")
        lines.append(f'  {name}{left}"{_label(state)}"{right}')
    return "\n".join([*lines, *(f'  {names[a]} -->|"{p}"| {names[b]}' for a, b, p in graph.edges(data="probability"))])


def _label(state: State) -> str:
    output = " ".join(map(str, state.prefix[state.prompt_length :])) or "-"
    return output + (f" | {' '.join(map(str, state.draft.tokens))}" if state.draft.tokens else "")


def cases(budget: Budget) -> Iterator[tuple[str, str, int, Limits]]:
    """Schedule, start, seed of the tables, limits."""
    for name, start in RUNS:
        for seed in range(3 if budget == "full" else 1):
            yield name, start, seed, Limits.of(5 if budget == "full" else 4, None if seed else 2)


def check_absorption(budget: Budget) -> list[Entry]:
    """Two sums over the same chain, for every schedule and start."""
    faults: dict[str, str] = {}
    states = transitions = graphs = merged = 0
    for name, start, seed, limits in cases(budget):
        schedule, model = SCHEDULES[name](3, start), random_tables(3, seed)
        graph = chain_graph(schedule, model, (), limits)
        where = f"{name}, start {start}, V=3, L={limits.max_new_tokens}, W=3, EOS {sorted(limits.eos)}, tables {seed}"
        try:
            solved = absorbed(graph)
        except InvalidInput as error:
            faults.setdefault("PROGRESS", f"{error}: {where}")
            continue
        layered = exact_law(schedule, model, (), limits)
        if solved.output != layered.output:
            faults.setdefault("THM3.3", f"the two output laws differ: {where}")
        if not solved.calls_ahead == solved.visits == layered.expected_nfe:
            numbers = f"{solved.calls_ahead}, {solved.visits}, {layered.expected_nfe}"
            faults.setdefault("NFE-CONV", f"E[NFE] is {numbers} ahead, by visits and by layers: {where}")
        graphs += 1
        states += graph.number_of_nodes()
        transitions += graph.graph["transitions"]
        merged += graph.number_of_edges() < graph.graph["transitions"]
    statements = {
        "THM3.3": "absorption probabilities of the chain, summed in topological order, are the output law summed by layers",
        "NFE-CONV": "E[NFE] ahead of the first state = expected visits = the mean of the NFE law",
        "PROGRESS": "no state of a chain comes back",
    }
    bound = f"V=3, L={5 if budget == 'full' else 4}, W=3, every schedule and start"
    detail = f"{graphs} graphs, {states:,} states, {transitions:,} transitions, equal as rationals"
    entries = []
    for claim, statement in statements.items():
        outcome: Outcome = "violated" if claim in faults else "holds" if merged else "not run"
        shown = faults.get(claim) or (detail if merged else "never reached: two outcomes that lead to one state")
        entries.append(Entry(claim, statement, "exact", bound, outcome, shown))
    return entries


CHECKS = (Check("chain/absorption", ("THM3.3", "NFE-CONV", "PROGRESS"), check_absorption),)
