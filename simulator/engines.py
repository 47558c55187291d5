"""Where tasks run: processes of this machine, a Dask or a Ray cluster, behind one function.

The first two are joblib backends; joblib's for Ray returns nothing before all is done, so Ray's own tasks are used. Results
come back as they finish, in any order: what is made of them must not depend on it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from threading import Thread
from time import sleep
from typing import Any, TypeVar

from simulator.errors import InvalidInput

ENGINES = ("local", "dask", "ray")
MAX_WORKERS = 4096
T = TypeVar("T")
R = TypeVar("R")


def run(
    function: Callable[[T], R], tasks: Sequence[T], engine: str = "local", workers: int = 1, address: str | None = None
) -> Iterator[R]:
    """function(task) of every task, as they finish; `function` is one of a module, tasks and results can be pickled.

    With `address`, on the Dask scheduler there (tcp://host:8786), or the Ray cluster that this machine belongs to (auto); their
    machines need packedss in the same version. Else on `workers` processes here; one local worker is this process itself.

    Raises InvalidInput, before the first task, for a name or number out of range and for an engine that is not installed.
    """
    check(engine, workers, address)
    return _results(function, tasks, engine, workers, address)


def check(engine: str, workers: int, address: str | None) -> None:
    """Raises what `run` raises."""
    if engine not in ENGINES:
        raise InvalidInput(f"unknown engine {engine!r}; allowed: {', '.join(ENGINES)}")
    if not 1 <= workers <= MAX_WORKERS:
        raise InvalidInput(f"workers must lie in 1 .. {MAX_WORKERS}, got {workers}")
    if address is not None and engine == "local":
        raise InvalidInput("an address is that of a cluster: name the engine too, dask or ray")
    if engine == "ray" and address not in (None, "auto"):
        raise InvalidInput(f"the address of a Ray cluster must be auto, on a machine that belongs to it; got {address!r}")
    try:
        if engine == "dask":
            import distributed  # noqa: F401
        elif engine == "ray":
            import ray  # noqa: F401
    except ImportError:
        raise InvalidInput(f"the engine {engine} is not installed: pip install 'packedss[{engine}]'") from None


def _results(function: Callable[[T], R], tasks: Sequence[T], engine: str, workers: int, address: str | None) -> Iterator[R]:
    from joblib import Parallel, delayed, parallel_config

    if not tasks:
        return
    if engine == "local" and workers == 1:  # no need for joblib to collect what is asked for one by one
        yield from map(function, tasks)
        return
    with ExitStack() as stack:
        if engine == "ray":
            yield from _ray(stack, function, tasks, workers, address)
            return
        stack.enter_context(parallel_config(**(_dask if engine == "dask" else _local)(stack, workers, address)))
        # One task at a time to a worker: they are sized by whoever makes them.
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2 * n_jobs")
        yield from parallel(delayed(function)(task) for task in tasks)


def _local(stack: ExitStack, workers: int, address: str | None) -> dict[str, Any]:
    follow = {"initializer": _follow, "initargs": (os.getpid(),)}
    return {"backend": "loky", "n_jobs": workers, "inner_max_num_threads": 1, **follow}


def _follow(parent: int) -> None:
    """End this worker when its parent is killed: it would wait for tasks for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _dask(stack: ExitStack, workers: int, address: str | None) -> dict[str, Any]:
    import distributed

    if address is None:
        cluster: AbstractContextManager[Any] = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        client = distributed.Client(stack.enter_context(cluster))
    else:
        try:
            client = distributed.Client(address, timeout=10)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"no Dask scheduler at {address!r}: {type(error).__name__}") from None
    stack.enter_context(client)
    return {"backend": "dask", "n_jobs": -1}


def _ray(stack: ExitStack, function: Callable[[T], R], tasks: Sequence[T], workers: int, address: str | None) -> Iterator[R]:
    """Ray's own tasks, twice as many under way as there are processors."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    where: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise InvalidInput("this machine belongs to no Ray cluster: ray start --help") from None
    stack.callback(ray.shutdown)
    remote, window = ray.remote(function), 2 * int(ray.cluster_resources()["CPU"])
    left = iter(tasks)
    waiting = [remote.remote(task) for task in islice(left, window)]
    while waiting:
        [done], waiting = ray.wait(waiting, num_returns=1)
        waiting += [remote.remote(task) for task in islice(left, 1)]
        yield ray.get(done)
