"""Requests for processes, from arguments of run() and start()."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from google.protobuf import duration_pb2

from .errors import UsageError
from .sandbox import SandboxLike, policy_of
from .v1 import process_command_pb2


class TerminalSize(NamedTuple):
    """The size of a terminal in characters."""

    rows: int
    columns: int


#: Whether a process has a terminal, or its size.
Terminal = Union[bool, Tuple[int, int]]


@dataclass(frozen=True)
class Command:
    """The arguments of ``Client.start``."""

    argv: Sequence[str]
    cwd: Optional[str]
    env: Optional[Mapping[str, str]]
    inherit_env: str
    stdin: bool
    terminal: Terminal
    timeout: Optional[float]
    no_output_timeout: Optional[float]
    sandbox: Optional[SandboxLike]
    labels: Optional[Mapping[str, str]]
    leave_descendants: bool
    process_id: str
    session_id: str


_INHERIT = {
    "none": process_command_pb2.ENVIRONMENT_INHERIT_NONE,
    "core": process_command_pb2.ENVIRONMENT_INHERIT_CORE,
    "all": process_command_pb2.ENVIRONMENT_INHERIT_ALL,
}


def duration(seconds: float) -> duration_pb2.Duration:
    """Converts seconds to a message."""
    message = duration_pb2.Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def start_request(command: Command) -> process_command_pb2.StartProcessRequest:
    """Returns the request of a start, with an id so that it can be repeated."""
    if isinstance(command.argv, (str, bytes)):
        raise UsageError(f"argv is a list of strings, such as ['sh', '-c', {command.argv!r}]")
    if command.inherit_env not in _INHERIT:
        raise UsageError(f"inherit_env is none, core or all, not {command.inherit_env!r}")
    direct = process_command_pb2.DirectCommand(
        argv=[os.fspath(argument) for argument in command.argv],
        working_directory=command.cwd,
        env=dict(command.env or {}),
        environment_policy=process_command_pb2.EnvironmentPolicy(
            inherit=_INHERIT[command.inherit_env]
        ),
    )
    if command.sandbox is not None:
        direct.sandbox.CopyFrom(policy_of(command.sandbox))
    request = process_command_pb2.StartProcessRequest(
        session_id=command.session_id,
        process_id=command.process_id or str(uuid.uuid4()),
        command=process_command_pb2.ProcessCommand(direct=direct),
        labels=dict(command.labels or {}),
        leave_descendants=command.leave_descendants,
    )
    if command.terminal is not False:
        size = TerminalSize(24, 80) if command.terminal is True else TerminalSize(*command.terminal)
        request.io.terminal.size.rows, request.io.terminal.size.columns = size
    else:
        closed, piped = process_command_pb2.STDIN_MODE_CLOSED, process_command_pb2.STDIN_MODE_PIPE
        request.io.pipes.stdin = piped if command.stdin else closed
    if command.timeout is not None:
        request.limits.timeout.CopyFrom(duration(command.timeout))
    if command.no_output_timeout is not None:
        request.limits.no_output_timeout.CopyFrom(duration(command.no_output_timeout))
    return request
