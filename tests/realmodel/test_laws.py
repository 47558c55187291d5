"""Torch laws answer what the rational and numpy ones answer, and a session hands them out without leaving its device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from realmodel.laws import TorchLaw
from realmodel.parity import draft_logits
from realmodel.reference import causal_logits
from simulator import ArrayLaw, Limits, Point, RationalLaw, Sampled, exact_law, generate, packed, quadratic
from simulator.laws import SparseLaw, dense
from simulator.oracles import TabularModel
from simulator.processing import Processing, processed
from simulator.records import Call
from spec import Given, sampling

TOP = 1 - 2.0**-53


def floats(law):
    return [float(p) for p in law.probabilities]


def row(probabilities):
    return TorchLaw(torch.tensor(probabilities, dtype=torch.float64))


BACKENDS = {
    "torch": lambda law: row(floats(law)),
    "array": lambda law: ArrayLaw(floats(law)),
    "sparse": lambda law: SparseLaw(law.support, [float(law.probability(token)) for token in law.support]),
    "rational": lambda law: law,
}


# --- the battery of tests/conftest.py ---------------------------------------------------------------------------------------


def test_laws(law_battery):
    assert law_battery.check_laws(BACKENDS["torch"]) > 1500


@pytest.mark.claim("SPARSEQ")
@pytest.mark.parametrize("pair", ["torch torch", "torch sparse", "sparse torch"])
def test_verdicts(pair, law_battery):
    """Dense targets on the device against proposals on it, sparse proposals, and the other way round."""
    target, proposal = pair.split()
    assert law_battery.check_verdicts(BACKENDS[target], BACKENDS[proposal]) > 40_000


def test_processing(law_battery):
    assert law_battery.check_processing(BACKENDS["torch"]) > 8000


def test_rounding(law_battery):
    law_battery.check_rounding(row)


def test_the_exact_law_of_the_torch_code_on_a_dyadic_table():
    p, q = RationalLaw.weighted([2, 1, 1]), RationalLaw.weighted([1, 2, 1])
    models = [TabularModel(lambda prefix, f=f: f(p), lambda prefix, j, f=f: f(q)) for f in (BACKENDS["torch"], lambda law: law)]
    ours, exact = (exact_law(packed(2), model, (), Limits.of(3)) for model in models)
    assert ours.output == exact.output


# --- by hand ----------------------------------------------------------------------------------------------------------------


def test_a_row_is_float64_and_stays_where_it_is():
    law = TorchLaw(torch.tensor([0.25, 0.0, 0.75], dtype=torch.float32))
    assert law.probabilities.dtype == torch.float64
    assert law.certain is None
    proposals = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
    assert TorchLaw(proposals[1]).probabilities.data_ptr() == proposals[1].data_ptr()  # a view, no copy
    assert isinstance(law.residual(TorchLaw(torch.tensor([1.0, 0.0, 0.0]))), TorchLaw)


@pytest.mark.parametrize("q", [Point(0), Point(9), RationalLaw([0, 0, 0, 1]), SparseLaw([2, 7], [0.5, 0.5]), row([0.5, 0.5])])
def test_a_residual_against_laws_of_other_vocabularies(q):
    """F40: what a proposal says of tokens outside the vocabulary removes nothing."""
    p = [0.25, 0.25, 0.5]
    mass = [max(x - float(q.probability(token)), 0) for token, x in enumerate(p)]
    assert dense(row(p).residual(q), 3).tolist() == [m / sum(mass) for m in mass]


def test_a_sum_that_does_not_ascend_never_draws_an_impossible_token(monkeypatch):
    """A device may add in parallel, so a cumulative sum can rise by rounding where a token has no mass, and fall again."""
    law = row([0.5, 0.0, 0.25, 0.25])
    wavering = torch.tensor([0.5, 0.5 + 2.0**-52, 0.75 - 2.0**-53, 1.0], dtype=torch.float64)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: wavering)
    assert law.draw(0.5) == 2
    assert law.draw(0.75) == 3
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: wavering * 0.9)
    assert law.draw(0.95) == 3


# --- numpy and torch are one law, bit for bit, on the CPU -------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [4, 2048, 50_000])
def test_torch_equals_numpy_bit_for_bit(size, threads):
    """Cumulative sums, residuals, temperatures and draws at random coins and within one ulp of a boundary, on 1 or 2
    threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rng = np.random.default_rng(size)
        for _ in range(3):
            p, q = (torch.softmax(torch.from_numpy(rng.normal(size=size) * 3), -1) for _ in range(2))
            ours, theirs = TorchLaw(p), ArrayLaw(p.numpy())
            pairs = [(ours, theirs), (ours.residual(TorchLaw(q)), theirs.residual(ArrayLaw(q.numpy())))]
            pairs.append(tuple(Processing(temperature=0.7)((), law) for law in pairs[0]))
            for a, b in pairs:
                assert np.array_equal(dense(a, size), dense(b, size))
                edges = rng.choice(np.cumsum(dense(b, size)), 5)
                for u in [*rng.random(5).tolist(), *edges.tolist(), *np.nextafter(edges, 0).tolist()]:
                    assert a.draw(min(u, TOP)) == b.draw(min(u, TOP))
    finally:
        torch.set_num_threads(before)


@pytest.mark.gpu
def test_a_gpu_row_draws_what_the_cpu_draws_away_from_edges(law_battery):
    """2000 coins on rows of 50,000 tokens; sums differ by less than 1e-12, so coins are kept that far from every edge."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    law_battery.check_verdicts(*[lambda law: TorchLaw(torch.tensor(floats(law), dtype=torch.float64, device="cuda"))] * 2)
    rng = np.random.default_rng(0)
    tested = 0
    for _ in range(20):
        host = torch.softmax(torch.from_numpy(rng.normal(size=50_000) * 3), -1)
        device, edges = TorchLaw(host.cuda()), np.cumsum(host.numpy())
        for u in rng.random(100).tolist():
            if np.abs(edges - u).min() > 1e-12:
                assert device.draw(u) == TorchLaw(host).draw(u)
                tested += 1
    assert tested > 1900


# --- in a session -----------------------------------------------------------------------------------------------------------


def test_a_session_hands_out_torch_laws_on_its_device(model64, prompts):
    call = Call(prompts[0][:20], prompts[0][20:23], verify=True, branches=(0,), width=4)
    reply = model64.session(temperature=1.0)(call)
    assert [type(law) for law in (*reply.target, *reply.proposals[0])] == [TorchLaw] * 8
    assert all(law.probabilities.device == model64.device for law in reply.target)
    sums = [float(law.probabilities.sum()) for law in (*reply.target, *reply.proposals[0])]
    assert sums == pytest.approx([1] * 8, abs=1e-12)


@pytest.mark.claim("SPARSEQ")
@pytest.mark.parametrize("how", [Processing(top_k=8), Processing(temperature=0.8, top_p=0.5)], ids=["top-k", "top-p"])
@pytest.mark.parametrize("maker", [packed, quadratic])
def test_a_processed_session_agrees_with_algorithm_2_on_separate_calls(model64, prompts, maker, how):
    """The literal Algorithm 2 under the same coins, its rows processed straight from the logits of separate forwards."""
    prompt, width, length = prompts[3][:24], 3, 8

    def process(logits):
        p = torch.softmax(logits / how.temperature, -1).numpy()
        order = sorted(range(len(p)), key=lambda token: (-p[token], token))
        size = how.top_k or 1 + int((np.cumsum(p[order]) < how.top_p).sum())
        law = np.zeros(len(p))
        law[order[:size]] = p[order[:size]]
        return tuple((law / law.sum()).tolist())

    def proposal(prefix, i):
        logits = draft_logits(model64, prefix, width)[i - 1].clone()
        logits[model64.mask_token] = -torch.inf
        return process(logits)

    coins = Sampled(seed=5)
    literal = sampling.run(
        maker(width).name,
        Given(prompt, width, length, lambda prefix: process(causal_logits(model64, prefix)[-1]), proposal, {model64.eos}),
        lambda call, position: coins.at(call).uniform("test", position),
        lambda law, purpose, call, position: ArrayLaw(law).draw(coins.at(call).uniform(purpose, position)),
        "algorithm",
    )
    session = processed(model64.session(temperature=1.0), how)
    run = generate(session, maker(width), prompt, Limits.of(length, model64.eos), coins)
    assert prompt + run.tokens == literal.P
    assert [step.accepted for step in run.steps] == [record.h for record in literal.records]
    reply = session(Call(prompt, (), verify=True, branches=(0,), width=1))
    assert isinstance(reply.proposals[0][0], SparseLaw)
    assert len(reply.target[0].ids) < model64.vocabulary / 4
