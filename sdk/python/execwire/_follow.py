"""Observing the output of a process."""

from __future__ import annotations

import time
from typing import Iterator, Optional

import grpc

from . import errors
from ._events import Event, EventLog
from ._transport import Retry, Transport
from .v1 import process_service_pb2


class Follow(Iterator[Event]):
    """Events of a process until it has closed. See Client.follow.

    ``close``, or the end of a ``with`` block, ends it, also for a blocked thread.
    """

    def __init__(
        self, transport: Transport, session_id: str, process_id: str, after_seq: int
    ) -> None:
        self._transport, self._closed = transport, False
        self._call: Optional[grpc.Call] = None
        self._events = self._follow(session_id, process_id, after_seq)

    def close(self) -> None:
        """Ends the iteration. Closing twice is not an error."""
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> "Follow":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, session_id: str, process_id: str, after_seq: int) -> Iterator[Event]:
        log, transport = EventLog(process_id), self._transport
        log.start_after(after_seq)
        retry, known, lost_at = Retry(transport), False, 0.0
        while True:
            failure: Optional[errors.Error] = None
            call = None
            try:
                described = transport.processes.GetProcess(
                    process_service_pb2.GetProcessRequest(session_id=session_id, process_id=process_id)
                )
                if lost_at:
                    log.resumed, lost_at = log.resumed + 1, 0.0
                known = True
                log.set_initial_state(described.process)
                if log.closed:
                    return
                call = transport.processes.WatchProcess(
                    process_service_pb2.WatchProcessRequest(
                        session_id=session_id, process_id=process_id, after_seq=log.last
                    )
                )
                self._call = call
                if self._closed:  # meanwhile
                    return
                while True:
                    message = next(call, None)
                    if message is None:
                        break
                    for event in log.take(message.events):
                        retry.progress()
                        yield event
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
                raise errors.LostError(process_id, True, log.exit(), log.last, lost, failure)
            if not known:
                raise failure
            lost_at = lost_at or time.monotonic()
            retry.again(failure)
