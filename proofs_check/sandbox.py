"""Running code that may raise, hang, exit or eat memory: in a child process, with a wall limit, reporting as it goes."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")
_EXTRA_MEMORY = 4 << 30  # bytes a child may take beyond what its parent holds


class ChildEnded(Exception):  # its text is a finding's, not a fault of ours
    """The child did not finish; the message says how it ended."""


class ChildStuck(ChildEnded):
    """The child sent nothing for too long and was killed."""


def in_child(work: Callable[[Callable[[T], None]], None], limit: float) -> Iterator[T]:
    """Run work(send) in a forked child and yield what it sends, as it comes.

    Raises ChildStuck when it has sent nothing for `limit` seconds (it is killed), ChildEnded when it ended without finishing.
    The child is forked so that objects without a pickle (a notebook's) can be checked.
    """
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(work, sending))  # no daemon: it may have children of its own
    child.start()
    sending.close()
    try:
        while True:
            if not receiving.poll(limit):
                raise ChildStuck(f"it was still running after {limit:g} s and was stopped")
            try:
                finished, item = receiving.recv()
            except EOFError:
                child.join()
                raise ChildEnded(f"its process ended with exit code {child.exitcode}") from None
            if finished:
                return
            yield item
    finally:
        child.kill()
        child.join()
        receiving.close()


def _child(work: Callable[[Callable[[Any], None]], None], sending: Connection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # no Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive whoever waits for it
    try:
        with open("/proc/self/statm") as statm:
            held = int(statm.read().split()[0]) * resource.getpagesize()
        most = resource.getrlimit(resource.RLIMIT_AS)[1]  # a child's own child must stay below what it was given
        wanted = held + _EXTRA_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most),) * 2)
    except OSError:  # no /proc: only the wall limit holds
        pass
    # What is checked may print as much as it likes, and may raise what multiprocessing would print a traceback for.
    with open(os.devnull, "r+b") as nowhere:
        for stream in (0, 1, 2):
            os.dup2(nowhere.fileno(), stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    try:
        work(lambda item: sending.send((False, item)))
        sending.send((True, None))
    except BaseException:
        os._exit(1)
