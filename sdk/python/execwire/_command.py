"""What to run: arguments of run() and start() as a request."""

from __future__ import annotations

import os
import uuid
from typing import Mapping, NamedTuple, Optional, Sequence

from google.protobuf import duration_pb2

from .errors import UsageError
from .sandbox import SandboxLike, policy_of
from .v1 import process_command_pb2


class TerminalSize(NamedTuple):
    """The size of a terminal in characters."""

    rows: int
    columns: int


_INHERIT = {
    "none": process_command_pb2.ENVIRONMENT_INHERIT_NONE,
    "core": process_command_pb2.ENVIRONMENT_INHERIT_CORE,
    "all": process_command_pb2.ENVIRONMENT_INHERIT_ALL,
}


def duration(seconds: float) -> duration_pb2.Duration:
    """Returns a time in seconds as a message."""
    message = duration_pb2.Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def start_request(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Optional[Mapping[str, str]],
    inherit_env: str,
    stdin: bool,
    terminal: Optional[TerminalSize],
    timeout: Optional[float],
    no_output_timeout: Optional[float],
    sandbox: Optional[SandboxLike],
    labels: Optional[Mapping[str, str]],
    leave_descendants: bool,
    process_id: str,
    session_id: str,
) -> process_command_pb2.StartProcessRequest:
    """Returns the request of a start, with an id so that it can be repeated."""
    if isinstance(argv, (str, bytes)):
        raise UsageError(f"argv is a list of strings, such as ['sh', '-c', {argv!r}]")
    if inherit_env not in _INHERIT:
        raise UsageError(f"inherit_env is none, core or all, not {inherit_env!r}")
    direct = process_command_pb2.DirectCommand(
        argv=[os.fspath(argument) for argument in argv],
        working_directory=cwd,
        env=dict(env or {}),
        environment_policy=process_command_pb2.EnvironmentPolicy(inherit=_INHERIT[inherit_env]),
    )
    if sandbox is not None:
        direct.sandbox.CopyFrom(policy_of(sandbox))
    request = process_command_pb2.StartProcessRequest(
        session_id=session_id,
        process_id=process_id or str(uuid.uuid4()),
        command=process_command_pb2.ProcessCommand(direct=direct),
        labels=dict(labels or {}),
        leave_descendants=leave_descendants,
    )
    if terminal is not None:
        request.io.terminal.size.rows, request.io.terminal.size.columns = terminal
    else:
        closed, piped = process_command_pb2.STDIN_MODE_CLOSED, process_command_pb2.STDIN_MODE_PIPE
        request.io.pipes.stdin = piped if stdin else closed
    if timeout is not None:
        request.limits.timeout.CopyFrom(duration(timeout))
    if no_output_timeout is not None:
        request.limits.no_output_timeout.CopyFrom(duration(no_output_timeout))
    return request
