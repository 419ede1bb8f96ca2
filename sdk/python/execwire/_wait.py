"""Waiting for something that a process does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Optional

from . import errors
from ._command import duration
from ._transport import Transport
from .v1 import process_pb2, process_service_pb2


@dataclass(frozen=True)
class Wait:
    """What to wait for: one of pattern, port and idle."""

    #: Output that matches, in the syntax of RE2; "$" is the end of what was written so
    #: far, as behind a prompt.
    pattern: Optional[str] = None
    #: The event after which output is looked at; only for a pattern.
    after_seq: int = 0
    #: A TCP port that the process, or a descendant of it, listens on.
    port: Optional[int] = None
    #: For how many seconds it has written nothing.
    idle: Optional[float] = None
    #: For how long to wait, in seconds; None waits until the condition cannot hold.
    timeout: Optional[float] = None


def wait(transport: Transport, session_id: str, process_id: str, condition: Wait) -> bytes:
    """Waits, for longer than the server's longest wait and across lost connections."""
    request = process_service_pb2.WaitProcessRequest(session_id=session_id, process_id=process_id)
    given = [c for c in (condition.pattern, condition.port, condition.idle) if c is not None]
    if len(given) != 1:
        raise errors.UsageError("give one of pattern, port and idle")
    if condition.pattern is not None:
        request.pattern.regular_expression = condition.pattern
        request.pattern.after_seq = condition.after_seq
    elif condition.port is not None:
        request.port.port = condition.port
    elif condition.idle is not None:
        request.idle.silence.CopyFrom(duration(condition.idle))
    until = None if condition.timeout is None else time.monotonic() + condition.timeout
    closed = False

    def ask() -> process_service_pb2.WaitProcessResponse:
        if until is not None:
            request.wait.CopyFrom(duration(max(0.0, until - time.monotonic())))
        return transport.processes.WaitProcess(request)

    while True:
        answer = transport.repeat(ask)
        if answer.satisfied:
            return answer.match.data
        if closed:
            raise errors.ProcessEndedError(
                "FAILED_PRECONDITION", f"process {process_id} closed before what was waited for"
            )
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"not within {condition.timeout:g} s: {condition}")
        # One more look: it may have said something before it closed. Silence goes on.
        closed = (
            answer.process.state == process_pb2.PROCESS_STATE_CLOSED and condition.idle is None
        )
