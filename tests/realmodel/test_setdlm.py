"""SetDLM from tiny random checkpoints written in the released layout, and what is refused of a folder."""

import json
import re

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from tokenizers import AddedToken, Tokenizer  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from realmodel.any_order.loading import is_any_order, load_any_order  # noqa: E402
from realmodel.any_order.reference import row_logits, serial_greedy  # noqa: E402
from realmodel.loading import EMBEDDED  # noqa: E402
from realmodel.setdlm import AnswerLimits, SetDLM, is_setdlm, load_setdlm  # noqa: E402
from realmodel.tasks.mathematics import SETDLM_INSTRUCTION  # noqa: E402
from simulator import InvalidInput, Limits, generate  # noqa: E402
from simulator.any_order import named, packed, serial  # noqa: E402

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_middle|>")
UNUSED = 5  # rows of the embedding that no token has, as the release has 267


def tokenizer_of(path):
    tokenizer = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(path))
    return tokenizer


def state(tied=True, seed=0):
    torch.manual_seed(seed)
    tokens = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json")).get_vocab_size() + len(SPECIAL)
    config = Qwen3Config(
        vocab_size=tokens + UNUSED, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, initializer_range=0.4, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    network = Qwen3ForCausalLM(config)
    return network, {f"backbone.model.{key}": tensor.clone() for key, tensor in network.state_dict().items()}


@pytest.fixture
def release(tmp_path):
    """release(...) writes a folder and returns (folder, the network it was made from)."""

    def write(name="setdlm-gsm8k-smax16", shards=1, safe=False, tied=True, head=True, config=(), stray=True):
        folder = tmp_path / name
        folder.mkdir()
        network, weights = state(tied)
        if not head:
            del weights["backbone.model.lm_head.weight"]
        if stray:
            weights["static_attention_mask"] = torch.ones(8, 8, dtype=torch.bool)
            weights["backbone.model.model.rotary_emb.inv_freq"] = torch.ones(8)
        tokenizer = tokenizer_of(folder / "tokenizer.json")
        settings = {"model_type": "bd3lm", "length": 1024, "mask_token_id": tokenizer.token_to_id("<|fim_middle|>")}
        settings |= {"noise_config": {"max_block_size": 1024}}
        (folder / "config.json").write_text(json.dumps(settings | dict(config)))
        stem, suffix = ("model", "safetensors") if safe else ("pytorch_model", "bin")
        keys = sorted(weights)
        parts = [keys[i::shards] for i in range(shards)]
        names = [f"{stem}.{suffix}"] if shards == 1 else [f"{stem}-{i + 1:05}-of-{shards:05}.{suffix}" for i in range(shards)]
        for part, file in zip(parts, names, strict=True):
            held = {key: weights[key].contiguous() for key in part}
            save_file({k: v.clone() for k, v in held.items()}, folder / file) if safe else torch.save(held, folder / file)
        if shards > 1:
            index = {"weight_map": {key: file for part, file in zip(parts, names, strict=True) for key in part}}
            (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
        return folder, network

    return write


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"shards": 3},
        {"safe": True},
        {"safe": True, "shards": 2},
        {"head": False, "stray": False},
        {"tied": False},
    ],
    ids=str,
)
def test_the_released_layout_gives_the_weights_it_was_written_from(release, layout):
    folder, network = release(**layout)
    model = load_setdlm(str(folder))
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode():
        assert torch.equal(model.network(ids).logits, network.eval()(ids).logits)
    assert model.network.config.tie_word_embeddings == layout.get("tied", True)
    assert (model.window, model.horizon, model.trained) == (8, 16, 1024)
    assert model.mask_token == model.tokenizer.token_to_id("<|fim_middle|>")
    assert model.eos == model.tokenizer.token_to_id("<|endoftext|>")
    assert isinstance(load_any_order(str(folder)), SetDLM)
    assert is_any_order(str(folder))


@pytest.mark.parametrize("order", ["ltr", "confidence"])
def test_every_schedule_gives_the_serial_reference_s_tokens(release, order):
    model = load_setdlm(str(release()[0]), "float64")
    prompt = model.gsm8k_prompt("1 + 1?")
    limits = Limits.of(20, model.eos)
    for name in ("linear", "packed", "quadratic"):
        run = generate(model.session(), named(name, model.window, order, start="prompt"), prompt, limits)
        groups = [step.order[: step.advance] for step in run.steps]
        pairs = serial_greedy(model.network, prompt, groups, model.mask_token, model.eos)
        assert tuple(token for _, token in sorted(pairs)) == run.tokens
        assert run.steps[0].rows == 0  # the prompt call, which is counted


def test_float64_is_genuine_and_the_mask_column_is_out(release):
    model = load_setdlm(str(release()[0]), "float64")
    logits = row_logits(model.network, (3, 4, 5), (), 1, model.mask_token)
    assert logits[model.mask_token] == -torch.inf
    law = model.session(1.0)(packed(1).request(packed(1).init((3, 4, 5), Limits.of(1)))).target[0]
    assert law.probability(model.mask_token) == 0
    assert (law.probabilities - torch.softmax(logits, -1)).abs().max() < 1e-12


def test_prompt_of_gsm8k(release):
    model = load_setdlm(str(release()[0]))
    text = model.tokenizer.decode(model.gsm8k_prompt("How many?"), skip_special_tokens=False)
    assert text == f"<|im_start|>user\n{SETDLM_INSTRUCTION}How many?<|im_end|>\n<|im_start|>assistant\n"
    assert SETDLM_INSTRUCTION.endswith("$\\boxed{}$. ")


def test_the_trained_length_is_kept_unless_the_paper_s_allocation_is_asked_for(release):
    model = load_setdlm(str(release()[0]))
    prompt = (3,) * 24
    model.check_prompt(prompt, 1000)
    with pytest.raises(InvalidInput, match="trained on 1024 in all: at most 1000 output positions here"):
        model.check_prompt(prompt, 1001)
    model.beyond = True
    with pytest.warns(UserWarning, match="need 1048 positions; .* was trained on 1024 in all"):
        model.check_prompt(prompt, 1024)


# --- the end of an answer ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tokenizer_of(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def ended(tokenizer, tokens):
    """By the definition: the first token count at which the text has a complete box, or 8 equal tokens stand at the end."""
    for count in range(1, len(tokens) + 1):
        boxed = re.search(r"\\boxed\{.*?\}", tokenizer.decode(tokens[:count], skip_special_tokens=False))
        if boxed or (count >= 8 and len(set(tokens[count - 8 : count])) == 1):
            return count
    return None


@pytest.mark.parametrize(
    "text",
    [
        "so it is $\\boxed{42}$. And",
        "\\boxed{\\frac{1}{2}} x",
        "no box {here}",
        "\\boxed{unclosed",
        "  " * 40 + "end",
        "a \\boxed{1} b \\boxed{2}",
    ],
)
def test_an_answer_ends_where_its_definition_says(tokenizer, text):
    tokens = tuple(tokenizer.encode(text).ids)
    limits = AnswerLimits.to(tokenizer, 500, [7])
    expected = ended(tokenizer, tokens)
    resolved = dict(enumerate(tokens, 1))
    assert limits.end(resolved, resolved) == (expected or 500)
    for count in range(1, (expected or len(tokens)) + 1):
        assert limits.reached((9, 9, *tokens[:count]), 2) == ("stop" if count == expected else None)
    # Position by position, last first: recognised only when the last missing token of it is accepted.
    held, found = {}, []
    for position in reversed(resolved):
        held[position] = resolved[position]
        found.append(limits.end(held, [position]))
    assert found[-1] == (expected or 500)
    if expected:
        assert set(found[: len(tokens) - expected]) <= {500, *range(expected + 1, 500)}


def test_eos_and_length_win_as_ever(tokenizer):
    tokens = tuple(tokenizer.encode("\\boxed{3} and more").ids)
    limits = AnswerLimits.to(tokenizer, len(tokens), [tokens[0]])
    assert limits.end(dict(enumerate(tokens, 1)), range(1, len(tokens) + 1)) == 1
    assert limits.reached(tokens[:1], 0) == "eos"
    assert AnswerLimits.to(tokenizer, 2, ()).reached((7, 9), 0) == "length"
    assert AnswerLimits.to(tokenizer, 2, ()) == Limits.of(2)


def test_a_run_ends_with_its_box_or_its_repetitions(release):
    model = load_setdlm(str(release()[0]))
    limits = model.limits(60)
    assert {model.tokenizer.id_to_token(i) for i in limits.eos} == {"<|endoftext|>", "<|im_end|>"}
    free = generate(model.session(), serial(1), model.gsm8k_prompt("2?"), Limits.of(60)).tokens
    run = generate(model.session(), packed(8), model.gsm8k_prompt("2?"), limits)
    expected = ended(model.tokenizer, free)
    assert run.tokens == free[: expected or 60]


# --- what is refused --------------------------------------------------------------------------------------------------------


def refused(folder, match):
    with pytest.raises(InvalidInput, match=match) as found:
        load_setdlm(str(folder))
    assert "\n" not in str(found.value)


def test_a_hub_id_without_a_network_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert is_setdlm("kuleshov-group/setdlm-gsm8k-smax16")
    refused("kuleshov-group/setdlm-gsm8k-smax16", "from the hub .*without a network, give the folder of a copy")
    refused("kuleshov-group/setdlm-gsm8k-smax64", "unknown model")
    assert not is_setdlm("embedded")


def test_horizon_by_name_or_budget_and_never_by_the_block_size(release):
    folder, _ = release(name="copy", config={"noise_config": {"max_block_size": 1024, "desired_block_size": 16}})
    assert load_setdlm(str(folder)).horizon == 32
    folder, _ = release(name="other")
    refused(folder, "the horizon of 'other' is unknown")
    folder, _ = release(name="x-smax15")
    refused(folder, "horizon")


def test_mask_by_name_and_checked(release):
    folder, _ = release(config={"mask_token_id": 3})
    refused(folder, r"mask token is 3, its tokenizer has <\|fim_middle\|> at")
    (folder / "tokenizer.json").write_text((EMBEDDED / "tokenizer.json").read_text())
    refused(folder, r"has no <\|fim_middle\|>")
    (folder / "tokenizer.json").unlink()
    refused(folder, "has no tokenizer.json: copy that of Qwen/Qwen3-1.7B-Base")


def test_weights_that_do_not_fit(release):
    folder, _ = release()
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    key = "backbone.model.model.layers.1.mlp.up_proj.weight"

    def write(changed):
        torch.save(changed, folder / "pytorch_model.bin")

    write({k: v for k, v in weights.items() if k != key})
    refused(folder, "some are missing")
    write(weights | {"backbone.model.model.extra.weight": torch.ones(2)})
    refused(folder, "too many")
    write(weights | {"noise.weight": torch.ones(2)})
    refused(folder, "'noise.weight', which is not under 'backbone.model.'")
    write(weights | {"backbone.model.model.layers.7000.input_layernorm.weight": torch.ones(32)})
    refused(folder, "not those of a Qwen3: layers 0 .. 7000, of which 4 are there")
    write(weights | {key: weights[key][:3]})
    refused(folder, "misshapen")
    write(weights | {key: weights[key] * torch.nan})
    refused(folder, "not finite")
    for strange in (weights[key].to_sparse(), weights[key].to("meta"), weights[key].to(torch.float8_e4m3fn)):
        write(weights | {key: strange})
        refused(folder, "layers.1.mlp.up_proj.weight of .* is not a dense tensor of torch.float64")
    write(weights | {3: weights[key]})
    refused(folder, "no file of weights")
    write(weights | {"backbone.model.model.layers.0.self_attn.q_proj.weight": torch.tensor(1.0)})
    refused(folder, "not those of a Qwen3")
    write(weights | {"backbone.model.model.layers.0.self_attn.q_norm.weight": torch.ones(0)})
    refused(folder, "not those of a Qwen3")
    write({"backbone.model.model.embed_tokens.weight": torch.ones(4, 4)})
    refused(folder, "not those of a Qwen3")


def test_settings_that_cannot_be(release):
    folder, _ = release()
    settings = json.loads((folder / "config.json").read_text())
    for wrong in ({"rope_theta": 10**400}, {"rope_theta": True}, {"rms_norm_eps": float("inf")}, {"rope_theta": "1e6"}):
        (folder / "config.json").write_text(json.dumps(settings | {"backbone_config": wrong}))
        refused(folder, "needs a positive rope_theta and rms_norm_eps")
    (folder / "config.json").write_text(json.dumps(settings | {"backbone_config": {"num_hidden_layers": 4}}))
    refused(folder, "have 3 layers where its config.json says 4")
    (folder / "config.json").write_text('{"model_type": "bd3lm", "x": ' + "[" * 200_000)
    assert not is_setdlm(str(folder))
    refused(folder, "config.json of .* cannot be read")


class Command:
    """A pickle that would run something."""

    def __reduce__(self):
        return (print, ("this must never run",))


def test_a_pickle_runs_nothing(release, capsys):
    folder, _ = release()
    torch.save({"backbone.model.x": Command()}, folder / "pytorch_model.bin")
    refused(folder, "pytorch_model.bin of .* is no file of weights")
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04 cut off")
    refused(folder, "is no file of weights|damaged")
    torch.save([1, 2], folder / "pytorch_model.bin")
    refused(folder, "is no file of weights")
    assert "never run" not in capsys.readouterr().out


def test_files_that_are_missing_or_elsewhere(release):
    folder, _ = release(shards=2)
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    refused(folder, "has no pytorch_model-00002-of-00002.bin, which its index names")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.bin"}}))
    refused(folder, "names no files of its own folder")
    (folder / "pytorch_model.bin.index.json").unlink()
    refused(folder, "no model.safetensors or pytorch_model.bin")
    (folder / "config.json").write_text("[1]")
    refused(folder, "must hold an object")
    (folder / "config.json").unlink()
    refused(folder, "has no config.json")
