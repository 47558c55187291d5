"""What the bindings of a transformer share: one forward per call over packed rows, an explicit mask and positions, one cache.

A `BoundModel` is weights and a device. A `BoundSession` is one request on it, `model(call) -> Reply` as schedules see a model.
Which rows a call has, who sees whom and how logits are read is for its subclasses to say.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from realmodel.laws import TorchLaw
from realmodel.layout import Rows, behind, common_prefix
from simulator.errors import ContractError, InvalidInput
from simulator.laws import Law
from simulator.records import Reply

if TYPE_CHECKING:
    from realmodel.adapter import ProposalAdapter

C = TypeVar("C")  # the calls of the schedules it serves
E = TypeVar("E")  # what a cached row is known by
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype called `name`. Raises InvalidInput for a dtype this binding does not run in."""
    if name not in _DTYPES:
        raise InvalidInput(f"unknown dtype {name!r}; allowed: {', '.join(_DTYPES)}")
    return _DTYPES[name]


def torch_device(name: str) -> torch.device:
    """The torch device called `name`. Raises InvalidInput when it cannot be used here."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(f"device {name!r} is not available here; 'cpu' always is") from error


class BoundModel(ABC):
    """A transformers causal language model with a mask token.

    `network` is called as transformers 5 calls a decoder: input_ids [1, R], position_ids [1, R], an additive 4D mask
    [1, 1, R, K + R] in its own dtype (right under sdpa and eager attention alike) and a cache that supports `crop`.
    """

    def __init__(self, network: Any, tokenizer: Any, mask_token: int, name: str) -> None:
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.mask_token = mask_token  # one id behind the vocabulary where the network was given a mask: no law has it
        self.adapter: ProposalAdapter | None = None  # acts on proposal rows alone (LORA)
        self.vocabulary: int = network.config.vocab_size
        self.eos: int | None = network.config.eos_token_id
        self.max_positions: int = network.config.max_position_embeddings
        self.dtype: torch.dtype = network.dtype
        self.device: torch.device = network.device

    @abstractmethod
    def session(self, temperature: float = 0.0, padded: bool | None = None) -> BoundSession[Any, Any]:
        """A fresh request: its own cache, nothing shared with any other. `temperature` 0 is greedy.

        `padded` calls have the fixed row counts of the paper (TAB2); by default they do except on a CPU, which pays by the row.
        """

    def pads(self, padded: bool | None) -> bool:
        """`padded`, or its default on this device."""
        return self.device.type != "cpu" if padded is None else padded

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


class BoundSession(ABC, Generic[C, E]):
    """One request on a `BoundModel`: call it with a Call, get a Reply.

    The rows worth keeping come first in every call, so dropping the others is a suffix crop of the cache. What was accepted is
    found by comparing what the next call brings with the rows cached, so a schedule never sees the cache. On a GPU a greedy
    call waits for the device once, when its tokens come back.
    """

    def __init__(self, model: BoundModel, temperature: float, padded: bool) -> None:
        from transformers import DynamicCache

        if not 0 <= temperature < float("inf"):
            raise InvalidInput(f"temperature must be >= 0 and finite (0 is greedy), got {temperature}")
        self.model, self.temperature, self.padded = model, temperature, padded
        self.cache = DynamicCache(config=model.network.config)
        self.cached: tuple[E, ...] = ()  # whose rows are in the cache
        self.stale = 0  # rows physically in the cache behind them
        self._seconds = 0.0
        self._marks: tuple[Any, ...] = ()  # where the last forward began and ended
        self._replying = False
        self._masks: dict[Hashable, tuple[torch.Tensor, torch.Tensor | None]] = {}  # by layout: its part, buffer

    # --- what a binding says ---

    @abstractmethod
    def _check(self, call: C) -> None:
        """Raise InvalidInput for a call that no layout exists for."""

    @abstractmethod
    def _context(self, call: C) -> tuple[E, ...]:
        """What the cache may hold when the call runs."""

    @abstractmethod
    def _fed(self, call: C) -> tuple[E, ...]:
        """What the leading rows of the call are of, those cached before it included."""

    @abstractmethod
    def _rows(self, call: C, cached: int) -> Rows:
        """The rows behind a cache of `cached` rows."""

    def _given(self, call: C, rows: Rows) -> list[int]:
        """The ids that came with the call: none is outside the vocabulary, as a mask may be."""
        return rows.tokens[: rows.keep]

    @abstractmethod
    def _layout(self, call: C) -> Hashable:
        """What fixes the rows after the catch-up."""

    @abstractmethod
    def _fixed(self, layout: Any) -> npt.NDArray[np.bool_]:
        """Who sees whom among the rows of a layout, bool [rows, rows]; all of them also see the cache and the catch-up."""

    @abstractmethod
    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        """What `logits`, [rows read, vocabulary], are read as. Raises ContractError when they are not finite."""

    @abstractmethod
    def masked_from(self, rows: Rows) -> int:
        """From which of the rows read on the mask's own column is left out, before any probability."""

    # --- what all share ---

    def __call__(self, call: C) -> Reply:
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
        return Reply(target, tuple(proposals), len(rows.tokens) - rows.catch_up, rows.again)

    @torch.inference_mode()
    def logits(self, call: C) -> tuple[Rows, torch.Tensor]:
        """Run the one forward of `call`: its rows, and the logits [rows read, vocabulary] of its verifier rows and then of
        its proposal rows, branch by branch."""
        self._check(call)
        model = self.model
        keep = self._roll_back(self._context(call))
        rows = self._rows(call, keep)
        model.check_ids(self._given(call, rows))
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

        if not self._replying and not finite(logits):  # a reply checks them when it waits for its tokens
            raise self._not_finite()
        self.cached = self._fed(call)[: keep + rows.keep]
        self.stale = count - rows.keep
        return rows, logits[: len(read)]

    def _roll_back(self, context: tuple[E, ...]) -> int:
        """Drop every cached row that is not of `context`, in its order; the number of rows left."""
        keep = common_prefix(self.cached, context)
        surplus = len(self.cached) - keep + self.stale
        if surplus:
            self.cache.crop(-surplus)
        self.cached, self.stale = self.cached[:keep], 0
        return keep

    def _softmax(self, logits: torch.Tensor) -> list[Law]:
        logits = logits.double()
        logits -= logits.max(-1, keepdim=True).values  # so that no temperature, however small, overflows
        return [TorchLaw(law) for law in torch.softmax(logits / self.temperature, -1)]

    def _not_finite(self) -> ContractError:
        return ContractError(f"{self.model.name} returned logits that are not finite: no verdict can stand on them")

    def _attention(self, call: C, cached: int, catch_up: int) -> npt.NDArray[np.bool_]:
        """Who sees whom, bool [R, cached + R], True = attends. Rows that only fill the cache are causal."""
        return behind(self._fixed(self._layout(call)), cached, catch_up)

    @torch.inference_mode()
    def _mask(self, call: C, cached: int, catch_up: int) -> torch.Tensor:
        """The additive mask [1, 1, R, cached + R]: in a buffer per layout, which is moved to the right as the cache grows."""
        if catch_up:
            return self._additive(self._attention(call, cached, catch_up))
        key = self._layout(call)
        fixed, buffer = self._masks.get(key) or (self._additive(self._fixed(key)), None)
        end = cached + fixed.shape[-1]
        if buffer is None or buffer.shape[-1] < end:
            buffer = fixed.new_empty(*fixed.shape[:-1], _aligned(end + cached + 64))
            self._masks[key] = fixed, buffer
        buffer[..., :cached] = 0
        buffer[..., cached:end] = fixed
        return buffer[..., :end]

    def _additive(self, sees: npt.NDArray[np.bool_]) -> torch.Tensor:
        mask = torch.zeros((len(sees), _aligned(sees.shape[1])), dtype=self.model.dtype)
        mask[:, : sees.shape[1]].masked_fill_(~torch.from_numpy(sees), -torch.inf)
        return self.model.put(mask)[None, None, :, : sees.shape[1]]


def _aligned(columns: int) -> int:
    """Attention kernels want a mask that begins at, and whose rows are, a multiple of 8: others they copy, in every layer, or
    refuse."""
    return -(-columns // 8) * 8


def finite(logits: torch.Tensor) -> torch.Tensor:
    """Whether all logits are. One pass and no copy; finite logits do not come near an overflow."""
    return torch.isfinite(logits.sum())
