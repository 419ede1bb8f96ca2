"""Waiting for a condition of a process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Optional

import grpc

from . import errors
from ._command import duration
from ._transport import Transport
from .v1 import process_pb2, process_service_pb2


@dataclass(frozen=True)
class Wait:
    """A condition: one of pattern, port and idle, or screen and screen_idle."""

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
    #: Lines of the screen of its terminal that match, in RE2 syntax; see Client.screen.
    screen: Optional[str] = None
    #: For how many seconds the screen has not changed; alone or with screen.
    screen_idle: Optional[float] = None


class Waiting:
    """A wait beyond the longest wait of the server, and across lost connections."""

    def __init__(
        self, transport: Transport, session_id: str, process_id: str, condition: Wait
    ) -> None:
        request = process_service_pb2.WaitProcessRequest(
            session_id=session_id, process_id=process_id
        )
        on_screen = condition.screen is not None or condition.screen_idle is not None
        given = [c for c in (condition.pattern, condition.port, condition.idle) if c is not None]
        if len(given) + on_screen != 1:
            raise errors.UsageError("give one of pattern, port, idle and screen")
        if condition.pattern is not None:
            request.pattern.regular_expression = condition.pattern
            request.pattern.after_seq = condition.after_seq
        elif condition.port is not None:
            request.port.port = check_port(condition.port)
        elif condition.idle is not None:
            request.idle.silence.CopyFrom(duration(condition.idle))
        else:
            request.screen.regular_expression = condition.screen or ""
            request.screen.idle.CopyFrom(duration(condition.screen_idle or 0.0))
        self._transport, self._request, self._condition = transport, request, condition
        self._call: "Optional[grpc.Future[process_service_pb2.WaitProcessResponse]]" = None
        self._cancelled = False

    def cancel(self) -> None:
        """Makes run return, with an error. It may be called by any thread."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    def run(self) -> bytes:
        """Returns the match when the condition holds. See Client.wait_for."""
        timeout = self._condition.timeout
        until = None if timeout is None else time.monotonic() + timeout
        closed = False

        def ask() -> process_service_pb2.WaitProcessResponse:
            if until is not None:
                self._request.wait.CopyFrom(duration(max(0.0, until - time.monotonic())))
            call = self._transport.processes.WaitProcess.future(self._request)
            self._call = call
            if self._cancelled:
                call.cancel()
            try:
                return call.result()
            finally:
                call.cancel()  # after an interrupt

        while True:
            answer = self._transport.repeat(ask)
            if answer.satisfied:
                return answer.match.data
            if closed:
                raise errors.ProcessEndedError(
                    "FAILED_PRECONDITION",
                    f"process {self._request.process_id} closed before the condition held",
                )
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"not within {timeout:g} s: {self._condition}")
            # Check once more: the output may match since before the close. Idleness needs
            # none.
            closed = (
                answer.process.state == process_pb2.PROCESS_STATE_CLOSED
                and self._condition.idle is None
            )


def check_port(port: int) -> int:
    """Returns a port, or raises UsageError."""
    if not 1 <= port <= 65535:
        raise errors.UsageError(f"a port is 1 to 65535, not {port}")
    return port
