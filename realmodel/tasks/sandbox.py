"""Running Python that a model wrote: another process, another user, no network, no files but its own, and bounds on everything.

Two ways to isolate, tried in this order; each is used only after a probe has seen it isolate on this machine:

- *bubblewrap*: namespaces made by `bwrap`. Files outside do not exist for the answer, its folder is a small one in memory.
- *landlock*: Landlock (Linux 6.2). Files outside cannot be opened, but whether they exist, and their sizes, can be seen. Its
  folder is a flat one on disk, watched while the answer runs.

Both come with a seccomp list of allowed calls, through libseccomp. Under both the answer is one process without threads, of an
unprivileged user even when we are root, and sees the Python installation and the system's libraries read-only. The standard
library is all it can import.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from simulator.errors import InvalidInput

_USER = 65534  # "nobody" everywhere: what root turns into
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
_MOST_REPORT = 4096  # bytes
_MOST_FILES = 256  # in the folder, where it is one on disk
_LOOK_EVERY = 0.05  # seconds


class Limits(NamedTuple):
    """What one answer may use: wall and processor time (seconds), address space (bytes), each file and all together (bytes)."""

    seconds: float = 10.0
    memory: int = 1 << 30
    file_size: int = 16 << 20


class Outcome(NamedTuple):
    """Whether the tests ran to their end without an exception; if not, one line that says what happened instead."""

    passed: bool
    why: str = ""


class Mechanism(NamedTuple):
    """A way to isolate: what goes before the interpreter's command, and whether the process locks itself in."""

    name: str
    command: Callable[[Limits], list[str] | None]
    """The words before the interpreter; None where a program is missing."""
    lock: bool
    inner_folder: str | None
    """The folder's path as the answer sees it; None: a temporary one on disk."""


class NoSandbox(InvalidInput):
    """This machine offers nothing that isolates an answer; the message says what was tried."""


def run(program: str, tests: str, limits: Limits = Limits(), mechanism: Mechanism | None = None) -> Outcome:  # noqa: B008
    """Run an answer's `program`, then its `tests` in the same namespace, isolated by the probed mechanism or the one given.

    Raises NoSandbox where nothing isolates, or did not start this time; whatever the answer does is an Outcome.
    """
    mechanism = mechanism or probed()
    before = mechanism.command(limits)
    if before is None:
        raise NoSandbox(f"{mechanism.name} is not installed")
    token = secrets.token_hex(16)
    with _folder(mechanism) as folder, tempfile.TemporaryFile() as given:
        settings = {
            "folder": folder,
            "readable": _readable(),
            "lock": mechanism.lock,
            "user": _USER,
            "memory": limits.memory,
            "file_size": limits.file_size,
            "cpu": int(limits.seconds) + 1,
        }
        for line in (json.dumps(settings), json.dumps({"program": program, "tests": tests}), token):
            given.write(f"{line}\n".encode())
        given.seek(0)
        # A fixed hash seed: the same answer gets the same verdict, also where it depends on the order of a set.
        environment = {"HOME": folder, "TMPDIR": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
        words = [*before, _python(), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", _inside()]
        streams: dict[str, Any] = {"stdin": given, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            child = subprocess.Popen(words, **streams, env=environment, cwd="/", start_new_session=True)
        except OSError as error:
            raise NoSandbox(f"{mechanism.name} cannot be started: {error.strerror}") from error
        try:
            watched = None if mechanism.inner_folder else (folder, limits.file_size)
            report, complaint, stopped = _wait(child, limits.seconds, watched)
        finally:
            _end(child)
    if stopped:
        return Outcome(False, stopped)
    return _read_report(report, complaint, child.returncode, token)


def _read_report(report: bytes, complaint: bytes, status: int, token: str) -> Outcome:
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    closed, _, rest = report.partition(b"\n")
    if closed != b"closed":  # nothing of the answer has run
        try:
            why = f"could not be closed: {_printable(json.loads(report)['refused'])}"
        except (ValueError, KeyError, TypeError):
            why = f"did not start ({how}): {_printable(complaint.decode(errors='replace'))}"
        raise NoSandbox(f"the sandbox {why}")
    try:
        said = json.loads(rest)
        ((what, text),) = said.items()
    except (ValueError, AttributeError, RecursionError):
        said = _printable(complaint.decode(errors="replace")) if not rest else ""
        return Outcome(False, f"its process ended ({how}) before the tests did" + (f": {said}" if said else ""))
    if what == "passed" and isinstance(text, str) and secrets.compare_digest(text.strip().encode(), token.encode()):
        return Outcome(True)
    return Outcome(False, _printable(str(text)) if what == "failed" else "its process reported what it had not done")


def _wait(child: subprocess.Popen[bytes], seconds: float, watched: tuple[str, int] | None) -> tuple[bytes, bytes, str]:
    """What the child said on its two streams, each up to _MOST_REPORT bytes, and why it has to be stopped, if so."""
    assert child.stdout is not None
    assert child.stderr is not None
    streams = child.stdout.fileno(), child.stderr.fileno()
    held = {stream: bytearray() for stream in streams}
    still, deadline = set(streams), time.monotonic() + seconds
    while still or child.poll() is None:  # closing the report does not end the watch
        left = deadline - time.monotonic()
        if left <= 0:
            return b"", b"", f"stopped after {seconds:g} s"
        ready = wait(still, min(left, _LOOK_EVERY))
        for stream in still.intersection(ready):
            chunk = os.read(stream, _MOST_REPORT)
            held[stream] += chunk
            if not chunk:
                still.discard(stream)
            elif len(held[stream]) > _MOST_REPORT:
                return b"", b"", "its process flooded the report"
        if watched and _overfull(*watched):
            return b"", b"", "its folder grew beyond the limit"
    report, complaint = (bytes(held[stream]) for stream in streams)
    return report, complaint, ""


def _overfull(folder: str, most: int) -> bool:
    total = 0
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            if count >= _MOST_FILES or total > most:
                return True
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all it started: they share its session, and a namespace ends with its first process."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()


@contextlib.contextmanager
def _folder(mechanism: Mechanism) -> Iterator[str]:
    if mechanism.inner_folder:
        yield mechanism.inner_folder
        return
    folder = tempfile.mkdtemp(prefix="packedss-answer-")
    try:
        if os.geteuid() == 0:
            os.chown(folder, _USER, _USER)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _inside() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


@functools.cache
def _python() -> str:
    """The interpreter itself, not a virtual environment's link to it or copy of it."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@functools.cache
def _readable() -> list[str]:
    library = os.path.dirname(sysconfig.get_path("stdlib"))
    return [path for path in dict.fromkeys((os.path.realpath(library), *_SYSTEM)) if os.path.exists(path)]


def _bubblewrap(limits: Limits) -> list[str] | None:
    program = shutil.which("bwrap")
    if program is None:
        return None
    words = [program, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--cap-drop", "ALL"]
    if os.geteuid() == 0:  # root keeps the two rights it needs to become somebody else, and loses them doing so
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user", "--uid", str(_USER), "--gid", str(_USER)]
    for parent in dict.fromkeys(str(p) for path in (*_readable(), _python()) for p in reversed(Path(path).parents[:-1])):
        words += ["--perms", "0755", "--dir", parent]  # else as closed to others as outside (below a closed home)
    for path in (*_readable(), _python()):
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    for device in (os.devnull, "/dev/urandom"):
        words += ["--dev-bind", device, device]
    words += ["--perms", "0777", "--size", str(limits.file_size), "--tmpfs", "/answer", "--remount-ro", "/"]
    return [*words, "--"]


BUBBLEWRAP = Mechanism("bubblewrap", _bubblewrap, lock=False, inner_folder="/answer")
LANDLOCK = Mechanism("landlock", lambda limits: [], lock=True, inner_folder=None)
MECHANISMS = (BUBBLEWRAP, LANDLOCK)


@functools.cache
def probed() -> Mechanism:
    """The first mechanism whose probe found no leak. Raises NoSandbox, one line, where there is none."""
    found = []
    for mechanism in MECHANISMS:
        leak = probe(mechanism)
        if leak is None:
            return mechanism
        found.append(f"{mechanism.name}: {leak}")
    raise NoSandbox(
        "answers that are programs are not graded here, because nothing on this machine isolates them "
        f"({'; '.join(found)}); it takes libseccomp and bubblewrap with user namespaces, or Linux 6.2 with Landlock"
    )


def probe(mechanism: Mechanism) -> str | None:
    """Run an answer that tries to get out: what it could do, or why it did not run; None when it could do nothing.

    It tries to read a readable file outside its folder, to write beside it, to reach two listeners of ours (TCP and abstract
    Unix) and the hypervisor, to start a process and a thread, to keep memory beyond its limit, to make a namespace, to signal
    us and to see our environment, and checks that it is not root.
    """
    with tempfile.TemporaryDirectory() as outside, contextlib.ExitStack() as opened:
        os.chmod(outside, 0o777)  # so that the file permissions of its user are not what stops it
        target = Path(outside, "canary")
        target.write_text("canary")
        tcp = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        local = opened.enter_context(socket.socket(socket.AF_UNIX))
        name = f"\0packedss-{secrets.token_hex(8)}"
        local.bind(name)
        local.listen()
        facts = {"outside": str(target), "port": tcp.getsockname()[1], "local": name, "parent": os.getpid()}
        try:
            outcome = run(_PROBE.replace("FACTS", repr(facts)), "assert not leaks, ', '.join(leaks)", mechanism=mechanism)
        except NoSandbox as error:
            return str(error)
    return None if outcome.passed else outcome.why


# Each attempt must fail. What must work comes first, so that a sandbox too tight to grade in is found as well.
_PROBE = """
import bisect, collections, copy, datetime, decimal, functools, hashlib, heapq, itertools, json, math, random, re, string
import ctypes, os, socket, threading, typing

facts, leaks = FACTS, []
with open("scratch", "w") as mine:
    mine.write("x")
assert open("scratch").read() == "x"
random.SystemRandom().random()

def attempt(leak, act):
    try:
        act()
    except (OSError, RuntimeError):
        return
    leaks.append(leak)

def connect(family, address):
    with socket.socket(family) as one:
        one.settimeout(1)
        one.connect(address)

def call(name, *arguments):
    if getattr(ctypes.CDLL(None), name)(*arguments) < 0:
        raise OSError

def fork():
    if os.fork() == 0:
        os._exit(0)

attempt("reads files outside", lambda: open(facts["outside"]).read())
attempt("writes outside", lambda: open(facts["outside"] + "-new", "w").close())
attempt("changes files outside", lambda: os.chmod(facts["outside"], 0))
attempt("reads /etc/passwd", lambda: open("/etc/passwd").read())
attempt("reaches TCP listeners", lambda: connect(socket.AF_INET, ("127.0.0.1", facts["port"])))
attempt("reaches Unix listeners", lambda: connect(socket.AF_UNIX, facts["local"]))
attempt("reaches the hypervisor", lambda: socket.socket(40, socket.SOCK_STREAM).close())
attempt("keeps memory beyond its limit", lambda: call("shmget", 0, 4096, 0o600))
attempt("makes namespaces", lambda: call("unshare", 0x10000000))
attempt("starts processes", fork)
attempt("starts threads", threading.Thread(target=len, args=((),)).start)
attempt("signals its parent", lambda: os.kill(facts["parent"], 0))
attempt("reads its parent's environment", lambda: open("/proc/%d/environ" % facts["parent"]).read())
if 0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()):
    leaks.append("is root")
"""


def _printable(text: Any) -> str:
    """One line of at most 200 characters that a terminal can be given."""
    return "".join(c if c.isprintable() else " " for c in str(text)[:1000]).strip()[:200]
