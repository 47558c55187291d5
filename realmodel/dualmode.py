"""A dual-mode transformer behind `model(call) -> Reply`: packed rows, explicit mask and positions, one reusable KV cache."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from realmodel.laws import TorchLaw
from realmodel.layout import Rows, attention, common_prefix, fixed_attention, rows_of, shape_of
from simulator.errors import ContractError, InvalidInput
from simulator.laws import Law, Point
from simulator.records import Call, Reply, Tokens

if TYPE_CHECKING:
    from realmodel.adapter import ProposalAdapter

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype called `name`. Raises InvalidInput for a dtype this binding does not run in."""
    if name not in _DTYPES:
        raise InvalidInput(f"unknown dtype {name!r}; allowed: {', '.join(_DTYPES)}")
    return _DTYPES[name]


class DualModeModel:
    """Weights that predict causally and, on MASK rows, draft: a transformers causal language model with a mask token.

    `network` is called as transformers 5 calls a decoder: input_ids [1, R], position_ids [1, R], an additive 4D mask
    [1, 1, R, K + R] in its own dtype (right under sdpa and eager attention alike) and a cache that supports `crop`.
    """

    def __init__(self, network: Any, tokenizer: Any, mask_token: int, name: str) -> None:
        self.network, self.tokenizer, self.mask_token, self.name = network, tokenizer, mask_token, name
        self.adapter: ProposalAdapter | None = None  # acts on proposal rows alone (LORA)
        self.vocabulary: int = network.config.vocab_size
        self.eos: int | None = network.config.eos_token_id
        self.max_positions: int = network.config.max_position_embeddings
        self.dtype: torch.dtype = network.dtype
        self.device: torch.device = network.device

    def session(self, temperature: float = 0.0, padded: bool | None = None) -> Session:
        """A fresh request: its own cache, nothing shared with any other. `temperature` 0 is greedy.

        `padded` calls have the fixed row counts of the paper (TAB2); by default they do except on a CPU, which pays by the row.
        """
        return Session(self, temperature, self.device.type != "cpu" if padded is None else padded)

    def clock(self) -> float:
        """Seconds, once the device has finished everything asked of it so far."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def mark(self) -> Any:
        """Where the device's work is now, for `elapsed`: an event on CUDA, for which the host does not wait; else the clock."""
        if self.device.type != "cuda":
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def elapsed(self, begun: Any, ended: Any) -> float:
        """Seconds of the device between two marks; waits for the second unless it has passed."""
        if not isinstance(ended, torch.cuda.Event):
            return float(ended - begun)
        if not ended.query():
            ended.synchronize()
        return float(begun.elapsed_time(ended)) / 1000

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A host tensor on the device. The host does not wait: pinned memory is copied from when the device gets to it."""
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def check_prompt(self, prompt: tuple[int, ...], max_new_tokens: int, width: int = 0) -> None:
        """Raise InvalidInput unless the request can run: a nonempty prompt of known ids that leaves room for the output."""
        if not prompt:
            raise InvalidInput(f"{self.name} needs a prompt of at least 1 token, got none")
        self.check_ids(prompt)
        needed = len(prompt) + max_new_tokens + 2 * width
        if needed > self.max_positions:
            raise InvalidInput(
                f"prompt ({len(prompt)}), new tokens ({max_new_tokens}) and drafts need {needed} positions;"
                f" {self.name} has {self.max_positions}"
            )

    def check_ids(self, tokens: tuple[int, ...] | list[int]) -> None:
        """Raise InvalidInput when an id is outside the vocabulary."""
        wrong = next((token for token in tokens if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise InvalidInput(f"token id {wrong} is outside the vocabulary of {self.name}: 0 .. {self.vocabulary - 1}")


class Session:
    """One request on a `DualModeModel`: call it with a Call, get a Reply.

    The cache holds causal rows only. What was accepted is found by comparing the next prefix with the rows cached, so a
    schedule never sees the cache. On a GPU a greedy call waits for the device once, when its tokens come back.
    """

    def __init__(self, model: DualModeModel, temperature: float, padded: bool) -> None:
        from transformers import DynamicCache

        if not 0 <= temperature < float("inf"):
            raise InvalidInput(f"temperature must be >= 0 and finite (0 is greedy), got {temperature}")
        self.model, self.temperature, self.padded = model, temperature, padded
        self.cache = DynamicCache(config=model.network.config)
        self.cached: tuple[int, ...] = ()  # tokens whose causal rows are in the cache
        self.stale = 0  # rows physically in the cache behind them
        self._seconds = 0.0
        self._marks: tuple[Any, ...] = ()  # where the last forward began and ended
        self._replying = False
        self._masks: dict[tuple[object, ...], tuple[torch.Tensor, torch.Tensor | None]] = {}  # by layout: its part, buffer

    def __call__(self, call: Call) -> Reply:
        self._replying = True
        try:
            rows, logits = self.logits(call)
        finally:
            self._replying = False
        return self.reply(rows, logits)

    @property
    def model_seconds(self) -> float:
        """The time spent inside the network, as the device measures it."""
        if self._marks:
            self._seconds, self._marks = self._seconds + self.model.elapsed(*self._marks), ()
        return self._seconds

    def reply(self, rows: Rows, logits: torch.Tensor) -> Reply:
        """The laws that `logits` are read as, in the order of the rows read."""
        laws = self._laws(logits, len(rows.verifier))
        target, rest = tuple(laws[: len(rows.verifier)]), laws[len(rows.verifier) :]
        proposals: list[tuple[Law, ...] | None] = []
        for block in rows.proposals:
            size = len(block) if block else 0
            proposals.append(None if block is None else tuple(rest[:size]))
            rest = rest[size:]
        return Reply(target, tuple(proposals), len(rows.tokens) - rows.catch_up)

    @torch.inference_mode()
    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        """Run the one forward of `call`: its rows, and the logits [rows read, vocabulary] of its verifier rows and then of
        its proposal rows, branch by branch."""
        if not call.prefix:
            raise InvalidInput(f"{self.model.name} needs a prompt of at least 1 token, got none")
        if any(b < 0 or (b and not call.verify) for b in call.branches):
            raise InvalidInput(f"a call that does not verify can draft branch 0 only, got branches {list(call.branches)}")
        model = self.model
        keep = self._roll_back(call.prefix[:-1])
        rows = self._rows(call, keep)
        model.check_ids(rows.tokens)
        read = rows.verifier + [row for block in rows.proposals if block for row in block]
        read = read or [len(rows.tokens) - 1]
        inputs = model.put(torch.tensor([*rows.tokens, *rows.positions, *read]))
        count = len(rows.tokens)
        mask = self._mask(call, keep, rows.catch_up)

        self._seconds, self._marks = self.model_seconds, ()  # of the call before
        begun = model.mark()
        if model.adapter:
            model.adapter.select(count, rows.first_proposal)
        logits = model.network(
            input_ids=inputs[None, :count],
            position_ids=inputs[None, count : 2 * count],
            attention_mask=mask,
            cache=self.cache,
            use_cache=True,
            logits_to_keep=inputs[2 * count :],
        ).logits[0]
        if model.adapter:
            model.adapter.release()
        self._marks = (begun, model.mark())

        if not self._replying and not _finite(logits):  # a reply checks them when it waits for its tokens
            raise self._not_finite()
        self.cached = (call.prefix + call.draft)[: keep + rows.keep]
        self.stale = count - rows.keep
        return rows, logits[: len(read)]

    def _roll_back(self, prefix: Tokens) -> int:
        """Drop every cached row that is not the causal row of a token of `prefix`; the number of rows left."""
        keep = common_prefix(self.cached, prefix)
        surplus = len(self.cached) - keep + self.stale
        if surplus:
            self.cache.crop(-surplus)
        self.cached, self.stale = self.cached[:keep], 0
        return keep

    def _rows(self, call: Call, cached: int) -> Rows:
        return rows_of(call, cached, self.model.mask_token, self.padded)

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        finite = _finite(logits)
        logits = logits.clone()
        logits[verifier_rows:, self.model.mask_token] = -torch.inf  # a drafter never proposes the mask itself (PAD)
        if self.temperature == 0:
            *tokens, sound = torch.cat([logits.argmax(-1), finite[None]]).tolist()  # all that the host waits for
            if not sound:
                raise self._not_finite()
            return [Point(token) for token in tokens]
        if not finite:
            raise self._not_finite()
        logits = logits.double()
        logits -= logits.max(-1, keepdim=True).values  # so that no temperature, however small, overflows
        return [TorchLaw(law) for law in torch.softmax(logits / self.temperature, -1)]

    def _not_finite(self) -> ContractError:
        return ContractError(f"{self.model.name} returned logits that are not finite: no verdict can stand on them")

    @torch.inference_mode()
    def _mask(self, call: Call, cached: int, catch_up: int) -> torch.Tensor:
        """The additive mask [1, 1, R, cached + R]: in a buffer per layout, which is moved to the right as the cache grows."""
        if catch_up:
            return self._additive(attention(call, cached, catch_up, self.padded))
        key = shape_of(call, self.padded)
        fixed, buffer = self._masks.get(key) or (self._additive(fixed_attention(*key)), None)
        end = cached + fixed.shape[-1]
        if buffer is None or buffer.shape[-1] < end:
            buffer = fixed.new_empty(*fixed.shape[:-1], _aligned(end + cached + 64))
            self._masks[key] = fixed, buffer
        buffer[..., :cached] = 0
        buffer[..., cached:end] = fixed
        return buffer[..., :end]

    def _additive(self, sees: np.ndarray) -> torch.Tensor:
        mask = torch.zeros((len(sees), _aligned(sees.shape[1])), dtype=self.model.dtype)
        mask[:, : sees.shape[1]].masked_fill_(~torch.from_numpy(sees), -torch.inf)
        return self.model.put(mask)[None, None, :, : sees.shape[1]]


def _aligned(columns: int) -> int:
    """Attention kernels want a mask that begins at, and whose rows are, a multiple of 8: others they copy, in every layer, or
    refuse."""
    return -(-columns // 8) * 8


def _finite(logits: torch.Tensor) -> torch.Tensor:
    """One pass and no copy; finite logits do not come near an overflow."""
    return torch.isfinite(logits.sum())
