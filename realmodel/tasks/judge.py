"""Whether two mathematical answers are the same, by math-verify, in a process of its own that can be stopped.

An answer is untrusted: it may take sympy forever or all memory (9^{9^{9^9}}). math-verify's own time limit is an alarm that
waits for the running C call to end. So one child, with a memory limit, judges one pair after another; when it does not answer
in time it is killed and the next pair gets a new one. math-verify is asked for LaTeX alone, which it parses by a grammar; its
other way to read an expression ends in `eval`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path

from simulator.errors import InvalidInput

LONGEST = 1000  # characters of an answer that is compared
_START = 120.0  # seconds for the child to load sympy


def installed() -> None:
    """Raise InvalidInput without math-verify."""
    if find_spec("math_verify") is None:
        raise InvalidInput("grading mathematics needs the package math-verify: pip install 'packedss[realmodel]'")


class Judge:
    """A child process that compares answers. Safe to use from several threads; a forked process gets its own child."""

    def __init__(self, seconds: float = 15.0) -> None:
        self.seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()
        atexit.register(self.close)

    def same(self, gold: str, answer: str) -> tuple[bool, str]:
        """Whether the LaTeX `answer` equals the LaTeX `gold`, and if not, one line that says why.

        Raises InvalidInput where math-verify is not installed or its process does not start.
        """
        if len(answer) > LONGEST:
            return False, f"its boxed answer has {len(answer)} characters; more than {LONGEST} are not compared"
        with self._lock:
            child = self._started()
            said = self._ask(child, {"gold": gold, "answer": answer}, self.seconds)
            if said is None:
                status = child.poll()
                self.close()
                how = f"took more than {self.seconds:g} s and was stopped" if status is None else "ran out of memory or crashed"
                return False, f"comparing its boxed answer {how}"
        return bool(said.get("same")), str(said.get("why", ""))

    def close(self) -> None:
        """End the child, if there is one of this process."""
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._owner == os.getpid() and self._child.poll() is None:
            return self._child
        self.close()
        installed()
        # By its file and with -P, so that neither this package nor torch is loaded there.
        command = [sys.executable, "-P", str(Path(__file__).with_name("compare.py"))]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._child, self._owner = child, os.getpid()
        if self._ask(child, {"gold": "1", "answer": "1"}, _START) != {"same": True, "why": ""}:
            self.close()
            raise InvalidInput(
                "the process that grades mathematics did not start; python -c 'import math_verify' should say why"
            )
        return child

    def _ask(self, child: subprocess.Popen[bytes], pair: dict[str, str], seconds: float) -> dict[str, object] | None:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(pair).encode() + b"\n")
            child.stdin.flush()
            if not wait([child.stdout.fileno()], seconds):
                return None
            said = json.loads(child.stdout.readline())
        except (OSError, ValueError):
            return None
        return said if isinstance(said, dict) else None


same = Judge().same
