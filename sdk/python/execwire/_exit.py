"""How processes end, and what run() returns."""

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
    #: Somebody asked the server to, or its owner did not return in time.
    TERMINATED = process_event_pb2.EXIT_CAUSE_TERMINATED
    #: It ran longer than its timeout.
    TIMEOUT = process_event_pb2.EXIT_CAUSE_TIMEOUT
    #: It exceeded another limit, such as processor time.
    LIMIT = process_event_pb2.EXIT_CAUSE_LIMIT
    #: The server shut down.
    SERVER_SHUTDOWN = process_event_pb2.EXIT_CAUSE_SERVER_SHUTDOWN
    #: It is gone and the operating system did not say how.
    LOST = process_event_pb2.EXIT_CAUSE_LOST
    #: It wrote nothing for longer than its no_output_timeout.
    NO_OUTPUT = process_event_pb2.EXIT_CAUSE_NO_OUTPUT
    #: The server is newer than this package, and knows another cause.
    UNKNOWN = process_event_pb2.EXIT_CAUSE_UNSPECIFIED

    @classmethod
    def _missing_(cls, value: object) -> "ExitCause":
        return cls.UNKNOWN


@dataclass(frozen=True)
class Exit:
    """How a process ended and what was received of it."""

    process_id: str
    #: What the process passed to exit; None if a signal killed it, or the operating
    #: system did not say.
    code: Optional[int]
    #: What killed the process, or None.
    signal: Optional[int]
    cause: ExitCause
    #: How long it ran by the server's clock, in seconds.
    wall_time: float = 0.0
    #: The processor time that it and those it waited for used, in seconds.
    user_time: float = 0.0
    system_time: float = 0.0
    #: The largest resident set in bytes; 0 if it was smaller than the server's own.
    max_resident_bytes: int = 0
    #: How much it wrote, what was dropped included.
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    terminal_bytes: int = 0
    #: Exactly how much of that was not received, because it was not kept. 0 for a
    #: process that was owned from its start to its end.
    dropped_bytes: int = 0
    #: Whether it was confined and seems to have failed for want of what its sandbox
    #: denies it.
    sandbox_denied: bool = False
    #: How often the connection was lost and the process taken up again.
    resumed: int = 0

    @property
    def ok(self) -> bool:
        """Whether it exited by itself with code 0."""
        return self.code == 0 and self.cause is ExitCause.EXITED

    @property
    def shell_code(self) -> int:
        """What a shell would show: the code, 128+n for signal n, or 255."""
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
    """Returns the exit that a record tells."""
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


@dataclass(frozen=True)
class Completed:
    """A process that ran to its end, and what it wrote."""

    exit: Exit
    #: What it wrote to stdout, or to its terminal; empty if that went to a file.
    stdout: bytes = b""
    #: What it wrote to stderr; empty if that went to a file.
    stderr: bytes = b""

    @property
    def text(self) -> str:
        """What it wrote to stdout, as UTF-8, with U+FFFD for what is not."""
        return self.stdout.decode("utf-8", "replace")

    def check(self) -> "Completed":
        """Returns itself, or raises ExitError if the process did not succeed."""
        if not self.exit.ok:
            from .errors import ExitError

            raise ExitError(self)
        return self
