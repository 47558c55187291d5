"""What runs inside the sandbox: give up every right, run an answer, run its tests, and only then fetch the token that says so.

`sandbox.run` passes this file to `python -P -s -S -c`, so it stands on the standard library alone and imports nothing of ours.
Standard input is a file of three lines: settings as JSON, {"program", "tests"} as JSON, and the token. The token is read after
the last test and written to the report, so that an answer that ends the process early, or prints what it likes, has not passed.
The report begins with a line that says that the sandbox is closed: what comes instead of it is no answer's doing.
Limits of that: an answer shares the interpreter with its tests, so one written on purpose to cheat (an object equal to
everything, reading the token's file) can; answers that merely fail, exit, crash or print cannot.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
import types
from typing import Any

# Landlock (linux/landlock.h): the rights of files and folders of ABI 3, the first that also guards truncation.
_EXECUTE, _WRITE, _READ, _LIST, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_FILE, _TRUNCATE = 1 << 8, 1 << 14
_EVERY_FILE_RIGHT = (1 << 15) - 1
_NEED_ABI = 3

# What the interpreter needs once it runs. Everything else is refused, so no process, thread, program, socket (namespaces let
# those of a hypervisor through), signal, shared memory, key or namespace, no change of modes or times, and no call that a newer
# kernel brings.
_CALLS = """
    access brk chdir clock_getres clock_gettime clock_nanosleep close close_range copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 exit exit_group faccessat faccessat2 fadvise64
    fallocate fchdir fdatasync fstat fstatfs fsync ftruncate futex futex_waitv getcwd getdents getdents64 getegid
    geteuid getgid getgroups getitimer getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
    getrusage getsid gettid gettimeofday getuid lseek lstat madvise membarrier mincore mmap mprotect mremap msync munmap
    nanosleep newfstatat open openat openat2 pause pipe pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64
    pwritev pwritev2 read readlink readlinkat readv rename renameat renameat2 restart_syscall rseq rt_sigaction
    rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_getparam
    sched_getscheduler sched_yield select sendfile set_robust_list setitimer sigaltstack splice stat statfs statx
    sysinfo tee time timerfd_create timerfd_gettime timerfd_settime times truncate umask uname unlink unlinkat write
    writev
"""
# Where the folder is in a namespace of its own, it may have folders and links, and modes and times of its own.
_FOLDER_CALLS = """
    chmod fchmod fchmodat link linkat mkdir mkdirat rmdir symlink symlinkat utime utimensat utimes
"""
_DUPLICATE, _FILE_FLAGS, _LOCKS = (0, 1030), (1, 2, 3, 4), (5, 6, 7)
_ONLY_WITH = {  # call: (index of the argument, its allowed values)
    "fcntl": (1, (*_DUPLICATE, *_FILE_FLAGS, *_LOCKS)),  # F_SETOWN with F_SETSIG would send a signal to a process of choice
    "ioctl": (1, (0x5401, 0x5421, 0x5450, 0x5451)),  # TCGETS, FIONBIO, FIONCLEX, FIOCLEX
    "prlimit64": (0, (0,)),  # the own limits, not those of a process of choice
    "tgkill": (2, (signal.SIGABRT,)),  # abort(); the receiver is fixed to this process where the rule is added
}


def main() -> None:
    """Read the task, give up rights, run it, write the report and end the process."""
    # Held here because the answer may replace what the modules offer.
    read, write, leave, dumps, build, do = os.read, os.write, os._exit, json.dumps, compile, exec
    with open(os.dup(0), "rb", buffering=0) as given:
        settings, work = json.loads(_line(given)), json.loads(_line(given))
    secret, report = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b", buffering=0) as nowhere:
        for stream in (0, 1, 2):
            os.dup2(nowhere.fileno(), stream)
    try:
        _confine(settings)
    except Exception as error:
        write(report, dumps({"refused": _short(error)}).encode())
        leave(3)
    write(report, b"closed\n")
    answer = types.ModuleType("answer")  # not __main__: an answer's own demonstration does not run
    sys.modules["answer"] = answer
    try:
        for part in ("program", "tests"):
            # Without the future statement of this file: the annotations of an answer are evaluated, as they are outside.
            do(build(work[part], f"<{part}>", "exec", dont_inherit=True), answer.__dict__)
    except BaseException as error:
        write(report, dumps({"failed": _short(error)}).encode())
        leave(0)
    write(report, dumps({"passed": read(secret, 100).decode()}).encode())
    leave(0)


def _line(given: Any) -> bytes:
    """One line, byte for byte as far as it goes: what follows it stays in the file."""
    start = os.lseek(given.fileno(), 0, os.SEEK_CUR)
    held = bytearray()
    while b"\n" not in held:
        chunk = os.read(given.fileno(), 1 << 16)
        if not chunk:
            raise EOFError
        held += chunk
    line = bytes(held[: held.index(b"\n") + 1])
    os.lseek(given.fileno(), start + len(line), os.SEEK_SET)
    return line


def _short(error: BaseException) -> str:
    text = ""
    with contextlib.suppress(BaseException):  # an answer's exception may have any __str__
        text = str(error)[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _confine(settings: dict[str, Any]) -> None:
    """Limits, an unprivileged user, seccomp, and, where no namespace does it (`settings["lock"]`), Landlock."""
    lock = settings["lock"]
    os.chdir(settings["folder"])
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    if lock:
        _reach_library_by_descriptor()
        rules = _landlock_rules(libc, settings)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(settings["user"], settings["user"], settings["user"])
        os.setresuid(settings["user"], settings["user"], settings["user"])
    for limit, most in (
        (resource.RLIMIT_AS, settings["memory"]),
        (resource.RLIMIT_FSIZE, settings["file_size"]),
        (resource.RLIMIT_CPU, settings["cpu"]),
        (resource.RLIMIT_NPROC, 1),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(limit, (most, most))
    if lock:
        _call(libc, libc.prctl(1, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")  # after the user changed, which clears it
        _call(libc, libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
        _call(libc, libc.syscall(446, rules, 0), "landlock_restrict_self")
        os.close(rules)
    _filter_calls(seccomp, _CALLS if lock else _CALLS + _FOLDER_CALLS)


def _reach_library_by_descriptor() -> None:
    """Name the standard library by open folders: an unprivileged user may not be let in where it lies."""

    def held(path: str) -> str:
        return f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_DIRECTORY)}"

    sys.path[:] = [held(path) for path in sys.path if os.path.isdir(path)]
    for module in list(sys.modules.values()):
        if getattr(module, "__path__", None):  # a package loaded already would look for the rest of itself
            module.__path__ = [held(path) for path in module.__path__]
    sys.path_importer_cache.clear()


def _landlock_rules(libc: Any, settings: dict[str, Any]) -> int:
    """A Landlock rule set: the library to read, the folder of its own to read and write, nothing else."""
    abi = libc.syscall(444, None, 0, 1)
    if abi < _NEED_ABI:
        raise OSError(f"Landlock ABI {max(abi, 0)}, needs {_NEED_ABI} (Linux 6.2)")
    attributes = struct.pack("=Q", _EVERY_FILE_RIGHT)
    rules = _call(libc, libc.syscall(444, attributes, len(attributes), 0), "landlock_create_ruleset")
    allowed = dict.fromkeys(settings["readable"], _READ | _LIST)
    allowed[settings["folder"]] = _READ | _LIST | _WRITE | _TRUNCATE | _MAKE_FILE | _REMOVE_FILE
    allowed |= {os.devnull: _READ | _WRITE, "/dev/urandom": _READ}
    for path, rights in allowed.items():
        if not os.path.isdir(path):
            rights &= _READ | _WRITE  # the rights of folders are not those of files
        place = os.open(path, os.O_PATH)
        beneath = struct.pack("=Qi", rights, place)
        _call(libc, libc.syscall(445, rules, 1, beneath, 0), f"landlock_add_rule({path})")
        os.close(place)
    return int(rules)


def _call(libc: Any, result: int, name: str) -> int:
    if result < 0:
        raise OSError(f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


class _Compare(ctypes.Structure):
    """struct scmp_arg_cmp of libseccomp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def _filter_calls(seccomp: Any, allowed: str) -> None:
    """Allow the calls of that list, and on their conditions those of the one above.

    Any other fails with EPERM, one of a foreign architecture kills.
    """
    allow, equal, fail = 0x7FFF0000, 4, 0x00050000 | 1  # SCMP_ACT_ALLOW, SCMP_CMP_EQ, SCMP_ACT_ERRNO(EPERM)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    held = ctypes.c_void_p(seccomp.seccomp_init(fail))
    if not held:
        raise OSError("seccomp_init")

    def add(name: str, *compare: tuple[int, int]) -> None:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # not of this architecture, or not known to this libseccomp
            return
        array = (_Compare * len(compare))(*(_Compare(argument, equal, value, 0) for argument, value in compare))
        if seccomp.seccomp_rule_add_array(held, allow, number, len(compare), array) != 0:
            raise OSError(f"seccomp rule for {name}")

    for name in allowed.split():
        add(name)
    for name, (argument, values) in _ONLY_WITH.items():
        for value in values:
            add(name, (argument, value), *([(0, os.getpid())] if name == "tgkill" else []))
    if seccomp.seccomp_load(held) != 0:
        raise OSError("seccomp_load")


if __name__ == "__main__":
    main()
