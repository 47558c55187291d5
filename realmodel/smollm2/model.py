"""SmolLM2-135M-Instruct as a dual-mode model: the frozen chat model verifies, an adapter and a mask of its own draft.

The network has no mask token. It is given one behind its vocabulary (id 49152) that has an input vector and no logit: the
laws are those of the original network. `smollm2` drafts with the adapter shipped beside this file, which acts on proposal rows
alone; `smollm2:plain` has no adapter, and its mask is the vector of <|endoftext|> (id 0), which no prompt contains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from realmodel.adapter import MaskEmbedding, ProposalAdapter, attach
from realmodel.dualmode import DualModeModel
from realmodel.smollm2.fetch import weights_folder
from simulator.errors import InvalidInput

ADAPTER = Path(__file__).parent / "adapter.safetensors"


def load_smollm2(name: str = "smollm2", dtype: str = "float32", device: str = "cpu") -> DualModeModel:
    """`smollm2` or `smollm2:plain`, fetched on first use. Raises InvalidInput, in one line, when it cannot be had."""
    from realmodel.loading import read

    network, tokenizer = read(weights_folder(), name, dtype, device, masked=False)
    return bound(network, tokenizer, name, None if name.endswith(":plain") else ADAPTER)


def bound(network: Any, tokenizer: Any, name: str, adapter_file: Path | None) -> DualModeModel:
    """`network` with a mask behind its vocabulary and the adapter of a file, in place, as a dual-mode model.

    Raises InvalidInput when the file is damaged or belongs to another network.
    """
    embedding = network.model.embed_tokens
    where = {"dtype": embedding.weight.dtype, "device": embedding.weight.device}
    adapter, vector = None, embedding.weight[0].detach().clone()
    if adapter_file:
        adapter = ProposalAdapter()
        tensors, scale = _read(adapter_file)
        vector = tensors.pop("mask").to(**where)
        if vector.shape != embedding.weight[0].shape:
            raise InvalidInput(
                f"the mask of {adapter_file.name} has {len(vector)} numbers, {name} needs {embedding.weight.shape[1]}"
            )
        names = {key.rsplit(".", 1)[0] for key in tensors}
        try:
            pairs = {key: (tensors[f"{key}.down"].to(**where), tensors[f"{key}.up"].to(**where)) for key in sorted(names)}
        except KeyError as error:
            raise InvalidInput(f"{adapter_file.name} has no {error.args[0]}") from error
        attach(network, adapter, pairs, scale)
    network.model.embed_tokens = MaskEmbedding(embedding, vector)
    model = DualModeModel(network, tokenizer, network.config.vocab_size, name)
    model.adapter = adapter
    return model


def _read(file: Path) -> tuple[dict[str, Any], float]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
            scale = float((opened.metadata() or {})["scale"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InvalidInput(f"the adapter {file.name} is damaged or missing") from error
    broken = next((key for key, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken:
        raise InvalidInput(f"the adapter {file.name} holds numbers that are not finite, in {broken}")
    if "mask" not in tensors:
        raise InvalidInput(f"the adapter {file.name} has no mask")
    return tensors, scale
