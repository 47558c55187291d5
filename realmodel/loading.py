"""Loading the embedded model, SmolLM2, or a folder laid out like the former, in a chosen dtype and on a chosen device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from realmodel.binding import torch_device, torch_dtype
from realmodel.dualmode import DualModeModel
from realmodel.nemotron.loading import is_nemotron
from realmodel.nemotron.loading import load as load_nemotron
from realmodel.precision import in_dtype
from simulator.errors import InvalidInput

EMBEDDED = Path(__file__).parent / "embedded"
SMOLLM2 = ("smollm2", "smollm2:plain")


class Prompt(NamedTuple):
    """A held-out prompt: the beginning of a passage the model was not trained on."""

    name: str  # where it comes from
    text: str


def load(
    name_or_folder: str = "embedded", dtype: str = "float32", device: str = "cpu", trust_remote_code: bool = False
) -> DualModeModel:
    """The model called `embedded`, `smollm2` (`smollm2:plain`: without its adapter), or the one in a folder with config.json,
    model.safetensors and tokenizer.json; or a Nemotron-Labs-Diffusion, whose code `trust_remote_code` allows to run.

    Raises InvalidInput, in one line, when a file is missing, truncated or does not fit the others.
    """
    if name_or_folder in SMOLLM2:
        from realmodel.smollm2.model import load_smollm2

        return load_smollm2(name_or_folder, dtype, device)
    if is_nemotron(name_or_folder):
        return load_nemotron(name_or_folder, dtype, device, trust_remote_code)
    folder = EMBEDDED if name_or_folder == "embedded" else Path(name_or_folder)
    network, tokenizer = read(folder, name_or_folder, dtype, device, masked=True)
    name = name_or_folder if name_or_folder == "embedded" else folder.name
    return DualModeModel(network, tokenizer, network.config.mask_token_id, name)


def read(folder: Path, label: str, dtype: str, device: str, masked: bool, tokens: Path | None = None) -> tuple[Any, Any]:
    """(network, tokenizer) of a model folder, called `label` in messages. `masked`: its config.json must name a mask token.
    The tokenizer is that of the folder `tokens`, by default its own.

    Raises InvalidInput, in one line, as `load`.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM

    target = torch_dtype(dtype)
    if not folder.is_dir():
        raise InvalidInput(f"unknown model {label!r}; allowed: 'embedded', {', '.join(map(repr, SMOLLM2))} or a local folder")
    for file in ("config.json", "model.safetensors", *([] if tokens else ["tokenizer.json"])):
        if not (folder / file).is_file():
            raise InvalidInput(f"the model folder of {label!r} has no {file}")
    where = torch_device(device)
    try:
        config = AutoConfig.from_pretrained(folder)
        tokenizer = Tokenizer.from_file(str((tokens or folder) / "tokenizer.json"))
    except Exception as error:  # both libraries raise bare exceptions for malformed files
        raise InvalidInput(f"config.json or tokenizer.json of {label!r} cannot be read: {_first_line(error)}") from error
    mask_token = getattr(config, "mask_token_id", None)
    if masked and (type(mask_token) is not int or not 0 <= mask_token < config.vocab_size):
        raise InvalidInput(f"config.json of {label!r} needs a mask_token_id in 0 .. {config.vocab_size - 1}")
    if masked and mask_token == config.eos_token_id:
        raise InvalidInput(f"config.json of {label!r} gives the mask token and the EOS the same id, {mask_token}")
    try:
        weights = load_file(folder / "model.safetensors")
    except (SafetensorError, OSError) as error:
        raise InvalidInput(f"model.safetensors of {label!r} is damaged or truncated: {_first_line(error)}") from error

    try:
        network = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
        missing, unexpected = network.load_state_dict(weights, strict=False)
        fits = not unexpected and not set(missing) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    except (RuntimeError, ValueError, TypeError):  # shapes that differ, or sizes no network can have
        fits = False
    if not fits:
        raise InvalidInput(f"model.safetensors of {label!r} does not hold the weights config.json describes")
    network.tie_weights()
    broken = next((name for name, weight in network.state_dict().items() if not torch.isfinite(weight).all()), None)
    if broken:
        raise InvalidInput(f"model.safetensors of {label!r} holds numbers that are not finite, in {broken}")
    try:
        network = in_dtype(network, target)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    network.to(where).eval()
    return network, tokenizer


def held_out_prompts(count: int, model: str = "embedded") -> list[Prompt]:
    """The first `count` prompts that go with the model of that name: HumanEval's with SmolLM2, with any other the held-out
    passages of the embedded model.

    Raises InvalidInput for a count that is not available.
    """
    if model in SMOLLM2:
        from realmodel.smollm2.chat import prompts

        texts = prompts()
    else:
        texts = [Prompt(**json.loads(line)) for line in (EMBEDDED / "prompts.jsonl").read_text().splitlines()]
    if not 1 <= count <= len(texts):
        raise InvalidInput(f"the model {model!r} has 1 .. {len(texts)} held-out prompts, {count} were asked for")
    return texts[:count]


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
