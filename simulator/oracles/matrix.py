"""A drafter without Assumption 3.1: any matrix of right and wrong drafts, by context and position."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import InvalidInput
from simulator.oracles.threshold import ThresholdModel


class MatrixModel(ThresholdModel):
    """A ThresholdModel whose drafts are right where a matrix says so, ASM3.1 or not.

    rows[c][k - c - 1] tells whether position k is drafted correctly from a context of c output tokens. Rows may have different
    lengths; what lies outside the matrix is right. Raises InvalidInput when a cell is neither 0 nor 1 (False nor True), or the
    vocabulary has fewer than 2 tokens.
    """

    def __init__(
        self, rows: Sequence[Sequence[int]], truth: Sequence[int] = (), vocabulary: int = 2, prompt_length: int = 0
    ) -> None:
        super().__init__((), truth, vocabulary, prompt_length)
        if any(cell not in (0, 1) for row in rows for cell in row):
            raise InvalidInput("a correctness matrix has cells 0 (wrong) and 1 (right) only")
        self.rows = tuple(map(tuple, rows))

    def correct(self, k: int, c: int) -> bool:
        row = self.rows[c] if c < len(self.rows) else ()
        return k - c > len(row) or bool(row[k - c - 1])
