"""TCP ports of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterator, List, Optional, Tuple

import grpc

from . import errors
from ._transport import Retry, Transport
from .v1 import port_pb2


@dataclass(frozen=True)
class Port:
    """A TCP port on which a process listens."""

    #: What it is bound to: ``127.0.0.1``, ``0.0.0.0``, ``::`` or another address.
    address: str
    #: Its number.
    port: int
    #: The process that listens, or whose descendant does.
    process_id: str
    #: The PID of the program that listens.
    pid: int
    #: The name of that program; empty if unknown.
    program: str


class Ports(List[Port]):
    """A list of ports, ordered by port and address."""

    #: Whether there are more, beyond 2,000.
    truncated = False


@dataclass(frozen=True)
class PortChange:
    """Ports that are closed and then, ports that are opened."""

    #: Ports that are no longer open.
    closed: Tuple[Port, ...]
    #: Ports that are new.
    opened: Tuple[Port, ...]
    #: Whether there are more than 2,000; those with the highest numbers are missing.
    truncated: bool


def list_ports(transport: Transport, session_id: str, process_id: str) -> Ports:
    """Returns the ports that are open now. See Client.ports."""
    request = port_pb2.ListPortsRequest(session_id=session_id, process_id=process_id)
    answer = transport.repeat(lambda: transport.ports.ListPorts(request))
    ports = Ports(_port(p) for p in answer.ports)
    ports.truncated = answer.truncated
    return ports


class PortWatch(Iterator[PortChange]):
    """Changes of ports. Applied in order to a set they make it current.

    Iterating blocks until there is a change; the first one has the ports that are open,
    perhaps none. Between calls the server combines changes. The watch survives a lost
    connection, and ends when its process, if it has one, has closed. ``close``, or the
    end of a ``with`` block, ends it, also for a blocked thread. It is for one thread,
    except ``close``.
    """

    def __init__(self, transport: Transport, session_id: str, process_id: str) -> None:
        self._request = port_pb2.WatchPortsRequest(session_id=session_id, process_id=process_id)
        self._transport, self._retry, self._closed = transport, Retry(transport), False
        # The ports that were reported. None before the first message of all.
        self._known: Optional[FrozenSet[Port]] = None
        self._open()

    def close(self) -> None:
        """Ends the watch. Closing twice is not an error."""
        self._closed = True
        self._call.cancel()

    def _open(self) -> None:
        self._began = False
        self._call = self._transport.once(lambda: self._transport.ports.WatchPorts(self._request))
        if self._closed:  # meanwhile
            self._call.cancel()

    def __next__(self) -> PortChange:
        while True:
            try:
                message = next(self._call, None)
            except (grpc.RpcError, ValueError) as error:
                if self._closed:
                    raise StopIteration from None
                self._retry.again(self._transport.failure(error))
                self._open()
                continue
            if message is None:
                if self._request.process_id or self._closed:
                    raise StopIteration
                raise errors.ProtocolError("it ended the watch of ports without a reason")
            self._retry.progress()
            change = self._change(message)
            if change is not None:
                return change

    def _change(self, message: port_pb2.WatchPortsResponse) -> Optional[PortChange]:
        closed = [_port(p) for p in message.closed]
        opened = [_port(p) for p in message.opened]
        first, before = self._known is None, self._known or frozenset()
        if not self._began:
            # The first message of a call has all ports.
            self._began = True
            closed = [p for p in before if p not in opened]
            opened = [p for p in opened if p not in before]
        self._known = (before - frozenset(closed)) | frozenset(opened)
        if not (first or closed or opened):
            return None
        return PortChange(tuple(closed), tuple(opened), message.truncated)

    def __enter__(self) -> "PortWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _port(p: port_pb2.Port) -> Port:
    return Port(p.address, p.port, p.process_id, p.pid, p.program)
