"""The released drafting adapter, `linear_spec_lora`, as a `ProposalAdapter`: on proposal rows, and no others (LORA)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from realmodel.adapter import ProposalAdapter
from realmodel.adapter import attach as put_on
from simulator.errors import InvalidInput

FOLDER = "linear_spec_lora"
_TARGET = "o_proj"
_KEY = "base_model.model.encoder.layers.{layer}.self_attn.o_proj.lora_{which}.weight"
# What would change the update to another one than scale B A x.
_PLAIN = {"bias": "none", "use_rslora": False, "use_dora": False, "fan_in_fan_out": False, "modules_to_save": None}


def settings(folder: Path) -> dict[str, Any]:
    """adapter_config.json of the adapter in the model folder. Raises InvalidInput unless it is a plain one on o_proj."""
    file = folder / FOLDER / "adapter_config.json"
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the adapter of {folder.name!r} has no readable {FOLDER}/adapter_config.json") from error
    if not isinstance(told, dict) or told.get("target_modules") != [_TARGET]:
        raise InvalidInput(f"the adapter of {folder.name!r} must act on {_TARGET} alone: see its target_modules")
    odd = next((name for name, plain in _PLAIN.items() if told.get(name, plain) not in (plain, None, [])), None)
    if odd:
        raise InvalidInput(f"the adapter of {folder.name!r} sets {odd} = {told[odd]!r}; only plain LoRA updates are supported")
    rank, alpha = told.get("r"), told.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, int | float) or not 0 < alpha < float("inf"):
        raise InvalidInput(f"the adapter of {folder.name!r} needs r >= 1 and lora_alpha > 0, got {rank!r} and {alpha!r}")
    return told


def attach(network: Any, folder: Path) -> ProposalAdapter:
    """Put the adapter of the model folder on the output projections of `network.model.layers`.

    As PEFT does, the update is computed in the adapter's own float32, also on bfloat16 weights; in float64, in float64.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    told = settings(folder)
    try:
        tensors = load_file(folder / FOLDER / "adapter_model.safetensors")
    except (SafetensorError, OSError) as error:
        raise InvalidInput(f"{FOLDER}/adapter_model.safetensors of {folder.name!r} is missing, damaged or truncated") from error
    adapter, weights = ProposalAdapter(), {}
    for index, layer in enumerate(network.model.layers):
        pair: list[Any] = [tensors.pop(_KEY.format(layer=index, which=which), None) for which in "AB"]
        if any(matrix is None or matrix.ndim != 2 or not torch.isfinite(matrix).all() for matrix in pair):
            raise InvalidInput(f"the adapter of {folder.name!r} holds no two matrices of finite numbers for layer {index}")
        if pair[0].shape[0] != told["r"]:
            raise InvalidInput(f"the adapter of {folder.name!r} says r = {told['r']}, its matrices have {pair[0].shape[0]}")
        base = layer.self_attn.o_proj.weight
        where = {"dtype": torch.promote_types(base.dtype, torch.float32), "device": base.device}
        weights[f"{index}.self_attn.{_TARGET}"] = (pair[0].to(**where), pair[1].to(**where))
    if tensors:
        raise InvalidInput(f"the adapter of {folder.name!r} has weights for more than {_TARGET}: {next(iter(tensors))}")
    put_on(network, adapter, weights, told["lora_alpha"] / told["r"])
    return adapter
