# Every target sets up .venv by itself. Another interpreter: make PYTHON=python3.12 verify
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.packedss-installed

# Two workers fill two cores, so each keeps its numerics to one thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: verify test test-full lint proofs docs bench publish clean distclean

verify: $(READY)
	$(BIN)/packedss prove
	$(BIN)/packedss simulate
	$(BIN)/packedss validate --model embedded --prompts 6 --max-new-tokens 64

test: $(READY)
	$(PYTEST) --timeout 120

test-full: $(READY)
	$(PYTEST) --timeout 3600 -m ""

lint: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# Only changed files are copied, so only those, and what needs them, are compiled again.
PROOFS := $(notdir $(wildcard proofs_check/rocq/*.v))
proofs:
	@command -v coqc >/dev/null || { echo "make proofs needs coqc: apt-get install coq" >&2; exit 2; }
	@mkdir -p out/rocq
	@for file in _CoqProject $(PROOFS); do \
	  cmp -s proofs_check/rocq/$$file out/rocq/$$file || cp proofs_check/rocq/$$file out/rocq || exit; done
	@cd out/rocq && coq_makefile -f _CoqProject -o Makefile $(PROOFS)
	@$(MAKE) --no-print-directory -C out/rocq -j 2
	@echo "What was proved, in words: docs/proofs.md; as Rocq states it: packedss prove --check 'proved/*'"

docs: $(READY)
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "Read them: out/docs/index.html"

bench: $(READY)
	$(BIN)/python -m reports.bench

# The committed evidence: what is there already is kept, so an interrupted run goes on. The speeds are those of this machine.
RUNS := out/publish
EVIDENCE := $(addprefix $(RUNS)/,prove.json faults.json faults-model.json simulate.json validate-embedded.json \
  validate-temperature-1.json validate-any-order.json validate-smollm2.json audit.json)
publish: $(EVIDENCE)
	@# Of transformers' decoders, made by: packedss subjects --json FILE (hours)
	cp reports/published/subjects.json $(RUNS)/
	$(BIN)/packedss report --from $(RUNS) --to reports/published/report.html --markdown reports/published/report.md
	cp $(EVIDENCE) reports/published/

$(EVIDENCE): | $(READY)
$(RUNS)/%: QUIET = @mkdir -p $(RUNS); $(BIN)/packedss
$(RUNS)/prove.json:
	$(QUIET) prove --quiet --json $@
$(RUNS)/faults.json:
	$(QUIET) faults --quiet --json $@
$(RUNS)/faults-model.json:
	$(QUIET) faults --layer model --quiet --json $@
$(RUNS)/simulate.json:
	$(QUIET) simulate --drafter mixture:rate=0.0956,rho=0.7 -w 4 -w 8 -w 16 --quiet --json $@
$(RUNS)/validate-embedded.json:
	$(QUIET) validate -w 4 -w 8 --prompts 12 --max-new-tokens 64 --quiet --json $@ --trace $(RUNS)/embedded.trace.jsonl
$(RUNS)/validate-temperature-1.json:
	$(QUIET) validate --temperature 1 --start sampled --quiet --json $@
$(RUNS)/validate-any-order.json:
	$(QUIET) validate --model embedded-any-order -w 8 -w 16 --quiet --json $@ --trace $(RUNS)/any-order.trace.jsonl
$(RUNS)/validate-smollm2.json:
	$(QUIET) validate --model smollm2 --prompts 20 --max-new-tokens 128 --baselines --folder out/smollm2 --quiet --json $@
$(RUNS)/audit.json:
	$(QUIET) audit --prompts 12 --quiet --json $@

# The version is asked before a venv exists, so that a too old python leaves none behind.
# Asking for pip, not for the folder, also repairs a venv whose making was cut short.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "packedss needs Python 3.11 or newer; '$(PYTHON)' is not. Name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e '.[realmodel,report,dev]'
	@touch $@

clean:
	rm -rf out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean
	rm -rf .venv
