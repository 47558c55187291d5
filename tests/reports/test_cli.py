"""The command line as a user meets it: results, exit codes, one clear line for bad input, nothing half-written."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from proofs_check.ledger import Check, Entry
from reports import cli, output
from simulator import Limits, Sampled, generate, named, packed
from simulator.oracles import TabularModel, random_tables
from simulator.oracles.empirical import load_audits, replay_nfe


@pytest.fixture
def run(monkeypatch, capsys):
    """run('simulate -w 4') -> (exit code, standard output, standard error)"""

    def run(line):
        monkeypatch.setattr(sys, "argv", ["packedss", *line.split()])
        monkeypatch.setenv("COLUMNS", "200")  # no cell wraps
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


BAD = {
    "": "Missing command",
    "nonsense": "nonsense",
    "simulate --nonsense": "--nonsense",
    "simulate -s turbo": "allowed: ar, linear, packed, quadratic, branches:0,2,...",
    "simulate -s branches:0,9 -w 4": "between 0 and W = 4",
    "simulate -w 0": "W, must lie in 1 .. 1024, got 0",
    "simulate -w -3": "W, must lie in 1 .. 1024, got -3",
    "simulate -w 1025": "1 .. 1024",
    "simulate -s ar -w 0": "W, must lie in 1 .. 1024, got 0",
    "simulate -s ar --start cold": "allowed: algorithm, wide, sampled, prompt",
    "simulate -n 999999999999999 --runs 1": "length must lie in 0 .. 2^47 - 1",
    "simulate -n 99999999999999 --thresholds 1": "at most 1,000,000 tokens",
    "simulate -w four": "--width",
    "simulate -n -1": "must be an integer >= 0, got -1",
    "simulate --runs 0": "--runs must be >= 1",
    "simulate --drafter turbo": "unknown drafter family 'turbo'; allowed: geometric, ",
    "simulate --drafter geometric:mean=-1": "geometric: mean must be >= 0 and finite, got -1.0",
    "simulate --drafter mixture:rate=0.1,rho=1.5": "mixture: rho must be in 0 .. 1, got 1.5",
    "simulate --drafter empirical:/no/such/file": "/no/such/file",
    "simulate --eos-rate 2": "eos_rate must lie in 0 .. 1",
    "simulate --eos-rate 0.1 --trace t": "cannot go together",
    "simulate --seed -1": "seed",
    "simulate --start cold": "allowed: algorithm, wide, sampled, prompt",
    "simulate --thresholds 1,3": "c*_2 must lie in 0 .. 2, got 3",
    "simulate --thresholds -1": "c*_1 must lie in 0 .. 1, got -1",
    "simulate --thresholds 1,x": "integers separated by commas",
    "simulate --json /no/such/folder/file": "cannot write",
    "prove --budget huge": "'huge' is not one of 'quick', 'full'",
    "prove --strict --claim STOP": "leave out --check and --claim",
    "prove --smt-lib nonsense": "no SMT obligation is called 'nonsense'; allowed: LEMB1/fresh, ",
    "check turbo": "allowed: module:Object",
    "check no_such_module:Thing": "cannot load 'no_such_module:Thing'",
    "check packed --declares turbo": "unknown schedule 'turbo'",
    "check packed --limit 0": "--limit must be > 0",
    "check-acceptance turbo": "allowed: module:Object",
    "check-acceptance json:dumps --rounding 1": "--rounding must lie in 0 .. 1",
    "check-outputs /no/such/file --reference json:dumps": "cannot read '/no/such/file'",
    "check-outputs x --reference no-such-model": "unknown model 'no-such-model'",
    "check-outputs x --reference json:dumps --alpha 0": "--alpha must lie in 0 .. 1",
    "audit --maps -1": "--maps must be >= 0",
    "audit --start prompt --prompts 1": "start",
    "validate --prompt x --prompt-ids 5": "give one of them",
    "faults --row F99": "unknown row 'F99'; allowed: F01, ",
    "faults --layer cloud": "'rule', 'model'",
    "sweep --folder x --drafter turbo": "unknown drafter family 'turbo'",
    "sweep --folder x --drafter barrier:rate=0.1 --engine moon": "allowed: local, dask, ray",
    "sweep --folder x --drafter barrier:rate=0.1 -w 0": "widths must be integers in 1 .. 1024",
    "map --plot x.svg --drafter barrier:rate=0.1": "needs an X",
    "map --plot x.svg --from 1 --to 0": "must be below",
    "map --plot x.svg --drafter drift:early=12,late=X,turn=200": "no exact law",
    "prove --workers -1": "--workers must be >= 0",
    "prove --check nonsense": "no check is called 'nonsense'; allowed: a name in the ledger, or ",
    "prove --claim THM9": "no check is about 'THM9'; allowed: ",
    "simulate --json same --trace same": "both --json and --trace",
    "check-trace /no/such/file": "cannot read '/no/such/file'",
    "check-trace .": "cannot read '.'",
    "validate -w 0": "must lie in 1 .. 1024",
    "validate --max-new-tokens -1": "must be an integer >= 0",
    "validate --threads 0": "--threads must be >= 1",
    "validate --repeats 0": "--repeats must be >= 1",
    "validate --temperature -1": "--temperature must be >= 0",
    "validate --model no-such-model": "allowed: 'embedded'",
    "validate --dtype int8": "float64, float32, bfloat16",
    "validate --prompts 0": "1 .. 60",
    "validate --prompt-ids 5,2048": "outside the vocabulary",
    "validate --prompt-ids -5": "outside the vocabulary",
    "validate --prompt=": "at least 1 token",
    "validate --max-new-tokens 5000": "positions",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_exit_code_2(run, line):
    code, out, err = run(line)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("packedss: ")
    assert BAD[line] in err


def test_simulate(run, tmp_path):
    """c* = (1, 2, 1, 2, 0, 0), W = 4: Linear-SS commits 1, 2, 6 tokens after 2, 4, 6 calls; Packed-SS 1, 2, 4, 6."""
    file = tmp_path / "result.json"
    code, out, err = run(f"simulate -w 4 -n 6 --thresholds 1,2,1,2 --json {file}")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"replay: packedss simulate -w 4 -n 6 --thresholds 1,2,1,2 --json {file}"
    content = json.loads(file.read_text())
    assert content["command"] == "simulate"
    assert {row["schedule"]: row["nfe"] for row in content["rows"]} == {"ar": 6, "linear": 6, "packed": 4, "quadratic": 4}
    assert {row["schedule"]: row["rows"] for row in content["rows"]} == {"ar": 6, "linear": 30, "packed": 40, "quadratic": 120}


def test_simulations_repeat_and_never_break_the_theorem(run, tmp_path):
    def rows(seed):
        file = tmp_path / "r.json"
        assert run(f"simulate -n 60 --runs 20 -w 3 -w 7 --seed {seed} --quiet --json {file}")[:2] == (0, "")
        return json.loads(file.read_text())["rows"]

    first = rows(3)
    assert first == rows(3)
    assert first != rows(4)
    for row in first:
        assert row["runs"] == sum(row["nfe_histogram"].values()) == 20
        assert row["runs_with_more_calls_than_linear"] == 0 or row["schedule"] == "ar"
        interval = row["tokens_per_nfe"]
        assert interval["low"] <= interval["value"] == row["tokens"] / row["nfe"] <= interval["high"]
        assert abs(row["tokens_per_nfe_exact"] / interval["value"] - 1) < 0.2


def test_the_engine_and_the_scheduler_count_the_same(run, tmp_path):
    """A trace makes the scheduler count; without one it is the engine, on the same drafters."""
    line = "simulate -n 40 --runs 5 -w 4 --start wide --drafter mixture:rate=0.2,rho=0.5 --quiet"
    rows = []
    for trace in ("", f" --trace {tmp_path / 't'}"):
        file = tmp_path / "r.json"
        assert run(f"{line} --json {file}{trace}")[0] == 0
        rows.append([{k: v for k, v in row.items() if "exact" not in k} for row in json.loads(file.read_text())["rows"]])
    assert rows[0] == rows[1]
    assert all(row["nfe"] > 0 for row in rows[0])


def test_a_measured_drafter_is_simulated(run, tmp_path):
    """Four tokens from two contexts right: replayed with the prompt's own length, resampled to any."""
    file = tmp_path / "audit.json"
    prompt = {"name": "p", "output": [5, 6, 7, 8], "rows": ["11", "01", "10", "1"], "wide": "110", "measured": {}}
    audit = {"model": "m", "dtype": "float32", "width": 2, "start": "algorithm", "prompts": [prompt]}
    file.write_text(json.dumps({"packedss": "0", "command": "audit", "arguments": {}, "rows": [audit]}))
    result = tmp_path / "r.json"
    code, out, _ = run(f"simulate --drafter empirical:{file} -w 2 --json {result}")
    assert code == 0, out
    rows = {row["schedule"]: row for row in json.loads(result.read_text())["rows"]}
    assert rows["ar"]["nfe"] == rows["packed"]["tokens"] == 4
    assert rows["linear"]["nfe"] == 4  # right, right, its own; then a wrong one
    assert run(f"simulate --drafter resampled:{file} -w 2 -n 30 --runs 3 --quiet")[0] == 0
    code, out, err = run(f"simulate --drafter empirical:{file} -w 3")
    assert (code, out) == (2, "")
    assert "measured at W = 2" in err


@pytest.mark.parametrize("start", ["algorithm", "sampled"])
def test_traces_obey_the_rules(run, tmp_path, start):
    file, report = tmp_path / "t.jsonl", tmp_path / "report.json"
    assert run(f"simulate -n 20 --runs 2 -w 3 -w 5 --start {start} --quiet --trace {file}")[:2] == (0, "")
    code, out, _ = run(f"check-trace {file} --json {report}")
    assert code == 0
    assert "holds: 16 requests" in out
    assert "320 tokens" in out
    assert "not checked" not in out
    [row] = json.loads(report.read_text())["rows"]
    assert (row["verdict"], row["requests"], row["violated"]) == ("holds", 16, 0)
    assert row["checked"]["NFE-CONV"] > 0  # by rule


def test_a_broken_trace_is_explained(run, tmp_path):
    file = tmp_path / "t.jsonl"
    run(f"simulate -s packed -n 20 --runs 1 -w 3 --quiet --trace {file}")
    assert run(f"check-trace {file} --quiet")[:2] == (0, "")
    code, out, _ = run(f"check-trace {file} --policy linear")
    assert code == 1
    assert "line 3, request 0, call 1: no rule explains this step" in out
    assert "nearest rule  INIT" in out
    file.write_text('{"trace": "packedss", "version": 1}\n')
    assert run(f"check-trace {file}")[0] == 2  # nothing was checked
    file.write_bytes(b"\xff\xfe\x00 not a trace")
    code, out, err = run(f"check-trace {file}")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_no_tokens_no_calls(run):
    code, out, _ = run("simulate -n 0 --runs 2")
    assert code == 0
    assert "0.0" in out


def test_prove(run, tmp_path, monkeypatch):
    file = tmp_path / "ledger.json"
    code, out, _ = run(f"prove --check chain/packed/algorithm --json {file}")
    assert code == 0
    assert "THM3.3 holds (exact)" in out
    assert " open " not in out  # it shows what was asked for
    [row] = [row for row in json.loads(file.read_text())["rows"] if row["id"] == "THM3.3"]
    assert (row["verdict"], row["method"]) == ("holds", "exact")
    assert {check["check"] for check in row["checks"]} == {"chain/packed/algorithm"}


RULES = """
def ratio(p, q, draft, coins, reuse=False):
    out = []
    for i, token in enumerate(draft):
        u = coins.random()
        if u * q[i][token] < p[i][token]:
            out.append(token)
            continue
        residual = [max(a - b, 0) for a, b in zip(p[i], q[i])]
        return [*out, coins.choose(p[i] if reuse or not any(residual) else residual)]
    return [*out, coins.choose(p[len(draft)])]

def from_p(p, q, draft, coins):
    return ratio(p, q, draft, coins, reuse=True)
"""


def test_check_acceptance(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_own_rules.py").write_text(RULES)
    code, out, _ = run("check-acceptance my_own_rules:ratio --json report.json")
    assert code == 0, out
    assert json.loads((tmp_path / "report.json").read_text())["rows"][0]["verdict"] == "EXACT"
    code, out, _ = run("check-acceptance my_own_rules:from_p")
    assert code == 1
    assert "LAW (law1)" in out
    assert "from my_own_rules import from_p" in out


REFERENCE = """
from simulator.oracles import random_tables
tables = random_tables(4, seed=1, top_weight=3)
"""


def test_check_outputs(run, tmp_path, monkeypatch):
    """Seed 0; the right log is rejected with odds of at most 0.01, the one drawn from the proposals must be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_own_reference.py").write_text(REFERENCE)
    tables = random_tables(4, seed=1, top_weight=3)
    drafter = TabularModel(lambda prefix: tables.proposal(prefix, 1), tables.proposal)
    for name, model in (("right", tables), ("wrong", drafter)):
        with (tmp_path / name).open("w") as log:
            for seed in range(60):
                tokens = generate(model, packed(2), (0,), Limits.of(10), Sampled(seed)).tokens
                log.write(json.dumps({"prompt": [0], "output": tokens, "temperature": 1, "max_new_tokens": 10}) + "\n")
    code, out, _ = run("check-outputs right --reference my_own_reference:tables --state seen --json report.json")
    assert code == 0, out
    assert "NOTHING FOUND" in out
    assert json.loads((tmp_path / "report.json").read_text())["rows"][0]["tokens"] == 600
    assert run("check-outputs right --reference my_own_reference:tables --state seen")[0] == 0
    code, out, _ = run("check-outputs wrong --reference my_own_reference:tables")
    assert code == 1
    assert "LAW (sampling)" in out
    (tmp_path / "seen").write_text("{")
    assert run("check-outputs right --reference my_own_reference:tables --state seen")[0] == 2
    (tmp_path / "wrong").write_text('{"prompt": [0]}\n')
    code, out, err = run("check-outputs wrong --reference my_own_reference:tables")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "line 1" in err


def test_faults(run, tmp_path):
    file = tmp_path / "matrix.json"
    code, out, _ = run(f"faults --row F20 --row C01 --workers 1 --json {file}")
    assert code == 0, out
    assert "count" in out
    assert "controls of 1 kinds pass" in out
    assert {row["id"] for row in json.loads(file.read_text())["rows"]} == {"F20", "C01"}


def test_sweep_goes_on_with_what_is_there(run, tmp_path):
    line = (
        f"sweep --folder {tmp_path / 'cells'} --drafter geometric:mean=2 --drafter barrier:rate=0.2 -w 3 -w 5 -n 40 --runs 50"
    )
    code, out, _ = run(f"{line} --workers 1 --json {tmp_path / 'a.json'}")
    assert code == 0
    assert "packed" in out
    files = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "cells").iterdir()}
    assert len(files) == 2 * (1 + 3 * 2)  # AR has no width
    assert run(f"{line} --workers 1 --quiet --json {tmp_path / 'b.json'}")[:2] == (0, "")
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "cells").iterdir()} == files
    assert json.loads((tmp_path / "a.json").read_text())["rows"] == json.loads((tmp_path / "b.json").read_text())["rows"]


def test_pictures(run, tmp_path):
    pytest.importorskip("matplotlib")
    for name, line in {
        "simulate.svg": "simulate -n 30 --runs 20 -w 4",
        "sweep.png": f"sweep --folder {tmp_path / 'c'} --drafter barrier:rate=0.1 --drafter barrier:rate=0.3 -n 30 --runs 20",
        "map.svg": "map --steps 3 -w 2 -w 3",
        "sets.svg": "map --steps 3 -w 3 --branches",
    }.items():
        code, _, err = run(f"{line} --plot {tmp_path / name}")
        assert code == 0, err
        assert (tmp_path / name).stat().st_size > 1000
    assert run(f"simulate -w 3 -w 4 --plot {tmp_path / 'x.svg'}")[0] == 2
    assert run(f"simulate --plot {tmp_path / 'x.gif'}")[0] == 2
    assert not list(tmp_path.glob("x.*"))


def test_an_smt_obligation_as_text(run):
    code, out, _ = run("prove --smt-lib LEMB1/fresh")
    assert code == 0
    assert "(check-sat)" in out
    assert "replay" not in out  # another solver reads it


MINE = """
from simulator import Schedule, packed

class Greedy(Schedule):
    def absorb(self, state, call, reply, chance):
        after, step = super().absorb(state, call, reply, chance)
        return after._replace(draft=type(after.draft)()), step._replace(retained=0)

right = packed(2)
slow = Greedy("slow", (), packed(3).cycle)
"""


def test_check(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_own_schedule.py").write_text(MINE)
    code, out, _ = run("check my_own_schedule:right --json report.json")
    assert code == 0
    assert "my_own_schedule:right: EXACT" in out
    assert json.loads((tmp_path / "report.json").read_text())["rows"][0]["verdict"] == "EXACT"
    code, out, _ = run("check my_own_schedule:slow --declares packed")
    assert code == 1
    assert "EXACT, OTHER COUNTS" in out
    assert "from my_own_schedule import slow" in out


def entry(claim, outcome):
    return [Entry(claim, "a statement", "exact", "one instance", outcome, "evidence")]


@pytest.mark.parametrize(
    ("outcome", "options", "code"),
    [
        ("holds", "", 0),
        ("holds", " --strict", 2),
        ("violated", " --strict", 1),
        ("not run", "", 2),
    ],
)
def test_prove_exits_with_what_it_found(run, monkeypatch, outcome, options, code):
    check = Check("some/check", ("THM3.3",), lambda budget: entry("THM3.3", outcome))
    monkeypatch.setattr("proofs_check.checks.all_checks", lambda: [check])
    exit_code, out, _ = run("prove --workers 1" + options)
    assert exit_code == code
    assert f"THM3.3 {outcome}" in out
    assert "PROPC1 open" in out
    assert ("some/* (1)" if outcome == "holds" else "some/check") in out


def test_an_interrupted_ledger_shows_what_it_has(run, monkeypatch, tmp_path):
    def interrupted(budget):
        raise KeyboardInterrupt

    checks = [Check("first", ("STOP",), lambda budget: entry("STOP", "holds")), Check("second", ("INIT",), interrupted)]
    monkeypatch.setattr("proofs_check.checks.all_checks", lambda: checks)
    code, out, _ = run(f"prove --workers 1 --json {tmp_path / 'ledger.json'}")
    assert code == 130
    assert "STOP holds (exact)" in out
    assert "interrupted: 1 of 2 checks did not run" in out
    assert " open " not in out
    assert not list(tmp_path.iterdir())


def test_validate(run, tmp_path):
    pytest.importorskip("torch")
    file, trace = tmp_path / "validation.json", tmp_path / "t.jsonl"
    line = f"validate --prompts 2 --max-new-tokens 12 -w 4 --start sampled --folder {tmp_path / 'cells'} --json {file}"
    code, out, _ = run(f"{line} --trace {trace} --details")
    assert code == 0, out
    assert "EXACT 2/2" in out
    assert "start 'sampled'" in out
    assert "accepted by draft position" in out
    assert "a proposal-only adapter, padded: computed for 10 rows, applied to 5" in out  # Packed-SS, B = 5
    assert "Linear at W = 4 is 1 (F.3): " in out
    assert "F.1" not in out  # there is one width
    [result] = json.loads(file.read_text())["rows"]
    assert [certificate["schedule"] for certificate in result["certificates"]] == ["ar", "linear", "packed", "quadratic"]
    assert {certificate["verdict"] for certificate in result["certificates"]} == {"EXACT"}
    assert run(f"check-trace {trace} --quiet")[0] == 0
    before = {run["prompt"]: run["wall"] for run in result["runs"]}
    assert run(f"{line} --quiet")[0] == 0  # taken from the folder: the same times
    assert {each["prompt"]: each["wall"] for each in json.loads(file.read_text())["rows"][0]["runs"]} == before


def test_audit(run, tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "audit.json"
    code, out, _ = run(f"audit --prompts 1 --max-new-tokens 12 -w 3 --json {file}")
    assert code == 0
    assert "ASM3.1" in out
    [recordings] = load_audits(file).values()
    assert recordings.width == 3
    measured = recordings.prompts[0].measured
    assert replay_nfe(recordings, [(name, named(name, 3)) for name in measured]) == [measured]


def test_interrupted_writing_leaves_nothing(tmp_path):
    """Ctrl-C in the middle of writing: the old file stays, no part file is left."""
    file = tmp_path / "result.json"
    file.write_text("old")

    def interrupted():
        yield "{ half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        output.write_whole(file, interrupted())
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert file.read_text() == "old"


def test_results_go_through_links_and_devices_and_are_readable(tmp_path):
    """What `> FILE` of a shell would do."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    output.write_whole(link, ["new"])
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert target.stat().st_mode & 0o777 == 0o640
    umask = os.umask(0o022)
    try:
        output.write_whole(tmp_path / "fresh", ["new"])
    finally:
        os.umask(umask)
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o644
    output.write_whole(Path("/dev/null"), ["new"])
    assert Path("/dev/null").is_char_device()


def test_json_is_json_whatever_the_numbers(tmp_path):
    file = tmp_path / "x.json"
    output.write_json(file, "c", {1: float("inf")}, [(float("nan"), Fraction(1, 3), None, True)])
    content = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert (content["arguments"], content["rows"]) == ({"1": "inf"}, [["nan", "1/3", None, True]])


def test_interrupted_command_exits_with_130(run, monkeypatch, tmp_path):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.nfe.counting._Plan.run", interrupted)
    code, out, err = run(f"simulate --json {tmp_path / 'x'}")
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["prove --check chain/packed/algorithm --workers 1", "simulate -n 8 --runs 2"])
def test_light_commands_start_without_torch(command):
    """Neither torch nor transformers is imported by `prove` and `simulate`."""
    script = (
        "import sys; from reports import cli\n"
        f"sys.argv = ['packedss', *{command.split()!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
