"""`packedss validate` on any-order models, as a user meets it."""

import json
import sys

import pytest

torch = pytest.importorskip("torch")

from tokenizers import AddedToken, Tokenizer  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from realmodel.loading import EMBEDDED  # noqa: E402
from reports import cli  # noqa: E402


@pytest.fixture
def run(monkeypatch, capsys):
    """run('validate ...') -> (exit code, standard output, standard error)"""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["packedss", *words])
        monkeypatch.setenv("COLUMNS", "240")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A tiny random SetDLM in the released layout."""
    folder = tmp_path_factory.mktemp("models") / "setdlm-gsm8k-smax8"
    folder.mkdir()
    tokenizer = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_middle|>")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "bd3lm", "length": 64}))
    torch.manual_seed(0)
    network = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=40, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, initializer_range=0.4, tie_word_embeddings=True,
        )
    )  # fmt: skip
    torch.save({f"backbone.model.{key}": tensor for key, tensor in network.state_dict().items()}, folder / "pytorch_model.bin")
    return str(folder)


def test_setdlm_in_both_orders(run, release, tmp_path):
    file = tmp_path / "result.json"
    code, out, err = run("validate", "--model", release, "--prompt", "1 + 1?", "--max-new-tokens", "12", "--json", str(file))
    assert (code, err) == (0, "")
    assert "greedy, order ltr within 8" in out
    assert "greedy, order confidence within 8" in out
    for words in (
        "packed, confidence, W = 4: rule EXACT, conformance EXACT, numerics",
        "W = 4: not exact by design",
        "nats a token",
    ):
        assert words in out
    ltr, row = json.loads(file.read_text())["rows"]
    assert (ltr["order"], row["order"], row["horizon"]) == ("ltr", "confidence", 8)
    assert {each["schedule"] for each in row["certificates"]} >= {"serial ltr", "packed confidence", "quadratic confidence"}
    assert [each["arm"] for each in row["not_exact_by_design"]] == [["native", 4]]
    assert {trade["schedule"] for trade in row["trades"]} == {"linear", "packed", "quadratic", "native"}
    code, _, err = run("report", "--from", str(tmp_path))
    assert (code, err) == (0, "")
    assert "quadratic" in (tmp_path / "report.html").read_text()


def test_past_the_trained_length_with_a_warning(run, release):
    words = ("validate", "--model", release, "--prompt", "1 + 1?", "-s", "packed", "--order", "ltr")
    code, out, err = run(*words, "--output-positions", "30")
    assert code == 0
    assert err.count("warning: ") >= 1
    assert "was trained on 64 in all" in err
    code, out, err = run(*words, "--max-new-tokens", "30")
    assert (code, out) == (2, "")
    assert "was trained on 64 in all: at most" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model kuleshov-group/setdlm-gsm8k-smax16 --prompt x", "without a network, give the folder of a copy"),
        ("--model kuleshov-group/setdlm-gsm8k-smax99 --prompt x", "unknown model"),
        ("--model any-order:/nowhere", "unknown any-order model"),
        ("--model embedded --order ltr", "--order, --horizon and --output-positions are for any-order models"),
        ("--model embedded-any-order --order sideways", "unknown order 'sideways'"),
        ("--model embedded-any-order -s ar", "unknown any-order schedule 'ar'"),
        ("--model embedded-any-order -w 65", "must lie in 1 .. 64"),
        ("--model embedded-any-order --start wide", "unknown start 'wide' of an any-order schedule"),
        ("--model embedded-any-order --temperature 1", "validated at temperature 0"),
        ("--model embedded-any-order --baselines", "without --baselines"),
        ("--model embedded-any-order --output-positions 5", "--output-positions is for SetDLM"),
    ],
)
def test_one_clear_line(run, words, said):
    code, out, err = run("validate", *words.split())
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_setdlm_needs_a_question(run, release):
    code, _, err = run("validate", "--model", release)
    assert code == 2
    assert "answers questions of GSM8K: give one with --prompt" in err
