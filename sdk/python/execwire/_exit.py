"""How processes end."""

from __future__ import annotations

import enum
import signal as _signal
from dataclasses import dataclass
from typing import Optional

from .v1 import process_event_pb2


class ExitCause(enum.Enum):
    """Why a process ended."""

    #: By itself, or by a signal that the server did not send to end it.
    EXITED = process_event_pb2.EXIT_CAUSE_EXITED
    #: By a request, or because its owner did not return in time.
    TERMINATED = process_event_pb2.EXIT_CAUSE_TERMINATED
    #: It ran longer than its timeout.
    TIMEOUT = process_event_pb2.EXIT_CAUSE_TIMEOUT
    #: It exceeded another limit, such as processor time.
    LIMIT = process_event_pb2.EXIT_CAUSE_LIMIT
    #: The server shut down.
    SERVER_SHUTDOWN = process_event_pb2.EXIT_CAUSE_SERVER_SHUTDOWN
    #: It no longer exists, and the operating system reported no status.
    LOST = process_event_pb2.EXIT_CAUSE_LOST
    #: It wrote nothing for longer than its no_output_timeout.
    NO_OUTPUT = process_event_pb2.EXIT_CAUSE_NO_OUTPUT
    #: It ran when the server was restarted; its status and output are not known.
    SERVER_RESTARTED = process_event_pb2.EXIT_CAUSE_SERVER_RESTARTED
    #: A cause that this package does not know, from a newer server.
    UNKNOWN = process_event_pb2.EXIT_CAUSE_UNSPECIFIED

    @classmethod
    def _missing_(cls, value: object) -> "ExitCause":
        return cls.UNKNOWN


@dataclass(frozen=True)
class Exit:
    """How a process ended and what was received from it."""

    #: The id of the process in its session.
    process_id: str
    #: The exit code; None if a signal killed it, or it is unknown.
    code: Optional[int]
    #: The signal that killed the process, or None.
    signal: Optional[int]
    #: Why it ended.
    cause: ExitCause
    #: How long it ran by the server's clock, in seconds.
    wall_time: float = 0.0
    #: The processor time of the process and its waited-for children in user mode, in seconds.
    user_time: float = 0.0
    #: The same in kernel mode.
    system_time: float = 0.0
    #: The maximum resident set in bytes; 0 if it was smaller than that of the server.
    max_resident_bytes: int = 0
    #: How much it wrote to stdout, including dropped bytes.
    stdout_bytes: int = 0
    #: The same of stderr.
    stderr_bytes: int = 0
    #: The same of its terminal.
    terminal_bytes: int = 0
    #: Exactly how many of those were not received because they were evicted. 0 for a
    #: process that was owned from start to end.
    dropped_bytes: int = 0
    #: Whether it was confined and apparently failed because its sandbox denied access.
    sandbox_denied: bool = False
    #: How often the process was resumed after a lost connection.
    resumed: int = 0

    @property
    def ok(self) -> bool:
        """Whether it exited by itself with code 0."""
        return self.code == 0 and self.cause is ExitCause.EXITED

    @property
    def shell_code(self) -> int:
        """The exit status of a shell: the code, 128+n for signal n, or 255."""
        if self.signal is not None:
            return 128 + self.signal
        return 255 if self.code is None else self.code

    def __str__(self) -> str:
        if self.signal is not None:
            try:
                how = f"was killed by {_signal.Signals(self.signal).name}"
            except ValueError:
                how = f"was killed by signal {self.signal}"
        elif self.code is not None:
            how = f"exited with code {self.code}"
        else:
            how = "is gone"
        why = "" if self.cause is ExitCause.EXITED else f" ({self.cause.name})"
        return f"process {self.process_id} {how}{why}"


def new_exit(
    process_id: str,
    record: process_event_pb2.ExitRecord,
    *,
    stdout_bytes: int = 0,
    stderr_bytes: int = 0,
    terminal_bytes: int = 0,
    dropped_bytes: int = 0,
    resumed: int = 0,
) -> Exit:
    """Converts an exit record."""
    status = record.WhichOneof("status")
    return Exit(
        process_id=process_id,
        code=record.exit_code if status == "exit_code" else None,
        signal=int(record.signal) if status == "signal" else None,
        cause=ExitCause(record.cause),
        wall_time=record.wall_time.ToNanoseconds() / 1e9,
        user_time=record.usage.user_time.ToNanoseconds() / 1e9,
        system_time=record.usage.system_time.ToNanoseconds() / 1e9,
        max_resident_bytes=record.usage.max_resident_bytes,
        stdout_bytes=stdout_bytes,
        stderr_bytes=stderr_bytes,
        terminal_bytes=terminal_bytes,
        dropped_bytes=dropped_bytes,
        sandbox_denied=record.sandbox_denied,
        resumed=resumed,
    )
