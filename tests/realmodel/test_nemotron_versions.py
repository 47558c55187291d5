"""The binding under other releases of transformers 5, each a copy beside the installed one, in a process of its own.

What differed: `crop` takes a length up to 5.14, with a warning later, and none by 5.24; the mask builder's keywords; the name
of the cache.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ["tests/realmodel/test_nemotron.py", "tests/realmodel/test_nemotron_loading.py"]
# What those releases need and the installed packages are too new for; torch and the rest are shared.
HUB = ["huggingface_hub<2", "httpx", "httpcore", "typer-slim"]
NEEDED = {"5.0": [*HUB, "tokenizers>=0.22,<=0.23.0"], "5.8": [*HUB, "tokenizers>=0.22,<=0.23.0"], "5.16": HUB}


def _python(folder, *words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("series", NEEDED)
def test_the_binding_under_another_transformers(series, tmp_path):
    wanted = [f"transformers=={series}.*", *NEEDED[series]]
    installed = _python(tmp_path, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), *wanted)
    if installed.returncode:
        pytest.skip(f"the package index offers no transformers {series}.* with what it needs")
    version = _python(tmp_path, "-c", "import transformers; print(transformers.__version__)")
    assert version.stdout.startswith(f"{series}."), version.stderr[-500:]
    done = _python(tmp_path, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-m", "slow or not slow", *TESTS)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout  # the released decoder, which crops to a length, runs there too
