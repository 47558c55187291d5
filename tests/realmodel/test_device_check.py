"""The device check, end to end on a CPU with tiny shapes; what it must notice; and one wait for the device per call."""

import json
import math
import statistics
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from realmodel import device_check
from realmodel.device_check import SHAPES, Check, cells, curves, main, median, random_model, waits
from realmodel.dualmode import DualModeModel
from realmodel.layout import fixed_attention, shape_of
from simulator.decode import generate
from simulator.errors import ContractError
from simulator.nfe.cost import load_curve, measured
from simulator.records import Call, Limits
from simulator.schedules import ar, linear, packed, quadratic

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One run of the whole, as from a shell."""
    file = tmp_path_factory.mktemp("device") / "check.json"
    assert main(["--device", "cpu", "--shape", "tiny", "--json", str(file)]) == 0
    return file


def test_every_part_is_in_the_file(result):
    found = json.loads(result.read_text())
    assert found["problems"] == []
    assert found["environment"]["torch"] == torch.__version__
    assert [each["schedule"] for each in found["syncs"]] == ["ar", "linear", "packed", "quadratic"]
    assert {dtype: part["verdict"] for dtype, part in found["certificate"].items()} in (
        {"bfloat16": "EXACT", "float32": "EXACT"},
        {"bfloat16": "TIES", "float32": "EXACT"},
    )
    assert [(part["shape"], part["prefix"], len(part["cells"])) for part in found["cost"]] == [("tiny", 16, 9), ("tiny", 40, 9)]


@pytest.mark.claim("TAB2")
def test_rows_of_the_timed_calls(result):
    """1, B, B, 2B, B(B + 1), as the session counted them."""
    for part in json.loads(result.read_text())["cost"]:
        for cell in part["cells"]:
            block = cell["block"]
            rows = {"ar": 1, "draft": block, "verify": block, "packed": 2 * block, "quadratic": block * (block + 1)}
            assert cell["rows"] == rows[cell["kind"]]
            call, network = cell["call"], cell["network"]
            assert 0 < call["low"] <= call["estimate"] <= call["high"]
            assert network["estimate"] <= call["estimate"]


def test_the_cost_model_takes_its_curves(result):
    for name in ("tiny/16/call", "tiny/40/network"):
        curve = load_curve(result, name)
        assert list(curve) == [1, 2, 4, 6, 8, 20]
        assert measured(curve)(8) == curve[8]


def test_shapes_are_those_of_the_models():
    """Parameters from the shapes; what a Nemotron's call is timed at."""
    for name, billions in (("nemotron-3b", 3.83), ("nemotron-8b", 8.49)):
        s = SHAPES[name]
        per_layer = s.hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads) + 3 * s.hidden * s.mlp
        assert s.layers * per_layer + 2 * s.vocabulary * s.hidden == pytest.approx(billions * 1e9, rel=0.002)
        assert [len(cells(s, prefix)) for prefix in (128, 1024)] == [1 + 3 * 4 + 3] * 2
    model = random_model(SHAPES["tiny"], "tiny", "cpu", "bfloat16")
    assert model.dtype == torch.bfloat16
    assert (
        sum(weight.numel() for weight in model.network.parameters())
        == 2 * (64 * 16 * 12 + 3 * 64 * 96 + 2 * 64) + 64 + 2 * 256 * 64
    )


def test_calls_of_equal_rows_share_a_point():
    def row(rows, seconds):
        return {"rows": rows, "call": {"estimate": seconds}, "network": {"estimate": seconds / 2}, "busy": None}

    assert curves("s", 8, [row(4, 1.0), row(4, 3.0), row(1, 1.0)]) == [
        {"name": "s/8/call", "times": {"1": 1.0, "4": 2.0}},
        {"name": "s/8/network", "times": {"1": 0.5, "4": 1.0}},
    ]


def test_the_interval_covers_the_median():
    """Distribution-free: of 2000 samples of a skewed law at least 95 % cover it, but for 5 standard errors (odds 3e-7)."""
    rng = np.random.default_rng(1)
    for count in (6, 7, 21):
        found = [median(list(rng.exponential(size=count))) for _ in range(2000)]
        covered = sum(each.low <= math.log(2) <= each.high for each in found)
        assert covered / 2000 > 0.95 - 5 * math.sqrt(0.05 * 0.95 / 2000)
    assert median([3.0, 1.0, 2.0]) == (2.0, None, None)
    assert median([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]) == (statistics.median([3.0, 4.0]), 1.0, 9.0)


# --- what it must notice ----------------------------------------------------------------------------------------------------


def test_a_part_that_fails_loses_nothing_else(tmp_path, monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("out of memory\nsecond line")

    monkeypatch.setattr(device_check, "random_model", broken)
    monkeypatch.setattr(device_check, "SCHEDULES", ("ar",))
    file = tmp_path / "check.json"
    assert main(["--device", "cpu", "--shape", "tiny", "--part", "cost", "--part", "syncs", "--json", str(file)]) == 1
    found = json.loads(file.read_text())
    assert found["problems"] == ["cost tiny: RuntimeError: out of memory"]
    assert len(found["syncs"]) == 1
    assert "1 problems" in capsys.readouterr().out


def test_what_there_was_no_time_for_is_said(tmp_path):
    file = tmp_path / "check.json"
    assert main(["--device", "cpu", "--shape", "tiny", "--part", "cost", "--seconds", "0", "--json", str(file)]) == 1
    assert json.loads(file.read_text())["problems"] == ["cost tiny: not run, the time is up"]


def test_a_wait_too_many_and_a_missing_certificate_are_problems(tmp_path, monkeypatch):
    check = Check("cpu", tmp_path / "check.json", 60)
    twice = {"waits": 2.0, "places": {"dualmode.py:7": 1.0}}
    monkeypatch.setattr(device_check, "waits", lambda *_: twice)
    monkeypatch.setattr(device_check, "SCHEDULES", ("packed",))
    check.attempt("syncs", lambda: check.syncs("float32"))
    certificates = [{"schedule": "packed", "verdict": "FAULT", "certified": False}]
    figures = {"certificates": certificates, "gap": math.inf}
    monkeypatch.setattr(device_check, "certificates", lambda *_: figures)
    check.attempt("certificate", lambda: check.certificate("float32"))
    assert check.problems == [
        "syncs packed: the host waits 2 times a call {'dualmode.py:7': 1.0}",
        "certificate float32 packed: FAULT",
    ]
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["syncs"] == [twice]
    assert found["certificate"]["float32"]["gap"] == "inf"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_one_line(capsys, tmp_path):
    assert main(["--json", str(tmp_path / "check.json")]) == 0
    assert capsys.readouterr().out == "skipped: there is no CUDA device here\n"
    assert not list(tmp_path.iterdir())


def test_an_old_transformers_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(device_check, "_version", lambda _: "5.17.0")
    assert main(["--device", "cpu", "--json", str(tmp_path / "check.json")]) == 2
    assert capsys.readouterr().err == "needs transformers >= 5.24, found 5.17.0\n"


# --- one wait a call --------------------------------------------------------------------------------------------------------


class Reads(TorchDispatchMode):
    """Counts the single numbers that are read off tensors: on a GPU, each of them is a wait."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("schedule", [ar(), linear(4), packed(4), quadratic(4)], ids=lambda s: s.name)
def test_a_greedy_call_brings_one_tensor_back(load_model, prompts, schedule, monkeypatch):
    """`tolist` once a call, and nothing else that a host would wait for."""
    lists = Counter()
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: [tolist(tensor), lists.update(["tolist"])][0])
    session = load_model("float32").session(padded=True)
    with Reads() as reads:
        run = generate(session, schedule, prompts[0], Limits.of(16))
    assert lists["tolist"] == run.nfe
    assert reads.count == 0


def test_the_profile_counts_reads(load_model, monkeypatch):
    """A planted `item` per call is seen."""
    model = load_model("float32")
    assert waits(model, "packed", calls=3)["events"] == {}
    session = type(model.session())
    logits = session.logits

    def peeking(self, call):
        rows, found = logits(self, call)
        found[0, 0].item()
        return rows, found

    monkeypatch.setattr(session, "logits", peeking)
    events = waits(model, "packed", calls=3)["events"]
    assert events == {"aten::_local_scalar_dense": 1.0, "aten::item": 1.0}


def test_logits_that_are_not_finite_are_refused_with_and_without_a_reply(load_model, prompts, monkeypatch):
    model = load_model("float32")
    head = model.network.lm_head
    monkeypatch.setattr(head, "forward", lambda hidden: type(head).forward(head, hidden).fill_(math.nan))
    call = Call(prompts[0], (), True, (0,), 3)
    for temperature in (0.0, 1.0):
        with pytest.raises(ContractError, match="not finite"):
            model.session(temperature)(call)
        with pytest.raises(ContractError, match="not finite"):
            model.session(temperature).logits(call)


class Event:
    """A CUDA event whose time has come once the host has waited for the tokens behind it."""

    waits, log = 0, []

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self, stream):
        self.log.append(self)

    def query(self):
        return self not in self.log

    def synchronize(self):
        Event.waits += 1
        self.log.clear()

    def elapsed_time(self, ended):
        assert self.query()
        assert ended.query()
        return 250.0  # ms


class OnCuda(DualModeModel):
    """A model that takes its CPU for a GPU; to ask it for the time is to wait."""

    def __init__(self, model):
        super().__init__(model.network, model.tokenizer, model.mask_token, model.name)
        self.device = torch.device("cuda")

    def put(self, tensor):
        return tensor

    def clock(self):
        raise AssertionError("a call waited to know the time")


def test_times_are_read_when_they_are_there(load_model, prompts, monkeypatch):
    """No wait for them behind replies; one behind bare logits, whose time is asked for at once."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: [tolist(tensor), Event.log.clear()][0])
    session = OnCuda(load_model("float32")).session()
    run = generate(session, packed(4), prompts[0], Limits.of(16))
    assert session.model_seconds == session.model_seconds == run.nfe / 4
    assert Event.waits == 0
    session.logits(Call(prompts[0], (), True, (0,), 4))
    assert session.model_seconds == (run.nfe + 1) / 4
    assert Event.waits == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_masks_begin_and_step_by_multiples_of_8(load_model, dtype):
    """Whatever the cache holds and in whatever order calls come; the buffer is the same one until it is too short."""
    session = load_model(dtype).session(padded=True)
    call, one = Call((1, 2, 3), (4, 5), True, (0,), 6), Call((1, 2, 3), (), True, (), 0)
    for cached in (*range(60, 90), 20, 3, 200):
        for each in (call, one):
            mask = session._mask(each, cached, 0)
            fixed = fixed_attention(*shape_of(each, True))
            assert mask.shape == (1, 1, len(fixed), cached + len(fixed))
            assert mask.data_ptr() % 16 == 0
            assert mask.stride(-1) == 1
            assert all(step % 8 == 0 for step in mask.stride()[:-1])
            assert (mask[0, 0, :, :cached] == 0).all()
            assert np.array_equal(mask[0, 0, :, cached:].isneginf().numpy(), ~fixed)
    assert session._mask(call, 4, 0).data_ptr() == session._mask(call, 9, 0).data_ptr()
    assert all(step % 8 == 0 for step in session._mask(call, 5, 6).stride()[:-1])


@pytest.mark.gpu
@gpu
def test_on_a_gpu(tmp_path):
    file = tmp_path / "check.json"
    assert main(["--shape", "tiny", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert [each["waits"] for each in found["syncs"]] == [1, 1, 1, 1]
    assert set(load_curve(file, "tiny/16/busy")) == {1, 2, 4, 6, 8, 20}
