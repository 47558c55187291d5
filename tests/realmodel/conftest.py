"""The embedded model, loaded once per dtype and worker."""

from functools import cache

import pytest

torch = pytest.importorskip("torch")

from realmodel import held_out_prompts, load  # noqa: E402

torch.set_num_threads(1)


@cache
def _load(dtype):
    return load("embedded", dtype=dtype)


@pytest.fixture(scope="session")
def load_model():
    """load_model(dtype) -> DualModeModel"""
    return _load


@pytest.fixture(scope="session")
def model64():
    return _load("float64")


@pytest.fixture(scope="session")
def prompts(model64):
    """Token ids of the held-out prompts."""
    return [tuple(model64.tokenizer.encode(item.text).ids) for item in held_out_prompts(60)]
