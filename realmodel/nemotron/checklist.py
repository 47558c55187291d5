"""What a binding takes for granted of a release, looked up and tried out on the files themselves: PASS or FAIL, point by point.

Nothing here decides whether a schedule is exact. It says whether the code that came with the weights behaves as the packed call
needs it to, and prints what could not be known before the files were at hand.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from realmodel.dualmode import DualModeModel
from realmodel.nemotron import lora
from realmodel.nemotron.loading import first_line, folder_of, load
from realmodel.nemotron.network import NemotronNetwork
from realmodel.reference import causal_logits, greedy_reference
from simulator.decode import generate
from simulator.records import Call, Limits, Tokens
from simulator.schedules import linear

Verdict: TypeAlias = Literal["PASS", "FAIL", "NOT RUN"]

_WIDTH, _CONTEXT, _TOKENS = 7, 24, 24  # of the calls tried: W, verified tokens, tokens of a decoded output
_TOLERANCE = 16  # times the difference of two plain causal runs
_ROUNDING, _LARGEST = 1024, 1 / 8  # and at most so many roundings of the largest logit, or this part of it: else it is no noise
_SIZES = {  # layers: name, hidden, MLP, heads, key/value heads, head size, vocabulary
    26: ("3B", 3072, 9216, 32, 8, 128, 131072),
    34: ("8B", 4096, 14336, 32, 8, 128, 131072),
}
_FIELDS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")


class Item(NamedTuple):
    """One point."""

    name: str
    verdict: Verdict
    detail: str  # what was found, or what is missing

    def __str__(self) -> str:
        return f"{self.verdict:8} {self.name}: {self.detail}"


class _Missing(Exception):
    """The point cannot be tried here."""


def checklist(name: str, dtype: str = "float32", device: str = "cpu", trust_remote_code: bool = False) -> Iterator[Item]:
    """Every point, as it is decided. Raises InvalidInput where `load` does: then there is nothing to try."""
    name = name.removesuffix(":lora")
    model = load(name, dtype, device, trust_remote_code)
    probe = _Probe(model, folder_of(name, trust_remote_code))
    for title, check in _CHECKS.items():
        try:
            passed, detail = check(probe)
            yield Item(title, "PASS" if passed else "FAIL", detail)
        except _Missing as missing:
            yield Item(title, "NOT RUN", str(missing))
        except Exception as error:  # code of others
            yield Item(title, "FAIL", f"it raises {type(error).__name__}: {first_line(error)}")


class _Probe:
    """A model, its folder, and one packed call to try: random ids, none of them special."""

    def __init__(self, model: DualModeModel, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.network: NemotronNetwork = model.network
        plain = torch.tensor([i for i in range(model.vocabulary) if i not in (model.mask_token, model.eos)])
        generator = torch.Generator().manual_seed(0)
        ids = plain[torch.randint(len(plain), (_CONTEXT + _WIDTH,), generator=generator)].tolist()
        self.context, self.draft = tuple(ids[:_CONTEXT]), tuple(ids[_CONTEXT:])
        self.call = Call(self.context, self.draft, True, (0,), _WIDTH)

    @property
    def limit(self) -> float:
        """What two forwards of the same rows may differ by, a logit."""
        apart, most = self.noise
        return min(_TOLERANCE * apart, most)

    @property
    def noise(self) -> tuple[float, float]:
        """What plain causal calls, of one row at a time and of all at once, differ by; and the most that rounding could do."""
        tokens, rounding = self.context + self.draft, torch.finfo(self.model.dtype).eps
        once, stepwise = causal_logits(self.model, tokens), causal_logits(self.model, tokens, one_by_one=True)
        scale = once.abs().max().item()
        return max((once - stepwise).abs().max().item(), scale * rounding), scale * min(_ROUNDING * rounding, _LARGEST)

    def packed(self, call: Call | None = None) -> tuple[torch.Tensor, Any]:
        """Logits [rows read, vocabulary] of a padded packed call behind a warm cache, and its session."""
        session = self.model.session(padded=True)
        session.logits(Call(self.context[:-1], (), False, (), 0))
        _, logits = session.logits(call or self.call)
        return logits, session

    def warm(self) -> Any:
        """A cache that holds the context but for its last token."""
        inputs = torch.tensor([self.context[:-1]], device=self.model.device)
        return self.network(inputs, use_cache=True).cache

    def ids(self, tokens: Tokens) -> torch.Tensor:
        return torch.tensor([tokens], device=self.model.device)


# --- the code ---------------------------------------------------------------------------------------------------------------


def _causal_calls(probe: _Probe) -> tuple[bool, str]:
    """Several rows behind a cache, as the released verify calls have them."""
    encoder, tokens = probe.network.model, probe.context + probe.draft
    parameter = inspect.signature(inspect.unwrap(encoder.forward)).parameters.get("use_causal_mask")
    default = "no such argument" if parameter is None else f"default {parameter.default!r}"
    expected = causal_logits(probe.model, tokens)[_CONTEXT - 1 :]
    apart = []
    with torch.inference_mode():
        for option in ({"use_causal_mask": True}, {}):
            probe.network.set_mode()
            rows = probe.ids(tokens[_CONTEXT - 1 :])
            hidden = encoder(input_ids=rows, past_key_values=probe.warm(), use_cache=True, **option).last_hidden_state
            apart.append((probe.network.native.diffusion_head(hidden)[0].double() - expected).abs().max().item())
    noise, most = probe.noise
    unset = "causal too" if apart[1] <= probe.limit else f"not causal ({apart[1]:.1e} off)"
    return noise <= most and apart[0] <= probe.limit, (
        f"{default}; True is {apart[0]:.1e} off one causal forward, left out it is {unset};"
        f" one row at a time is {noise:.1e} off all at once"
    )


def _mask_builder(probe: _Probe) -> tuple[bool, str]:
    """The keywords by which the code calls transformers' mask builder."""
    import transformers
    from transformers.masking_utils import create_causal_mask

    module = sys.modules[type(probe.network.model).__module__]
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == create_causal_mask.__name__
    ]
    if not calls:
        raise _Missing(f"{Path(str(module.__file__)).name} calls no create_causal_mask by that name")
    used = sorted({str(keyword.arg) for node in calls for keyword in node.keywords})
    unknown = sorted(set(used) - set(inspect.signature(create_causal_mask).parameters))
    bridged = {"input_embeds", "inputs_embeds", "past_key_values", "cache", "cache_position"}
    said = f"{', '.join(unknown)} unknown to transformers {transformers.__version__}, translated" if unknown else "all known"
    return set(unknown) <= bridged, f"called with {', '.join(used)}: {said}"


@contextmanager
def _attention_calls() -> Iterator[list[dict[str, Any]]]:
    """What every layer hands to scaled_dot_product_attention meanwhile."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    original, seen = ALL_ATTENTION_FUNCTIONS["sdpa"], []

    def attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **options: Any) -> Any:
        seen.append({"attention_mask": attention_mask, **options})
        return original(module, query, key, value, attention_mask, **options)

    ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
    try:
        yield seen
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]


def _mask_arrives(probe: _Probe) -> tuple[bool, str]:
    rows = probe.ids(probe.context[:6])
    sees = torch.eye(6, dtype=torch.bool, device=rows.device)[None, None]
    with torch.inference_mode(), _attention_calls() as seen:
        probe.network(rows, attention_mask=sees)
        ours = list(seen)
        seen.clear()
        try:
            probe.network.native.encoder(input_ids=rows, use_cache=False, use_causal_mask=True, packedss_probe=True)
            further = "reach it" if seen and "packedss_probe" in seen[0] else "do not reach it"
        except TypeError:
            further = "are refused"
    masks = [call["attention_mask"] for call in ours]
    arrived = sum(mask is not None and mask.dtype == torch.bool and torch.equal(mask, sees) for mask in masks)
    names = sorted({name for call in ours for name in call} - {"attention_mask"})
    layers = len(probe.network.model.layers)
    return arrived == len(masks) == layers, (
        f"the bool mask given reaches the attention of {arrived} of {layers} layers, with {', '.join(names)};"
        f" further keywords {further}"
    )


def _who_sees_whom(probe: _Probe) -> tuple[bool, str]:
    """Rows that may not be seen are changed: nothing moves, bit for bit. Rows that must be seen are: something does."""
    before, _ = probe.packed()
    first, size = probe.draft[0], _WIDTH + 1
    other = next(token for token in probe.context if token not in (first, probe.context[-1]))
    changed, _ = probe.packed(probe.call._replace(draft=(other, *probe.draft[1:])))
    blind, causal = torch.equal(before[size:], changed[size:]), torch.equal(before[:1], changed[:1])
    moved = not (before[2:size] == changed[2:size]).all(-1).any()
    anchored, _ = probe.packed(probe.call._replace(prefix=(*probe.context[:-1], other)))
    masks, probe.model.mask_token = probe.model.mask_token, other
    try:
        remasked, _ = probe.packed()
    finally:
        probe.model.mask_token = masks
    apart, drafted = torch.equal(before[:size], remasked[:size]), not (before[size:] == anchored[size:]).all(-1).any()
    words = {
        "proposal rows see the draft": not blind,
        "verifier rows see later draft tokens": not causal,
        "verifier rows do not see the draft": not moved,
        "verifier rows see masks": not apart,
        "proposal rows do not see the copy of the last token": not drafted,
    }
    found = [text for text, wrong in words.items() if wrong]
    return not found, "; ".join(
        found
    ) or f"{size} verifier and {_WIDTH} proposal rows; draft, masks and last token changed in turn: bitwise"


def _cache_grows(probe: _Probe) -> tuple[bool, str]:
    cache, tokens = probe.warm(), probe.context + probe.draft
    before, rows = cache.get_seq_length(), 2 * (_WIDTH + 1)
    _, session = probe.packed()
    held = session.cache.get_seq_length()
    lengths = {layer.keys.shape[-2] for layer in session.cache.layers}
    expected = probe.network(probe.ids(tokens), use_cache=True).cache
    session.cache.crop(-session.stale)
    kept = session.cache.get_seq_length()
    apart = max(
        (mine - theirs).abs().max().item()
        for one, other in zip(session.cache.layers, expected.layers, strict=True)
        for mine, theirs in ((one.keys, other.keys), (one.values, other.values))
    )
    scale = max(layer.keys.abs().max().item() for layer in expected.layers)
    limit = max(probe.limit, _TOLERANCE * scale * torch.finfo(probe.model.dtype).eps)
    return (held == before + rows and lengths == {held} and kept == len(tokens) and apart <= limit), (
        f"{before} rows before, {held} after a call of {rows}, {kept} once cropped, {apart:.1e} off those of a causal forward"
    )


def _packed_is_separate(probe: _Probe) -> tuple[bool, str]:
    """The packed call against the two that the released decoder makes: causal with masks off, drafting in diffusion mode."""
    logits, _ = probe.packed()
    size, last = _WIDTH + 1, probe.context[-1:]
    with torch.inference_mode():
        probe.network.set_mode()
        rows = probe.ids(last + probe.draft)
        hidden = probe.network.native.encoder(
            input_ids=rows, past_key_values=probe.warm(), use_cache=True, use_causal_mask=True
        ).last_hidden_state
        verified = probe.network.native.diffusion_head(hidden)[0]
        drafted = probe.network.draft(probe.ids(last + (probe.model.mask_token,) * _WIDTH), probe.warm())[0, 1:]
    apart = [
        (one.double() - other.double()).abs().max().item()
        for one, other in ((logits[:size], verified), (logits[size:], drafted))
    ]
    return max(apart) <= probe.limit, (
        f"verifier rows {apart[0]:.1e} off the released verify call, proposal rows {apart[1]:.1e} off the released drafting"
        f" call, allowed {probe.limit:.1e}"
    )


def _released_linear(probe: _Probe) -> tuple[bool, str]:
    """The released linear_spec_generate, beside Linear-SS of the same start."""
    import transformers

    if probe.model.dtype == torch.bfloat16:
        raise _Missing("in bfloat16 near-ties may go either way: ask for float32")
    limits = Limits.of(_TOKENS, probe.model.eos)
    probe.network.set_mode()
    try:
        answer, nfe = probe.network.native.linear_spec_generate(
            probe.ids(probe.context), max_new_tokens=_TOKENS, block_length=_WIDTH + 1, threshold=0.0
        )
    except (ValueError, RuntimeError) as error:
        if "crop" not in str(error):
            raise
        raise _Missing(f"it crops its cache to a length, which transformers {transformers.__version__} refuses") from None
    theirs = tuple(answer[0, _CONTEXT:].tolist())
    ours = generate(probe.model.session(), linear(_WIDTH, "sampled"), probe.context, limits)
    plain = greedy_reference(probe.model, probe.context, limits)
    same = theirs[: len(ours.tokens)] == ours.tokens == plain
    return same and nfe == len(ours.steps), (
        f"{'the same' if same else 'other'} tokens as ar_generate and Linear-SS; it counts {nfe} calls, Linear-SS"
        f" {len(ours.steps)}, for {len(ours.tokens)} tokens (it returned {len(theirs)})"
    )


# --- the files --------------------------------------------------------------------------------------------------------------


def _shapes(probe: _Probe) -> tuple[bool, str]:
    config = probe.network.config
    found = tuple(getattr(config, field, None) for field in _FIELDS)
    said = ", ".join(f"{field} {value}" for field, value in zip(_FIELDS, found, strict=True))
    if config.num_hidden_layers not in _SIZES:
        raise _Missing(f"no size is known that has {config.num_hidden_layers} layers; {said}")
    name, *expected = _SIZES[config.num_hidden_layers]
    return found == tuple(expected), f"{name}: {said}; expected {', '.join(map(str, expected))}"


def _rotary(probe: _Probe) -> tuple[bool, str]:
    """The frequencies in memory are those of config.json: a float32 table, not rounded, not left from before loading."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config, rotary = probe.network.config, probe.network.model.rotary_emb
    rope = config.rope_parameters
    expected, scaling = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
    frequencies = getattr(rotary, "inv_freq", None)
    frequencies = rotary.inverse_frequencies if frequencies is None else frequencies
    held = getattr(rotary, "attention_scaling", getattr(rotary, "scaling", None))
    said = ", ".join(f"{key} {value}" for key, value in sorted(rope.items()))
    exact = frequencies.dtype in (torch.float32, torch.float64) and torch.equal(frequencies.float().cpu(), expected.float())
    return exact and held == scaling, (
        f"{'as' if exact else 'NOT as'} in config.json: {said}, max_position_embeddings {config.max_position_embeddings},"
        f" scaling {held}"
    )


def _special_tokens(probe: _Probe) -> tuple[bool, str]:
    config, tokenizer = probe.network.config, probe.model.tokenizer
    ids = {"mask": config.mask_token_id, "eos": config.eos_token_id, "bos": config.bos_token_id}
    literal = {name: None if token is None else tokenizer.id_to_token(token) for name, token in ids.items()}
    known = all(literal.values()) and tokenizer.get_vocab_size() <= config.vocab_size
    return known, ", ".join(f"{name} {ids[name]} is {literal[name]!r}" for name in ids)


def _chat_template(probe: _Probe) -> tuple[bool, str]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(probe.folder), local_files_only=True, trust_remote_code=True)
    if not tokenizer.chat_template:
        raise _Missing("the folder has no chat template")
    message = [{"role": "user", "content": "Is this a test?"}]

    def rendered(**options: bool) -> str:
        text: str = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True, **options)
        return text

    unset, on, off = rendered(), rendered(enable_thinking=True), rendered(enable_thinking=False)
    default = "on" if unset == on else "off" if unset == off else "neither"
    bos = probe.network.config.bos_token_id
    counts = [probe.model.tokenizer.encode(off, add_special_tokens=special).ids.count(bos) for special in (True, False)]
    how = "with" if counts[0] == 1 else "without" if counts[1] == 1 else "NEITHER with nor without"
    return on != off and 1 in counts, (
        f"thinking {'can' if on != off else 'CANNOT'} be turned off, by default it is {default}; one BOS if encoded {how}"
        f" special tokens (with {counts[0]}, without {counts[1]}); it ends in {off[-40:]!r}"
    )


def _revision(probe: _Probe) -> tuple[bool, str]:
    code = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(probe.folder.glob("*.py")))).hexdigest()[:16]
    commit, note = probe.folder.name, probe.folder / ".cache/huggingface/download/config.json.metadata"
    if probe.folder.parent.name != "snapshots" and note.is_file():
        commit = (note.read_text(errors="replace").splitlines() or [""])[0]
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise _Missing(f"a folder that no download left a commit in; its code has SHA-256 {code}..")
    return True, f"commit {commit}; its code has SHA-256 {code}.."


def _adapter(probe: _Probe) -> tuple[bool, str]:
    """Last of all: it stays on the network. On verifier rows nothing may move, bit for bit; on proposal rows something must."""
    if not (probe.folder / lora.FOLDER).is_dir():
        raise _Missing(f"the folder has no {lora.FOLDER}")
    told = lora.settings(probe.folder)
    before, _ = probe.packed()
    adapter = lora.attach(probe.network, probe.folder)
    resting, _ = probe.packed()
    probe.model.adapter = adapter
    after, _ = probe.packed()
    size = _WIDTH + 1
    still = torch.equal(before, resting) and torch.equal(before[:size], after[:size])
    moved, counted = not torch.equal(before[size:], after[size:]), (adapter.evaluated, adapter.selected)
    return still and moved and counted == (2 * size, size), (
        f"rank {told['r']}, lora_alpha {told['lora_alpha']}, on {', '.join(told['target_modules'])};"
        f" verifier rows {'as without it' if still else 'CHANGED'}, proposal rows {'changed' if moved else 'NOT changed'},"
        f" {counted[0]} rows computed, {counted[1]} applied"
    )


_CHECKS: dict[str, Callable[[_Probe], tuple[bool, str]]] = {
    "causal calls": _causal_calls,
    "mask builder": _mask_builder,
    "4D mask": _mask_arrives,
    "who sees whom": _who_sees_whom,
    "cache": _cache_grows,
    "packed = separate": _packed_is_separate,
    "released Linear-SS": _released_linear,
    "shapes": _shapes,
    "rotary embedding": _rotary,
    "special tokens": _special_tokens,
    "chat template": _chat_template,
    "revision": _revision,
    "adapter": _adapter,
}


def exit_code(items: list[Item]) -> int:
    """1 with a FAIL, else 2 with a point NOT RUN, else 0."""
    verdicts = {item.verdict for item in items}
    return 1 if "FAIL" in verdicts else 2 if "NOT RUN" in verdicts else 0
