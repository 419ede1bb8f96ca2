"""A connection to a server, and calls over it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Callable, Iterator, List, Optional, TypeVar

import grpc

from . import _stubs, errors
from ._backoff import RESUME_TIMEOUT, Backoff, RetryLimit
_Result = TypeVar("_Result")


class Transport:
    """A channel with the generated stubs. It may be used by several threads."""

    def __init__(self, channel: grpc.Channel, url: str, on_close: List[Callable[[], None]]) -> None:
        self.channel = channel
        self.url = url
        self.closed = threading.Event()
        self.processes = _stubs.processes(channel)
        self.files = _stubs.files(channel)
        self.environment = _stubs.environment(channel)
        self._on_close = on_close
        self._lock = threading.Lock()
        self._uploads: "List[Callable[[], None]]" = []  # functions that abort them

    @contextmanager
    def uploading(self, abort: Callable[[], None]) -> Iterator[None]:
        """Aborts an upload if the transport is closed meanwhile."""
        with self._lock:
            self._uploads.append(abort)
        try:
            yield
        finally:
            with self._lock:
                self._uploads.remove(abort)

    def close(self) -> None:
        """Ends all calls, and releases the connection.

        It blocks until the server has dropped the uploads, for a second at most.
        """
        if self.closed.is_set():
            return
        self.closed.set()
        with self._lock:
            threads = [threading.Thread(target=abort, daemon=True) for abort in self._uploads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.channel.close()
        for end in self._on_close:
            end()

    @contextmanager
    def reconnecting(self) -> Iterator[None]:
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

    def failure(self, error: BaseException) -> errors.Error:
        """Returns the typed error for the exception of a stub."""
        if self.closed.is_set():
            return errors.ClosedError("the client was closed")
        if isinstance(error, grpc.RpcError):
            return errors.from_rpc(error)
        if isinstance(error, ValueError):  # an unencodable value, or a closed channel
            return errors.UsageError(str(error))
        raise error

    def once(self, call: Callable[[], _Result]) -> _Result:
        """Makes a call that is not idempotent."""
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
