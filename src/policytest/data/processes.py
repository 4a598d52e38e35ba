r"""Calls of one object in several processes, each of which has its own copy; a call whose process dies is made again.

The processes are those of loky, which comes with joblib: one pool for each process, so that a process that dies takes
no other call with it. If the caller has a Dask client, the calls go to its workers.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager, nullcontext, redirect_stdout
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from policytest._base import errors
from policytest._base.errors import InputError

DEATHS = 3  # of the process of the same call, after which it is not made again
LOOK = 0.05  # seconds between two looks at whether to stop
LOOK_UP = 1.0  # seconds between two looks at whether the process that asks is there
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
NO_COPY = "a process cannot make its copy of the environment or the agent: "


class Stopped(Exception):  # noqa: N818 - it is not an error
    """Whoever waited for a call has to stop."""


class Died(Exception):  # noqa: N818
    """The process of a call died again and again."""


class Future(Protocol):
    """A call that was begun."""

    def result(self, timeout: float | None = None) -> Any:
        """What it returned; TimeoutError if that takes longer."""


class Worker(Protocol):
    """Where calls are made."""

    @property
    def died(self) -> tuple[type[BaseException], ...]:
        """What a call raises whose process died."""

    def submit(self, arguments: tuple[object, ...]) -> Future:
        """Begin a call, in a new process if there is none."""

    def close(self) -> None:
        """End it, with what it is doing."""


class Call:
    """A call under way, and what it returned once it is over."""

    def __init__(self, worker: Worker, slot: int, arguments: tuple[object, ...]) -> None:
        self.worker, self.slot, self.arguments, self.deaths = worker, slot, arguments, 0
        self.future: Future | None = worker.submit(arguments)
        self.found: Any = None

    def ends(self, seconds: float) -> bool:
        """Whether it has ended now, or within so many seconds; it is made again if its process died."""
        assert self.future is not None
        try:
            self.found, self.future = self.future.result(seconds), None
        except TimeoutError:
            return False
        except self.worker.died as error:
            self.deaths += 1
            if self.deaths >= DEATHS:
                raise Died from error
            self.future = self.worker.submit(self.arguments)
            return False
        return True


class Processes:
    """At most ``workers`` calls at once of the function that ``made`` makes, pickled, in each process for itself."""

    def __init__(self, made: bytes, workers: int) -> None:
        client, self.free = _client(), list(range(workers))[::-1]
        if client is None:
            self.at: list[Worker] = [OneProcess(made, workers) for _ in range(workers)]
        else:
            self.at = [OnCluster(made, client)] * workers

    def begin(self, *arguments: object) -> Call:
        """Begin a call in a process that has none."""
        slot = self.free.pop()
        return Call(self.at[slot], slot, arguments)

    def result(self, call: Call, stop: Callable[[], bool]) -> Any:
        """What a call returned or raised; its process is free then. `Stopped` if ``stop()`` is true before."""
        while call.future is not None:
            stopped = stop()
            if call.ends(0.0 if stopped else LOOK):
                self.free.append(call.slot)
            elif stopped:
                raise Stopped
        if isinstance(call.found, Raised):
            raise call.found.error() from Elsewhere(call.found.told)
        return call.found

    def close(self) -> None:
        """End all processes, with what they are doing."""
        for worker in self.at:
            worker.close()


# ---------------------------------------------------------------- where calls are made


class OneProcess:
    """A process of this machine; it starts with its first call."""

    died = (BrokenExecutor,)

    def __init__(self, made: bytes, of: int) -> None:
        self.loky, self.pool = errors.needs("joblib.externals.loky", "study"), None
        self.sent = made, sys.stdout is not sys.__stdout__
        share = max((os.cpu_count() or 1) // of, 1)
        self.threads = {name: str(share) for name in THREADS if name not in os.environ}

    def submit(self, arguments: tuple[object, ...]) -> Future:
        """Begin a call, in a new process if there is none."""
        if self.pool is not None:
            try:
                return self._submitted(self.pool, arguments)
            except BrokenExecutor:  # it died
                self.close()
        self.pool = self.loky.ProcessPoolExecutor(1, initializer=_receive, initargs=self.sent, env=self.threads)
        return self._submitted(self.pool, arguments)

    @staticmethod
    def _submitted(pool: Any, arguments: tuple[object, ...]) -> Future:
        with _without_interruptions():
            future: Future = pool.submit(_called, "", None, arguments)
        return future

    def close(self) -> None:
        """Kill it, with the processes that it started."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, kill_workers=True)
            self.pool = None


class OnCluster:
    """Workers of a Dask cluster, which itself makes a call again if its worker dies."""

    def __init__(self, made: bytes, client: Any) -> None:
        self.client, self.key = client, uuid4().hex
        self.made = client.submit(bytes, made, pure=False)  # not scattered: a worker that dies would take it along
        self.died = errors.needs("distributed", "cluster").KilledWorker, CancelledError
        self.futures = weakref.WeakSet[Any]()

    def submit(self, arguments: tuple[object, ...]) -> Future:
        """Begin a call."""
        future: Future = self.client.submit(_called, self.key, self.made, arguments, pure=False)
        self.futures.add(future)
        return future

    def close(self) -> None:
        """Cancel what is under way."""
        self.client.cancel([*self.futures], force=True)


def _client() -> Any:
    """The Dask client of the caller; None without one."""
    if "distributed" not in sys.modules:
        return None
    try:
        client = errors.needs("distributed", "cluster").default_client()
    except ValueError:  # there is none
        return None
    return None if client.asynchronous else client


@contextmanager
def _without_interruptions() -> Iterator[None]:
    """What is started here does not see Ctrl-C, which reaches all processes of a terminal."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let them see it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---------------------------------------------------------------- in the other process


class Raised(NamedTuple):
    """What a call raised: the error, pickled, where that is possible, and how it would have been shown."""

    pickled: bytes
    kind: str
    told: str

    def error(self) -> BaseException:
        """The error, or one that says what it was."""
        if self.pickled:
            error: BaseException = pickle.loads(self.pickled)
            return error
        return RuntimeError(self.kind)


class Elsewhere(Exception):  # noqa: N818
    """The traceback of another process, as the cause of an error."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Copies(threading.local):
    """The copy of this thread, and which one it is."""

    key: str | None = None
    function: Callable[..., Any]

    def latest(self, key: str, made: bytes) -> Callable[..., Any]:
        """The copy with this key, which is made where another one is here."""
        if key != self.key:
            self.key, self.function = key, _copy(made)
        return self.function


COPIES, SENT = Copies(), dict[str, Any]()


def _receive(made: bytes, is_quiet: bool) -> None:
    """What is sent to a process once; ``is_quiet``: what is printed goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    SENT.update(made=made, is_quiet=is_quiet)


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, by whatever end."""
    while os.getppid() == parent:
        time.sleep(LOOK_UP)
    os.kill(os.getpid(), signal.SIGKILL)


def _called(key: str, made: bytes | None, arguments: tuple[object, ...]) -> Any:
    """What the copy returns; or what it raised, since not every error can be sent as it is."""
    try:
        with redirect_stdout(sys.stderr) if SENT.get("is_quiet") else nullcontext():
            return COPIES.latest(key, SENT["made"] if made is None else made)(*arguments)
    except BaseException as error:
        return Raised(_sendable(error), f"{type(error).__name__}: {error}", traceback.format_exc())


def _copy(made: bytes) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pickle.loads(made)()
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"parallel: {NO_COPY}{type(error).__name__}: {error}",
            "install there what it needs, or leave parallel out (it is then 1)",
        ) from error
    return function


def _sendable(error: BaseException) -> bytes:
    """The error, pickled; empty where it would not arrive."""
    try:
        found = pickled(error)
        pickle.loads(found)
    except Exception:
        return b""
    return found


def pickled(thing: object) -> bytes:
    """A thing for another process; functions and classes of a script or a notebook as well."""
    cloudpickle = errors.needs("joblib.externals.loky.cloudpickle_wrapper", "study")
    found: bytes = cloudpickle.dumps(thing)
    return found
