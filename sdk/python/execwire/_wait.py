"""Waiting for a condition of a process."""

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
    """A condition: one of pattern, port and idle."""

    #: Output that matches, in RE2 syntax; "$" is the end of the output so far, as after a
    #: prompt.
    pattern: Optional[str] = None
    #: The event after which output is searched; only for a pattern.
    after_seq: int = 0
    #: A TCP port that the process, or a descendant of it, listens on.
    port: Optional[int] = None
    #: For how many seconds it has written nothing.
    idle: Optional[float] = None
    #: How long to wait, in seconds; None waits until the condition can no longer hold.
    timeout: Optional[float] = None


def wait(transport: Transport, session_id: str, process_id: str, condition: Wait) -> bytes:
    """Waits beyond the longest wait of the server and across lost connections."""
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
                "FAILED_PRECONDITION", f"process {process_id} closed before the condition held"
            )
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"not within {condition.timeout:g} s: {condition}")
        # Check once more: the output may match since before the close. Idleness needs
        # none.
        closed = (
            answer.process.state == process_pb2.PROCESS_STATE_CLOSED and condition.idle is None
        )
