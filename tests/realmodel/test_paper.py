"""The protocol as a run: what is planned, that it resumes after kill -9, grades once, certifies, and ends in one line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import realmodel.certificate  # noqa: E402
import realmodel.efficiency  # noqa: E402
from realmodel.efficiency import Source  # noqa: E402
from realmodel.paper import certifying, grading, study  # noqa: E402
from realmodel.paper import run as paper  # noqa: E402
from realmodel.paper.grading import Answers, grade  # noqa: E402
from realmodel.paper.plan import PAPER_BLOCKS, Plan, blocks_of, tasks_of  # noqa: E402
from realmodel.paper.prompts import prompts_of  # noqa: E402
from realmodel.paper.run import Care, Engine, estimate, prepare  # noqa: E402
from realmodel.paper.study import BY_DESIGN, CORRECT, NFE, TOKENS, WALL  # noqa: E402
from realmodel.results import Results  # noqa: E402
from realmodel.tasks import TASKS, Grade  # noqa: E402
from realmodel.tasks import sandbox as isolation  # noqa: E402
from simulator import InvalidInput, packed  # noqa: E402

DATA = Path(__file__).parent / "tasks_data"
GSM8K = f"gsm8k={DATA / 'gsm8k.jsonl'}"
ALL = [
    GSM8K,
    f"humaneval={DATA / 'humaneval.jsonl'}",
    f"mbpp={DATA / 'mbpp.jsonl'}",
    f"math-500={DATA / 'math500.jsonl'}",
    f"writingbench={DATA / 'writingbench.jsonl'}",
]
CARE = Care(prompts=2, sampled=60, ties=2)


@pytest.fixture
def _short_rule(monkeypatch):
    """The rule layer has tests of its own and takes most of the time: here it only looks at the contract."""
    monkeypatch.setattr(realmodel.certificate, "_RULE_STAGES", ("contract",))
    realmodel.certificate._rule.cache_clear()
    yield
    realmodel.certificate._rule.cache_clear()


def planned(*tasks, **changes):
    told = {"blocks": blocks_of("linear=4,packed=4,quadratic=3"), "limit": 2, "cap": 8, "draws": 2} | changes
    return Plan(Source(told.pop("model", "embedded")), tasks_of(tasks or [GSM8K]), **told)


# --- the plan ---------------------------------------------------------------------------------------------------------------


def test_the_paper_s_settings():
    """Caps, draws, starts, widths and temperatures of E.1 to E.4, of every task."""
    plan = Plan(Source("embedded"), tasks_of(ALL), blocks=tuple(PAPER_BLOCKS.items()))
    jobs = plan.jobs(plan.problems(), PAPER_BLOCKS, None)
    assert [(job.temperature, job.task.name) for job in jobs] == [
        (temperature, word.split("=")[0]) for temperature in (0.0, 1.0) for word in ALL
    ]
    assert {job.task.name: job.cap for job in jobs} == {
        "gsm8k": 1024, "humaneval": 512, "mbpp": 512, "math-500": 1024, "writingbench": 512,
    }  # fmt: skip
    draws = {(job.temperature, job.task.name): job.draws for job in jobs}
    assert (draws[1.0, "humaneval"], draws[1.0, "mbpp"], draws[1.0, "gsm8k"], draws[0.0, "humaneval"]) == (20, 7, 1, 1)
    for job in jobs:
        assert [(each.schedule, each.width) for each in job.contenders] == [("linear", 31), ("packed", 31), ("quadratic", 7)]
        assert job.start == ("wide" if job.temperature == 0 else "sampled")
    # Rows of a proposal-only adapter at the paper's blocks (F.2).
    assert [(each.selected, each.evaluated) for each in jobs[0].contenders] == [(32, 32), (32, 64), (64, 72)]


def test_the_probe_is_on_ten_problems_of_gsm8k(tmp_path):
    rows = (DATA / "gsm8k.jsonl").read_text().splitlines()
    many = tmp_path / "many.jsonl"
    many.write_text("\n".join(rows[i % len(rows)] for i in range(12)))
    plan = Plan(Source("embedded"), tasks_of([f"gsm8k={many}"]), probe=(4, 8, 32))
    job = plan.probing(plan.problems())
    assert (len(job.problems), job.cap, job.temperature, job.draws) == (10, 512, 0.0, 1)
    widths = {name: [each.width for each in job.contenders if each.schedule == name] for name in ("linear", "quadratic")}
    assert widths == {"linear": [3, 7, 31], "quadratic": [3, 7]}  # 1,056 rows a call would be tried in vain


def test_any_order_models_are_greedy_in_both_orders():
    plan = planned(f"gsm8k-setdlm={DATA / 'gsm8k.jsonl'}", model="embedded-any-order", blocks=None, width=4, cap=None)
    [job] = plan.jobs(plan.problems(), {}, None)
    assert (job.start, job.cap, job.temperature) == ("prompt", 1024, 0.0)
    assert [(each.schedule, each.order) for each in job.contenders] == [
        *((name, order) for order in ("ltr", "confidence") for name in ("linear", "packed", "quadratic")),
        ("native", ""),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"blocks": None}, "the block-size probe runs on"),
        ({"temperatures": (0.7,)}, "temperatures are 0 and 1"),
        ({"schedules": ("packed", "turbo")}, "unknown schedule 'turbo'"),
        ({"blocks": (("linear", 1),), "schedules": ("linear",)}, "must lie in 2 .. 1024, got 1"),
        ({"blocks": (("linear", 4),)}, "packed has no block size"),
        ({"cap": 0}, "cap must be >= 1"),
        ({"draws": -1}, "draws must be >= 1"),
    ],
)
def test_a_plan_that_cannot_be_run(changes, said):
    with pytest.raises(InvalidInput, match=said):
        planned(f"mbpp={DATA / 'mbpp.jsonl'}", **changes)


def test_words_of_a_command_line():
    assert tasks_of(["humaneval,mbpp=a/b.jsonl", "gsm8k=c"]) == (
        ("humaneval", None), ("mbpp", Path("a/b.jsonl")), ("gsm8k", Path("c")),
    )  # fmt: skip
    assert dict(blocks_of("paper")) == PAPER_BLOCKS
    assert set(dict(blocks_of("16")).values()) == {16}
    for wrong in ("linear", "linear=x", "turbo=3", "linear=3,linear=4", ""):
        with pytest.raises(InvalidInput, match="block sizes are given as"):
            blocks_of(wrong)
    for wrong in ("", "mbpp="):
        with pytest.raises(InvalidInput, match="NAME or NAME=FILE"):
            tasks_of([wrong])


def test_files_that_are_missing_or_malformed(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"question": "q", "answer": "#### 4"}\n{"question": 5}\n')
    for file, said in (("none.jsonl", "cannot read the task file"), ("bad.jsonl", "line 2")):
        with pytest.raises(InvalidInput, match=said) as caught:
            prepare(planned(f"gsm8k={tmp_path / file}", limit=None))
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="unknown model 'nowhere'"):
        prepare(planned(model="nowhere"))
    with pytest.raises(InvalidInput, match=r"gsm8k, problem 1: .* positions"):
        prepare(planned(cap=5000))


# --- the run ----------------------------------------------------------------------------------------------------------------


def same_counts(one, other):
    """Everything but times."""
    for mine, theirs in zip(one.cells, other.cells, strict=True):
        assert (mine.task, mine.kind, mine.temperature) == (theirs.task, theirs.kind, theirs.temperature)
        assert [method[:3] for method in mine.methods] == [method[:3] for method in theirs.methods]
        for column in (TOKENS, NFE, CORRECT):
            np.testing.assert_array_equal(mine.runs[..., column], theirs.runs[..., column])


def linear_calls(made):
    """Start `wide`: one call that emits a token, then two an iteration (NFE-CONV)."""
    place = next(i for i, method in enumerate(made.methods) if method.schedule == "linear")
    iterations = made.runs[place, ..., study.ITERATIONS]
    np.testing.assert_array_equal(made.runs[place, ..., NFE], 1 + 2 * iterations)


@pytest.mark.usefixtures("_short_rule")
def test_a_run_from_the_probe_to_the_study(tmp_path):
    """Every cell is there, certified, graded and counted; a second run finds all of it and gives the same."""
    plan = planned(blocks=None, probe=(3, 4), schedules=("linear", "packed"), limit=1)
    first = paper.run(prepare(plan), tmp_path, care=CARE)
    assert [(cell.kind, cell.task, cell.temperature) for cell in first.cells] == [
        ("probe", "gsm8k", 0.0), ("task", "gsm8k", 0.0), ("task", "gsm8k", 1.0),
    ]  # fmt: skip
    assert set(first.words) <= {"EXACT", "TIES"}
    chosen = {method.schedule: method.width for method in first.cells[1].methods}
    probed = first.cells[0]
    for name, width in chosen.items():  # the highest tokens/s
        rates = {m.width: probed.runs[i, ..., TOKENS].sum() / probed.runs[i, ..., WALL].sum()
                 for i, m in enumerate(probed.methods) if m.schedule == name}  # fmt: skip
        assert width == max(rates, key=rates.get)
    graded = first.cells[1]
    assert (graded.runs[..., CORRECT] == 0).all()  # a model of a few weeks of text cannot do sums
    assert {reason.why for reason in graded.reasons} == {"it has no complete \\boxed{} answer"}
    assert (first.cells[2].runs[:, :, 0] != first.cells[2].runs[:, :, 1]).any()  # draws differ
    assert study.read(tmp_path).plain() == first.plain()
    linear_calls(first.cells[1])
    first.cells[1].runs[0, 0, 0, NFE] += 1
    with pytest.raises(AssertionError):
        linear_calls(first.cells[1])
    first.cells[1].runs[0, 0, 0, NFE] -= 1

    def never(*_):
        raise AssertionError("decoded or graded again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(realmodel.efficiency, "measure_prompt", never)
        patch.setattr(certifying, "certify", never)
        patch.setattr(certifying, "certify_sampling", never)
        patch.setattr(grading, "_name", lambda task, each, name=grading._name: name(task._replace(grader=never), each))
        assert paper.run(prepare(plan), tmp_path, care=CARE).plain() == first.plain()


DRIVER = """
import os, signal, sys
import realmodel.certificate, realmodel.efficiency
from realmodel.paper import grading
realmodel.certificate._RULE_STAGES = ("contract",)
left = {"decode": int(sys.argv.pop(1)), "grade": int(sys.argv.pop(1))}

def dying(name, does):
    def work(*args):
        done = does(*args)
        left[name] -= 1
        if left[name] == 0:  # the work is done, and not yet kept
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return work

realmodel.efficiency.measure_prompt = dying("decode", realmodel.efficiency.measure_prompt)
grading._problem = dying("grade", grading._problem)
grading._GRADERS = 1
from reports.cli import main
main()
"""


def killed(folder, decode, grade_, *words):
    told = [sys.executable, "-c", DRIVER, str(decode), str(grade_), "paper", "--folder", str(folder), "--quiet", *words]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        told, env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.usefixtures("_short_rule")
def test_kill_9_costs_the_prompt_in_flight(tmp_path):
    """Killed in the second cell's first prompt, then while grading it: what was finished is found, the outcome is the same."""
    words = ["--tasks", GSM8K, "--blocks", "linear=4,packed=4,quadratic=3", "--limit", "2", "--cap", "8", "--draws", "2"]
    words += ["--certify", "2", "--sampled", "60", "--ties", "2"]
    folder = tmp_path / "killed"
    # Calls of measure_prompt: 2 prompts of the first cell, 2 of transformers' generate, then the second cell's.
    assert killed(folder, 5, -1, *words).returncode == -signal.SIGKILL
    kept = {file.name: file.read_bytes() for file in (folder / "runs").iterdir()}
    assert len(kept) == 4
    assert len(study.read(folder).cells) == 1
    assert killed(folder, -1, 4, *words).returncode == -signal.SIGKILL  # 2 problems were graded before, which it asks for again
    assert len(list((folder / "runs").iterdir())) == 6
    again = killed(folder, -1, -1, *words)
    assert again.returncode == 0, again.stderr
    assert {name: (folder / "runs" / name).read_bytes() for name in kept} == kept
    whole = paper.run(prepare(planned()), tmp_path / "whole", care=CARE)
    same_counts(study.read(folder), whole)


@pytest.mark.usefixtures("_short_rule")
def test_out_of_memory_is_one_line_and_finished_prompts_stay(tmp_path, monkeypatch):
    measured = realmodel.efficiency.measure_prompt
    calls = []

    def second_fails(*args):
        calls.append(args)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has ...")
        return measured(*args)

    monkeypatch.setattr(realmodel.efficiency, "measure_prompt", second_fails)
    prepared = prepare(planned(temperatures=(0.0,), schedules=("linear",)))
    with pytest.raises(InvalidInput, match="out of memory while decoding gsm8k at temperature 0") as caught:
        paper.run(prepared, tmp_path, care=CARE)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    paper.run(prepared, tmp_path, care=CARE)
    assert len([args for args in calls if args[1].arms[0].schedule is not None]) == 3  # the second prompt once more


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    with pytest.raises(RuntimeError, match="shapes"), paper.in_memory("decoding"):
        raise RuntimeError("shapes differ")
    with pytest.raises(InvalidInput, match="out of memory while decoding"), paper.in_memory("decoding"):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")


@pytest.mark.slow
@pytest.mark.usefixtures("_short_rule")
def test_workers_make_times_contended(tmp_path):
    """The same counts from two processes, and a study that says that its times are none."""
    plan = planned(temperatures=(0.0,), schedules=("linear", "packed"))
    alone = paper.run(prepare(plan), tmp_path / "alone", care=CARE)
    shared = paper.run(prepare(plan), tmp_path / "shared", Engine("local", 2), CARE)
    assert (alone.contended, shared.contended) == (False, True)
    same_counts(alone, shared)


@pytest.mark.slow
@pytest.mark.usefixtures("_short_rule")
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_clusters_give_the_same_counts(tmp_path, engine):
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    plan = planned(temperatures=(0.0,), schedules=("linear", "packed"))
    shared = paper.run(prepare(plan), tmp_path / "shared", Engine(engine, 1), CARE)
    assert shared.contended
    same_counts(paper.run(prepare(plan), tmp_path / "alone", care=CARE), shared)


@pytest.mark.usefixtures("_short_rule")
def test_a_faulty_schedule_has_no_figures(tmp_path, monkeypatch):
    """A draft token believed without a check: its certificate says so, and the study carries it."""
    from realmodel.efficiency import Arm
    from realmodel.paper import plan as plans
    from tests.realmodel.test_validate import Unchecked

    good = packed(3, "wide")
    bad = plans.Contender("packed", "", 3, Arm(Unchecked("packed", good.opening, good.cycle), 3))
    made = plans._contender
    monkeypatch.setattr(plans, "_contender", lambda name, *rest: bad if name == "packed" else made(name, *rest))
    result = paper.run(prepare(planned(temperatures=(0.0,), schedules=("linear", "packed"))), tmp_path, care=CARE)
    assert {method.schedule: method.verdict for method in result.cells[0].methods} == {"linear": "EXACT", "packed": "FAULT"}
    parted = result.cells[0].trajectories[0]
    assert parted.different == parted.faults + parted.ties + (parted.different - parted.examined)
    assert parted.faults > 0


@pytest.mark.usefixtures("_short_rule")
def test_a_fault_beyond_the_certified_prompts_is_laid_to_the_arm_that_made_it(tmp_path, monkeypatch):
    """Outputs of the second prompt are changed after decoding, where only the first is certified."""
    from realmodel.paper.run import measure as measured

    def tampered(*args, **more):
        found = measured(*args, **more)
        records = tuple(
            r._replace(tokens=(*r.tokens[:3], (r.tokens[3] + 1) % 2048, *r.tokens[4:]))
            if (r.name, r.prompt) == ("packed", "2")
            else r
            for r in found.records
        )
        return realmodel.efficiency.Measurement(found.parameters, records, found.reused, found.damaged)

    monkeypatch.setattr(paper, "measure", tampered)
    result = paper.run(prepare(planned(temperatures=(0.0,), schedules=("linear", "packed"))), tmp_path, care=Care(1, 60, 2))
    assert {method.schedule: method.verdict for method in result.cells[0].methods} == {
        "linear": "EXACT", "packed": "FAULT",
    }  # fmt: skip
    [parted] = result.cells[0].trajectories
    assert (parted.different, parted.faults) == (1, 1)
    assert "2, output token 4" in parted.examples[0]


@pytest.mark.slow
@pytest.mark.parametrize("orders", [("ltr", "confidence")])
def test_the_any_order_half(tmp_path, orders):
    plan = planned(f"gsm8k-setdlm={DATA / 'gsm8k.jsonl'}", model="embedded-any-order", blocks=None, width=4, orders=orders)
    result = paper.run(prepare(plan), tmp_path, care=CARE)
    [cell] = result.cells
    verdicts = {(method.schedule, method.order): method.verdict for method in cell.methods}
    assert verdicts.pop(("native", "")) == BY_DESIGN
    assert set(verdicts.values()) <= {"EXACT", "TIES"}
    assert result.any_order
    # PROPC1: left to right, all schedules have the same outputs but for ties.
    ltr = [each for each in cell.trajectories if cell.methods[each.method].order == "ltr"]
    assert len(ltr) == 2
    assert all(each.faults == 0 for each in cell.trajectories)


@pytest.mark.slow
def test_setdlm_has_its_own_window_horizon_and_positions(tmp_path):
    from safetensors.torch import save_file

    from tests.realmodel.test_setdlm import state, tokenizer_of

    folder = tmp_path / "setdlm-gsm8k-smax8"
    folder.mkdir()
    _, weights = state()
    save_file({name: tensor for name, tensor in weights.items() if "lm_head" not in name}, folder / "model.safetensors")
    tokenizer = tokenizer_of(folder / "tokenizer.json")
    settings = {"model_type": "bd3lm", "length": 64, "mask_token_id": tokenizer.token_to_id("<|fim_middle|>")}
    (folder / "config.json").write_text(json.dumps(settings))
    plan = planned(f"gsm8k-setdlm={DATA / 'gsm8k.jsonl'}", model=str(folder), blocks=None, schedules=("linear", "packed"))
    prepared = prepare(plan)
    assert prepared.past == 2  # prompt and output need more than the 64 positions that it was trained on
    assert {each.width for job in prepared.provisional() for each in job.contenders} == {4}
    result = paper.run(prepared, tmp_path / "out", care=CARE)
    assert set(result.words) <= {"EXACT", "TIES"}


@pytest.mark.slow
@pytest.mark.usefixtures("_short_rule")
def test_the_whole_protocol_on_the_stand_in_of_nemotron(tmp_path):
    """All five tasks, both temperatures, bfloat16, the chat template and the proposal-only adapter."""
    from tests.realmodel.nemotron_stand_in import trained

    source = Source(f"{trained()}:lora", "bfloat16", trust_remote_code=True)
    plan = Plan(source, tasks_of(ALL), blocks=blocks_of("4"), limit=2, cap=8, draws=2)
    prepared = prepare(plan)
    times, memory = estimate(prepared, CARE)
    assert len(times) == 10
    assert 0 < memory.weights < memory.reference
    result = paper.run(prepared, tmp_path, care=CARE)
    assert len(result.cells) == 10
    assert "FAULT" not in result.words
    assert all(cell.runs[..., TOKENS].max() <= 8 for cell in result.cells)
    for cell in result.cells:  # writing is not graded
        assert np.isnan(cell.runs[..., CORRECT]).all() == (cell.task == "writingbench")


# --- prompts, estimate ------------------------------------------------------------------------------------------------------


def test_prompts_go_through_the_chat_template_if_there_is_one():
    from realmodel import load
    from tests.realmodel.nemotron_stand_in import BOS, home, write

    folder = write(home() / "templated")
    source = Source(str(folder), trust_remote_code=True)
    problems = TASKS["gsm8k"].problems(DATA / "gsm8k.jsonl", 2)
    model = load(str(folder), trust_remote_code=True)
    [(name, ids), _] = prompts_of(source, model, problems)
    assert name == problems[0].id
    assert ids.count(BOS) == 1
    assert ids[0] == BOS
    named = {model.tokenizer.token_to_id(word) for word in ("<user>", "<assistant>", "<think>", "</think>")}
    assert named <= set(ids)  # thinking off: an empty thought
    plain = load("embedded")
    [(_, ids), _] = prompts_of(Source("embedded"), plain, problems)
    assert plain.tokenizer.decode(list(ids)) == problems[0].text


def test_the_estimate_is_of_caps(monkeypatch):
    """Twice the cap, problems or draws is twice the time."""
    prepared = prepare(planned(temperatures=(1.0,)))
    [time], memory = estimate(prepared, CARE)
    assert time.most == pytest.approx(time.per_token * 8 * 2 * 2)
    assert (time.prompts, time.draws, time.cap, time.arms) == (2, 2, 8, 3)
    assert memory.reference == 2 * memory.weights  # float64 beside float32
    assert memory.needed > memory.weights + memory.reference


# --- grades -----------------------------------------------------------------------------------------------------------------


def counting(grades):
    asked = []

    def grader(problem, text):
        asked.append((problem.id, text))
        return grades(text)

    return TASKS["gsm8k"]._replace(grader=grader), asked


PROBLEMS = TASKS["gsm8k"].problems(DATA / "gsm8k.jsonl", 2)


def own_grades(store):
    """Two arms that answer otherwise, one after the other: each has its own grades."""
    task, _ = counting(lambda text: Grade(text == "right", "" if text == "right" else "wrong"))
    right = grade(task, [Answers(PROBLEMS[0], "arm a", ("right", "right"))], store)
    wrong = grade(task, [Answers(PROBLEMS[0], "arm b", ("wrong", "right"))], store)
    assert [each.correct for each in right[PROBLEMS[0].id, "arm a"]] == [True, True]
    assert [each.correct for each in wrong[PROBLEMS[0].id, "arm b"]] == [False, True]


def test_every_arm_has_its_own_grades(tmp_path):
    own_grades(Results(tmp_path))


def test_grades_of_another_arm_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "_name", lambda task, each: {"grades": task.name, "problem": each.problem.id})
    with pytest.raises(AssertionError):
        own_grades(Results(tmp_path))


def test_an_answer_is_graded_once(tmp_path):
    task, asked = counting(lambda text: Grade(True))
    answers = [Answers(problem, arm, ("same", "same", "other")) for problem in PROBLEMS for arm in ("a", "b")]
    first = grade(task, answers, Results(tmp_path))
    assert sorted(asked) == sorted((problem.id, text) for problem in PROBLEMS for text in ("same", "other"))
    assert grade(task, answers, Results(tmp_path)) == first
    assert len(asked) == 4
    # Another answer of the same draw, or a damaged file, is another matter.
    grade(task, [Answers(PROBLEMS[0], "a", ("same", "same", "new"))], Results(tmp_path))
    assert len(asked) == 6
    for file in tmp_path.iterdir():
        file.write_text(file.read_text()[:-9])
    assert grade(task, answers, Results(tmp_path)) == first


def test_a_grader_s_time_out_is_a_wrong_answer_with_a_reason(tmp_path):
    try:
        isolation.probed()
    except isolation.NoSandbox as none:
        pytest.skip(str(none))
    endless = isolation.Limits(seconds=0.5)
    task = TASKS["gsm8k"]._replace(grader=lambda *_: Grade(*isolation.run("while True: pass", "", endless)))
    found = grade(task, [Answers(PROBLEMS[0], "a", ("x",))], Results(tmp_path))
    assert found == {(PROBLEMS[0].id, "a"): [Grade(False, "stopped after 0.5 s")]}


def test_a_grader_that_cannot_run_ends_the_run(tmp_path):
    def refuses(_):
        raise isolation.NoSandbox("nothing here isolates an answer")

    task, _ = counting(refuses)
    with pytest.raises(InvalidInput, match="nothing here isolates"):
        grade(task, [Answers(problem, "a", ("x",)) for problem in PROBLEMS], Results(tmp_path))
