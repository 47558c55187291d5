"""A release of Nemotron-Labs-Diffusion, by hub id or folder, as a `DualModeModel`: looked at first, run only if allowed.

A release brings Python code that transformers runs. Until `trust_remote_code` says so, none of it does; and whoever says so is
told first what is wrong with the folder, if its files alone show it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

from realmodel.binding import torch_device, torch_dtype
from realmodel.dualmode import DualModeModel
from realmodel.nemotron import lora
from realmodel.nemotron.network import CLASS, NemotronNetwork
from realmodel.precision import to_float64
from simulator.errors import InvalidInput

MODEL_TYPE = "nemotron_labs_diffusion"
_HUB_ID = re.compile(r"nvidia/Nemotron-Labs-Diffusion-(3B|8B|14B)(-Base)?(@[\w.-]+)?")
WITH_ADAPTER = ":lora"  # behind a name
_WANTED = ["*.json", "*.py", "*.safetensors", "*.jinja", f"{lora.FOLDER}/*"]


def is_nemotron(name: str) -> bool:
    """Whether `name` is a hub id of the family, or a folder whose config.json says that it is one of them."""
    folder = Path(name.removesuffix(WITH_ADAPTER))
    if not folder.is_dir():
        return name.lower().startswith("nvidia/nemotron-labs-diffusion")
    try:
        config = json.loads((folder / "config.json").read_text())
        return config.get("model_type") == MODEL_TYPE or CLASS in (config.get("architectures") or [])
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def load(name: str, dtype: str = "float32", device: str = "cpu", trust_remote_code: bool = False) -> DualModeModel:
    """The model of a folder or a hub id; `@REVISION` may stand behind the id, `:lora` behind all, for the drafting adapter.

    Raises InvalidInput, in one line, when the folder is not a whole release, its code may not or cannot run, or the hub cannot
    be reached.
    """
    target, adapter, name = torch_dtype(dtype), name.endswith(WITH_ADAPTER), name.removesuffix(WITH_ADAPTER)
    folder = folder_of(name, trust_remote_code)
    config = looked_at(folder)
    label = folder.name if Path(name).is_dir() else name
    _allowed(label, trust_remote_code)
    if adapter:
        lora.settings(folder)
    where = torch_device(device)
    tokenizer = _tokenizer(folder)
    # float64 begins as float32, in which the rotary frequencies are computed.
    native = _native(folder, torch.float32 if target == torch.float64 else target)
    try:
        network = NemotronNetwork(to_float64(native) if target == torch.float64 else native)
    except ValueError as error:  # of which InvalidInput is one
        raise InvalidInput(f"{folder.name!r}: {error}") from error
    network.to(where).eval()
    model = DualModeModel(network, tokenizer, config["mask_token_id"], label)
    if adapter:
        model.adapter = lora.attach(network, folder)
        model.name += WITH_ADAPTER
    return model


def folder_of(name: str, trust_remote_code: bool) -> Path:
    """The folder itself, or that of a snapshot of the hub id: in the cache, or downloaded into it."""
    if Path(name).is_dir():
        return Path(name).resolve()
    if not _HUB_ID.fullmatch(name):
        raise InvalidInput(
            f"unknown model {name!r}; allowed: a local folder or nvidia/Nemotron-Labs-Diffusion-{{3B|8B|14B}}[-Base][@REVISION]"
        )
    _allowed(name, trust_remote_code)
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_WANTED))
    except Exception as error:  # whatever lies between here and the hub has an exception of its own
        raise InvalidInput(
            f"cannot get {name!r} from the hub ({first_line(error)}); without a network, give the folder of a copy"
        ) from error


def looked_at(folder: Path) -> dict[str, Any]:
    """config.json of a folder in which, as far as its files show, nothing is missing. Runs no code of it."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        raise InvalidInput(f"the model folder {folder.name!r} has no config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"config.json of {folder.name!r} cannot be read: {first_line(error)}") from error
    if not isinstance(config, dict) or config.get("architectures") != [CLASS]:
        told = config.get("architectures") if isinstance(config, dict) else type(config).__name__
        raise InvalidInput(f"config.json of {folder.name!r} must name the architecture {CLASS}, got {told!r}")
    size, mask, eos = (config.get(key) for key in ("vocab_size", "mask_token_id", "eos_token_id"))
    if type(size) is not int or type(mask) is not int or not 0 <= mask < size:
        raise InvalidInput(f"config.json of {folder.name!r} needs a mask_token_id below its vocab_size {size!r}, got {mask!r}")
    if type(eos) is not int or not 0 <= eos < size or eos == mask:
        raise InvalidInput(f"config.json of {folder.name!r} needs one eos_token_id that is not the mask, got {eos!r}")
    if config.get("dlm_paradigm", "bidirectional") != "bidirectional":
        raise InvalidInput(
            f"config.json of {folder.name!r} sets dlm_paradigm {config['dlm_paradigm']!r}; packed calls need 'bidirectional'"
        )
    if config.get("sliding_window") is not None:
        raise InvalidInput(f"config.json of {folder.name!r} sets a sliding_window; its cache could not be rolled back")
    for file in [*_code(config, folder), *_weights(folder), "tokenizer.json"]:
        if not (folder / file).is_file():
            raise InvalidInput(f"the model folder {folder.name!r} has no {file}")
    return config


def _code(config: dict[str, Any], folder: Path) -> list[str]:
    """The files of the classes that transformers will load."""
    named = config.get("auto_map")
    classes = [named.get(key) for key in ("AutoConfig", "AutoModel")] if isinstance(named, dict) else [None]
    if not all(isinstance(name, str) and re.fullmatch(r"\w+\.\w+", name) for name in classes):
        raise InvalidInput(
            f"auto_map in config.json of {folder.name!r} must name AutoConfig and AutoModel in its own files, got {named!r}"
        )
    return [f"{str(name).split('.')[0]}.py" for name in classes]


def _weights(folder: Path) -> list[str]:
    """The files of the weights; those that are there must be whole."""
    from safetensors import SafetensorError, safe_open

    files, index = ["model.safetensors"], folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise InvalidInput(f"{index.name} of {folder.name!r} cannot be read: {first_line(error)}") from error
        if not all(isinstance(file, str) and file == Path(file).name for file in files):
            raise InvalidInput(f"{index.name} of {folder.name!r} names files outside the folder")
    for file in files:
        try:
            if (folder / file).is_file():
                with safe_open(folder / file, "pt"):
                    pass
        except (SafetensorError, OSError) as error:
            raise InvalidInput(f"{file} of {folder.name!r} is damaged or truncated: {first_line(error)}") from error
    return files


def _allowed(name: str, trust_remote_code: bool) -> None:
    if not trust_remote_code:
        raise InvalidInput(f"{name!r} brings Python code of its own, which would run here: allow it with --trust-remote-code")


def _tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises bare exceptions
        raise InvalidInput(f"tokenizer.json of {folder.name!r} cannot be read: {first_line(error)}") from error


def _native(folder: Path, dtype: torch.dtype) -> Any:
    """The released class with its weights, all of them found and finite."""
    import transformers
    from transformers import AutoModel
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        native, told = AutoModel.from_pretrained(
            str(folder),
            trust_remote_code=True,
            local_files_only=True,
            dtype=dtype,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except Exception as error:  # code of others, run by a library
        raise InvalidInput(
            f"{folder.name!r} cannot be loaded by transformers {transformers.__version__}:"
            f" {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        if bars:
            logging.enable_progress_bar()
    if type(native).__name__ != CLASS:
        raise InvalidInput(f"{folder.name!r} loads a {type(native).__name__}, not a {CLASS}")
    wrong = [str(key) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in told.get(kind) or ()]
    if wrong:
        raise InvalidInput(
            f"the weights of {folder.name!r} are not those config.json describes: {sorted(wrong)[0]} and {len(wrong) - 1} more"
        )
    broken = next((name for name, weight in native.state_dict().items() if not torch.isfinite(weight).all()), None)
    if broken:
        raise InvalidInput(f"the weights of {folder.name!r} hold numbers that are not finite, in {broken}")
    return native


def first_line(error: BaseException) -> str:
    """What an exception says, at most 200 characters of it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
