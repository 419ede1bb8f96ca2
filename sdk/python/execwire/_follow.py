"""Observing the output of a process."""

from __future__ import annotations

import time
from typing import Iterator, Optional, Tuple

import grpc

from . import errors
from ._events import Event, EventLog
from ._transport import Retry, Transport
from .v1 import process_event_pb2, process_service_pb2


class Follow(Iterator[Event]):
    """Events of a process until it has closed. See Client.follow.

    ``close``, or the end of a ``with`` block, ends it, also for a blocked thread.
    """

    def __init__(
        self, transport: Transport, session_id: str, process_id: str, after_seq: int
    ) -> None:
        self._received = Received(
            transport,
            process_service_pb2.WatchProcessRequest(
                session_id=session_id, process_id=process_id, after_seq=after_seq
            ),
        )

    def close(self) -> None:
        """Ends the iteration. Closing twice is not an error."""
        self._received.close()

    def __next__(self) -> Event:
        for _, event in self._received:
            if event is not None:
                return event
        raise StopIteration

    def __enter__(self) -> "Follow":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Received(Iterator[Tuple[process_event_pb2.ProcessEvent, Optional[Event]]]):
    """New events of a process as the server has sent them, until it has closed; without an
    Event for the sizes of its terminal, which the request may ask for."""

    def __init__(
        self,
        transport: Transport,
        request: process_service_pb2.WatchProcessRequest,
        known: bool = False,
    ) -> None:
        # known: the server has described the process before.
        self._transport, self._known, self._closed = transport, known, False
        self._call: Optional[grpc.Call] = None
        self.log = EventLog(request.process_id)
        self.log.start_after(request.after_seq)
        self._events = self._follow(request)

    def close(self) -> None:
        """Ends the iteration. Closing twice is not an error."""
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    def __next__(self) -> Tuple[process_event_pb2.ProcessEvent, Optional[Event]]:
        return next(self._events)

    def _follow(
        self, request: process_service_pb2.WatchProcessRequest
    ) -> Iterator[Tuple[process_event_pb2.ProcessEvent, Optional[Event]]]:
        log, transport = self.log, self._transport
        retry, known, lost_at = Retry(transport), self._known, 0.0
        while True:
            failure: Optional[errors.Error] = None
            call = None
            try:
                described = transport.processes.GetProcess(
                    process_service_pb2.GetProcessRequest(
                        session_id=request.session_id, process_id=request.process_id
                    )
                )
                if lost_at:
                    log.resumed, lost_at = log.resumed + 1, 0.0
                known = True
                log.set_initial_state(described.process)
                if log.closed:
                    return
                request.after_seq = log.last
                call = transport.processes.WatchProcess(request)
                self._call = call
                if self._closed:  # meanwhile
                    return
                while True:
                    message = next(call, None)
                    if message is None:
                        break
                    for event in message.events:
                        if event.HasField("resized"):
                            yield event, None
                            continue
                        for new in log.take([event]):
                            retry.progress()
                            yield event, new
            except (grpc.RpcError, ValueError) as error:
                if self._closed:
                    return
                failure = transport.failure(error)
            finally:
                if call is not None:
                    call.cancel()
            if log.closed:
                return
            if failure is None:
                raise errors.ProtocolError(
                    f"the stream ended after seq {log.last} without the closed event"
                )
            reason = failure.reason if isinstance(failure, errors.ExecwireError) else ""
            if known and reason in ("PROCESS_NOT_FOUND", "SESSION_NOT_FOUND"):
                lost = time.monotonic() - lost_at if lost_at else 0.0
                raise errors.LostError(request.process_id, True, log.exit(), log.last, lost, failure)
            if not known:
                raise failure
            lost_at = lost_at or time.monotonic()
            retry.again(failure)
