"""Loading the embedded any-order model, or a folder laid out like it, in a chosen dtype and on a chosen device."""

from __future__ import annotations

from pathlib import Path

from realmodel.any_order.session import AnyOrderModel
from realmodel.loading import EMBEDDED, read
from realmodel.setdlm import is_setdlm, load_setdlm
from simulator.errors import InvalidInput

NAME = "embedded-any-order"
PREFIX = "any-order:"
EMBEDDED_ANY_ORDER = EMBEDDED.parent / "embedded_any_order"


def is_any_order(name: str) -> bool:
    """Whether `load_any_order` is who loads the model of that name."""
    return name == NAME or name.startswith(PREFIX) or is_setdlm(name)


def load_any_order(name_or_folder: str = NAME, dtype: str = "float32", device: str = "cpu") -> AnyOrderModel:
    """The model called `embedded-any-order`, or the one in a folder with config.json, model.safetensors and tokenizer.json,
    which may be given as `any-order:FOLDER`; or SetDLM (`realmodel.setdlm`), by hub id or folder.

    Raises InvalidInput, in one line, when a file is missing, truncated or does not fit the others.
    """
    if name_or_folder == NAME:  # its tokenizer is the embedded dual-mode model's
        network, tokenizer = read(EMBEDDED_ANY_ORDER, NAME, dtype, device, masked=True, tokens=EMBEDDED)
        return AnyOrderModel(network, tokenizer, network.config.mask_token_id, NAME)
    if is_setdlm(name_or_folder):
        return load_setdlm(name_or_folder, dtype, device)
    folder = Path(name_or_folder.removeprefix(PREFIX))
    if not folder.is_dir():
        raise InvalidInput(f"unknown any-order model {name_or_folder!r}; allowed: {NAME!r} or a local folder")
    network, tokenizer = read(folder, name_or_folder, dtype, device, masked=True)
    return AnyOrderModel(network, tokenizer, network.config.mask_token_id, folder.name)
