"""Observing the output of a process."""

from __future__ import annotations

import time
from typing import Iterator, Optional

import grpc

from . import errors
from ._events import Event, EventLog
from ._transport import Retry, Transport
from .v1 import process_service_pb2


def follow(
    transport: Transport, session_id: str, process_id: str, after_seq: int
) -> Iterator[Event]:
    """Iterates over events until the process has closed. See Client.follow."""
    log = EventLog(process_id)
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
            while True:
                message = next(call, None)
                if message is None:
                    break
                for event in log.take(message.events):
                    retry.progress()
                    yield event
        except (grpc.RpcError, ValueError) as error:
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
