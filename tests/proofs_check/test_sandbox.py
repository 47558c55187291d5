"""Code that misbehaves, in a child process: what it sent before still arrives, and how it ended is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable

import pytest

from proofs_check.sandbox import ChildEnded, ChildStuck, in_child

Send = Callable[[int], None]


def finishes(send: Send) -> None:
    for item in range(3):
        send(item)


def hangs(send: Send) -> None:
    send(1)
    time.sleep(3600)


def leaves(send: Send) -> None:
    send(1)
    os._exit(7)


def is_killed(send: Send) -> None:
    send(1)
    os.kill(os.getpid(), signal.SIGKILL)


def raises(send: Send) -> None:
    send(1)
    raise ValueError("not caught inside")


def eats_memory(send: Send) -> None:
    send(1)
    held = [bytearray(1 << 28) for _ in range(1000)]
    send(len(held))


def test_what_finishes_arrives_whole() -> None:
    assert list(in_child(finishes, 60)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("work", "message"),
    [(leaves, "exit code 7"), (is_killed, "exit code -9"), (raises, "exit code 1"), (eats_memory, "exit code 1")],
)
def test_what_ends_early_is_told(work: Callable[[Send], None], message: str) -> None:
    items = in_child(work, 60)
    assert next(items) == 1  # what it sent before counts
    with pytest.raises(ChildEnded, match=message):
        next(items)


def test_what_hangs_is_stopped() -> None:
    items = in_child(hangs, 0.5)
    assert next(items) == 1
    with pytest.raises(ChildStuck, match=r"still running after 0\.5 s"):
        next(items)


def test_a_child_does_not_outlive_an_interruption() -> None:
    before = set(multiprocessing.active_children())
    items = in_child(hangs, 60)
    assert next(items) == 1
    assert set(multiprocessing.active_children()) - before
    items.close()  # as Ctrl-C in the consumer does
    assert not set(multiprocessing.active_children()) - before
