"""A model folder is untrusted: whatever is wrong with it is said in one line."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from realmodel.loading import EMBEDDED, held_out_prompts, load
from simulator import InvalidInput
from simulator.records import Call


@pytest.fixture
def folder(tmp_path):
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(EMBEDDED / file, tmp_path / file)
    return tmp_path


def _message(call, *arguments):
    with pytest.raises(InvalidInput) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_an_intact_copy_loads(folder):
    assert load(str(folder)).vocabulary == load().vocabulary


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_and_truncated_files(folder, file):
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    assert file in _message(load, str(folder))
    (folder / file).write_bytes(b"")
    assert file in _message(load, str(folder))
    (folder / file).unlink()
    assert f"has no {file}" in _message(load, str(folder))


def test_a_config_that_does_not_fit_the_weights(folder):
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"num_hidden_layers": 5', '"num_hidden_layers": 6'))
    assert "config.json" in _message(load, str(folder))
    (folder / "config.json").write_text(config.replace('"vocab_size": 2048', '"vocab_size": 4096'))
    assert "does not hold the weights" in _message(load, str(folder))
    (folder / "config.json").write_text(config.replace('"hidden_size": 256', '"hidden_size": 128'))
    assert "does not hold the weights" in _message(load, str(folder))
    (folder / "config.json").write_text(config.replace('"mask_token_id": 1', '"mask_token_id": 99999'))
    assert "mask_token_id" in _message(load, str(folder))
    (folder / "config.json").write_text(config.replace('"mask_token_id": 1', '"mask_token_id": true'))
    assert "mask_token_id" in _message(load, str(folder))
    (folder / "config.json").write_text(config.replace('"mask_token_id": 1', f'"mask_token_id": {load().eos}'))
    assert "the same id" in _message(load, str(folder))


def test_weights_that_are_not_finite(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, folder / "model.safetensors")
    assert "not finite, in model.norm.weight" in _message(load, str(folder))


def test_names_dtypes_devices_and_counts():
    assert "allowed: 'embedded'" in _message(load, "no-such-model")
    assert "float64, float32, bfloat16" in _message(load, "embedded", "float16")
    assert "'cpu' always is" in _message(load, "embedded", "float32", "no-such-device")
    assert "1 .. 60" in _message(held_out_prompts, 0)
    assert "1 .. 60" in _message(held_out_prompts, 61)


def test_prompts_the_model_cannot_take(load_model):
    model = load_model("float32")
    assert "at least 1 token" in _message(model.check_prompt, (), 4)
    assert "0 .. 2047" in _message(model.check_prompt, (5, 2048), 4)
    assert "0 .. 2047" in _message(model.check_prompt, (5, -1), 4)
    assert "positions" in _message(model.check_prompt, (5,), 4096)
    assert "at least 1 token" in _message(model.session(), Call((), (), True, (), 0))
    assert "0 .. 2047" in _message(model.session(), Call((5, 9999), (), True, (), 0))
    assert "temperature" in _message(model.session, -1.0)
    assert "temperature" in _message(model.session, float("nan"))


def test_bfloat16_rounds_the_weights_and_not_the_rotary_frequencies() -> None:
    wide, narrow = load("embedded", "float32").network.model, load("embedded", "bfloat16").network.model
    assert narrow.embed_tokens.weight.dtype == torch.bfloat16
    assert torch.equal(narrow.rotary_emb.inv_freq, wide.rotary_emb.inv_freq)
