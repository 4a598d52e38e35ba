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
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager, nullcontext, redirect_stdout
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from policytest._base import errors
from policytest._base.errors import InputError

DEATHS = 3  # of the process of the same call, after which it is not made again
LOOK = 0.05  # seconds between two looks at whether to stop
MOST_WAIT = 1.0  # seconds until a call is taken up
LOOK_UP = 1.0  # seconds between two looks at whether the process that asks is there
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
NO_COPY = "a process cannot make its copy of the environment or the agent: "


class Stopped(Exception):  # noqa: N818 - it is not an error
    """Whoever waited for a call has to stop."""


class Died(Exception):  # noqa: N818
    """The process of a call died again and again."""


class Pool(Protocol):
    """Where calls are made."""

    @property
    def died(self) -> tuple[type[BaseException], ...]:
        """What a call raises whose process died."""

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Begin a call of ``function(key, made, *arguments)``, in a new process if there is none."""

    def close(self) -> None:
        """End it, with what it is doing."""


class Call:
    """A call: how often its process died, and what it returned once it is ``over``."""

    def __init__(self, arguments: tuple[object, ...]) -> None:
        self.arguments, self.deaths, self.over = arguments, 0, False
        self.found: Any = None

    def end(self, found: Any) -> None:
        """It is over."""
        self.found, self.over = found, True

    def is_lost(self, error: BaseException) -> bool:
        """Whether it is to be made again, after its process died with this error."""
        self.deaths += 1
        if self.deaths >= DEATHS:
            self.end(Dead(error))
        return not self.over


class Dead(NamedTuple):
    """The end of a call whose process died again and again."""

    error: BaseException


class Worker:
    """A pool that makes one call at a time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.call: Call | None = None
        self.future: Future[Any] | None = None

    def begin(self, call: Call) -> None:
        """Begin a call."""
        self.call, self.future = call, self.pool.submit(_called, *call.arguments)

    def look(self) -> Call | None:
        """End the call, if it has ended; where its process died start another one, and return what was lost."""
        if self.future is None or not self.future.done():
            return None
        call, future, self.call, self.future = self.call, self.future, None, None
        try:
            found = future.result()
        except self.pool.died as error:
            if call is None:  # another one that died, before it had a call
                return None
            self.future = self.pool.submit(_ready)
            return call if call.is_lost(error) else None
        if call is not None:
            call.end(found)
        return None


class Processes:
    """At most ``workers`` calls at once of the function that ``made`` makes, pickled, in each process for itself.

    Where a process dies its call is the next that another one takes, while a new process starts.
    """

    def __init__(self, made: bytes, workers: int) -> None:
        client, self.waiting = _client(), deque[Call]()
        if client is None:
            self.pools: list[Pool] = [OneProcess(made, workers) for _ in range(workers)]
        else:
            self.pools = [OnCluster(made, client)]
        self.at = [Worker(self.pools[k % len(self.pools)]) for k in range(workers)]

    def begin(self, *arguments: object) -> Call:
        """Begin a call, as soon as a process has none."""
        call = Call(arguments)
        self.waiting.append(call)
        self._go_on()
        return call

    def result(self, call: Call, stop: Callable[[], bool]) -> Any:
        """What a call returned or raised. `Stopped` if ``stop()`` is true before."""
        while not call.over:
            self._go_on()
            if call.over:
                break
            if stop():
                raise Stopped
            wait([worker.future for worker in self.at if worker.future is not None], LOOK, FIRST_COMPLETED)
        if isinstance(call.found, Dead):
            raise Died from call.found.error
        if isinstance(call.found, Raised):
            raise call.found.error() from Elsewhere(call.found.told)
        return call.found

    def _go_on(self) -> None:
        """Take what has ended, and begin what waits; first what was lost."""
        lost = [call for worker in self.at if (call := worker.look()) is not None]
        self.waiting.extendleft(reversed(lost))
        for worker in self.at:
            if worker.future is None and self.waiting:
                worker.begin(self.waiting.popleft())

    def close(self) -> None:
        """End all processes, with what they are doing."""
        for pool in self.pools:
            pool.close()


# ---------------------------------------------------------------- where calls are made


class OneProcess:
    """A process of this machine; it starts with its first call."""

    died = (BrokenExecutor,)

    def __init__(self, made: bytes, of: int) -> None:
        self.loky, self.pool = errors.needs("joblib.externals.loky", "study"), None
        self.latest: Future[Any] | None = None
        self.sent = made, sys.stdout is not sys.__stdout__
        share = max((os.cpu_count() or 1) // of, 1)
        self.threads = {name: str(share) for name in THREADS if name not in os.environ}

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Begin a call, in a new process if there is none."""
        if self.pool is not None:
            try:
                return self._submitted(self.pool, function, arguments)
            except BrokenExecutor:  # it died
                self.close()
        self.pool = self.loky.ProcessPoolExecutor(1, initializer=_receive, initargs=self.sent, env=self.threads)
        return self._submitted(self.pool, function, arguments)

    def _submitted(self, pool: Any, function: Callable[..., Any], arguments: tuple[object, ...]) -> Future[Any]:
        with _without_interruptions():
            self.latest = found = pool.submit(function, "", None, *arguments)
        future: Future[Any] = found
        return future

    def close(self) -> None:
        """Kill it, with the processes that it started."""
        if self.pool is not None:
            end, latest = time.monotonic() + MOST_WAIT, self.latest
            while latest is not None and not (latest.running() or latest.done()) and time.monotonic() < end:
                time.sleep(0.001)  # the thread of a pool would stumble over a call that it has not taken up
            self.pool.shutdown(wait=True, kill_workers=True)
            self.pool = None


class OnCluster:
    """Workers of a Dask cluster, which itself makes a call again if its worker dies."""

    def __init__(self, made: bytes, client: Any) -> None:
        self.died = errors.needs("distributed", "cluster").KilledWorker, CancelledError
        self.pool, self.key = client.get_executor(pure=False), uuid4().hex
        self.made = client.submit(bytes, made, pure=False)  # not scattered: a worker that dies would take it along

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Begin a call."""
        future: Future[Any] = self.pool.submit(function, self.key, self.made, *arguments)
        return future

    def close(self) -> None:
        """Cancel what is under way."""
        self.pool.shutdown(wait=False)


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


def _called(key: str, made: bytes | None, *arguments: object) -> Any:
    """What the copy returns; or what it raised, since not every error can be sent as it is."""
    try:
        with redirect_stdout(sys.stderr) if SENT.get("is_quiet") else nullcontext():
            return COPIES.latest(key, SENT["made"] if made is None else made)(*arguments)
    except BaseException as error:
        return Raised(_sendable(error), f"{type(error).__name__}: {error}", traceback.format_exc())


def _ready(key: str, made: bytes | None) -> None:
    """That a process has started."""


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
