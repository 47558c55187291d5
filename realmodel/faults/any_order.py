"""Any-order sessions of which one step is replaced, in the manner of `realmodel.faults.binding`."""

from __future__ import annotations

from typing import Any

from realmodel.any_order.layout import Entry
from realmodel.any_order.session import AnyOrderSession


class KeepsStaleRows(AnyOrderSession):
    """When E has shrunk, only the rows of removed pairs go: those that had seen them stay as they are (F41)."""

    def _roll_back(self, context: tuple[Entry, ...]) -> int:
        held = self.cached
        rows: list[int] = []
        for index, entry in enumerate(held):
            if len(rows) < len(context) and context[len(rows)] == entry:
                rows.append(index)
        layers: list[Any] = self.cache.layers if held else []
        for layer in layers:
            layer.keys, layer.values = layer.keys[:, :, rows], layer.values[:, :, rows]
        self.cached, self.stale = tuple(held[index] for index in rows), 0
        return len(rows)
