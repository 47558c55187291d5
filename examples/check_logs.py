"""Logs of an engine nobody can open: the outputs against a model, and, if it logs its calls, the calls against the rules.

Writes the two kinds of log that `packedss` reads, JSON Lines both, and checks them as the command line would:

    packedss check-outputs outputs.jsonl --reference embedded
    packedss check-trace trace.jsonl --policy packed

    python examples/check_logs.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from proofs_check import check_outputs, check_trace
from simulator import Limits, Sampled, generate, packed
from simulator.oracles import random_tables
from simulator.trace import TracedRequest, trace_lines

model = random_tables(vocabulary=6, seed=0)
limits = Limits.of(30, eos=5)
runs = [generate(model, packed(4), (0, seed % 5), limits, Sampled(seed)) for seed in range(80)]

with tempfile.TemporaryDirectory() as folder:
    outputs, trace = Path(folder, "outputs.jsonl"), Path(folder, "trace.jsonl")

    # What came out: prompt, output and sampling settings of every request.
    with outputs.open("w") as log:
        for seed, run in enumerate(runs):
            request = {"prompt": [0, seed % 5], "output": run.tokens, "temperature": 1.0, "max_new_tokens": 30, "eos": [5]}
            log.write(json.dumps(request) + "\n")
    with outputs.open() as log:
        print(check_outputs(log, model), end="\n\n")

    # What each call did. Only `committed` is required of a step; the more a log says, the more can be checked.
    requests = [TracedRequest(f"request {i}", "packed", (0, i % 5), limits, run, 4, "algorithm") for i, run in enumerate(runs)]
    trace.write_text("\n".join(trace_lines(requests)))
    with trace.open() as log:
        report = check_trace(log)
    print(f"trace: {report.verdict}, {report.calls} calls of {report.requests} requests")

    # One call that kept one draft token too many:
    lines = trace.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if '"retained": 2' in line)
    lines[number] = lines[number].replace('"retained": 2', '"retained": 3')
    (found,) = check_trace(lines).violations
    print(f"damaged: line {found.line}, call {found.call}: {found.rule}, expected {found.expected}, found {found.found}")
