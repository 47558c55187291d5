"""The sandbox against answers that want out, and its probe against sandboxes that leak."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from realmodel.tasks import sandbox
from realmodel.tasks.sandbox import BUBBLEWRAP, LANDLOCK, Limits, Mechanism, NoSandbox, Outcome, probe, run
from simulator.errors import InvalidInput

PROJECT = Path(__file__).resolve().parents[2]
SOON = Limits(seconds=1)


@pytest.fixture(params=[BUBBLEWRAP, LANDLOCK], ids=lambda one: one.name, scope="module")
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    leak = probe(request.param)
    if leak is not None:
        pytest.skip(f"{request.param.name} does not isolate here: {leak}")
    return request.param


def refused(mechanism: Mechanism, acts: str | list[str], *errors: str, setup: str = "") -> None:
    """Each act raises one of the errors inside, and the process goes on to pass: nothing ended it instead."""
    program = f"{setup}\nworked = []\n"
    for act in [acts] if isinstance(acts, str) else acts:
        program += f"try:\n    {act}\n    worked.append({act!r})\nexcept ({', '.join(errors)}):\n    pass\n"
    assert run(program, "assert not worked, worked", mechanism=mechanism) == Outcome(True)


# What must work, and what is said when it does not


def test_right_and_wrong_answers(mechanism: Mechanism) -> None:
    add = "def add(a, b):\n    return a + b\n"
    assert run(add, "assert add(1, 2) == 3", mechanism=mechanism) == Outcome(True)
    assert run(add, "assert add(1, 2) == 4, 'sum'", mechanism=mechanism) == Outcome(False, "AssertionError: sum")
    assert run("def add(:", "", mechanism=mechanism).why.startswith("SyntaxError")
    assert run("x = 1\x00", "", mechanism=mechanism).why.startswith(("SyntaxError", "ValueError"))
    assert run("input()", "", mechanism=mechanism).why.startswith("EOFError")


def test_annotations_are_evaluated(mechanism: Mechanism) -> None:
    """An answer does not inherit the future statements of what runs it."""
    assert run("def f(x: int):\n    pass", "assert f.__annotations__ == {'x': int}", mechanism=mechanism) == Outcome(True)
    assert run("def f(x: List[int]):\n    pass", "", mechanism=mechanism).why.startswith("NameError")
    future = "from __future__ import annotations\ndef f(x: List[int]):\n    pass"
    assert run(future, "def g(x: int): pass\nassert g.__annotations__ == {'x': int}", mechanism=mechanism) == Outcome(True)


def test_the_same_answer_gets_the_same_verdict(mechanism: Mechanism) -> None:
    outcomes = {run("", "raise ValueError(hash('text'))", mechanism=mechanism) for _ in range(3)}
    assert len(outcomes) == 1, outcomes


def test_ordinary_programs_work(mechanism: Mechanism) -> None:
    program = """
import tempfile, dataclasses, asyncio.events, re, ctypes, decimal, sqlite3, typing
@dataclasses.dataclass
class Point:
    x: "typing.Optional[int]" = 0
with tempfile.TemporaryFile() as one:
    one.write(b"abc")
with open("mine.txt", "w") as two:
    two.write("text")
if __name__ == "__main__":
    raise SystemExit("a demonstration that must not run")
"""
    tests = "assert open('mine.txt').read() == 'text' and Point().x == 0 and decimal.Decimal(1) / 8"
    assert run(program, tests, mechanism=mechanism) == Outcome(True)


def test_a_large_answer_is_not_too_large(mechanism: Mechanism) -> None:
    assert run(f"x = {'a' * 500_000!r}", "assert len(x) == 500_000", mechanism=mechanism) == Outcome(True)


def test_nothing_is_left_of_an_answer(mechanism: Mechanism) -> None:
    outcome = run("open('left', 'w').write('x')\nimport builtins\nbuiltins.left = 1", "", mechanism=mechanism)
    assert outcome.passed
    refused(mechanism, "open('left').read()", "FileNotFoundError")
    assert run("import builtins", "assert not hasattr(builtins, 'left')", mechanism=mechanism).passed


# Time, memory, processes, files


ENDLESS = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(1000)",
    "one long call": "x = 9 ** 9 ** 9 ** 9",
    "signals ignored": """
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "report closed": "import os\nos.closerange(0, 99)\nwhile True: pass",
    "its exception": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
}


@pytest.mark.parametrize("program", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_does_not_end_is_stopped(mechanism: Mechanism, program: str) -> None:
    assert run(program, "", SOON, mechanism) == Outcome(False, "stopped after 1 s")


def test_a_fork_bomb_starts_nothing(mechanism: Mechanism) -> None:
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
    assert run(bomb, "", SOON, mechanism).why == "stopped after 1 s"
    acts = ["os.fork()", "os.posix_spawn('/bin/sh', ['sh'], {})", "subprocess.run(['/bin/sh', '-c', 'sleep 1000 &'])"]
    acts += ["threading.Thread(target=print).start()"]
    refused(mechanism, acts, "OSError", "RuntimeError", setup="import os, subprocess, threading")


def test_programs_are_not_executed(mechanism: Mechanism) -> None:
    refused(mechanism, "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])", "OSError", setup="import os")


def test_ten_gigabytes_are_not_given(mechanism: Mechanism) -> None:
    acts = ["bytearray(10 << 30)", "[0] * (10 << 27)", "mmap.mmap(-1, 10 << 30)", "[bytes(1 << 24) for _ in range(640)]"]
    refused(mechanism, acts, "MemoryError", "OSError", setup="import mmap")


def test_deep_recursion_ends_the_answer_alone(mechanism: Mechanism) -> None:
    refused(mechanism, "f()", "RecursionError", setup="def f(): return f()")
    deep = "import sys\nsys.setrecursionlimit(10 ** 9)\nclass A:\n    def __repr__(self): return repr([self])\nrepr(A())"
    outcome = run(deep, "", mechanism=mechanism)
    assert not outcome.passed
    assert outcome.why


def test_a_huge_file_is_not_written(mechanism: Mechanism) -> None:
    setup = "def fill():\n    with open('huge', 'wb') as file:\n        for _ in range(64): file.write(bytes(1 << 20))"
    refused(mechanism, "fill()", "OSError", setup=setup)


def test_many_files_are_not_written(mechanism: Mechanism) -> None:
    many = "for n in range(10 ** 9):\n    with open(f'f{n % 4000}', 'wb') as file:\n        file.write(bytes(1 << 16))\n"
    outcome = run(many, "", Limits(seconds=5), mechanism)
    assert outcome.why.startswith(("OSError: [Errno 28]", "its folder grew beyond the limit"))


# Files outside


def test_files_outside_are_not_read(mechanism: Mechanism) -> None:
    paths = [
        "/etc/passwd",
        "/etc/shadow",
        "/etc/hostname",
        str(PROJECT / "pyproject.toml"),
        "/proc/self/environ",
        "/proc/1/cmdline",
    ]
    assert all(map(os.path.exists, paths))
    refused(mechanism, [f"open({path!r}).read()" for path in paths], "OSError")


def test_a_file_open_to_all_is_not_read_nor_changed(mechanism: Mechanism, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder != Path("/tmp") and folder != Path("/"):
            folder.chmod(0o755)
    tmp_path.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_text("kept")
    secret.chmod(0o666)
    acts = [
        "open(path).read()",
        "open(path, 'w')",
        "open(path, 'a')",
        "open(path + 'new', 'w')",
        "os.truncate(path, 0)",
        "os.unlink(path)",
        "os.rename(path, path + '2')",
        "os.chmod(path, 0)",
        "os.utime(path, (0, 0))",
        "os.link(path, 'here')",
        "os.listdir(os.path.dirname(path))",
        "os.mkdir(path + 'dir')",
        "(os.symlink(path, 'link'), open('link').read())",
    ]
    refused(mechanism, acts, "OSError", setup=f"import os\npath = {str(secret)!r}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]
    assert secret.read_text() == "kept"
    assert secret.stat().st_mode & 0o777 == 0o666


def test_folders_outside_are_not_listed(mechanism: Mechanism) -> None:
    # In namespaces the folders on the way to what is visible exist, with those entries alone.
    visible = (*sandbox._readable(), sandbox._python(), "/answer", "/dev/null", "/dev/urandom")
    ways = {part for path in visible for part in Path(path).parts}
    setup = f"import os\ndef look(folder):\n    if set(os.listdir(folder)) <= {ways!r}: raise OSError\n"
    folders = ["/", "/home", os.path.expanduser("~"), str(PROJECT), "/tmp", "/proc", "/dev/shm"]
    refused(mechanism, [f"look({folder!r})" for folder in folders], "OSError", setup=setup)


# The network


def test_no_network(mechanism: Mechanism) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters,
    ):
        udp.bind(("127.0.0.1", 0))
        names = [f"\0packedss-test-{os.getpid()}-{kind}" for kind in ("stream", "datagram")]
        abstract.bind(names[0])
        abstract.listen()
        letters.bind(names[1])
        for one in (tcp, udp, abstract, letters):
            one.setblocking(False)
        setup = f"""
import socket
def tcp(): socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 1)
def udp():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect(('127.0.0.1', {udp.getsockname()[1]}))
    one.send(b'x')
    one.settimeout(0.2)
    one.recv(1)
def abstract(): socket.socket(socket.AF_UNIX).connect({names[0]!r})
def letters(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', {names[1]!r})
def name(): socket.getaddrinfo('example.org', 80)
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
"""
        refused(mechanism, ["tcp()", "udp()", "abstract()", "letters()", "name()", "raw()"], "OSError", setup=setup)
        for listener in (tcp.accept, abstract.accept, lambda: udp.recv(1), lambda: letters.recv(1)):
            with pytest.raises(BlockingIOError):
                listener()


# What namespaces do not isolate


def test_calls_that_namespaces_let_through_are_refused(mechanism: Mechanism) -> None:
    """The hypervisor's sockets are of no namespace; shared memory outlives what maps it, so no limit counts it; keys are of the
    user; a namespace of its own makes an answer root there."""
    setup = """
import ctypes, os, socket
libc = ctypes.CDLL(None)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0: raise OSError
def shared():
    if libc.shmget(0, 1 << 20, 0o600) < 0: raise OSError
def namespace():
    if libc.unshare(0x10000000) < 0: raise OSError
"""
    acts = ["socket.socket(40, socket.SOCK_STREAM)", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "shared()"]
    acts += ["namespace()", "os.memfd_create('x')"]
    if os.uname().machine == "x86_64":
        acts += ["call(248, b'user', b'x', b'y', 1, -3)", "call(425, 8, None)"]  # add_key, io_uring_setup
    refused(mechanism, acts, "OSError", setup=setup)


def test_folders_of_its_own_where_it_has_a_namespace() -> None:
    if (other := probe(BUBBLEWRAP)) is not None:
        pytest.skip(f"bubblewrap does not isolate here: {other}")
    acts = ["makedirs('a/b')", "symlink('b', 'a/c')", "utime('a/b', (0, 0))", "chmod('a/b', 0o700)", "rmdir('a/b')"]
    assert run("import os\n" + "\n".join(f"os.{act}" for act in acts), "", mechanism=BUBBLEWRAP) == Outcome(True)


# The process that grades


def test_the_parent_is_not_signalled_nor_read(mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKEDSS_TEST_SECRET", "secret")
    setup = f"import os, signal, fcntl\nparent = {os.getpid()}"
    acts = [
        "os.kill(parent, signal.SIGTERM)",
        "os.kill(parent, 0)",
        "os.killpg(os.getpgid(parent), signal.SIGTERM)",
        "open(f'/proc/{parent}/environ').read()",
        "open(f'/proc/{parent}/mem', 'r+b')",
        "os.listdir(f'/proc/{parent}/fd')",
        "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, parent)",
    ]
    refused(mechanism, acts, "OSError", setup=setup)
    assert run("import os", "assert 'secret' not in str(os.environ)", mechanism=mechanism).passed


def test_it_is_nobody(mechanism: Mechanism) -> None:
    tests = "import os\nassert 0 not in (*os.getresuid(), *os.getresgid(), *os.getgroups()), os.getresuid()"
    assert run("", tests, mechanism=mechanism) == Outcome(True)
    refused(mechanism, ["os.setuid(0)", "os.seteuid(0)", "os.setgroups([0])"], "OSError", setup="import os")


def test_it_cannot_raise_its_limits(mechanism: Mechanism) -> None:
    limits = ("AS", "NPROC", "FSIZE", "CPU", "NOFILE")
    acts = [f"resource.setrlimit(resource.RLIMIT_{limit}, (resource.RLIM_INFINITY,) * 2)" for limit in limits]
    refused(mechanism, acts, "OSError", "ValueError", setup="import resource")


# The verdict


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "raise SystemExit",
        "raise KeyboardInterrupt",
        "import os, signal\nos.abort()",
        "import ctypes\nctypes.string_at(0)",
        "def f(): import os; os._exit(0)",
        "def f(): raise SystemExit(0)",
        "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit",
    ],
)
def test_ending_early_is_not_passing(mechanism: Mechanism, program: str) -> None:
    outcome = run(program, "f()\nassert False", mechanism=mechanism)
    assert not outcome.passed
    assert outcome.why
    assert "\n" not in outcome.why


def test_a_guessed_token_is_not_passing(mechanism: Mechanism) -> None:
    everywhere = """
import os
for n in range(1, 64):
    try: os.write(n, {!r})
    except OSError: pass
"""
    guess = everywhere.format(json.dumps({"passed": "0" * 32}).encode())
    assert run(guess + "os._exit(0)", "", mechanism=mechanism) == Outcome(False, "its process reported what it had not done")
    assert not run(guess, "assert False", mechanism=mechanism).passed
    for said in (b"{}", b"[]", b'{"passed": 1}', b"[" * 4000, b"\xff", b"null"):
        assert not run(everywhere.format(said) + "os._exit(0)", "", mechanism=mechanism).passed


def test_an_answer_cannot_end_the_grading(mechanism: Mechanism) -> None:
    """A refusal of the sandbox is what the report says before the answer runs."""
    everywhere = """
import os
for n in range(1, 64):
    try: os.write(n, {!r})
    except OSError: pass
os._exit(3)
"""
    for said in (b'{"refused": "no"}', b'\n{"refused": "no"}', b'{"refused": "no"}\n'):
        assert not run(everywhere.format(said), "", mechanism=mechanism).passed


def test_a_sandbox_that_does_not_start_is_no_wrong_answer(mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    text = sandbox._inside()
    for fault, why in (("raise OSError('no room')", "could not be closed: OSError: no room"), ("os._exit(9)", "did not start")):
        broken = text.replace('    lock = settings["lock"]\n', f"    {fault}\n")
        assert broken != text
        monkeypatch.setattr(sandbox, "_inside", lambda broken=broken: broken)
        with pytest.raises(NoSandbox, match=why):
            run("", "", mechanism=mechanism)


def test_the_tests_are_run_as_they_are(mechanism: Mechanism) -> None:
    """Not by what the answer made of compile and exec."""
    program = "import builtins\nbuiltins.exec = builtins.compile = lambda *given, **named: None"
    assert run(program, "assert False", mechanism=mechanism).why == "AssertionError"


def test_output_is_not_kept(mechanism: Mechanism) -> None:
    loud = "import sys\nfor _ in range(200):\n    sys.stdout.write('x' * 10 ** 6)\n    sys.stderr.write('x' * 10 ** 6)\n"
    assert run(loud, "", mechanism=mechanism) == Outcome(True)
    flood = """
import os
while True:
    for n in range(3, 16):
        try: os.write(n, b'x' * 65536)
        except OSError: pass
"""
    assert run(flood, "", SOON, mechanism).why == "its process flooded the report"


def test_what_an_answer_says_is_one_short_line(mechanism: Mechanism) -> None:
    why = run(r"raise ValueError('\x1b[2J\n' * 10 ** 6)", "", mechanism=mechanism).why
    assert why.startswith("ValueError")
    assert len(why) <= 200
    assert why.isprintable()


# The probe finds a leak where there is one


RESTRICT = '_call(libc, libc.syscall(446, rules, 0), "landlock_restrict_self")'
FILTER = "    _filter_calls(seccomp, _CALLS if lock else _CALLS + _FOLDER_CALLS)\n"
PROCESSES = "(resource.RLIMIT_NPROC, 1),"
LEAKS = {  # what is left out of the file
    "starts processes": (BUBBLEWRAP, PROCESSES, FILTER),
    "starts threads": (BUBBLEWRAP, PROCESSES, FILTER),
    "keeps memory beyond its limit": (BUBBLEWRAP, FILTER),
    "makes namespaces": (BUBBLEWRAP, FILTER),
    "reads files outside": (LANDLOCK, RESTRICT),
    "writes outside": (LANDLOCK, RESTRICT),
    "reads /etc/passwd": (LANDLOCK, RESTRICT),
    "reaches TCP listeners": (LANDLOCK, FILTER),
    "reaches Unix listeners": (LANDLOCK, FILTER),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_the_probe_finds_a_leak_from_within(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, *parts = LEAKS[leak]
    if (other := probe(mechanism)) is not None:
        pytest.skip(f"{mechanism.name} does not isolate here: {other}")
    text = sandbox._inside()
    for part in parts:
        assert part in text
        text = text.replace(part, "")
    monkeypatch.setattr(sandbox, "_inside", lambda: text)
    found = str(probe(mechanism))
    if leak == "makes namespaces" and leak not in found:
        pytest.skip("the kernel lets nobody make namespaces")
    assert leak in found


@pytest.mark.skipif(os.geteuid() != 0, reason="an unprivileged user has no root to keep")
def test_the_probe_finds_root(monkeypatch: pytest.MonkeyPatch) -> None:
    if (other := probe(LANDLOCK)) is not None:
        pytest.skip(f"landlock does not isolate here: {other}")
    text = sandbox._inside()
    monkeypatch.setattr(sandbox, "_inside", lambda: text.replace("if os.geteuid() == 0:", "if False:"))
    assert "is root" in str(probe(LANDLOCK))


@pytest.mark.parametrize(
    ("leak", "left_out", "added"),
    [
        ("reaches TCP listeners", "--unshare-net", []),
        ("reaches Unix listeners", "--unshare-net", []),
        ("reads files outside", "", ["--bind", "/tmp", "/tmp"]),
        ("writes outside", "", ["--bind", "/tmp", "/tmp"]),
        ("reads /etc/passwd", "", ["--ro-bind", "/etc", "/etc"]),
    ],
)
def test_the_probe_finds_a_leaking_namespace(
    leak: str, left_out: str, added: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (other := probe(BUBBLEWRAP)) is not None:
        pytest.skip(f"bubblewrap does not isolate here: {other}")
    text = sandbox._inside()
    monkeypatch.setattr(sandbox, "_inside", lambda: text.replace(FILTER, ""))  # which refuses all sockets

    def command(limits: Limits) -> list[str]:
        words = BUBBLEWRAP.command(limits)
        assert words
        at = words.index("--perms", words.index("--dev-bind"))
        words[at:at] = added
        return [word for word in words if word != left_out]

    assert leak in str(probe(BUBBLEWRAP._replace(command=command)))


def test_no_mechanism_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Mechanism("none", lambda limits: None, lock=False, inner_folder="/answer")
    broken = Mechanism("broken", lambda limits: ["/no/such/program"], lock=False, inner_folder="/answer")
    monkeypatch.setattr(sandbox, "MECHANISMS", (missing, broken))
    sandbox.probed.cache_clear()
    try:
        with pytest.raises(NoSandbox) as caught:
            run("", "")
    finally:
        sandbox.probed.cache_clear()
    line = str(caught.value)
    assert isinstance(caught.value, InvalidInput)
    assert "\n" not in line
    assert "none is not installed" in line
    assert "broken cannot be started" in line
    assert "bubblewrap" in line


def test_an_answer_ends_with_the_process_that_grades(mechanism: Mechanism, tmp_path: Path) -> None:
    """Kill the grading process: the answer it waits for goes too."""
    psutil = pytest.importorskip("psutil")
    grading = (  # by its file: importing the package would load torch
        "import importlib.util as of, sys\n"
        f"spec = of.spec_from_file_location('sandbox', {sandbox.__file__!r})\n"
        "sys.modules['sandbox'] = sandbox = of.module_from_spec(spec)\n"
        "spec.loader.exec_module(sandbox)\n"
        f"sandbox.run('while True: pass', '', sandbox.Limits(seconds=60), sandbox.{mechanism.name.upper()})"
    )
    # TMPDIR: a killed grader leaves its answer's folder behind.
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", grading], cwd=PROJECT, env=environment) as grader:
        process = psutil.Process(grader.pid)
        while not (running := [one for one in process.children(recursive=True) if one.cpu_times().user > 0.3]):
            assert grader.poll() is None
        grader.kill()
    gone, alive = psutil.wait_procs(running, timeout=30)
    assert not alive, "the answer outlived the process that graded it"
    assert gone
