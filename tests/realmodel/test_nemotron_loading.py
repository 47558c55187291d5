"""A release is untrusted: its code runs only if that is allowed, and whatever is wrong with it is said in one line."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from realmodel import load
from realmodel.nemotron import is_nemotron
from reports import cli
from simulator.errors import InvalidInput
from simulator.records import Call
from tests.realmodel.nemotron_stand_in import MASK, VOCABULARY, edited, home, write

HEAD = "modeling_nemotron_labs_diffusion.py"


@pytest.fixture
def release(tmp_path):
    home()
    return write(tmp_path / tmp_path.name)


def refused(folder, trusted=True, dtype="float32", **more):
    with pytest.raises(InvalidInput) as caught:
        load(str(folder), dtype, trust_remote_code=trusted, **more)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


@pytest.fixture
def run(monkeypatch, capsys):
    """run('validate ...') -> (exit code, standard output, standard error)"""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["packedss", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


def test_no_code_runs_that_is_not_allowed_to(release):
    marker = release / "it_ran"
    (release / HEAD).write_text(f"open({str(marker)!r}, 'w').close()\n" + (release / HEAD).read_text())
    assert "allow it with --trust-remote-code" in refused(release, trusted=False)
    (release / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refused(release)
    assert not marker.exists()
    write(release)
    (release / HEAD).write_text(f"open({str(marker)!r}, 'w').close()\n" + (release / HEAD).read_text())
    assert load(str(release), trust_remote_code=True).mask_token == MASK
    assert marker.exists()


@pytest.mark.parametrize("file", [HEAD, "configuration_nemotron_labs_diffusion.py", "model.safetensors", "tokenizer.json"])
def test_missing_and_truncated_files(release, file):
    content = (release / file).read_bytes()
    (release / file).write_bytes(content[: len(content) // 3])
    message = refused(release)
    assert file in message or file.endswith(".py")
    (release / file).unlink()
    assert f"has no {file}" in refused(release)


def test_a_folder_without_a_config(release):
    (release / "config.json").unlink()
    assert "has no config.json" in refused(release)  # it could be of any family
    for text in ("{", "[" * 100_000):
        (release / "config.json").write_text(text)
        assert "config.json" in refused(release)
    (release / "config.json").write_text("[]")
    assert not is_nemotron(str(release))


WRONG = {
    '"NemotronLabsDiffusionModel"': (
        '"OtherModel"',
        "must name the architecture NemotronLabsDiffusionModel, got ['OtherModel']",
    ),
    f'"mask_token_id": {MASK}': ('"mask_token_id": -1', "needs a mask_token_id below its vocab_size 128, got -1"),
    '"mask_token_id"': ('"mask_id"', "needs a mask_token_id below its vocab_size 128, got None"),
    '"eos_token_id": 11': (f'"eos_token_id": {MASK}', "one eos_token_id that is not the mask"),
    '"bidirectional"': ('"block_diff"', "packed calls need 'bidirectional'"),
    '"num_hidden_layers": 3': ('"num_hidden_layers": 4', "weights of"),
    '"hidden_size": 48': ('"hidden_size": 64', "cannot be loaded"),
    '"vocab_size": 128': ('"vocab_size": "many"', "mask_token_id"),
    '"modeling_nemotron_labs_diffusion.Nem': ('"elsewhere/repo--modeling_nemotron_labs_diffusion.Nem', "in its own files"),
    '"auto_map"': ('"automap"', "auto_map in config.json"),
    '"head_dim"': ('"sliding_window": 128, "head_dim"', "sliding_window"),
}


@pytest.mark.parametrize("old", WRONG)
def test_a_config_that_is_not_that_of_a_release(release, old):
    new, said = WRONG[old]
    assert said in refused(edited(release, "config.json", old, new))


def test_code_that_is_not_that_of_a_release(release):
    edited(
        release,
        HEAD,
        "self.encoder = Ministral3Model(inner)",
        "self.body = self.encoder = Ministral3Model(inner)\n        x = 1 / 0",
    )
    assert "cannot be loaded by transformers" in (message := refused(release))
    assert "ZeroDivisionError" in message


def test_weights(release):
    weights = load_file(release / "model.safetensors")
    weights["encoder.norm.weight"][3] = float("nan")
    save_file(weights, release / "model.safetensors")
    assert "not finite, in encoder.norm.weight" in refused(release)
    del weights["encoder.norm.weight"]
    save_file(weights, release / "model.safetensors")
    assert "encoder.norm.weight and 0 more" in refused(release)


def test_weights_in_several_files(release):
    expected = load(str(release), trust_remote_code=True).network.native.state_dict()
    weights, index = load_file(release / "model.safetensors"), {}
    (release / "model.safetensors").unlink()
    for number, names in enumerate((sorted(weights)[:9], sorted(weights)[9:])):
        save_file({name: weights[name] for name in names}, release / f"model-{number}.safetensors")
        index |= dict.fromkeys(names, f"model-{number}.safetensors")
    (release / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    found = load(str(release), trust_remote_code=True).network.native.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    (release / "model-1.safetensors").unlink()
    assert "has no model-1.safetensors" in refused(release)
    edited(release, "model.safetensors.index.json", "model-1", "../model-1")
    assert "outside the folder" in refused(release)
    (release / "model.safetensors.index.json").write_text("[" * 100_000)
    assert "cannot be read" in refused(release)


ADAPTER = {
    '"r": 4': ('"r": 0', "needs r >= 1"),
    '"r": 4,': ('"r": 5,', "says r = 5, its matrices have 4"),
    '"lora_alpha": 16': ('"lora_alpha": null', "lora_alpha > 0"),
    '["o_proj"]': ('["o_proj", "q_proj"]', "act on o_proj alone"),
    '"target_modules": ["o_proj"]': ('"target_modules": 5', "act on o_proj alone"),
    '"use_dora": false': ('"use_dora": true', "sets use_dora = True"),
    '"bias": "none"': ('"bias": "all"', "sets bias = 'all'"),
}


@pytest.mark.parametrize("old", ADAPTER)
def test_an_adapter_of_another_kind(release, old):
    new, said = ADAPTER[old]
    edited(release, "linear_spec_lora/adapter_config.json", old, new)
    assert said in refused(f"{release}:lora")


def test_an_adapter_that_is_not_whole(release):
    folder = release / "linear_spec_lora"
    tensors = load_file(folder / "adapter_model.safetensors")
    name = next(iter(tensors))
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, folder / "adapter_model.safetensors")
    assert "no two matrices" in refused(f"{release}:lora")
    save_file(
        tensors | {"base_model.model.diffusion_head.lora_A.weight": tensors[name].clone()}, folder / "adapter_model.safetensors"
    )
    assert "weights for more than o_proj" in refused(f"{release}:lora")
    (folder / "adapter_model.safetensors").write_bytes(b"short")
    assert "missing, damaged or truncated" in refused(f"{release}:lora")
    (folder / "adapter_config.json").unlink()
    assert "adapter_config.json" in refused(f"{release}:lora")


def test_dtypes(release):
    """float64 is genuine, and no dtype rounds the rotary frequencies."""
    bounds = {dtype: load(str(release), dtype, trust_remote_code=True) for dtype in ("float64", "float32", "bfloat16")}
    for dtype, bound in bounds.items():
        assert bound.dtype == getattr(torch, dtype)
        assert bound.vocabulary == VOCABULARY
    frequencies = [bounds[dtype].network.model.rotary_emb.inv_freq for dtype in ("float32", "bfloat16")]
    assert torch.equal(*frequencies)
    exact = bounds["float64"].network.model.rotary_emb.inverse_frequencies
    assert exact.dtype == torch.float64
    assert torch.equal(exact.float(), frequencies[0])
    call = Call((1, 12, 13, 14), (15, 16), True, (0,), 3)
    logits = {dtype: bound.session(padded=True).logits(call)[1].double() for dtype, bound in bounds.items()}
    assert 1e-9 < (logits["float64"] - logits["float32"]).abs().max() < 1e-4
    assert "float64, float32, bfloat16" in refused(release, dtype="float16")
    assert "'cpu' always is" in refused(release, device="no-such-device")


def test_a_hub_id_without_a_hub(monkeypatch, run):
    import huggingface_hub

    def unreachable(*arguments, **options):
        raise OSError("Name or service not known\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    for name in (
        "nvidia/Nemotron-Labs-Diffusion-3B",
        "nvidia/Nemotron-Labs-Diffusion-8B@0123abc",
        "nvidia/Nemotron-Labs-Diffusion-8B:lora",
    ):
        assert is_nemotron(name)
        assert "allow it with --trust-remote-code" in refused(name, trusted=False)
        assert "cannot get" in (message := refused(name))
        assert "Name or service not known" in message
    assert "unknown model" in refused("nvidia/Nemotron-Labs-Diffusion-VLM-8B")
    code, out, err = run("validate", "--model", "nvidia/Nemotron-Labs-Diffusion-3B", "--trust-remote-code")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_a_hub_id_offline_in_fact(tmp_path):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "reports.cli",
        "validate",
        "--model",
        "nvidia/Nemotron-Labs-Diffusion-8B",
        "--trust-remote-code",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("packedss: cannot get 'nvidia/Nemotron-Labs-Diffusion-8B' from the hub")
    assert done.stderr.count("\n") == 1


def test_the_command_line(run, release, tmp_path):
    code, out, err = run("validate", "--model", release)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "--trust-remote-code" in err
    file = tmp_path / "checklist.json"
    code, out, err = run("validate", "--model", release, "--checklist", "--trust-remote-code", "--json", file)
    assert code == 2  # nothing fails; the size of the release is none that is known
    assert "NOT RUN  shapes" in out
    assert "FAIL" not in out
    rows = {row["name"]: row["verdict"] for row in json.loads(file.read_text())["rows"]}
    assert rows["packed = separate"] == rows["adapter"] == "PASS"
    edited(release, "tokenizer_config.json", "enable_thinking", "thinking")
    code, out, err = run("validate", "--model", release, "--checklist", "--trust-remote-code")
    assert code == 1
    assert "FAIL     chat template: thinking CANNOT be turned off" in out
    code, out, err = run("validate", "--checklist")
    assert code == 2
    assert "--checklist is for Nemotron-Labs-Diffusion" in err
    code, out, err = run("validate", "--model", release, "--trust-remote-code", "--reference-dtype", "bfloat16")
    assert code == 2
    assert "float64 or float32" in err


@pytest.mark.slow
def test_a_validation(run, release, tmp_path):
    file = tmp_path / "validation.json"
    words = ["--prompt-ids", "1,12,13,14,15,16", "--max-new-tokens", "12", "-w", "3", "--start", "sampled", "--json", file]
    code, out, err = run("validate", "--model", release, "--trust-remote-code", "--workers", 2, *words)
    assert code == 0, err
    assert "linear 3: " in out
    rows = json.loads(file.read_text())["rows"]
    linear = next(each for each in rows[0]["nfe_conventions"] if each["name"] == "linear")
    assert linear["released"] == linear["all"] == linear["decoding"] + 1
