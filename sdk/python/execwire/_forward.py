"""Local listeners whose connections are forwarded to a port of the server."""

from __future__ import annotations

import logging
import queue
import select
import socket
import struct
import threading
from typing import Callable, Iterator, Optional, Set, Tuple, Union

import grpc

from . import errors
from ._transport import Retry, Transport
from .v1 import port_pb2

#: A port of 127.0.0.1, 0 being any free one, or another address of this machine.
Local = Union[int, Tuple[str, int]]

_PIECE_BYTES = 64 << 10
# How long accepting pauses after a failure, for example for lack of descriptors, in seconds.
_ACCEPT_PAUSE = 0.1
# How late a connection with a client that does not read notices its end, in milliseconds.
_STALL_CHECK_MS = 500

_log = logging.getLogger("execwire")


def _report(error: BaseException) -> None:
    _log.warning("%s", error)


class Forward:
    """A listener on this machine. Each of its connections is one to a port of the server.

    A direction that ends does so on the other side, and a side that does not read slows
    down the other one. A connection that fails, also because the server is lost, is
    reset: a client of it never mistakes a part for the whole. New connections wait for
    the server to be back, for 75 seconds.

    ``close``, or the end of a ``with`` block, resets all connections, and waits for its
    threads. A connection costs two, one of them of grpc. Errors of connections are passed
    to ``on_error``, in a thread of the forward, or logged as warnings of ``execwire``.
    """

    def __init__(
        self,
        transport: Transport,
        target: port_pb2.PortConnect,
        local: Local,
        max_connections: int,
        on_error: Optional[Callable[[errors.Error], object]],
    ) -> None:
        host, port = ("127.0.0.1", local) if isinstance(local, int) else local
        if not 0 <= port <= 65535:
            raise errors.UsageError(f"a local port is 0 to 65535, not {port}")
        if max_connections < 1:
            raise errors.UsageError(f"max_connections is at least 1, not {max_connections}")
        self._transport, self._target = transport, target
        self._max, self._on_error = max_connections, on_error or _report
        self._lock = threading.Lock()
        self._connections: Set[_Connection] = set()  # guarded by _lock
        self._closing = threading.Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        #: Where it listens: an IP address and a port.
        self.address: Tuple[str, int] = self._listener.getsockname()[:2]
        #: The port on which it listens.
        self.port: int = self.address[1]
        self._waker, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="execwire forward", daemon=True)
        self._thread.start()
        try:
            transport.end_with(self.close)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<execwire.Forward {self.address[0]}:{self.port} to {self._target.port}>"

    def close(self) -> None:
        """Ends the listener and resets its connections. Closing twice is not an error."""
        with self._lock:
            if not self._closing.is_set():
                self._closing.set()
                self._waker.send(b"x")
            connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        threads = [self._thread] + [c.thread for c in connections]
        if threading.current_thread() not in threads:  # as it is when on_error closes
            for thread in threads:
                thread.join()
        self._transport.forget(self.close)

    def _accept(self) -> None:
        self._listener.setblocking(False)  # a client may be gone before it is accepted
        ready = select.poll()
        ready.register(self._listener, select.POLLIN)
        ready.register(self._wake, select.POLLIN)
        while True:
            ready.poll()
            if self._closing.is_set():
                break
            try:
                self._start(self._listener.accept()[0])
            except BlockingIOError:
                continue
            except (OSError, RuntimeError) as error:  # no descriptors, or no threads
                self._failed(errors.Error(f"failed to accept a connection: {error}"))
                self._closing.wait(_ACCEPT_PAUSE)
        with self._lock:
            for s in (self._listener, self._waker, self._wake):
                s.close()

    def _start(self, local: socket.socket) -> None:
        try:
            local.setblocking(True)
            local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(self._transport, self._target, local, self._failed)
            with self._lock:
                self._forget_ended()
                if len(self._connections) < self._max and not self._closing.is_set():
                    connection.thread.start()
                    self._connections.add(connection)
                    return
        except BaseException:
            reset(local)
            raise
        self._failed(
            errors.LimitError(
                "RESOURCE_EXHAUSTED",
                f"{self._max} connections are already forwarded (max_connections): close one first",
            )
        )
        reset(local)

    def _failed(self, error: errors.Error) -> None:
        """Reports an error, unless it is a consequence of closing."""
        if self._closing.is_set() or self._transport.closed.is_set():
            return
        try:
            self._on_error(error)
        except Exception:
            _log.exception("on_error failed")

    def _forget_ended(self) -> None:
        for connection in [c for c in self._connections if c.ended]:
            connection.thread.join()  # it is in its last instructions
            self._connections.remove(connection)

    def __enter__(self) -> "Forward":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Connection:
    """A connection of a client on this machine. Its thread passes what the port sends, and
    that of grpc which sends the requests what the client sends."""

    def __init__(
        self,
        transport: Transport,
        target: port_pb2.PortConnect,
        local: socket.socket,
        on_error: Callable[[errors.Error], None],
    ) -> None:
        self._transport, self._target, self._local = transport, target, local
        self._on_error = on_error
        self.thread = threading.Thread(target=self._run, name="execwire connection", daemon=True)
        #: Whether the thread has nothing more to do.
        self.ended = False
        self._call: Optional[grpc.Call] = None
        self._cancelled = False
        # Whether the client has broken off, which is nobody's error.
        self._client_gone = False
        self._reading = threading.Lock()  # held while data is received from the client
        self._over = False  # nothing more is received
        self._writing = threading.Lock()  # held while data is sent to the client
        self._reset = False  # guarded by _writing; sending has found the connection reset

    def cancel(self) -> None:
        """Ends the connection. It does not block."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    def _run(self) -> None:
        failure: Optional[BaseException] = None
        try:
            self._receive(self._connect())
        except errors.Error as error:
            failure = error
            if not self._client_gone:
                self._on_error(error)
        except BaseException as error:  # a bug of this package
            failure = error
            raise
        finally:
            self._end(failure is not None)
            self.ended = True

    def _connect(self) -> "grpc.CallIterator[port_pb2.ConnectPortResponse]":
        """Returns a call that is connected to the port."""
        retry = Retry(self._transport)
        while True:
            # Whether the call is connected, for its requests.
            connected: "queue.SimpleQueue[bool]" = queue.SimpleQueue()
            try:
                call = self._transport.ports.ConnectPort(
                    self._transport.sending(self._requests(connected))
                )
                self._call = call
                if self._cancelled:
                    call.cancel()
                first = next(call, None)
                if first is not None and first.WhichOneof("message") == "connected":
                    connected.put(True)
                    return call
                call.cancel()
                raise errors.ProtocolError("the first message does not report the connection")
            except (grpc.RpcError, ValueError) as error:
                failure = self._transport.failure(error)
            finally:
                connected.put(False)
            if self._cancelled:
                raise errors.ClosedError("the forward was closed")
            retry.again(failure)

    def _requests(
        self, connected: "queue.SimpleQueue[bool]"
    ) -> Iterator[port_pb2.ConnectPortRequest]:
        """Iterates over what the client sends. Its end is a half-close of the call, so a call
        that must not end in order is cancelled before."""
        yield port_pb2.ConnectPortRequest(connect=self._target)
        if not connected.get():
            return
        while True:
            with self._reading:
                data = b"" if self._over else self._from_client()
            if not data:
                return
            yield port_pb2.ConnectPortRequest(data=data)

    def _from_client(self) -> bytes:
        try:
            data = self._local.recv(_PIECE_BYTES)
            if data:
                return data
            # The system reports a reset once. If that was to a send, this is no end.
            with self._writing:
                gone = self._reset
        except OSError:
            gone = True
        if gone:
            self._client_gone = True
            self.cancel()
        return b""

    def _receive(self, call: "grpc.CallIterator[port_pb2.ConnectPortResponse]") -> None:
        """Passes what the port sends, until both directions have ended in order."""
        ended = False
        try:
            for message in call:
                kind = message.WhichOneof("message")
                if ended or kind not in ("data", "end"):
                    raise errors.ProtocolError(f"a connection has {kind} where it must not")
                if kind == "data":
                    self._to_client(message.data)
                else:
                    ended = True
                    self._local.shutdown(socket.SHUT_WR)
        except (grpc.RpcError, ValueError) as error:
            raise self._transport.failure(error) from None
        except OSError as error:
            self._client_gone = True
            raise errors.Error(f"the client broke off: {error}") from error
        if not ended:
            raise errors.ProtocolError("the stream of a connection ended before its end message")

    def _to_client(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            with self._writing:
                try:
                    left = left[self._local.send(left, socket.MSG_DONTWAIT) :]
                    continue
                except BlockingIOError:
                    pass
                except OSError as error:
                    # A broken pipe is a reset after the client had ended its direction.
                    self._reset = not isinstance(error, BrokenPipeError)
                    raise
            writable = select.poll()
            writable.register(self._local, select.POLLOUT)
            writable.poll(_STALL_CHECK_MS)
            if self._cancelled or self._transport.closed.is_set():
                raise errors.ClosedError("the forward was closed")

    def _end(self, failed: bool) -> None:
        """Closes the connection, after the thread of grpc has left it."""
        if self._call is not None:
            self._call.cancel()
        self._over = True
        try:
            self._local.shutdown(socket.SHUT_RD)  # wakes that thread, and tells the client nothing
        except OSError:
            pass
        with self._reading:
            if failed:
                reset(self._local)
            else:
                self._local.close()


def reset(connection: socket.socket) -> None:
    """Closes a connection so that its peer gets an error instead of an end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    connection.close()
