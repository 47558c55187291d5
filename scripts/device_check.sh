#!/bin/sh
# What only a GPU can show, in at most 4 minutes: certificates in bfloat16 and float32, host waits per call, costs of calls.
# Nothing is downloaded. Run it from anywhere; options are those of `python -m realmodel.device_check`.
#
#   PYTHON   an interpreter that has torch and transformers (default: the venv's of this checkout, else python3)
#   WHEELS   a folder of wheels to put in front of its packages, should its transformers be older than this project needs
#   OUT      where device_check.json goes (default: out)
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  if .venv/bin/python -c "import torch" 2>/dev/null; then PYTHON=.venv/bin/python; fi
fi
"$PYTHON" -c "import torch" 2>/dev/null || { echo "skipped: $PYTHON has no torch"; exit 0; }
export PYTHONPATH=.
if [ -n "${WHEELS:-}" ]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$WHEELS"/*.whl
  PYTHONPATH=.:$site
fi
export PYTHONUNBUFFERED=1
"$PYTHON" -m realmodel.device_check --json "${OUT:-out}/device_check.json" "$@"
