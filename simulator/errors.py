"""What callers can get wrong. The command line prints these as one line and exits with 2."""

from __future__ import annotations


class InvalidInput(ValueError):
    """An argument, file or model is not what was asked for; the message names what is wrong and what is allowed."""


class ContractError(RuntimeError):
    """A model or schedule broke its side of the interface (wrong number of rows, no progress)."""
