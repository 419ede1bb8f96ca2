"""Requests for processes, from arguments of run() and start()."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from google.protobuf import duration_pb2

from .errors import UsageError
from .sandbox import SandboxLike, policy_of
from .v1 import process_command_pb2


class TerminalSize(NamedTuple):
    """The size of a terminal in characters."""

    #: The height, in lines.
    rows: int
    #: The width, in characters.
    columns: int


#: A program with its arguments, or a line for the shell of the server, ``sh -c``.
CommandLine = Union[str, Sequence[str]]
#: Whether a process has a terminal, or its size.
Terminal = Union[bool, Tuple[int, int]]
#: A limit of setrlimit(2), or a soft and a hard one; None is no limit.
ResourceLimit = Union[int, None, Tuple[Optional[int], Optional[int]]]

_UNLIMITED = (1 << 64) - 1


@dataclass(frozen=True)
class Command:
    """The arguments of ``Client.start``."""

    command: CommandLine
    cwd: Optional[str]
    user: str
    env: Optional[Mapping[str, str]]
    inherit_env: str
    stdin: bool
    terminal: Terminal
    timeout: Optional[float]
    no_output_timeout: Optional[float]
    nice: int
    resource_limits: Optional[Mapping[str, ResourceLimit]]
    sandbox: Optional[SandboxLike]
    labels: Optional[Mapping[str, str]]
    leave_descendants: bool
    id: str
    session_id: str

    @classmethod
    def of(cls, arguments: Dict[str, Any]) -> "Command":
        """Takes the fields from the arguments of a method, ``locals()``."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})


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
    if isinstance(command.command, bytes):
        raise UsageError(f"a command is text, not {command.command!r}")
    argv = ["sh", "-c", command.command] if isinstance(command.command, str) else command.command
    if command.inherit_env not in _INHERIT:
        raise UsageError(f"inherit_env is none, core or all, not {command.inherit_env!r}")
    direct = process_command_pb2.DirectCommand(
        argv=[os.fspath(argument) for argument in argv],
        working_directory=command.cwd or "",
        env=dict(command.env or {}),
        environment_policy=process_command_pb2.EnvironmentPolicy(
            inherit=_INHERIT[command.inherit_env]
        ),
    )
    if command.sandbox is not None:
        direct.sandbox.CopyFrom(policy_of(command.sandbox))
    request = process_command_pb2.StartProcessRequest(
        session_id=command.session_id,
        process_id=command.id or str(uuid.uuid4()),
        command=process_command_pb2.ProcessCommand(direct=direct),
        labels=dict(command.labels or {}),
        leave_descendants=command.leave_descendants,
        user=command.user,
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
    if command.nice:
        request.limits.nice = command.nice
    for name, limit in (command.resource_limits or {}).items():
        request.limits.resource_limits.append(_resource_limit(name, limit))
    return request


def _resource_limit(name: str, limit: ResourceLimit) -> process_command_pb2.ResourceLimit:
    if name not in _RESOURCES:
        raise UsageError(f"resource_limits has {name!r}, which is none of {', '.join(_RESOURCES)}")
    soft, hard = limit if isinstance(limit, tuple) else (limit, limit)
    return process_command_pb2.ResourceLimit(
        resource=_RESOURCES[name],
        soft=_UNLIMITED if soft is None else soft,
        hard=_UNLIMITED if hard is None else hard,
    )


_RESOURCES = {
    name[len("LIMITED_RESOURCE_") :].lower(): number
    for name, number in process_command_pb2.LimitedResource.items()
    if number
}
