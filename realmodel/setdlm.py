"""SetDLM (set diffusion language models) as an any-order model: its released weights in the stock Qwen3 class.

    model = load_setdlm("kuleshov-group/setdlm-gsm8k-smax16")         # or a folder in the released layout
    generate(model.session(), packed(model.window, start="prompt"), model.gsm8k_prompt(question), model.limits(512))

What a release holds is Qwen3ForCausalLM under the prefix `backbone.model.`, in `.bin` or safetensors files, whole or sharded;
its own Python code is not needed and never runs. The shape of the network is read off its weights. smaxN is the training
horizon N = 2 S, within which the order of positions may vary; S, the window of its own decoder, is the width W for every
schedule (E.1).
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from realmodel.any_order.session import AnyOrderModel
from realmodel.binding import torch_device, torch_dtype
from realmodel.precision import in_dtype
from realmodel.tasks.mathematics import SETDLM_INSTRUCTION
from simulator.errors import InvalidInput
from simulator.records import Limits, Stop, Tokens

BASE = "Qwen/Qwen3-1.7B-Base"  # whose tokenizer it uses
MODEL_TYPE = "bd3lm"
MASK, END, TURN_END = "<|fim_middle|>", "<|endoftext|>", "<|im_end|>"
TRAINED = 1024  # positions, prompt and output together
_PREFIX = "backbone.model."
_STRAY = ("static_attention_mask", "inv_freq")  # buffers, not weights
_HUB_ID = re.compile(r"kuleshov-group/setdlm-gsm8k-smax(8|16|32)(@[\w.-]+)?")
_HORIZON = re.compile(r"smax(\d{1,3})(?!\d)")
_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_WANTED = ["*.json", "*.bin", "*.safetensors"]
_RELEASED = {"num_hidden_layers": 28, "hidden_size": 2048, "vocab_size": 151936}
_BOXED = re.compile(r"\\boxed\{.*?\}")
_REPEATED = 8


class SetDLM(AnyOrderModel):
    """The weights, and what they were trained for."""

    def __init__(self, network: Any, tokenizer: Any, mask_token: int, name: str, horizon: int, trained: int) -> None:
        super().__init__(network, tokenizer, mask_token, name)
        self.horizon, self.trained = horizon, trained
        self.beyond = False  # may requests go past the trained length, as the paper's 1,024 output positions do (E.1)?

    @property
    def window(self) -> int:
        """S, half of the horizon."""
        return self.horizon // 2

    def check_prompt(self, prompt: Tokens, max_new_tokens: int, width: int = 0) -> None:
        """As `AnyOrderModel.check_prompt`; past the trained length it warns where `beyond`, and refuses else."""
        super().check_prompt(prompt, max_new_tokens, width)
        needed = len(prompt) + max_new_tokens
        if needed <= self.trained:
            return
        said = (
            f"prompt ({len(prompt)}) and output ({max_new_tokens}) need {needed} positions; {self.name} was trained on"
            f" {self.trained} in all"
        )
        if not self.beyond:
            raise InvalidInput(f"{said}: at most {max(0, self.trained - len(prompt))} output positions here")
        warnings.warn(said, stacklevel=2)

    def limits(self, max_new_tokens: int) -> Limits:
        """The end of a GSM8K answer: see `AnswerLimits`."""
        ends = {self.tokenizer.token_to_id(name) for name in (END, TURN_END)} - {None}
        return AnswerLimits.to(self.tokenizer, max_new_tokens, ends)

    def gsm8k_prompt(self, question: str) -> Tokens:
        """The ids of a question of GSM8K as its authors ask it: zero-shot, one turn of the Qwen3 chat template."""
        text = f"<|im_start|>user\n{SETDLM_INSTRUCTION}{question}<|im_end|>\n<|im_start|>assistant\n"
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)


class AnswerLimits(Limits):
    r"""Limits that also end an output with its first complete `\boxed{...}`, or with 8 equal tokens in a row.

    A multi-token end marker as in the paper's E.2: recognised when all of its tokens are accepted, wherever others are missing,
    and of several the one that ends first counts.
    """

    tokenizer: Any

    @classmethod
    def to(cls, tokenizer: Any, max_new_tokens: int, eos: Iterable[int]) -> AnswerLimits:
        """With the tokenizer that says what the tokens mean."""
        limits = cls(*Limits.of(max_new_tokens, eos))
        limits.tokenizer = tokenizer
        return limits

    def _replace(self, **changes: Any) -> AnswerLimits:
        limits = super()._replace(**changes)
        limits.tokenizer = self.tokenizer
        return limits

    def end(self, output: Mapping[int, int], resolved: Iterable[int]) -> int:
        """As `Limits.end`."""
        new = sorted(resolved)
        ends = [super().end(output, new)]
        seen = 0
        for position in new:
            if position <= seen:
                continue
            first = last = position
            while first - 1 in output:
                first -= 1
            while last + 1 in output:
                last += 1
            seen = last
            answered = self._answered(tuple(output[j] for j in range(first, last + 1)))
            ends += [] if answered is None else [first + answered - 1]
        return min(ends)

    def reached(self, prefix: Tokens, prompt_length: int) -> Stop | None:
        """As `Limits.reached`."""
        stop = super().reached(prefix, prompt_length)
        if stop in (None, "length") and self._answered(prefix[prompt_length:]) == len(prefix) - prompt_length > 0:
            return "stop"
        return stop

    def _answered(self, tokens: Tokens) -> int | None:
        """How many of these consecutive tokens there are up to the first end in them."""
        count = None
        if _BOXED.search(self.tokenizer.decode(tokens, skip_special_tokens=False)):
            low, high = 1, len(tokens)  # the text of a prefix is a prefix of the text, but for a character in the making
            while low < high:
                middle = (low + high) // 2
                if _BOXED.search(self.tokenizer.decode(tokens[:middle], skip_special_tokens=False)):
                    high = middle
                else:
                    low = middle + 1
            count = low
        run = 0
        for place, token in enumerate(tokens[:count], start=1):
            run = run + 1 if place > 1 and token == tokens[place - 2] else 1
            if run == _REPEATED:
                return place
        return count


def is_setdlm(name: str) -> bool:
    """Whether `name` is a hub id of the family, or a folder whose config.json says that it is one of them."""
    folder = Path(name)
    if not folder.is_dir():
        return name.lower().startswith("kuleshov-group/setdlm")
    try:
        return bool(json.loads((folder / "config.json").read_text()).get("model_type") == MODEL_TYPE)
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def load_setdlm(name: str, dtype: str = "float32", device: str = "cpu") -> SetDLM:
    """The model of a folder in the released layout, or of a hub id, behind which `@REVISION` may stand.

    Raises InvalidInput, in one line, when the hub cannot be reached, a file is missing or damaged, the weights are not those of
    a Qwen3, or mask or horizon cannot be told.
    """
    target, where = torch_dtype(dtype), torch_device(device)
    folder = _folder_of(name)
    label = folder.name if Path(name).is_dir() else name
    config = _read_json(folder / "config.json", label)
    horizon = _horizon(label, config)
    length = config.get("length", TRAINED)
    if type(length) is not int or length < 1:
        raise InvalidInput(f"config.json of {label!r} must give its length in positions, got {length!r}")
    tokenizer, mask = _tokenizer(folder, name, label, config)
    network = _network(_weights(folder, label), config, label)
    if not 0 <= mask < network.config.vocab_size:
        raise InvalidInput(f"{label!r}: the mask token {mask} is outside the vocabulary of {network.config.vocab_size} rows")
    told = {key: getattr(network.config, key) for key in _RELEASED}
    if not Path(name).is_dir() and told != _RELEASED:
        raise InvalidInput(f"{label!r} is not the released network: {told} where {_RELEASED} was expected")
    network.config.eos_token_id = tokenizer.token_to_id(END)
    network = in_dtype(network, target)
    return SetDLM(network.to(where).eval(), tokenizer, mask, label, horizon, length)


def _folder_of(name: str) -> Path:
    if Path(name).is_dir():
        return Path(name).resolve()
    if not _HUB_ID.fullmatch(name):
        raise InvalidInput(
            f"unknown model {name!r}; allowed: a local folder or kuleshov-group/setdlm-gsm8k-smax{{8|16|32}}[@REVISION]"
        )
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_WANTED))
    except Exception as error:  # whatever lies between here and the hub has an exception of its own
        raise InvalidInput(
            f"cannot get {name!r} from the hub ({_first_line(error)}); without a network, give the folder of a copy"
        ) from error


def _read_json(file: Path, label: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        raise InvalidInput(f"the model folder {label!r} has no {file.name}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{file.name} of {label!r} cannot be read: {_first_line(error)}") from error
    if not isinstance(content, dict):
        raise InvalidInput(f"{file.name} of {label!r} must hold an object")
    return content


def _horizon(label: str, config: dict[str, Any]) -> int:
    """2 S: from the name, or from the budget that the noise schedule was asked for. Its max_block_size is no horizon: exports
    say 1024 there, which training ignored."""
    noise = config.get("noise_config")
    budget = noise.get("desired_block_size") if isinstance(noise, dict) else None
    found = _HORIZON.search(label)
    horizon = int(found[1]) if found else 2 * budget if type(budget) is int else 0
    if horizon < 2 or horizon % 2:
        raise InvalidInput(
            f"the horizon of {label!r} is unknown: name its folder ..-smaxN, N even, or give noise_config.desired_block_size"
            " in its config.json"
        )
    return horizon


def _tokenizer(folder: Path, name: str, label: str, config: dict[str, Any]) -> tuple[Any, int]:
    """The tokenizer, and the mask's id: that of its name, which config.json has to agree with."""
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file() and not Path(name).is_dir():
        from huggingface_hub import hf_hub_download

        try:
            file = Path(hf_hub_download(BASE, "tokenizer.json"))
        except Exception as error:
            raise InvalidInput(f"cannot get the tokenizer of {BASE} from the hub ({_first_line(error)})") from error
    if not file.is_file():
        raise InvalidInput(f"the model folder {label!r} has no tokenizer.json: copy that of {BASE} into it")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare exceptions
        raise InvalidInput(f"tokenizer.json of {label!r} cannot be read: {_first_line(error)}") from error
    mask, said = tokenizer.token_to_id(MASK), config.get("mask_token_id")
    if mask is None:
        raise InvalidInput(f"the tokenizer of {label!r} has no {MASK}, which is its mask token")
    if said is not None and said != mask:
        raise InvalidInput(f"config.json of {label!r} says that the mask token is {said!r}, its tokenizer has {MASK} at {mask}")
    if tokenizer.token_to_id(END) is None:
        raise InvalidInput(f"the tokenizer of {label!r} has no {END}")
    return tokenizer, mask


def _weights(folder: Path, label: str) -> dict[str, torch.Tensor]:
    """The weights by their names in Qwen3ForCausalLM; buffers are left out."""
    found: dict[str, torch.Tensor] = {}
    for file in _files(folder, label):
        for key, tensor in _tensors(folder / file, label).items():
            if key.rpartition(".")[2] in _STRAY or not tensor.is_floating_point():
                continue
            if not key.startswith(_PREFIX):
                raise InvalidInput(f"{file} of {label!r} holds {key!r}, which is not under {_PREFIX!r}")
            found[key.removeprefix(_PREFIX)] = tensor
    strange = next((key for key, tensor in found.items() if not _ordinary(tensor)), None)
    if strange:
        raise InvalidInput(f"{strange} of {label!r} is not a dense tensor of {', '.join(map(str, _FLOATS))}")
    broken = next((key for key, tensor in found.items() if not torch.isfinite(tensor).all()), None)
    if broken:
        raise InvalidInput(f"the weights of {label!r} hold numbers that are not finite, in {broken}")
    return found


def _ordinary(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _FLOATS and tensor.layout == torch.strided and tensor.device.type == "cpu"


def _files(folder: Path, label: str) -> list[str]:
    for stem in ("model.safetensors", "pytorch_model.bin"):
        if (folder / f"{stem}.index.json").is_file():
            names = _read_json(folder / f"{stem}.index.json", label).get("weight_map")
            files = sorted(set(names.values())) if isinstance(names, dict) and all(map(_plain, names.values())) else []
            if not files:
                raise InvalidInput(f"{stem}.index.json of {label!r} names no files of its own folder")
            missing = next((file for file in files if not (folder / file).is_file()), None)
            if missing:
                raise InvalidInput(f"the model folder {label!r} has no {missing}, which its index names")
            return files
        if (folder / stem).is_file():
            return [stem]
    raise InvalidInput(f"the model folder {label!r} has no model.safetensors or pytorch_model.bin, nor an index of shards")


def _plain(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name


def _tensors(file: Path, label: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        # Of untrusted pickles, weights alone are read: nothing in them runs.
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise InvalidInput(f"{file.name} of {label!r} is damaged or truncated: {_first_line(error)}") from error
    except Exception as error:  # whatever unpickling meets
        raise InvalidInput(f"{file.name} of {label!r} is no file of weights: {_first_line(error)}") from error
    if not isinstance(content, dict) or not all(
        isinstance(key, str) and isinstance(each, torch.Tensor) for key, each in content.items()
    ):
        raise InvalidInput(f"{file.name} of {label!r} is no file of weights")
    return content


def _network(weights: dict[str, torch.Tensor], config: dict[str, Any], label: str) -> Any:
    """Qwen3ForCausalLM of the shape that the weights have, in float32, with every weight found and used."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    backbone = config.get("backbone_config")
    said = backbone if isinstance(backbone, dict) else {}
    layer = "model.layers.0."
    try:
        vocabulary, hidden = weights["model.embed_tokens.weight"].shape
        (head,) = weights[layer + "self_attn.q_norm.weight"].shape
        heads, shared = (weights[f"{layer}self_attn.{x}_proj.weight"].shape[0] // head for x in "qk")
        (intermediate, _) = weights[layer + "mlp.gate_proj.weight"].shape
    except (KeyError, ValueError, IndexError, ZeroDivisionError) as error:
        raise InvalidInput(f"the weights of {label!r} are not those of a Qwen3: {_first_line(error)}") from error
    numbers = {int(found[1]) for key in weights if (found := re.match(r"model\.layers\.(\d{1,9})\.", key))}
    layers = len(numbers)
    if max(numbers) != layers - 1:
        raise InvalidInput(
            f"the weights of {label!r} are not those of a Qwen3: layers 0 .. {max(numbers)}, of which {layers} are there"
        )
    told = said.get("num_hidden_layers")
    if type(told) is int and told > 0 and told != layers:  # of other sizes that differ, the weights do not fit together
        raise InvalidInput(f"the weights of {label!r} have {layers} layers where its config.json says {told}")
    theta, epsilon = said.get("rope_theta", 1e6), said.get("rms_norm_eps", 1e-6)
    if not all(type(number) in (int, float) and 0 < number < 1e18 for number in (theta, epsilon)):
        raise InvalidInput(f"config.json of {label!r} needs a positive rope_theta and rms_norm_eps, got {theta!r}, {epsilon!r}")
    own = weights.get("lm_head.weight")
    tied = own is None or torch.equal(own, weights["model.embed_tokens.weight"])
    try:
        network = Qwen3ForCausalLM._from_config(
            Qwen3Config(
                vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=shared, head_dim=head, max_position_embeddings=32768,
                rms_norm_eps=epsilon, rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
                tie_word_embeddings=tied,
            ),
            attn_implementation="sdpa",
            dtype=torch.float32,
        )  # fmt: skip
        given = {key: tensor.float() for key, tensor in weights.items() if not (tied and key == "lm_head.weight")}
        missing, unexpected = network.load_state_dict(given, strict=False)
        fits = not unexpected and set(missing) <= ({"lm_head.weight"} if tied else set())
    except (RuntimeError, ValueError, TypeError, ZeroDivisionError):  # shapes that differ, or sizes no network can have
        fits = False
    if not fits:
        raise InvalidInput(f"the weights of {label!r} are not those of a Qwen3: some are missing, or too many, or misshapen")
    network.tie_weights()
    return network


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
