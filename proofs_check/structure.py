"""What calls do, beside their laws: starts, stops, draft lengths, progress, branch 0, padding, rows; exhaustively.

Runs at temperature 0 use threshold drafters. Every sequence of accepted counts arises from thresholds c*_k in {0, k} alone (a
position drafted right always or never), since a call that tests a position also resolves it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from proofs_check.ledger import Budget, Check, Entry
from proofs_check.lemmas import settle, span
from simulator.chance import Chance, Purpose, Scripted, enumerated
from simulator.decode import Generation, generate
from simulator.errors import ContractError
from simulator.exact import visits
from simulator.laws import Law, Point, RationalLaw
from simulator.oracles import ThresholdModel, random_tables
from simulator.oracles.answer import Oracle
from simulator.records import Call, Draft, Limits, Reply, State, Tokens
from simulator.schedule import Schedule
from simulator.schedules import STARTS, named, packed
from spec import greedy, sampling
from spec.layouts import MASK, nemotron, sees, setdlm
from spec.run import AFTER, SCHEDULES, Given, Phase, Start, first_phase, goes_on
from spec.run import Schedule as Name
from spec.run import State as SpecState

NAMES = ("linear", "packed", "quadratic", "branches:0,2")
PROMPT = (0,)


def threshold_vectors(length: int, extreme: bool = False) -> Iterator[Tokens]:
    """All c*_1 .. c*_L with 0 <= c*_k <= k; with `extreme` those in {0, k} alone."""
    return itertools.product(*((0, k) if extreme else range(k + 1) for k in range(1, length + 1)))


class Recorder:
    """A threshold model after `PROMPT` whose greedy token at output position k is k; a wrong draft there is k + 1."""

    def __init__(self, c_star: Tokens) -> None:
        self.model = ThresholdModel(c_star, truth=range(1, 60), vocabulary=60, prompt_length=len(PROMPT))
        self.calls: list[Call] = []

    def __call__(self, call: Call) -> Reply:
        self.calls.append(call)
        return self.model(call)


def run_of(schedule: Schedule, c_star: Tokens, limits: Limits) -> tuple[list[Call], Generation | None]:
    """The calls of a run and the run; None if it stalls."""
    recorder = Recorder(c_star)
    try:
        return recorder.calls, generate(recorder, schedule, PROMPT, limits)
    except ContractError:
        return recorder.calls, None


# --- starts: INIT, NFE-CONV, DRAFTLEN, PROGRESS -----------------------------------------------------------------------------


def phases(name: str, start: Start) -> Iterator[Phase]:
    """What each call does, by R-START-1 and R-SCHED-1; Branches(S) has the phases of Packed-SS."""
    like: Name = name if name in SCHEDULES else "packed"
    phase = first_phase(like, start)
    while True:
        yield phase
        phase = AFTER.get((like, phase), SCHEDULES[like])


def shape(name: str, phase: Phase, width: int) -> tuple[bool, Tokens, int]:
    """(verify, branches, proposals per branch) of a call in that phase."""
    loop: dict[str, Tokens] = {"packed": (0,), "quadratic": tuple(range(width + 1)), "branches:0,2": (0, 2)}
    drafts: dict[Phase, Tokens] = {"draft": (0,), "wide": (0,), "both": loop.get(name, ())}
    branches = drafts.get(phase, ())
    return phase in ("verify", "both", "wide"), branches, (width + (phase == "wide")) * bool(branches)


def most_calls(name: str, start: str, length: int) -> int:
    """R-USER-3."""
    if name == "linear":
        return 2 * length + {"algorithm": 0, "prompt": 1}.get(start, -1)
    return length + (start in ("sampled", "prompt"))


def check_starts(budget: Budget) -> list[Entry]:
    """Every call of whole runs, over ALL threshold vectors, against the phases of spec/ and, for the paper's
    own schedules, its run.
    """
    length = 4 if budget == "quick" else 5
    limits = Limits.of(length)
    statements = {
        "INIT": "each start makes the calls of E.2, then the loop; call by call h, A, a and the draft are those of spec/",
        "NFE-CONV": "NFE counts each forward pass: 2T for Linear-SS, 1 + 2T from wide and sampled, one more from prompt",
        "DRAFTLEN": "a Packed-SS call that goes on leaves max(0, W - A) <= W - 1 draft tokens, W after wide and sampled",
        "PROGRESS": "at temperature 0 each call that verifies emits a token, and the calls stay within R-USER-3",
    }
    wrong: dict[str, str] = {}
    unreached = {claim: set[str]() for claim in statements}
    unreached["PROGRESS"] = {f"the most calls of {name}, start {start}" for name in NAMES for start in STARTS}
    unreached["DRAFTLEN"] = {"an empty next draft", "a next draft of W - 1", "a next draft of W"}
    unreached["NFE-CONV"] = {"a run of 3 or more Linear-SS iterations"}
    runs = calls_made = vectors = 0
    for c_star in threshold_vectors(length):
        vectors += 1
        for width, name in itertools.product(range(1, length + 1), NAMES):
            if name == "branches:0,2" and width < 2:
                continue
            nfe: dict[str, int] = {}
            for start in STARTS:
                runs += 1
                where = f"c* = {c_star}, W = {width}, {name}, start {start}"
                calls, run = run_of(named(name, width, start), c_star, limits)
                calls_made += len(calls)
                if run is None:
                    wrong.setdefault("PROGRESS", f"{where}: the run does not end")
                    continue
                nfe[start] = run.nfe
                for claim, problem in _run_problems(name, start, width, length, c_star, calls, run).items():
                    wrong.setdefault(claim, f"{where}: {problem}")
                if run.nfe == most_calls(name, start, length):
                    unreached["PROGRESS"].discard(f"the most calls of {name}, start {start}")
                if name == "linear" and sum(call.verify and bool(call.draft) for call in calls) >= 3:
                    unreached["NFE-CONV"].clear()
                if name == "packed":
                    lengths = {len(call.draft) for call in calls[1:]}
                    names = {0: "an empty next draft", width - 1: "a next draft of W - 1", width: "a next draft of W"}
                    unreached["DRAFTLEN"] -= {names[n] for n in lengths & names.keys()}
            if nfe.get("prompt", 0) != nfe.get("algorithm", 0) + 1:
                problem = f"start prompt makes {nfe.get('prompt')} calls, algorithm {nfe.get('algorithm')}"
                wrong.setdefault("NFE-CONV", f"c* = {c_star}, W = {width}, {name}: {problem}")
    bound = f"all {vectors:,} threshold vectors, L={length}, W=1..{length}, {len(NAMES)} schedules, {len(STARTS)} starts"
    return [
        settle(
            claim,
            statement,
            "exhaustive",
            bound,
            wrong.get(claim, ""),
            sorted(unreached[claim]),
            f"{runs:,} runs, {calls_made:,} calls",
        )
        for claim, statement in statements.items()
    ]


def _run_problems(
    name: str, start: str, width: int, length: int, c_star: Tokens, calls: Sequence[Call], run: Generation
) -> dict[str, str]:
    """What is wrong with one run, by claim."""
    problems: dict[str, str] = {}
    expected = list(itertools.islice(phases(name, cast(Start, start)), len(calls)))
    for number, (call, phase, step) in enumerate(zip(calls, expected, run.steps, strict=False), 1):
        wanted = shape(name, phase, width)
        if (call.verify, call.branches, call.width * bool(call.branches)) != wanted:
            problems.setdefault("INIT", f"call {number} asks for {call}, where (verify, branches, width) is {wanted}")
        if call.verify != (len(step.committed) > 0):
            problems.setdefault("PROGRESS", f"call {number} emits {len(step.committed)} tokens, verify {call.verify}")
        if name == "packed" and call.branches and number < len(calls):
            kept = len(calls[number].draft)
            loop_most = width if phase in ("wide", "draft") else width - 1
            if kept != max(0, call.width - step.advance) or kept > loop_most:
                problems.setdefault("DRAFTLEN", f"call {number} has A = {step.advance} and leaves {kept} tokens")
    if run.nfe > most_calls(name, start, length):
        problems["PROGRESS"] = f"{run.nfe} calls for {length} tokens"
    before = {"algorithm": 0}.get(start, 1)
    if len(calls) != run.nfe or (name == "linear" and (run.nfe - before) % 2):
        problems["NFE-CONV"] = f"NFE is {run.nfe}, forward passes made {len(calls)}"
    if name in SCHEDULES and "INIT" not in problems:
        problems |= _spec_problems(name, cast(Start, start), width, length, c_star, calls, run)
    return problems


def _spec_problems(
    name: Name, start: Start, width: int, length: int, c_star: Tokens, calls: Sequence[Call], run: Generation
) -> dict[str, str]:
    model = Recorder(c_star).model
    given = Given(
        PROMPT, width, length, lambda prefix: model.target(prefix).token, lambda prefix, i: model.proposal(prefix, i).token
    )
    theirs = greedy.run(name, given, start)
    ours = [
        (call.prefix, call.draft, step.accepted, step.advance, len(step.committed))
        for call, step in zip(calls, run.steps, strict=False)
    ]
    spec = [
        (state.P, state.D, record.h, record.A, record.a) for state, record in zip(theirs.states, theirs.records, strict=False)
    ]
    for number, pair in enumerate(itertools.zip_longest(ours, spec), 1):
        if pair[0] != pair[1]:
            return {"INIT": f"call {number} has (P, D, h, A, a) = {pair[0]}, spec/ {pair[1]}"}
    return {}


# --- stops: STOP, STOPSEQ ---------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """Where an output ends: what the request is given, and the position and reason that this must come to."""

    length: int
    eos: tuple[int, ...] = ()  # positions
    markers: tuple[Tokens, ...] = ()  # positions of their tokens

    @property
    def limits(self) -> Limits:
        """The greedy token at position k is k. The prompt ends in an EOS, and begins a marker that would end at position 1."""
        return Limits.of(self.length, (*PROMPT, *self.eos), ((*PROMPT, 1), *self.markers))

    @property
    def outcome(self) -> tuple[int, str]:
        """The position and the reason: an EOS before a marker before the length, where they fall together."""
        ends = [(k, 0, "eos") for k in self.eos] + [(m[-1], 1, "stop") for m in self.markers] + [(self.length, 2, "length")]
        position, _, reason = min(ends)
        return position, reason


def events(length: int) -> list[Event]:
    """An EOS at every position, markers of 2 and 3 tokens ending at every position, every L' <= L, and every two of these."""
    one = [Event(k) for k in range(length)]
    one += [Event(length, (k,)) for k in range(1, length + 1)]
    one += [Event(length, (), (tuple(range(k - n + 1, k + 1)),)) for n in (2, 3) for k in range(n, length + 1)]
    two = {
        Event(min(a.length, b.length), tuple(sorted({*a.eos, *b.eos})), tuple(sorted({*a.markers, *b.markers})))
        for a, b in itertools.combinations(one, 2)
    }
    return sorted({Event(length), *one, *two})


def check_stops(budget: Budget) -> list[Entry]:
    """STOP and STOPSEQ: each run that is cut against the run that is not.

    The cut run must make the same calls, up to the one that reaches the event and no further; that call's h and A are those of
    the run that is not cut, and its block ends with the event. A wrong draft at position k proposes k + 1, so that an EOS of
    the draft is tested and rejected.
    """
    length, widths, starts = (4, (1, 3), ("algorithm", "wide")) if budget == "quick" else (5, range(1, 6), STARTS)
    happenings = events(length)
    conditions = {
        "STOP": [
            "an EOS inside an accepted block",
            "the length limit inside an accepted block",
            "two stops in one block",
            "an EOS of the draft rejected",
            "L = 0",
        ],
        "STOPSEQ": ["a marker inside an accepted block", "a marker over two blocks"],
    }
    seen: set[str] = set()
    wrong: dict[str, str] = {}
    runs = 0
    for c_star, width, name, start in itertools.product(threshold_vectors(length, extreme=True), widths, NAMES, starts):
        if name == "branches:0,2" and width < 2:
            continue
        schedule = named(name, width, start)
        _, whole = run_of(schedule, c_star, Limits.of(2 * length + width))
        if whole is None:
            wrong.setdefault("STOP", f"c* = {c_star}, W = {width}, {name}, start {start}: the run does not end")
            continue
        for event in happenings:
            runs += 1
            position, reason = event.outcome
            calls, run = run_of(schedule, c_star, event.limits)
            claim = "STOPSEQ" if event.markers else "STOP"
            problem = _cut_problem(calls, run, whole, position, reason)
            if problem and claim not in wrong:
                wrong[claim] = f"c* = {c_star}, W = {width}, {name}, start {start}, {event}: {problem}"
            if run is not None:
                seen |= _stop_facts(event, run)
    statements = {
        "STOP": "EOS and L cut the output where they fall and refund no call, alone and two in a block; L = 0 makes no call",
        "STOPSEQ": "a marker of 2 or 3 tokens ends the output with its last token, and none of the prompt counts",
    }
    bound = (
        f"all accept counts (c*_k in {{0, k}}), L={length}, W in {list(widths)}, {len(NAMES)} schedules, {len(starts)} starts, "
        f"{len(happenings)} ways to end"
    )
    return [
        settle(
            claim,
            statement,
            "exhaustive",
            bound,
            wrong.get(claim, ""),
            [condition for condition in conditions[claim] if condition not in seen],
            f"{runs:,} runs",
        )
        for claim, statement in statements.items()
    ]


def _cut_problem(calls: Sequence[Call], run: Generation | None, whole: Generation, position: int, reason: str) -> str:
    if run is None:
        return "the run does not end"
    ends = list(itertools.accumulate(len(step.committed) for step in whole.steps))
    needed = 0 if position == 0 else next(n for n, end in enumerate(ends, 1) if end >= position)
    expected = tuple(range(1, position + 1))
    if (run.tokens, run.stop) != (expected, reason):
        return f"output {list(run.tokens)}, ended by {run.stop}; due {list(expected)}, {reason}"
    if not len(calls) == run.nfe == needed:
        return f"{len(calls)} forward passes, NFE {run.nfe}; {needed} reach position {position}"
    for number, (ours, theirs) in enumerate(zip(run.steps, whole.steps, strict=False), 1):
        if number < needed and ours != theirs:
            return f"call {number} is {ours} before the end, {theirs} in the run that is not cut"
        if (ours.verified, ours.accepted, ours.advance) != (theirs.verified, theirs.accepted, theirs.advance):
            return f"call {number} has h, A = {ours.accepted, ours.advance}, uncut {theirs.accepted, theirs.advance}"
    return ""


def _stop_facts(event: Event, run: Generation) -> set[str]:
    """Which of the conditions of `check_stops` one run shows."""
    if not run.steps:
        return {"L = 0"}
    facts = set[str]()
    last = run.steps[-1]
    begin = len(run.tokens) - len(last.committed)
    ends = [*event.eos, *(marker[-1] for marker in event.markers), event.length]
    if sum(begin < end <= begin + last.advance for end in ends) >= 2:
        facts.add("two stops in one block")
    if len(last.committed) < last.advance:
        thing = {"eos": "an EOS", "stop": "a marker", "length": "the length limit"}[run.stop]
        facts.add(f"{thing} inside an accepted block")
    if run.stop == "stop" and any(m[-1] == len(run.tokens) and m[0] <= begin for m in event.markers):
        facts.add("a marker over two blocks")
    if any(step.accepted < len(step.verified) and step.verified[step.accepted] in event.eos for step in run.steps):
        facts.add("an EOS of the draft rejected")
    return facts


# --- BRANCH0 ----------------------------------------------------------------------------------------------------------------


Next: TypeAlias = tuple[int, Tokens, Tokens, tuple[Any, ...]]  # h, and P, D, Q after a call
NextLaw: TypeAlias = dict[Next, Fraction]


def check_branch_0(budget: Budget) -> list[Entry]:
    """BRANCH0, from every state that Packed-SS can be in, by the law of (h, P, D, Q) after the next call.

    Four calls must have the same law: Packed-SS, Branches({0}), Quadratic-SS with every branch but that of zero accepted draft
    tokens struck out, and Algorithm 2 (or 1) of spec/. And where nothing of the draft is accepted, Quadratic-SS as it is, in
    production and in spec/, must do what Packed-SS does.
    """
    if budget == "quick":
        length, width, seeds, vectors = 4, 3, range(2), [*threshold_vectors(4)]
    else:
        length, width, seeds, vectors = 5, 4, range(3), [*threshold_vectors(5)]
    instances: list[tuple[str, Oracle, Limits]] = [
        (f"c* = {c_star}", Recorder(c_star).model, Limits.of(len(c_star))) for c_star in vectors
    ]
    instances += [
        (f"random_tables(3, {seed}), eos {eos}", random_tables(3, seed), Limits.of(length, eos))
        for seed, eos in itertools.product(seeds, (None, 2))
    ]
    seen: set[str] = set()
    states = 0
    wrong = ""
    schedules = [named(name, width) for name in ("packed", "branches:0", "quadratic")]
    for label, model, limits in instances:
        for visit in visits(schedules[0], model, PROMPT, limits):
            if visit.call is None:
                continue
            states += 1
            problem = _branch_problem(schedules, model, visit.state, width, seen)
            if problem and not wrong:
                wrong = f"{label}, W={width}, {list(visit.state.prefix)} with draft {visit.state.draft}: {problem}"
    statement = "from each state Packed-SS does what Quadratic-SS does with no branch but b = 0, and Branches({0}) too"
    bound = (
        f"W={width}; greedy: all {len(vectors):,} threshold vectors, L={len(vectors[0])}; sampling: V=3, L={length},"
        f" random tables of seeds {span(seeds)}, EOS or none"
    )
    unreached = [fact for fact in (KEPT, ALIKE, OTHER) if fact not in seen]
    return [settle("BRANCH0", statement, "exact", bound, wrong, unreached, f"{states:,} states, all laws equal as rationals")]


KEPT = "a draft kept although some of the last was accepted"
ALIKE = "a draft of which nothing is accepted"
OTHER = "a state where a branch b > 0 makes Quadratic-SS differ"


def _branch_problem(schedules: Sequence[Schedule], model: Oracle, state: State, width: int, seen: set[str]) -> str:
    ours, only_0, quadratic = (_after(schedule, model, state) for schedule in schedules)
    call = schedules[2].request(state)
    struck = _after(schedules[2], model, state, call._replace(branches=call.branches[:1]))
    seen |= {KEPT for h, _, D, _ in ours if h and D} | {ALIKE for h, *_ in ours if h == 0 and state.draft.tokens}
    seen |= {OTHER} if quadratic != ours else set()
    alike = {after: weight for after, weight in ours.items() if after[0] == 0}
    for name, law, theirs in (
        ("Branches({0})", ours, only_0),
        ("Quadratic-SS without branches b > 0", ours, struck),
        ("spec/'s Packed-SS", ours, _spec_after("packed", model, state, width)),
        ("Quadratic-SS at h = 0", alike, _nothing_accepted(quadratic)),
        ("spec/'s Quadratic-SS at h = 0", alike, _nothing_accepted(_spec_after("quadratic", model, state, width))),
    ):
        for after in law.keys() | theirs.keys():
            weights = law.get(after, Fraction(0)), theirs.get(after, Fraction(0))
            if weights[0] != weights[1]:
                return f"(h, P, D, Q) = {after} follows with probability {weights[0]}, under {name} with {weights[1]}"
    return ""


def _nothing_accepted(law: NextLaw) -> NextLaw:
    return {after: weight for after, weight in law.items() if after[0] == 0}


def _after(schedule: Schedule, model: Oracle, state: State, call: Call | None = None) -> NextLaw:
    """The law of what follows `state` in production; of a call other than the schedule's own, if given."""
    call = call or schedule.request(state)
    law: defaultdict[Next, Fraction] = defaultdict(Fraction)
    for share, (after, step) in enumerated(partial(schedule.absorb, state, call, model(call))):
        laws = tuple(stored.probabilities for stored in after.draft.laws if isinstance(stored, RationalLaw))
        law[step.accepted, after.prefix, after.draft.tokens, laws] += share
    return dict(law)


def _spec_after(name: Name, model: Oracle, state: State, width: int) -> NextLaw:
    """The same by spec/, which may keep a draft at the end of a run and knows no laws at temperature 0."""
    law: defaultdict[Next, Fraction] = defaultdict(Fraction)
    draft, stored = state.draft
    limits = state.limits
    point = isinstance(model.target(state.prefix), Point)

    def answer(law: Law) -> Any:
        return law.certain if point else cast(RationalLaw, law).probabilities

    given: Given[Any] = Given(
        state.prefix[: state.prompt_length],
        width,
        limits.max_new_tokens,
        lambda prefix: answer(model.target(prefix)),
        lambda prefix, i: answer(model.proposal(prefix, i)),
        limits.eos,
    )
    before = SpecState(state.prefix, draft, () if point else tuple(map(answer, stored)), "both")

    def one(chance: Chance) -> tuple[SpecState, int]:
        if point:
            after, record = greedy.call(name, before, given)
        else:
            after, record = sampling.call(
                name, before, given, 1, lambda t, j: chance.uniform("test", j), partial(_drawn, chance)
            )
        return after, record.h

    for share, (after, h) in enumerated(one):
        running = goes_on(after.P, given)
        law[h, after.P, after.D if running else (), after.Q if running else ()] += share
    return dict(law)


def _drawn(chance: Chance, law: sampling.Law, purpose: Purpose, call: int, position: int) -> int:
    """A token by inverse CDF, written apart from production's."""
    coin = chance.uniform(purpose, position)
    return next(x for x, total in enumerate(itertools.accumulate(law)) if law[x] and coin < total)


# --- PAD --------------------------------------------------------------------------------------------------------------------

MASK_ID = 999


def check_padding(budget: Budget) -> list[Entry]:
    """PAD, as the layout and as the rule.

    The layout: no row that is read sees a padded one, neither Nemotron's verifier rows over MASK nor SetDLM's O rows without a
    draft token. The rule: whatever the B verifier rows answer, a draft of m < W tokens is accepted up to its own end at most,
    and an answer that comes with the padded rows is refused. A driver that went on comparing past m would accept more: the
    padded slots hold MASK, and a row may well predict it.
    """
    most, ranks, answered = (8, 5, 3) if budget == "quick" else (16, 7, 5)
    pairs, wrong_rows = 0, ""
    for width in range(1, most + 1):
        for m, branches, cached in itertools.product(range(width + 1), ((0,), tuple(range(width + 1))), (0, 2)):
            rows = nemotron((1, 2, 3), tuple(range(10, 10 + m)), width, True, branches, cached)
            padded = [row for row in rows if row.region == "V" and row.token is MASK]
            read = [row for row in rows if row not in padded and row.b <= m]
            pairs += len(read) * len(padded)
            bad = next(((x, y) for x in read for y in padded if sees(x, y)), None)
            if len(padded) != width - m or bad:
                wrong_rows = wrong_rows or f"Nemotron, W = {width}, {m} draft tokens: {bad or f'{len(padded)} padded rows'}"
    for u in range(1, ranks + 1):
        for drafted in itertools.product((False, True), repeat=u):
            order = tuple(range(u, 0, -1))
            draft = {j: 10 + j for j, present in zip(order, drafted, strict=True) if present}
            setdlm_rows = setdlm({9: 5}, order, draft, True, range(u))
            padded = [row for row in setdlm_rows if row.region == "O" and row.token is MASK]
            pairs += len(setdlm_rows) * len(padded)
            bad = next(((x, y) for x in setdlm_rows for y in padded if x != y and sees(x, y)), None)
            if len(padded) != u - len(draft) or bad:
                wrong_rows = wrong_rows or f"SetDLM, ranks drafted {drafted}: {bad or f'{len(padded)} padded rows'}"
    answers, careless, wrong_rule = _padded_answers(answered)
    return [
        settle(
            "PAD",
            "no row that is read sees a row over padding",
            "exhaustive",
            f"Nemotron: W=1..{most}, every draft length; SetDLM: u=1..{ranks}, every set of drafted ranks",
            wrong_rows,
            () if pairs else ("a padded row",),
            f"{pairs:,} pairs of rows",
        ),
        settle(
            "PAD",
            "whatever padded verifier rows answer, at most the m draft tokens and one more are accepted",
            "exhaustive",
            f"W=1..{answered}, every m <= W, every row answering its slot's token, MASK or another",
            wrong_rule,
            () if careless else ("an answer that a careless rule would accept beyond the draft",),
            f"{answers:,} answers, {careless:,} of which match MASK beyond the draft",
        ),
    ]


def _padded_answers(most: int) -> tuple[int, int, str]:
    """Answers tried, those that match a padded slot right after the draft, and the first problem."""
    answers = careless = 0
    for width in range(1, most + 1):
        schedule = packed(width)
        for m in range(width + 1):
            draft = tuple(range(10, 10 + m))
            slots = (*draft, *[MASK_ID] * (width - m))
            state = schedule.resume((), (1,), Limits.of(99), Draft(draft, tuple(map(Point, draft))))
            call = schedule.request(state)
            proposals = (tuple(Point(5) for _ in range(width)),)
            for rows in itertools.product(*({token, MASK_ID, 7} for token in (*slots, 7))):
                answers += 1
                where = f"W = {width}, draft {list(draft)}, verifier rows {list(rows)}"
                h = next((i for i in range(m) if rows[i] != draft[i]), m)
                careless += h == m < width and rows[m] == MASK_ID
                target = tuple(map(Point, rows))
                _, step = schedule.absorb(state, call, Reply(target[: m + 1], proposals, 0), Scripted({}).at(1))
                if (step.accepted, step.committed) != (h, (*draft[:h], rows[h])):
                    return answers, careless, f"{where}: accepts {step.accepted}, commits {list(step.committed)}"
                if m < width:
                    try:
                        _, step = schedule.absorb(state, call, Reply(target, proposals, 0), Scripted({}).at(1))
                    except ContractError:
                        continue
                    return answers, careless, f"{where}: padded rows are taken, commits {list(step.committed)}"
    return answers, careless, ""


# --- TAB2 -------------------------------------------------------------------------------------------------------------------


def check_rows(budget: Budget) -> list[Entry]:
    """TAB2: the layouts' rows for every size, and what the production scheduler counts for the calls of its loop."""
    most = 32 if budget == "quick" else 64
    counted = 0
    wrong: list[str] = []

    def compare(what: str, rows: int, formula: int) -> None:
        nonlocal counted
        counted += 1
        if rows != formula:
            wrong.append(f"{what}: {rows} rows, by the formula {formula}")

    prefix = (1, 2, 3)
    for block in range(2, most + 1):
        width = block - 1
        for m in sorted({0, 1, width - 1, width}):
            draft = tuple(range(m))
            drafting, verifying = nemotron(prefix, (), width, False, [0], 2), nemotron(prefix, draft, width, True, [], 2)
            for name, rows, formula in (
                ("linear", len(drafting) + len(verifying), 2 * block),
                ("quadratic", len(nemotron(prefix, draft, width, True, range(block), 2)), block * (block + 1)),
                ("packed", len(nemotron(prefix, draft, width, True, [0], 2)), 2 * block),
            ):
                compare(f"Nemotron layout, {name}, B = {block}, {m} draft tokens", rows, formula)
                compare(f"scheduler, {name}, B = {block}, {m} draft tokens", _loop_rows(name, width, draft), formula)
    maxima: defaultdict[tuple[str, int], int] = defaultdict(int)
    for p, u in itertools.product((0, 1), range(1, most + 1)):
        accepted, order, pairs = dict([(99, 5)] * p), range(1, u + 1), {1: 5}
        drafting, verifying = setdlm(accepted, order, {}, False, [0]), setdlm({}, order, pairs, True, [])
        for name, rows, formula in (
            ("linear", len(drafting) + len(verifying), p + 3 * u),
            ("quadratic", len(setdlm(accepted, order, pairs, True, range(u))), p + 2 * u + u * u),
            ("packed", len(setdlm(accepted, order, pairs, True, [0])), p + 3 * u),
        ):
            compare(f"SetDLM layout, {name}, p = {p}, u = {u}", rows, formula)
            for width in (8, 16):
                if u <= width:
                    maxima[name, width] = max(maxima[name, width], rows)
    for width, figures in ((8, (25, 81, 25)), (16, (49, 289, 49))):
        for name, figure in zip(("linear", "quadratic", "packed"), figures, strict=True):
            compare(f"SetDLM maximum, {name}, W = {width}", maxima[name, width], figure)
    statement = "rows an iteration: Nemotron 2B, B(B+1), 2B; SetDLM p+3u, p+2u+u^2, p+3u, at most 25/81/25 and 49/289/49"
    bound = f"Nemotron: B=2..{most}, drafts of 0, 1, W-1, W; SetDLM: p=0, 1, u=1..{most}; W=8 and 16"
    return [settle("TAB2", statement, "exhaustive", bound, wrong[0] if wrong else "", (), f"{counted:,} counts")]


def _loop_rows(name: str, width: int, draft: Tokens) -> int:
    """Rows that the scheduler counts in one pass of a schedule's loop whose verifying call has this draft."""
    schedule = named(name, width)
    state = schedule.resume((), (1,), Limits.of(999), Draft(draft, tuple(map(Point, draft))))
    rows = 0
    for phase in range(len(schedule.cycle)):
        rows += schedule.request(state._replace(phase=phase)).padded_rows
    return rows


CHECKS: tuple[Check, ...] = (
    Check("structure/starts", ("INIT", "NFE-CONV", "DRAFTLEN", "PROGRESS"), check_starts),
    Check("structure/stops", ("STOP", "STOPSEQ"), check_stops),
    Check("structure/branch0", ("BRANCH0",), check_branch_0),
    Check("structure/padding", ("PAD",), check_padding),
    Check("structure/rows", ("TAB2",), check_rows),
)
