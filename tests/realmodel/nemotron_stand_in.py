"""Builds a stand-in of Nemotron-Labs-Diffusion: a folder laid out like a release, its code in `nemotron_files`, its weights
trained for seconds on a tiny language, in both modes at once. The ids of MASK, BOS and EOS are the released ones.

The language is words of eight tokens, of which the last leaves a choice: so that drafts are accepted, and rejected too.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

from realmodel.nemotron import NemotronNetwork

FILES = Path(__file__).parent / "nemotron_files"
BOS, EOS, MASK, VOCABULARY = 1, 11, 100, 128
WORDS = [list(range(12 + 8 * word, 20 + 8 * word)) for word in range(11)]  # ids 12 .. 99
PROMPTS = [(BOS, *WORDS[0], *WORDS[1][:5]), (BOS, *WORDS[4][2:], *WORDS[2][:3]), (BOS, *WORDS[7], *WORDS[3])]

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% if enable_thinking is defined and not enable_thinking %}"
    "<think> </think> {% endif %}{% endif %}"
)
_NAMED = {0: "<unk>", BOS: "<s>", EOS: "</s>", MASK: "<mask>", 2: "<user>", 3: "<assistant>", 4: "<think>", 5: "</think>"}
_BLOCK, _LENGTH = 9, 48


def config(**changes) -> dict:
    """config.json of a tiny release."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": 16384,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    }
    rope.update({key: changes.pop(key) for key in list(changes) if key in rope})
    return {
        "architectures": ["NemotronLabsDiffusionModel"],
        "model_type": "nemotron_labs_diffusion",
        "auto_map": {
            "AutoConfig": "configuration_nemotron_labs_diffusion.NemotronLabsDiffusionConfig",
            "AutoModel": "modeling_nemotron_labs_diffusion.NemotronLabsDiffusionModel",
        },
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,  # heads x head size is not the hidden size, as in the 3B
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 262144,
        "rope_parameters": rope,
        "mask_token_id": MASK,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "block_size": 32,
        "dlm_paradigm": "bidirectional",
        "attn_implementation": "sdpa",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "5.0.0",
    } | changes


def write(folder: Path, weights: dict[str, torch.Tensor] | None = None, adapter_rank: int = 4, **changes) -> Path:
    """A release in `folder`: code, configuration, tokenizer, adapter, and weights, random unless given."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES.glob("*.py"):
        shutil.copy(file, folder / file.name)
    settings = config(**changes)
    (folder / "config.json").write_text(json.dumps(settings, indent=2))
    _write_tokenizer(folder)
    shapes = _shapes(settings)
    generator = torch.Generator().manual_seed(0)
    if weights is None:
        weights = {
            name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5 if len(shape) > 1 else torch.ones(shape)
            for name, shape in shapes.items()
        }
    save_file({name: tensor.bfloat16().contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    if adapter_rank:
        _write_adapter(folder / "linear_spec_lora", settings, adapter_rank, generator)
    return folder


def build(folder: Path, steps: int = 100) -> Path:
    """A release in `folder` whose weights are trained."""
    write(folder)
    released = native(folder)
    network = NemotronNetwork(released)
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, total_steps=steps)
    for _ in range(steps):
        loss = _loss(network, torch.stack([_sentence() for _ in range(16)]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return write(folder, {name: tensor.detach() for name, tensor in released.state_dict().items()})


@cache
def home() -> Path:
    """A temporary folder for this process; copies that transformers makes of remote code go there too."""
    from transformers import dynamic_module_utils

    folder = Path(tempfile.mkdtemp(prefix="packedss-stand-in-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    dynamic_module_utils.HF_MODULES_CACHE = str(folder / "modules")
    return folder


@cache
def trained() -> Path:
    """The release of `build`, once per process."""
    return build(home() / "stand_in")


def edited(folder: Path, file: str, old: str, new: str) -> Path:
    """The release in `folder`, `old` in one of its files replaced by `new`."""
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    return folder


def native(folder: Path, dtype: torch.dtype = torch.float32, **options):
    """The model of a folder as transformers loads it."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(str(folder), trust_remote_code=True, dtype=dtype, **options)


def _sentence() -> torch.Tensor:
    """Words; each has a usual follower, taken three times of four. The last is followed by EOS, and that by anything."""
    tokens, word = [BOS], int(torch.randint(11, ()))
    while len(tokens) < _LENGTH:
        tokens += WORDS[word]
        if word == 10:
            tokens.append(EOS)
        word = (word + 1) % 11 if torch.rand(()) < 0.75 else int(torch.randint(11, ()))
    start = int(torch.randint(min(8, len(tokens) - _LENGTH + 1), ()))
    return torch.tensor(tokens[start : start + _LENGTH])


def _loss(network, clean: torch.Tensor) -> torch.Tensor:
    """Next-token loss on the clean rows, and that of one masked block with a copy of the token before it."""
    start = int(torch.randint(4, _LENGTH - _BLOCK, ()))
    block = torch.full((len(clean), _BLOCK), MASK)
    block[:, 0] = clean[:, start]
    sees = torch.zeros(_LENGTH + _BLOCK, _LENGTH + _BLOCK, dtype=torch.bool)
    sees[:_LENGTH, :_LENGTH] = torch.ones(_LENGTH, _LENGTH, dtype=torch.bool).tril()
    sees[_LENGTH:, :start] = True
    sees[_LENGTH:, _LENGTH:] = True
    positions = torch.cat([torch.arange(_LENGTH), torch.arange(start, start + _BLOCK)])
    logits = network(torch.cat([clean, block], dim=1), positions[None], sees[None, None]).logits
    causal = functional.cross_entropy(logits[:, : _LENGTH - 1].flatten(0, 1), clean[:, 1:].flatten())
    drafted = functional.cross_entropy(logits[:, _LENGTH + 1 :].flatten(0, 1), clean[:, start + 1 : start + _BLOCK].flatten())
    return causal + drafted


def _shapes(settings: dict) -> dict[str, tuple[int, ...]]:
    size, inner, vocabulary = settings["hidden_size"], settings["intermediate_size"], settings["vocab_size"]
    heads, shared = (settings[name] * settings["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    shapes = {"encoder.embed_tokens.weight": (vocabulary, size), "encoder.norm.weight": (size,)}
    for index in range(settings["num_hidden_layers"]):
        layer = f"encoder.layers.{index}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (heads, size),
            f"{layer}.self_attn.k_proj.weight": (shared, size),
            f"{layer}.self_attn.v_proj.weight": (shared, size),
            f"{layer}.self_attn.o_proj.weight": (size, heads),
            f"{layer}.mlp.gate_proj.weight": (inner, size),
            f"{layer}.mlp.up_proj.weight": (inner, size),
            f"{layer}.mlp.down_proj.weight": (size, inner),
            f"{layer}.input_layernorm.weight": (size,),
            f"{layer}.post_attention_layernorm.weight": (size,),
        }
    return shapes | {"diffusion_head.weight": (vocabulary, size)}


def _write_adapter(folder: Path, settings: dict, rank: int, generator: torch.Generator) -> None:
    folder.mkdir(exist_ok=True)
    told = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 4 * rank,
        "target_modules": ["o_proj"],
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps(told))
    wide = settings["num_attention_heads"] * settings["head_dim"]
    tensors = {}
    for index in range(settings["num_hidden_layers"]):
        stem = f"base_model.model.encoder.layers.{index}.self_attn.o_proj"
        tensors[f"{stem}.lora_A.weight"] = torch.randn(rank, wide, generator=generator) / wide**0.5
        tensors[f"{stem}.lora_B.weight"] = torch.randn(settings["hidden_size"], rank, generator=generator) * 0.05
    save_file(tensors, folder / "adapter_model.safetensors")  # float32, as released


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer(WordLevel({_NAMED.get(i, f"t{i}"): i for i in range(VOCABULARY)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "</s>", "<mask>"])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
