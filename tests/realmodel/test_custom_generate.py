"""transformers' `generate` by a schedule: its tokens without sampling, its law with it, and nothing dropped without a word."""

from __future__ import annotations

import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    TextStreamer,
)
from transformers.generation import logits_process as lp
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from proofs_check import check_decoder
from realmodel.adapter import with_random_adapter
from realmodel.custom_generate import PURE_PROCESSORS, asked, decoding, generate, schedule_generate
from realmodel.reference import CausalReference
from simulator import ContractError, InvalidInput, Processing, enumerated, packed, quadratic
from simulator.laws import Point

FOLDER = Path(__file__).parents[2] / "examples" / "custom_generate"
SCHEDULES = ("ar", "linear", "packed", "quadratic", "branches:0,2")
WIDTHS = ("hidden_size", "d_model", "n_embd", "word_embed_proj_dim")
SIZES: dict[str, Any] = {  # of tiny models, under the names that the configurations of the families give them
    **dict.fromkeys(WIDTHS, 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_experts", "n_routed_experts", "num_local_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("first_k_dense_replace", "n_group", "topk_group", "bos_token_id"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 256),
    "vocab_size": 61,
    "rotary_dim": 8,
    "pad_token_id": 0,
    "eos_token_id": None,
}


def config_of(family: str, **sizes: Any) -> Any:
    """A configuration of a family of causal language models, as small as it lets itself be made."""
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[family]
    known = {*dir(config_class), *getattr(config_class, "__dataclass_fields__", {})} - set(config_class.attribute_map)
    return config_class(**{name: size for name, size in (SIZES | sizes).items() if name in known})


def tiny(family: str, dtype: torch.dtype = torch.float64, **sizes: Any) -> Any:
    """A random model of a family."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config_of(family, **sizes)).to(dtype).eval()
    for weight in model.parameters():
        weight.data *= 1.5  # a wider range of logits
    return model


@cache
def llama() -> Any:
    return tiny("llama")


def ids(length: int = 9, vocabulary: int = 61, seed: int = 1) -> torch.Tensor:
    return torch.randint(2, vocabulary, (1, length), generator=torch.Generator().manual_seed(seed))


def by(schedule: Any, **how: Any) -> Callable[..., Any]:
    return partial(schedule_generate, **{"schedule": schedule, "width": 3, "mask_token_id": 5} | how)


# Greedy: the same tokens.

SETTINGS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"min_new_tokens": 9, "eos_token_id": [7, 8, 9, *range(20, 50)]},  # many ids: one of them comes at once
    {"eos_token_id": list(range(20, 35)), "exponential_decay_length_penalty": (4, 1.5)},
    {"bad_words_ids": [[11], [12, 13]], "suppress_tokens": [20, 21], "begin_suppress_tokens": [30, 31]},
    {"sequence_bias": {(22,): 3.0, (22, 23): 9.0}, "renormalize_logits": True},
    {"forced_eos_token_id": 6, "encoder_no_repeat_ngram_size": 3, "encoder_repetition_penalty": 1.2},
    {"watermarking_config": {"bias": 4.0, "seeding_scheme": "lefthash"}},
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_greedy_outputs_are_those_of_generate(schedule: str) -> None:
    """Sequences, scores and logits, under processors that know the history and several EOS ids; and the cache goes on."""
    for setting in SETTINGS:
        how = setting | {"max_new_tokens": 14, "return_dict_in_generate": True, "output_scores": True, "output_logits": True}
        theirs = llama().generate(ids(), **how)
        ours = llama().generate(ids(), custom_generate=by(schedule), **how)
        assert torch.equal(ours.sequences, theirs.sequences), setting
        for got, expected in ((ours.scores, theirs.scores), (ours.logits, theirs.logits)):
            assert len(got) == len(expected) == theirs.sequences.shape[1] - 9
            for a, b in zip(got, expected, strict=True):
                assert a.dtype == b.dtype == torch.float32
                torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)  # float64 rows, rounded to float32
        assert ours.nfe <= (2 if schedule == "linear" else 1) * len(theirs.scores)
        assert ours.cache.get_seq_length() == theirs.cache.get_seq_length()
        for a, b in zip(ours.cache.layers, theirs.cache.layers, strict=True):
            torch.testing.assert_close(a.keys, b.keys)


def test_the_settings_reach_what_they_are_about() -> None:
    """Each of them changes the greedy output, so that dropping it would have been seen."""
    plain = llama().generate(ids(), max_new_tokens=14)[0].tolist()
    for setting in SETTINGS[1:]:
        assert llama().generate(ids(), max_new_tokens=14, **setting)[0].tolist() != plain, setting


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *[(family, torch.float64) for family in ("gpt2", "gpt_neox", "opt", "qwen3", "phi3", "gemma")],
        *[("mixtral", torch.float32), ("llama", torch.bfloat16)],
    ],
)
def test_families_of_models(family: str, dtype: torch.dtype) -> None:
    """Rotary and learned positions, tied heads, experts. In bfloat16, where packing may flip a tie, the first token."""
    model = tiny(family, dtype)
    length = 1 if dtype == torch.bfloat16 else 16
    theirs = model.generate(ids(), max_new_tokens=length)
    for schedule in ("packed", "quadratic"):
        assert torch.equal(model.generate(ids(), max_new_tokens=length, custom_generate=by(schedule)), theirs)


@pytest.mark.slow
def test_every_family_that_can_be_built_is_right_or_refused() -> None:
    equal, refused, broken = [], [], []
    heads = {"num_key_value_heads": 4}  # latent attention has no fewer
    for family in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:
            with torch.device("meta"):
                size = transformers.AutoModelForCausalLM.from_config(config_of(family, **heads)).num_parameters()
            if size > 1e7:
                continue
            model = tiny(family, torch.float32, **heads)
            theirs = model.generate(ids(), max_new_tokens=10)
        except Exception:  # no tiny one by these sizes, or not alone
            continue
        try:
            same = torch.equal(model.generate(ids(), max_new_tokens=10, custom_generate=by("quadratic")), theirs)
            (equal if same else broken).append(family)
        except InvalidInput:
            refused.append(family)
    assert not broken, broken
    assert len(equal) >= 60, equal
    assert len(refused) >= 25, refused


def test_starts_widths_and_the_model_of_the_house(load_model: Any, prompts: list[tuple[int, ...]]) -> None:
    """Where the model names its mask token none is asked for, and drafts are accepted."""
    model = load_model("float32")
    prompt = torch.tensor([prompts[0]])
    theirs = model.network.generate(prompt, max_new_tokens=30)
    for start in ("algorithm", "wide", "sampled", "prompt"):
        how = {"schedule": "packed", "width": 4, "start": start, "return_dict_in_generate": True}
        ours = model.network.generate(prompt, max_new_tokens=30, custom_generate=schedule_generate, **how)
        assert torch.equal(ours.sequences, theirs)
        assert ours.nfe < 25
    changing = model.network.generate(prompt, max_new_tokens=30, custom_generate=schedule_generate, schedule=packed((2, 5)))
    assert torch.equal(changing, theirs)


def test_an_adapter_acts_on_proposal_rows_alone(model64: Any, prompts: list[tuple[int, ...]]) -> None:
    adapted = with_random_adapter(model64)
    prompt = torch.tensor([prompts[0]])
    theirs = model64.network.generate(prompt, max_new_tokens=12)
    ours = adapted.network.generate(prompt, max_new_tokens=12, custom_generate=schedule_generate, adapter=adapted.adapter)
    assert torch.equal(ours, theirs)
    assert adapted.adapter.selected > 0


# Sampling: the same law, exactly.


@cache
def three_tokens() -> Any:
    """A model of 3 tokens whose logits are wide enough for every setting to matter."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=3, max_position_embeddings=64, **sizes, eos_token_id=None, bos_token_id=None)
    model = LlamaForCausalLM(config).double().eval()
    model.lm_head.weight.data *= 20
    return model


def law_of_generate(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, ...], float]:
    """The law of transformers' own loop: run once for every sequence of choices, each with the probability it had."""
    law: dict[tuple[int, ...], float] = {}
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        chosen: list[int] = []
        weights = [1.0]

        def choose(
            probabilities: torch.Tensor,
            num_samples: int,
            script: tuple[int, ...] = script,
            chosen: list[int] = chosen,
            weights: list[float] = weights,
        ) -> torch.Tensor:
            law_here = probabilities[0].double() / probabilities[0].double().sum()
            possible = [token for token, p in enumerate(law_here.tolist()) if p > 0]
            token = script[len(chosen)] if len(chosen) < len(script) else possible[0]
            if len(chosen) >= len(script):
                pending.extend((*chosen, other) for other in possible[1:])
            chosen.append(token)
            weights[0] *= float(law_here[token])
            return torch.tensor([[token]])

        with monkeypatch.context() as patch:
            patch.setattr(torch, "multinomial", choose)
            three_tokens().generate(torch.tensor([[1, 2]]), do_sample=True, **how)
        law[tuple(chosen)] = weights[0]
    return law


class Whole:
    """The enumerated coins of a whole request: those of its calls are told apart."""

    def __init__(self, coins: Any) -> None:
        self.coins = coins

    def at(self, call: int) -> Any:
        return SimpleNamespace(uniform=lambda purpose, position: self.coins.uniform((call, purpose), position))


def law_of_ours(schedule: Any, how: dict[str, Any]) -> dict[tuple[int, ...], float]:
    """The law of the whole callable: run once for every outcome of its coins."""

    def run(coins: Any) -> tuple[int, ...]:
        custom = partial(schedule_generate, schedule=schedule, mask_token_id=0, chance=Whole(coins))
        ids = three_tokens().generate(torch.tensor([[1, 2]]), do_sample=True, custom_generate=custom, **how)
        return tuple(ids[0, 2:].tolist())

    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for probability, output in enumerated(run):
        law[output] += probability
    assert sum(law.values()) == 1
    return {output: float(probability) for output, probability in law.items()}


def distance(left: dict[tuple[int, ...], float], right: dict[tuple[int, ...], float]) -> float:
    return sum(abs(left.get(x, 0.0) - right.get(x, 0.0)) for x in {*left, *right}) / 2


LAWS: list[tuple[Any, dict[str, Any]]] = [
    (packed(2), {"max_new_tokens": 3, "temperature": 0.7, "top_k": 2, "repetition_penalty": 1.4}),
    (packed(2), {"max_new_tokens": 3, "top_p": 0.7, "no_repeat_ngram_size": 2}),
    (quadratic(1), {"max_new_tokens": 3, "min_p": 0.3, "exponential_decay_length_penalty": (1, 1.6), "eos_token_id": 2}),
    (quadratic(2), {"max_new_tokens": 3, "min_new_tokens": 2, "eos_token_id": [2], "typical_p": 0.9}),
]


@pytest.mark.parametrize(("schedule", "how"), LAWS)
def test_the_law_is_that_of_generate(schedule: Any, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Total variation over whole outputs; generate's own probabilities are float32."""
    theirs, ours = law_of_generate(how, monkeypatch), law_of_ours(schedule, how)
    assert len(theirs) > 3
    assert {x for x, p in theirs.items() if p} == set(ours)
    assert distance(theirs, ours) < 1e-6


def test_a_processor_that_is_dropped_changes_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: for every setting of LAWS there is one it tells from it."""
    for _, how in LAWS:
        full = law_of_generate(how, monkeypatch)
        for name in set(how) - {"max_new_tokens", "eos_token_id"}:
            without = {key: value for key, value in how.items() if key != name}
            assert distance(full, law_of_generate(without, monkeypatch)) > 1e-3, name


def prefix_alone(model: Any, target: Any, proposal: Any) -> Any:
    """A planted fault: every verifier row is processed with the prefix as its context."""

    def run(call: Any) -> Any:
        reply = model(call)
        return reply._replace(
            target=tuple(target(call.prefix, row) for row in reply.target),
            proposals=tuple(rows and tuple(proposal(call.prefix, row) for row in rows) for rows in reply.proposals),
        )

    return run


def test_rows_processed_with_the_wrong_context_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, how = LAWS[1]
    theirs = law_of_generate(how, monkeypatch)
    monkeypatch.setattr(decoding, "processed", prefix_alone)
    assert distance(theirs, law_of_ours(schedule, how)) > 1e-3


def test_a_missing_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, how = LAWS[0]
    theirs = law_of_generate(how, monkeypatch)
    monkeypatch.setattr(decoding.TorchLaw, "residual", lambda self, proposal: self)
    assert distance(theirs, law_of_ours(schedule, how)) > 1e-3


@pytest.mark.slow
def test_the_tokens_of_a_real_vocabulary_follow_the_law(load_model: Any, prompts: list[tuple[int, ...]]) -> None:
    """4,000 tokens of the embedded model, bet on against plain causal forwards: false-alarm odds 1e-4, and a temperature that
    is a tenth off, planted, is found."""
    model = load_model("float32")
    how = {"processing": Processing(temperature=0.9, top_k=200), "max_new_tokens": 40, "eos": [model.eos]}
    verdicts = []
    for temperature in (0.9, 1.0):

        def decoder(prompt: Any, length: int, seed: int, temperature: float = temperature) -> list[int]:
            torch.manual_seed(seed)
            asked_for = {"do_sample": True, "temperature": temperature, "top_k": 200, "max_new_tokens": length}
            custom = partial(schedule_generate, schedule="packed", width=4)
            return model.network.generate(torch.tensor([prompt]), custom_generate=custom, **asked_for)[
                0, len(prompt) :
            ].tolist()

        report = check_decoder(decoder, CausalReference(model), prompts[:8], tokens=4000, alpha=1e-4, seed=7, **how)
        verdicts.append(report.verdict)
    assert verdicts == ["NOTHING FOUND", "NOT EXACT"]


def test_torch_s_seed_makes_a_run_repeatable() -> None:
    llama()  # made before a seed is set: making it draws from torch's generator, the first time

    def sample(seed: int, schedule: str = "packed") -> list[int]:
        transformers.set_seed(seed)
        output = llama().generate(ids(), do_sample=True, max_new_tokens=12, custom_generate=by(schedule))
        return [*output[0].tolist(), int(torch.randint(1 << 30, ()))]

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)[:-1]) for seed in range(4)}) == 4  # 12 tokens of 50 repeat with odds far below 1e-6
    assert sample(1)[-1] == sample(1, "ar")[-1]  # one draw of torch's, whatever the schedule
    torch.manual_seed(1)
    before = torch.get_rng_state()
    llama().generate(ids(), max_new_tokens=5, custom_generate=by("packed"))
    assert torch.equal(torch.get_rng_state(), before)  # none without sampling


# Where it ends, and what is shown on the way.


class Watching(StoppingCriteria):
    """A criterion with a memory: it stops at the n-th token it is shown and keeps what that was."""

    def __init__(self, stop: int) -> None:
        self.stop, self.shown = stop, []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.shown.append((input_ids[0].tolist(), None if scores is None else [score.shape for score in scores]))
        return torch.tensor([len(self.shown) >= self.stop])


@pytest.mark.parametrize("told", [False, True])
def test_criteria_are_asked_about_every_token_in_order(told: bool) -> None:
    how = {"max_new_tokens": 14, "return_dict_in_generate": told, "output_scores": told}
    for stop in (1, 2, 3, 7, 99):
        theirs, ours = Watching(stop), Watching(stop)
        a = llama().generate(ids(), stopping_criteria=[theirs], **how)
        b = llama().generate(ids(), stopping_criteria=[ours], custom_generate=by("quadratic"), **how)
        assert torch.equal(a.sequences, b.sequences) if told else torch.equal(a, b)
        assert ours.shown == theirs.shown
        assert len(ours.shown) == min(stop, 14)


def test_a_criterion_asked_only_between_calls_would_be_seen(load_model: Any, prompts: list[tuple[int, ...]]) -> None:
    """Some calls of the embedded model commit several tokens, and an end among them is kept."""
    network, prompt = load_model("float32").network, torch.tensor([prompts[0]])
    how = {"custom_generate": schedule_generate, "return_dict_in_generate": True}
    runs = [network.generate(prompt, max_new_tokens=30, stopping_criteria=[Watching(stop)], **how) for stop in range(1, 10)]
    assert [run.sequences.shape[1] - prompt.shape[1] for run in runs] == list(range(1, 10))
    assert any(run.nfe == more.nfe for run, more in itertools.pairwise(runs))  # the same call went on


def test_time_is_a_limit() -> None:
    theirs = llama().generate(ids(), max_new_tokens=14, max_time=0.0)
    assert torch.equal(llama().generate(ids(), max_new_tokens=14, max_time=0.0, custom_generate=by("packed")), theirs)
    assert theirs.shape[1] == 10


class Heard:
    """A streamer that keeps what it is given."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.heard.append(value.tolist())

    def end(self) -> None:
        self.heard.append("end")


def test_a_streamer_hears_what_it_would_hear() -> None:
    """transformers gives a callable no streamer: it is taken from the arguments of the running `generate`."""
    theirs, ours = Heard(), Heard()
    llama().generate(ids(), max_new_tokens=8, streamer=theirs)
    llama().generate(ids(), max_new_tokens=8, streamer=ours, custom_generate=by("packed"))
    assert ours.heard == theirs.heard
    assert len(ours.heard) == 10


# The folder.


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The requirement of the folder is met by a checkout that is only on the path, too."""
    metadata = tmp_path / "packedss-0.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: packedss\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


def test_the_folder_does_what_the_callable_does(installed: None, load_model: Any, prompts: list[tuple[int, ...]]) -> None:
    """With the stop strings and the streamer that `generate` hands on to a folder alone."""
    model = load_model("float32")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model.tokenizer)
    prompt = torch.tensor([prompts[0]])
    folder = {"custom_generate": str(FOLDER), "trust_remote_code": True, "schedule": "quadratic", "width": 4}
    plain = model.network.generate(prompt, max_new_tokens=30)
    word = model.tokenizer.decode(plain[0, prompt.shape[1] + 6 : prompt.shape[1] + 8].tolist())
    for setting in ({}, {"stop_strings": [word], "tokenizer": tokenizer}, {"eos_token_id": plain[0, -9].item()}):
        theirs = model.network.generate(prompt, max_new_tokens=30, **setting)
        heard = Heard()
        ours = model.network.generate(prompt, max_new_tokens=30, streamer=heard, **setting, **folder)
        assert torch.equal(ours, theirs)
        assert (theirs.shape[1] < plain.shape[1]) == bool(setting)
        assert [prompt.tolist(), *map(list, ours[0, prompt.shape[1] :, None].tolist()), "end"] == heard.heard
    config = GenerationConfig(max_new_tokens=30, stop_strings=word)
    stopped = generate(model.network, prompt, config, tokenizer=tokenizer)
    assert stopped.shape[1] < plain.shape[1]
    assert config.stop_strings == word
    with pytest.raises(InvalidInput, match="tokenizer"):
        generate(model.network, prompt, stop_strings=word)
    with pytest.raises(InvalidInput, match="num_beams=2"):
        model.network.generate(prompt, num_beams=2, **folder)
    with pytest.raises(InvalidInput, match="assistant_model"):
        model.network.generate(prompt, assistant_model=model.network, **folder)
    with pytest.raises(ValueError, match="trust_remote_code"):
        model.network.generate(prompt, **folder | {"trust_remote_code": False})
    assert "realmodel" in (FOLDER / "custom_generate" / "generate.py").read_text()


# What is refused, by name.


def refusal(model: Any = None, prompt: torch.Tensor | None = None, custom: Any = None, **how: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        (llama() if model is None else model).generate(
            ids() if prompt is None else prompt, max_new_tokens=4, custom_generate=custom or by("packed"), **how
        )
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"num_beams": 2}, "num_beams=2"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences=2"),
        ({"use_cache": False}, "use_cache=False"),
        ({"cache_implementation": "static"}, "cache_implementation='static'"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens=3"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "output_attentions=True"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states=True"),
        ({"remove_invalid_values": True}, "remove_invalid_values=True"),
        ({"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor"),
        ({"prefix_allowed_tokens_fn": lambda batch, tokens: [3]}, "PrefixConstrainedLogitsProcessor"),
        ({"assistant_model": "tiny"}, "assistant_model"),
        ({"synced_gpus": True}, "synced_gpus"),
        ({"prompt": ids(6).view(2, 3)}, "batch of 2"),
        ({"attention_mask": torch.tensor([[0] + [1] * 8])}, "attention_mask"),
        ({"position_ids": torch.arange(9)[None] + 1}, "position_ids"),
        ({"cache": transformers.DynamicCache()}, "cache of your own"),
        ({"logits_to_keep": 2}, "logits_to_keep=2"),
        ({"custom": schedule_generate}, "mask_token_id"),
        ({"custom": by("packed", mask_token_id=61)}, "mask_token_id must lie in 0 .. 60, got 61"),
        ({"custom": by("sideways")}, "unknown schedule 'sideways'"),
        ({"custom": by("packed", width=0)}, "width W must be >= 1"),
        ({"custom": by("packed", width=140)}, "positions"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(how: dict[str, Any], named: str) -> None:
    if how.get("assistant_model"):
        how = {"assistant_model": llama()}
    assert named in refusal(**how)


def test_stop_strings_never_pass_a_callable_by() -> None:
    """Its `generate` has no tokenizer for them and says so itself."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_words())
    with pytest.raises(ValueError, match="stop strings"):
        llama().generate(ids(), stop_strings=["a"], tokenizer=tokenizer, custom_generate=by("packed"))
    model = tiny("llama")
    model.generation_config.stop_strings = ["a"]
    with pytest.raises(InvalidInput, match="generation_config"):
        generate(model, ids(), tokenizer=tokenizer)


def _words() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    return Tokenizer(WordLevel({str(token): token for token in range(61)}, unk_token="0"))


def test_every_setting_is_honoured_or_refused() -> None:
    """Of the transformers installed, and one that it does not have."""
    names = [name for name in vars(GenerationConfig()) if not name.startswith("_")]
    assert asked._HONOURED - {"transformers_version"} <= set(names)
    refused = 0
    for name in [*names, "speculate_harder"]:
        config = GenerationConfig()
        setattr(config, name, "something new")
        if name in asked._HONOURED:
            asked.check_config(config)
            continue
        with pytest.raises(InvalidInput, match=rf"take {name}='something new'"):
            asked.check_config(config)
        refused += 1
    assert refused > 20


MODELS_REFUSED = {
    "gemma2": "DynamicSlidingWindowLayer",
    "mistral": "DynamicSlidingWindowLayer",
    "mamba": "position_ids",
    "bloom": "position_ids",
    "roberta": "differ by",  # it counts positions from 1, and not when they are given
}


@pytest.mark.parametrize("family", MODELS_REFUSED)
def test_models_whose_rows_cannot_be_packed_are_refused(family: str) -> None:
    model = tiny(family, torch.float32, num_attention_heads=4)
    assert MODELS_REFUSED[family] in refusal(model)


def test_a_model_whose_rows_see_each_other_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a model that takes a 4D mask, and takes it for one that hides nothing."""
    model = tiny("llama")
    forward = model.forward

    def deaf(*arguments: Any, attention_mask: Any = None, **rest: Any) -> Any:
        return forward(*arguments, attention_mask=None if attention_mask is None else 0 * attention_mask.exp(), **rest)

    def broken(*arguments: Any, attention_mask: Any = None, **rest: Any) -> Any:
        if attention_mask is not None:
            raise RuntimeError("no such mask\nas this")
        return forward(*arguments, **rest)

    broken.__signature__ = deaf.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    monkeypatch.setattr(model, "forward", deaf)
    assert "differ by" in refusal(model)
    monkeypatch.setattr(model, "forward", broken)
    assert "it fails on packed rows (no such mask)" in refusal(model)


def test_other_states_of_a_model_are_refused() -> None:
    model = tiny("llama")
    model.train()
    assert "training mode" in refusal(model)
    assert "float16" in refusal(tiny("llama", torch.float16))
    model = tiny("llama")
    model.config._attn_implementation = "flex_attention"
    assert "flex_attention" in refusal(model)


# Processors.


def processors() -> Iterator[tuple[Any, ...]]:
    """One of each pure class, as a way to make it anew."""
    prompt = ids(5)
    yield from (
        partial(lp.EncoderNoRepeatNGramLogitsProcessor, 2, prompt),
        partial(lp.EncoderRepetitionPenaltyLogitsProcessor, 1.5, prompt),
        partial(lp.EpsilonLogitsWarper, 0.02),
        partial(lp.EtaLogitsWarper, 0.02),
        partial(lp.ExponentialDecayLengthPenalty, (1, 1.3), torch.tensor([4]), 2),
        partial(lp.ForcedBOSTokenLogitsProcessor, 3),
        partial(lp.ForcedEOSTokenLogitsProcessor, 5, 4),
        lp.LogitNormalization,
        partial(lp.MinLengthLogitsProcessor, 4, 6),
        partial(lp.MinNewTokensLengthLogitsProcessor, 2, 2, 6),
        partial(lp.MinPLogitsWarper, 0.1),
        partial(lp.NoBadWordsLogitsProcessor, [[7], [8, 9]], 6),
        partial(lp.NoRepeatNGramLogitsProcessor, 2),
        partial(lp.RepetitionPenaltyLogitsProcessor, 1.5, torch.tensor([1])),
        partial(lp.SequenceBiasLogitsProcessor, {(7,): 2.0, (8, 9): 3.0}),
        partial(lp.SuppressTokensAtBeginLogitsProcessor, [3, 4], 3),
        partial(lp.SuppressTokensLogitsProcessor, [3, 4]),
        partial(lp.TemperatureLogitsWarper, 0.7),
        partial(lp.TopHLogitsWarper, 0.5),
        partial(lp.TopKLogitsWarper, 5),
        partial(lp.TopPLogitsWarper, 0.5),
        partial(lp.TypicalLogitsWarper, 0.5),
        partial(lp.WatermarkLogitsProcessor, 61, "cpu"),
    )


def is_pure(make: Callable[[], Any]) -> bool:
    """Asked about 30 contexts of 1 to 6 tokens, with repetitions, one instance answers as a new one does each time; and leaves
    the contexts as they were."""
    generator = torch.Generator().manual_seed(0)
    old = make()
    for number in range(30):
        context = torch.randint(2, 10, (1, 1 + number % 6), generator=generator)
        scores = torch.randn(1, 61, generator=generator)
        before = context.clone()
        if not torch.equal(old(context, scores.clone()), make()(context, scores.clone())) or not torch.equal(context, before):
            return False
    return True


def test_the_classes_called_pure_are() -> None:
    makers = list(processors())
    assert {type(make()) for make in makers} == PURE_PROCESSORS
    for make in makers:
        assert is_pure(make), make


class Counting(lp.LogitsProcessor):
    """A planted fault: its answer depends on how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return scores.roll(self.calls, -1)


class Favourite(lp.LogitsProcessor):
    """One of the user's own, and pure."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + 8.0 * (torch.arange(scores.shape[-1]) == (input_ids[0, -1] + 1) % 61)


def test_processors_with_a_memory_are_refused() -> None:
    assert not is_pure(Counting)
    assert not is_pure(partial(lp.SynthIDTextWatermarkLogitsProcessor, 3, [1, 2, 3], 8, 0, 8, "cpu"))
    assert "Counting" in refusal(logits_processor=[Counting()])
    synth = transformers.SynthIDTextWatermarkingConfig(keys=[1, 2, 3], ngram_len=3)
    assert "SynthIDTextWatermarkLogitsProcessor" in refusal(watermarking_config=synth)

    class Warmer(lp.TemperatureLogitsWarper):
        pass

    assert "Warmer" in refusal(logits_processor=[Warmer(2.0)])


def test_a_processor_of_your_own_can_be_vouched_for() -> None:
    assert "pure_processors" in refusal(logits_processor=[Favourite()])
    how = {"max_new_tokens": 12, "logits_processor": [Favourite()]}
    theirs = llama().generate(ids(), **how)
    ours = llama().generate(ids(), custom_generate=schedule_generate, mask_token_id=5, pure_processors=[Favourite], **how)
    assert torch.equal(ours, theirs)
    allowed = {"max_new_tokens": 12, "prefix_allowed_tokens_fn": lambda batch, tokens: [(int(tokens[-1]) * 3) % 61, 4]}
    grammar = by("quadratic", pure_processors=[lp.PrefixConstrainedLogitsProcessor])
    assert torch.equal(llama().generate(ids(), custom_generate=grammar, **allowed), llama().generate(ids(), **allowed))


def test_rows_that_nothing_is_left_of() -> None:
    """A target row stops the run with a line of its own; a proposal row proposes something, for the verifier to reject."""

    def none_left(context: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.fill_(-torch.inf)

    rows = decoding._Rows(none_left, torch.device("cpu"), True, 0)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="after 2 tokens"):
        rows.target((1, 2), torch.zeros(4))
    assert rows.proposal((1, 2), torch.zeros(4)) == Point(0)


def test_called_without_generate() -> None:
    """As other loops of transformers are: with prepared arguments, a length among them."""
    prepared = (
        lp.LogitsProcessorList(),
        StoppingCriteriaList([MaxLengthCriteria(15), EosTokenCriteria(7)]),
        GenerationConfig(),
    )
    ours = schedule_generate(llama(), ids(), *prepared, mask_token_id=5)
    assert torch.equal(ours, llama().generate(ids(), max_length=15, eos_token_id=7))
    with pytest.raises(InvalidInput, match="MaxLengthCriteria"):
        schedule_generate(llama(), ids(), prepared[0], StoppingCriteriaList(), GenerationConfig(), mask_token_id=5)


def test_every_call_of_the_text_streamer(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_words())
    printed = []
    for how in ({}, {"custom_generate": by("packed")}):
        llama().generate(ids(), max_new_tokens=8, streamer=TextStreamer(tokenizer, skip_prompt=True), **how)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""
    assert len(list(itertools.chain(*printed))) > 16
