"""Hypothesis strategies: threshold vectors, texts with stops, and whole decoding requests, for your own property tests.

    from hypothesis import given
    from proofs_check.strategies import greedy_requests, thresholds

    @given(thresholds(2_000))
    def test_my_engine(c_star): ...

Everything is drawn from a short description (segments of a pattern, overlays on a periodic text), so that 2,000 positions cost
Hypothesis no more than 20 and a failure shrinks to few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from simulator.records import Tokens
from simulator.schedules import STARTS

MAX_LENGTH, MAX_WIDTH = 2_000, 64


class GreedyRequest(NamedTuple):
    """One greedy request to a threshold model. `source` is the Python that builds it from `simulator`."""

    name: str  # ar, linear, packed, quadratic, or branches:0,2,...
    start: str
    widths: tuple[int, ...]  # of the calls in turn; 0 drafts nothing
    thresholds: tuple[int, ...]  # c*_1 .. c*_L
    truth: Tokens  # the target's continuation
    vocabulary: int
    prompt: Tokens
    length: int  # L
    eos: Tokens = ()
    stop: tuple[Tokens, ...] = ()
    resumed: int | None = None  # resumed with so many tokens of the continuation out; None begins with the prompt
    draft: Tokens = ()  # and this draft for the positions after them

    def source(self) -> dict[str, str]:
        """What each of the variables of the program is."""
        resume, rival = "None", "None"
        if self.resumed is not None:
            laws = "".join(f"Point({token}), " for token in self.draft)
            output = self.truth[: self.resumed]
            resume = f"Resumption(schedule.resume(prompt, {output}, limits, Draft({self.draft}, ({laws}))), 0)"
            rival = f"Resumption(rival.resume(prompt, {output}, limits), 0)"
        return {
            "prompt": repr(self.prompt),
            "limits": _limits(self.length, self.eos, self.stop),
            "model": f"ThresholdModel({self.thresholds}, {self.truth}, {self.vocabulary}, {len(self.prompt)})",
            "name": repr(self.name),
            "start": repr(self.start),
            "schedule": _schedule(self.name, self.widths, self.start),
            "rival": _schedule("linear", self.widths, self.start),
            "resume": resume,
            "resume_rival": rival,
        }


class SampledRequest(NamedTuple):
    """One request to random tables of exact laws under given coins. `source` as in GreedyRequest."""

    name: str
    start: str
    width: int
    vocabulary: int
    seed: int  # of the tables
    top_weight: int  # of the tables: 1 makes zeros and ties frequent
    coins: str  # an expression of a Source
    prompt: Tokens
    length: int
    eos: Tokens = ()
    stop: tuple[Tokens, ...] = ()
    cut: int = 0  # the call after which the request is interrupted

    def source(self) -> dict[str, str]:
        """What each of the variables of the program is."""
        return {
            "prompt": repr(self.prompt),
            "limits": _limits(self.length, self.eos, self.stop),
            "model": f"random_tables({self.vocabulary}, {self.seed}, {self.top_weight})",
            "name": repr(self.name),
            "start": repr(self.start),
            "schedule": _schedule(self.name, (self.width,), self.start),
            "coins": self.coins,
            "cut": repr(self.cut),
        }


def _limits(length: int, eos: Tokens, stop: tuple[Tokens, ...]) -> str:
    return f"Limits.of({length}, {eos}, {stop})" if stop else f"Limits.of({length}, {eos})" if eos else f"Limits.of({length})"


def _schedule(name: str, widths: tuple[int, ...], start: str) -> str:
    width = widths[0] if len(widths) == 1 else widths
    if name == "ar":
        return f"ar({start!r})"
    if name.startswith("branches:"):
        counts = tuple(map(int, name.removeprefix("branches:").split(",")))
        return f"branches({counts}, {width}, {start!r})"
    return f"{name}({width}, {start!r})"


def sizes(largest: int, least: int = 0) -> SearchStrategy[int]:
    """Small ones, middling ones and large ones equally often."""
    bounds = [least, max(least, min(12, largest)), max(least, min(120, largest)), largest]
    return st.one_of(*(st.integers(low, high) for low, high in pairwise(bounds)))


@st.composite
def threshold_vectors(draw: DrawFn, length: int) -> tuple[int, ...]:
    """c*_1 .. c*_length with 0 <= c*_k <= k, in up to 4 segments, each of one pattern with a parameter g:

    zero      right from the start
    own       c*_k = k, never right before it is verified
    barrier   every g-th position is wrong until verified, the others right from the start
    sawtooth  the lag k - c*_k grows from 0 to g - 1 and falls back
    lag       right from g tokens before
    mixed     any threshold, from a small table gone through in turn
    """
    ends = sorted(draw(st.lists(st.integers(0, length), max_size=3))) + [length]
    vector: list[int] = []
    for end in ends:
        pattern, g = draw(st.sampled_from((*LAGS, "mixed"))), draw(sizes(100, 1))
        if pattern == "mixed":
            table = draw(st.lists(st.integers(0, 16), min_size=1, max_size=9))
            vector += [max(0, k - table[k % len(table)]) for k in range(len(vector) + 1, end + 1)]
        else:
            vector += _thresholds(pattern, g, len(vector) + 1, end)
    return tuple(vector)


# The lag k - c*_k of position k in each pattern: 0 means never right before it is verified, k right from the start.
LAGS: dict[str, Callable[[int, int], int]] = {
    "zero": lambda k, g: k,
    "own": lambda k, g: 0,
    "barrier": lambda k, g: 0 if k % g == 0 else k,
    "sawtooth": lambda k, g: k % g,
    "lag": lambda k, g: g,
}


def _thresholds(pattern: str, g: int, first: int, last: int) -> list[int]:
    lag = LAGS[pattern]
    return [max(0, k - lag(k, g)) for k in range(first, last + 1)]


def thresholds(max_length: int = MAX_LENGTH) -> SearchStrategy[tuple[int, ...]]:
    """Threshold vectors of any length up to `max_length`; see `threshold_vectors`."""
    return sizes(max_length).flatmap(threshold_vectors)


@st.composite
def texts(draw: DrawFn, length: int, vocabulary: int) -> tuple[Tokens, list[Tokens]]:
    """(a continuation of `length` tokens, the overlays in it): a word over 0 .. vocabulary - 3 over and over, with up to 3
    overlays anywhere, of any tokens; the last two ids occur in overlays alone, so that a stop may come late or never."""
    word = draw(st.lists(st.integers(0, vocabulary - 3), min_size=1, max_size=7))
    text = [word[k % len(word)] for k in range(length)]
    overlays = draw(st.lists(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=3).map(tuple), max_size=3))
    for overlay in overlays:
        place = draw(st.integers(0, length))
        text[place : place + len(overlay)] = overlay
    return tuple(text[:length]), overlays


def stops(vocabulary: int, overlays: Sequence[Tokens]) -> SearchStrategy[tuple[Tokens, tuple[Tokens, ...]]]:
    """(EOS ids, end markers), each perhaps none."""
    eos = st.sampled_from([(), (), (vocabulary - 1,), (vocabulary - 1, vocabulary - 2), (0,)])
    markers = st.sampled_from([(), (), tuple(overlays[:1]), tuple(overlays), ((vocabulary - 2, 0), (0, 0))])
    return st.tuples(eos, markers)


def starts(name: str) -> SearchStrategy[str]:
    """The starts that a schedule knows."""
    return st.sampled_from(STARTS if name != "ar" else ("algorithm", "prompt"))


NAMES = ("packed", "linear", "quadratic", "branches:0,2", "branches:1,3", "ar")


@st.composite
def greedy_requests(
    draw: DrawFn,
    names: Sequence[str] = NAMES,
    max_length: int = MAX_LENGTH,
    max_width: int = MAX_WIDTH,
    cycles: bool = True,  # widths that change between calls, 0 included
    resumptions: bool = True,
    drafts: bool = True,  # resumed requests may bring a draft
) -> GreedyRequest:
    """Requests to threshold models: sizes, thresholds, text, stops, schedule, start, widths, resumption."""
    name = draw(st.sampled_from(names))
    length = draw(sizes(max_length))
    if name not in ("packed", "linear", "ar") and length > 120:
        max_width = min(max_width, 8)  # a call drafts W + 1 branches
    least = 3 if name.startswith("branches") else 1
    width = draw(sizes(max_width, least))
    others = draw(st.lists(st.integers(0, width), max_size=3)) if cycles else []
    vocabulary = draw(st.integers(3, 6))
    prompt = draw(st.lists(st.integers(0, vocabulary - 1), max_size=2).map(tuple))
    truth, overlays = draw(texts(length, vocabulary))
    eos, markers = draw(stops(vocabulary, overlays))
    request = GreedyRequest(
        name=name,
        start=draw(starts(name)),
        widths=(width, *others),
        thresholds=draw(threshold_vectors(length)),
        truth=truth,
        vocabulary=vocabulary,
        prompt=prompt,
        length=length,
        eos=eos,
        stop=markers,
    )
    if resumptions and draw(st.booleans()):
        out = _running(truth, request, draw(st.integers(0, max(0, length - 1))))
        hits = draw(st.lists(st.sampled_from([True, True, False]), max_size=min(width, 12))) if drafts and name != "ar" else []
        following = [*truth[out:], *[0] * len(hits)]
        draft = tuple((token + (not hit)) % vocabulary for token, hit in zip(following, hits, strict=False))
        request = request._replace(resumed=out, draft=draft)
    return request


def _running(truth: Tokens, request: GreedyRequest, out: int) -> int:
    """The largest number of tokens up to `out` after which the request still runs."""
    for n in range(1, out + 1):
        if truth[n - 1] in request.eos or any(truth[:n][-len(marker) :] == marker for marker in request.stop):
            return n - 1
    return out


@st.composite
def coin_sources(draw: DrawFn) -> str:
    """An expression: coins of a seed; or up to 40 scripted ones, 0 and the largest below 1 among them, and one for the rest."""
    if draw(st.booleans()):
        return f"Sampled({draw(st.integers(0, 2**32))})"
    coin = st.one_of(
        st.sampled_from(["Fraction(0)", "1 - Fraction(1, 2**53)"]),
        st.tuples(st.integers(1, 20), st.integers(0, 19)).map(lambda n: f"Fraction({n[1] % n[0]}, {n[0]})"),
    )
    address = st.tuples(st.integers(1, 12), st.sampled_from(["draft", "test", "correct"]), st.integers(1, 16))
    table = draw(st.dictionaries(address, coin, max_size=40))
    rows = ", ".join(f"{at}: {value}" for at, value in table.items())
    return f"Scripted({{{rows}}}, otherwise={draw(coin)})"


@st.composite
def sampled_requests(draw: DrawFn, names: Sequence[str] = NAMES, max_length: int = 40, max_width: int = 12) -> SampledRequest:
    """Requests to `random_tables` under coins of Hypothesis's choice."""
    name = draw(st.sampled_from(names))
    vocabulary = draw(st.integers(2, 5))
    token = st.integers(0, vocabulary - 1)
    tokens: Any = st.lists(token, max_size=2).map(tuple)
    return SampledRequest(
        name=name,
        start=draw(starts(name)),
        width=draw(sizes(max_width, 3 if name.startswith("branches") else 1)),
        vocabulary=vocabulary,
        seed=draw(st.integers(0, 2**16)),
        top_weight=draw(st.integers(1, 6)),
        coins=draw(coin_sources()),
        prompt=draw(tokens),
        length=draw(sizes(max_length)),
        eos=draw(st.one_of(st.just(()), tokens)),
        stop=draw(st.lists(st.lists(token, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple)),
        cut=draw(st.integers(0, 12)),
    )


# --- corner cases -----------------------------------------------------------------------------------------------------------


def greedy_corners(
    names: Sequence[str] = NAMES, begun: Sequence[str] = STARTS, constant: bool = False, drafts: bool = True
) -> list[GreedyRequest]:
    """Every schedule under every start with every stop and resumption, small; and the largest sizes under every pattern."""
    ends: list[dict[str, Any]] = [{}, {"eos": (2,)}, {"stop": ((2, 3),)}, {"eos": (3,), "stop": ((0, 2),)}]
    resumed: list[dict[str, Any]] = [{}, {"resumed": 2}]
    resumed += [{"resumed": 2, "draft": (1, 0, 1)}] if drafts else []
    truth = (1, 1, 1, 0, 2, 3, 0)
    corners = [
        GreedyRequest(name, start, width, c_star, truth[: len(c_star)], 4, (3,), len(c_star), **stop, **again)
        for name, start in product(names, begun)
        if start in ("algorithm", "prompt") or name != "ar"
        for width in ([(3,)] if constant else [(3,), (4, 0, 2)])
        for c_star in ((), (0, 1, 3, 1, 2, 0, 7), (0,) * 7)
        for stop, again in product(ends, resumed)
        if not (again.get("draft") and name == "ar") and (c_star or not (again or stop))
    ]
    large = [("zero", 1, 2_000), ("own", 1, 400), ("barrier", 30, 2_000), ("sawtooth", 90, 1_000)]
    for (pattern, g, length), (name, start) in product(large, zip(names, begun, strict=False)):
        n = length if name in ("linear", "packed", "ar") else 100  # the others draft W + 1 branches
        c_star = tuple(_thresholds(pattern, g, 1, n))
        corners.append(GreedyRequest(name, start, (64,), c_star, (0, 1) * (n // 2), 3, (), n))
    return corners


def sampled_corners(names: Sequence[str] = NAMES) -> list[SampledRequest]:
    """Every schedule under every start with the smallest coin, the largest and some in between, with and without stops."""
    coins = ["Scripted({}, otherwise=Fraction(0))", "Scripted({}, otherwise=1 - Fraction(1, 2**53))", "Sampled(5)"]
    cases = product(names, STARTS, enumerate(coins), [((), ()), ((1,), ()), ((), ((0, 1), (2,)))])
    return [
        SampledRequest(name, start, 3 + 5 * (seed == 2), 3, seed, 2 + seed, coin, (1,), 7 + 24 * (seed == 2), eos, stop, 2)
        for name, start, (seed, coin), (eos, stop) in cases
        if start in ("algorithm", "prompt") or name != "ar"
    ]
