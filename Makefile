# Every target sets up .venv by itself. Another interpreter: make PYTHON=python3.12 verify
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.packedss-installed

# Two workers fill two cores, so each keeps its numerics to one thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: verify test test-full lint proofs docs bench clean distclean

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
