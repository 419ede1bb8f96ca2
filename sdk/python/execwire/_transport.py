"""A connection to a server, and calls over it."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Generator, Iterator, List, Optional, Tuple, TypeVar

import grpc

from . import _stubs, errors
from ._backoff import RESUME_TIMEOUT, Backoff, RetryLimit
from ._loop import channels, in_loop
from .v1 import process_service_pb2, process_service_pb2_grpc

_Result = TypeVar("_Result")
_Request = TypeVar("_Request")

#: How long a thread of grpc polls a channel after its last subscription has ended, in seconds.
POLL_INTERVAL = 0.25
#: How long close waits for threads of grpc that send requests, in seconds.
_SENDERS_TIMEOUT = 1.0
#: How many uploads run at once, below the limits of a server.
MAX_UPLOADS = 32
# How late a waiting upload notices that the transport was closed, in seconds.
_TURN_INTERVAL = 0.5


class Transport:
    """A channel with the generated stubs. It may be used by several threads."""

    def __init__(
        self,
        channel: grpc.Channel,
        open_channel: Callable[[], grpc.aio.Channel],
        url: str,
        on_close: List[Callable[[], None]],
        token: Optional[Callable[[], str]] = None,
    ) -> None:
        self.channel = channel
        self.url = url
        # Of the event loop: its channel, for processes, once there was one.
        self._open_channel, self._token = open_channel, token
        self._aio: Optional[grpc.aio.Channel] = None
        self._aio_processes: Any = None
        self.closed = threading.Event()
        self.processes = _stubs.processes(channel)
        self.files = _stubs.files(channel)
        self.environment = _stubs.environment(channel)
        self.ports = _stubs.ports(channel)
        self._on_close = on_close
        self._lock = threading.Lock()
        self._uploads = threading.Semaphore(MAX_UPLOADS)
        self._ends: "List[Callable[[], None]]" = []  # of uploads and forwards
        self._senders: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()
        self._polled_until = 0.0  # when the last subscription of the channel has no thread any more

    @contextmanager
    def uploading(self, abort: Callable[[], None]) -> Generator[None, None, None]:
        """Waits for its turn of an upload, and aborts it if the transport is closed
        meanwhile."""
        while not self._uploads.acquire(timeout=_TURN_INTERVAL):
            if self.closed.is_set():
                break
        else:
            try:
                self.end_with(abort)
                try:
                    yield
                finally:
                    self.forget(abort)
            finally:
                self._uploads.release()
            return
        raise errors.ClosedError("the client was closed")

    def end_with(self, end: Callable[[], None]) -> None:
        """Has ``end`` called, in a thread, when the transport is closed, which waits for it."""
        with self._lock:
            if self.closed.is_set():
                raise errors.ClosedError("the client was closed")
            self._ends.append(end)

    def forget(self, end: Callable[[], None]) -> None:
        """Undoes ``end_with``."""
        with self._lock:
            if end in self._ends:
                self._ends.remove(end)

    def sending(self, requests: Iterator[_Request]) -> Iterator[_Request]:
        """Returns the requests for a streaming call. grpc sends them in a thread of its own,
        for which close waits."""
        with self._lock:
            self._senders.add(threading.current_thread())
        yield from requests

    def close(self) -> None:
        """Ends all calls, and releases the connection.

        It blocks until the server has dropped the uploads, for a second at most, until
        forwards have ended, and until the threads of grpc have ended that this class has
        caused: at its exit the interpreter stops such threads where they are. One that has a
        lock of the channel then would keep it, and the exit would hang.
        """
        with self._lock:
            if self.closed.is_set():
                return
            self.closed.set()
            threads = [threading.Thread(target=end, daemon=True) for end in self._ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        in_loop(self._close_aio())
        time.sleep(max(0.0, self._polled_until - time.monotonic()))
        self.channel.close()
        deadline = time.monotonic() + _SENDERS_TIMEOUT
        with self._lock:
            senders = [t for t in self._senders if t is not threading.current_thread()]
        for sender in senders:
            sender.join(max(0.0, deadline - time.monotonic()))
        for end in self._on_close:
            end()

    # --- of the event loop

    async def _close_aio(self) -> None:
        if self._aio is not None:
            await self._aio.close()

    def _processes(self) -> Any:
        if self.closed.is_set():
            raise errors.ClosedError("the client was closed")
        if self._aio is None:
            self._aio = self._open_channel()
            channels.add(self._aio)
            stub: Any = process_service_pb2_grpc.ProcessServiceStub
            self._aio_processes = stub(self._aio)
        return self._aio_processes

    def _metadata(self) -> "List[Tuple[str, str]]":
        return [] if self._token is None else [("authorization", "Bearer " + self._token())]

    def run_process(self) -> "grpc.aio.StreamStreamCall[Any, Any]":
        """Calls RunProcess."""
        return self._processes().RunProcess(metadata=self._metadata())  # type: ignore[no-any-return]

    async def terminate_process(
        self, request: process_service_pb2.TerminateProcessRequest, timeout: float
    ) -> None:
        """Calls TerminateProcess."""
        await self._processes().TerminateProcess(
            request, timeout=timeout, metadata=self._metadata()
        )

    def reconnect(self) -> None:
        """Makes the channel connect, before the next call does."""
        if self._aio is not None and not self.closed.is_set():
            self._aio.get_state(try_to_connect=True)

    # --- calls of other threads

    @contextmanager
    def reconnecting(self) -> Generator[None, None, None]:
        """Makes gRPC connect meanwhile. Without a call it does not poll its sockets, and an
        attempt would stall for seconds."""
        try:
            self.channel.subscribe(_ignore, try_to_connect=True)
        except ValueError:  # it was closed
            yield
            return
        try:
            yield
        finally:
            self.channel.unsubscribe(_ignore)
            self._polled_until = time.monotonic() + POLL_INTERVAL

    def failure(self, error: BaseException) -> errors.Error:
        """Returns the typed error for the exception of a stub."""
        if self.closed.is_set():
            return errors.ClosedError("the client was closed")
        if isinstance(error, grpc.RpcError):
            return errors.from_rpc(error)
        if isinstance(error, asyncio.CancelledError):
            return errors.make("CANCELLED", "the call was cancelled")
        if isinstance(error, ValueError):  # an unencodable value, or a closed channel
            return errors.UsageError(str(error))
        raise error

    def change(self, call: Callable[[], _Result]) -> _Result:
        """Makes a call that is not idempotent. Raises UnknownError or NotDoneError if the
        connection is lost."""
        try:
            return call()
        except (grpc.RpcError, ValueError) as error:
            raise errors.interrupted(self.failure(error)) from None

    def once(self, call: Callable[[], _Result]) -> _Result:
        """Makes a call that changes nothing, without repeating it."""
        try:
            return call()
        except (grpc.RpcError, ValueError) as error:
            raise self.failure(error) from None

    def repeat(self, call: Callable[[], _Result], within: Optional[float] = None) -> _Result:
        """Makes an idempotent call, and retries it while the connection is lost; with
        ``within`` only for that many seconds after the first attempt."""
        retry = Retry(self, within)
        while True:
            try:
                return call()
            except (grpc.RpcError, ValueError) as error:
                failure = self.failure(error)
            retry.again(failure)


class Retry:
    """Retries while the connection is lost, for 75 seconds."""

    def __init__(self, transport: Transport, within: Optional[float] = None) -> None:
        self._transport = transport
        self._until = None if within is None else time.monotonic() + within
        self._backoff, self._retry_limit = Backoff(), RetryLimit()
        self._lost_at: Optional[float] = None

    def progress(self) -> None:
        """Records that the connection works."""
        self._backoff.reset()
        self._retry_limit.unexpected, self._lost_at = 0, None

    def again(self, error: errors.Error) -> None:
        """Waits before the next attempt, or raises the error."""
        if not isinstance(error, errors.ExecwireError):
            raise error
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
        if not self._retry_limit.transient(error) or now - self._lost_at > RESUME_TIMEOUT:
            raise error
        pause = self._backoff.next(error.retry_after)
        if self._until is not None and now + pause > self._until:
            raise error
        with self._transport.reconnecting():
            if self._transport.closed.wait(pause):
                raise errors.ClosedError("the client was closed")


def _ignore(_: object) -> None:
    pass
