"""Errors, typed by their cause.

Branch on the class, or on ``reason``, never on the message.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, AnyStr, Dict, Generic, List, Optional, Tuple, Type

import grpc

from ._exit import Exit, ExitCause
from ._status import Details, decode


class Error(Exception):
    """The base class of all errors of this package. Errors can be pickled."""

    def __reduce__(self) -> Tuple[Any, ...]:
        os_args = None
        if isinstance(self, OSError) and self.errno is not None:
            os_args = self.errno, self.strerror, self.filename
        return _restore, (type(self), self.args, self.__dict__, os_args)


def _restore(
    kind: Type[Error], args: Tuple[Any, ...], members: Dict[str, Any], os_args: Optional[Tuple[Any, ...]]
) -> Error:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(members)
    if os_args is not None and isinstance(error, OSError):
        _set_os_error(error, *os_args)
    return error


class UsageError(Error, ValueError):
    """An argument, a URL or a combination of options is invalid."""


class CredentialError(Error):
    """A token or certificate is unusable, or must not be sent to this server."""


class ConnectError(Error, ConnectionError):
    """A server could not be reached."""


class ClosedError(Error, ConnectionError):
    """The client, or the process, was closed."""


@dataclass(frozen=True)
class FieldViolation:
    """An invalid field of a request."""

    #: The path of the field in the request.
    field: str
    #: What is wrong with it.
    description: str


class ExecwireError(Error):
    """An error returned by a server."""

    #: The gRPC code, e.g. ``"NOT_FOUND"``.
    code: str
    #: The cause, e.g. ``"PROCESS_NOT_FOUND"``: a name of ErrorReason without its prefix.
    #: Empty if the error comes from an intermediary instead of an execwire server.
    reason: str
    #: The text for people.
    message: str
    #: The invalid fields of the request.
    fields: List[FieldViolation]
    #: The process, session or path concerned, or empty.
    resource: str
    #: The values documented for the reason, e.g. ``limit_bytes``.
    metadata: Dict[str, str]
    #: How long the server asks to wait, in seconds, or 0.
    retry_after: float

    def __init__(self, code: str, message: str, details: Optional[Details] = None) -> None:
        details = details or Details()
        self.code = code
        self.reason = details.reason
        self.message = message
        self.fields = [FieldViolation(name, text) for name, text in details.fields]
        self.resource = details.resource
        self.metadata = dict(details.metadata)
        self.retry_after = details.retry_after
        super().__init__(message)
        if isinstance(self, OSError):
            # Without an errno of the server, that of the class applies.
            number = getattr(errno, self.metadata.get("errno", ""), self._number)
            _set_os_error(self, number, message, self.resource or None)

    # The errno of a class that is also an OSError.
    _number = 0

    @property
    def from_server(self) -> bool:
        """Whether an execwire server returned the error, and not an intermediary."""
        return self.reason != ""

    def __str__(self) -> str:
        more = [
            f"{f.field}: {f.description}" if f.description not in self.message else f.field
            for f in self.fields
            if f.description not in self.message or f.field not in self.message
        ]
        return f"{self.message} ({'; '.join(more)})" if more else self.message


def _set_os_error(error: OSError, number: int, message: str, path: Optional[str]) -> None:
    error.errno, error.strerror, error.filename = number, message, path


class NotFoundError(ExecwireError):
    """It does not exist, or belongs to another principal."""


class PathNotFoundError(NotFoundError, FileNotFoundError):
    """A path, or a part of it, does not exist."""

    _number = errno.ENOENT


class AlreadyExistsError(ExecwireError):
    """It already exists."""


class PathExistsError(AlreadyExistsError, FileExistsError):
    """The path already exists."""

    _number = errno.EEXIST


class PermissionDeniedError(ExecwireError, PermissionError):
    """The server, or its operating system, denies permission."""

    _number = errno.EACCES


class IsDirectoryError(ExecwireError, IsADirectoryError):
    """The path is a directory, which the call does not support."""

    _number = errno.EISDIR


class NotDirectoryError(ExecwireError, NotADirectoryError):
    """The path, or a component of it, is not a directory."""

    _number = errno.ENOTDIR


class UnauthenticatedError(ExecwireError):
    """The server does not authenticate the caller: the token is missing or wrong."""


class InvalidRequestError(ExecwireError, ValueError):
    """A field of the request is invalid; see ``fields``."""


class LimitError(ExecwireError):
    """A limit of the server or its machine was reached; see ``metadata``."""


class StartError(ExecwireError):
    """A process could not be started."""


class ProgramNotFoundError(StartError, NotFoundError, FileNotFoundError):
    """The program was not found: no such file, or not in the PATH of the process."""

    _number = errno.ENOENT


class SandboxError(StartError):
    """The sandbox is unavailable; nothing was run or changed."""


class StdinClosedError(ExecwireError, BrokenPipeError):
    """The process accepts no more input: it, or its caller, has closed it."""

    _number = errno.EPIPE


class ProcessEndedError(ExecwireError, ProcessLookupError):
    """The process has ended, with all its descendants."""

    _number = errno.ESRCH


class TakenOverError(ExecwireError):
    """Another client has taken over the process, session or upload."""


class UnavailableError(ExecwireError, ConnectionError):
    """The server cannot be reached, or is shutting down; try again."""


class NotDoneError(UnavailableError):
    """The connection was lost before the call was sent, or the server is shutting down:
    nothing was done."""


class UnknownError(UnavailableError):
    """The connection was lost during a call that is not idempotent, and therefore not
    repeated: it may or may not have been done."""


class UnimplementedError(ExecwireError, NotImplementedError):
    """The server does not implement the call."""


class ChangedError(ExecwireError):
    """The content, version or digest of a file is not the expected one."""


class ProtocolError(Error):
    """The server violated the contract; received data may be incomplete."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the server broke the contract: {problem}")


class LostError(Error, ConnectionError):
    """The connection was lost and the state of the process is unknown."""

    #: The process.
    process_id: str
    #: Whether the server confirmed that it runs. If not, it may or may not have run.
    started: bool
    #: How it ended, if known, though output may be missing.
    exit: Optional[Exit]
    #: The seq of the last received event.
    last_seq: int
    #: The error of the last attempt.
    cause: Optional[BaseException]

    def __init__(
        self,
        process_id: str,
        started: bool,
        exit: Optional[Exit],
        last_seq: int,
        lost: float,
        cause: Optional[BaseException],
    ) -> None:
        self.process_id, self.started, self.exit = process_id, started, exit
        self.last_seq, self.cause = last_seq, cause
        state = "it was running"
        if exit is not None:
            state = "it had exited"
        elif not started:
            state = "which may or may not have run"
        super().__init__(self._text(state, lost))
        self.__cause__ = cause

    def _text(self, state: str, lost: float) -> str:
        return (
            f"failed to resume process {self.process_id}, {state}, for {lost:.1f} s: {self.cause}"
        )


class RestartedError(LostError):
    """The server was restarted, which ended the process. A start that it had not confirmed
    is not repeated then."""

    def _text(self, state: str, lost: float) -> str:
        if not self.started:
            return (
                "the server was restarted before it answered; "
                f"it is unknown whether the process {self.process_id} was started"
            )
        return f"the server was restarted; the process {self.process_id} ended with it"


def is_restarted(instance_id: str, error: Optional[BaseException]) -> bool:
    """Whether an error comes from another instance of the server than the one with this id."""
    answered = error.metadata.get("instance_id", "") if isinstance(error, ExecwireError) else ""
    return bool(instance_id and answered and answered != instance_id)


class OutputLimitError(Error):
    """A process wrote more than the limit; it was terminated."""

    #: The limit, in bytes.
    limit_bytes: int

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(
            f"the process wrote more than max_output_bytes, {limit_bytes}: give run() a file "
            "for stdout, or iterate over events"
        )


@dataclass(frozen=True)
class Completed(Generic[AnyStr]):
    """The output of a process, and how it ended."""

    #: How it ended.
    exit: Exit
    #: Its stdout or terminal output; empty if that was written elsewhere.
    stdout: AnyStr
    #: Its stderr; empty if that was written elsewhere.
    stderr: AnyStr

    def check(self) -> "Completed[AnyStr]":
        """Returns itself, or raises ExitError if the process did not succeed."""
        return self.finish(True)

    def finish(self, check: bool) -> "Completed[AnyStr]":
        """Returns itself, or raises the error of a run with ``check`` or without."""
        if self.exit.cause in (ExitCause.TIMEOUT, ExitCause.NO_OUTPUT):
            raise ProcessTimeoutError(self)
        if check and not self.exit.ok:
            raise ExitError(self)
        return self


class ExitError(Error):
    """A process did not succeed, with ``check``."""

    #: Its output, and how it ended.
    completed: Completed[Any]

    def __init__(self, completed: Completed[Any]) -> None:
        self.completed = completed
        tail = completed.stderr[-_TAIL_BYTES:]
        if isinstance(tail, bytes):
            tail = tail.decode("utf-8", "replace")
        super().__init__(str(completed.exit) + (f": {tail.strip()}" if tail.strip() else ""))


class ProcessTimeoutError(ExitError, TimeoutError):
    """A process was killed: it ran longer than its timeout, or was silent for longer than
    its no_output_timeout."""


_TAIL_BYTES = 2048

_BY_REASON: Dict[str, Type[ExecwireError]] = {
    "PATH_NOT_FOUND": PathNotFoundError,
    "PATH_ALREADY_EXISTS": PathExistsError,
    "IS_A_DIRECTORY": IsDirectoryError,
    "NOT_A_DIRECTORY": NotDirectoryError,
    "PROGRAM_NOT_FOUND": ProgramNotFoundError,
    "PROGRAM_NOT_EXECUTABLE": StartError,
    "BAD_WORKING_DIRECTORY": StartError,
    "ARGUMENT_LIST_TOO_LONG": StartError,
    "USER_UNAVAILABLE": StartError,
    "COMMAND_FORM_DISABLED": PermissionDeniedError,
    "SANDBOX_UNAVAILABLE": SandboxError,
    "SANDBOX_PATH_UNSAFE": SandboxError,
    "SANDBOX_NOT_STARTED": SandboxError,
    "SANDBOX_TOO_LARGE": SandboxError,
    "STDIN_CLOSED": StdinClosedError,
    "STDIN_NOT_PIPED": StdinClosedError,
    "PROCESS_EXITED": ProcessEndedError,
    "PROCESS_TAKEN_OVER": TakenOverError,
    "SESSION_TAKEN_OVER": TakenOverError,
    "UPLOAD_TAKEN_OVER": TakenOverError,
    "FILE_CHANGED": ChangedError,
    "CONTENT_NOT_MATCHED": ChangedError,
    "DIGEST_MISMATCH": ChangedError,
    "HTTP_DISABLED": UnimplementedError,
}

_BY_CODE: Dict[str, Type[ExecwireError]] = {
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "INVALID_ARGUMENT": InvalidRequestError,
    "RESOURCE_EXHAUSTED": LimitError,
    "UNAVAILABLE": UnavailableError,
    "UNIMPLEMENTED": UnimplementedError,
}


def make(code: str, message: str, details: Optional[Details] = None) -> ExecwireError:
    """Returns the error for the answer of a server."""
    reason = details.reason if details else ""
    kind = _BY_REASON.get(reason, _BY_CODE.get(code, ExecwireError))
    return kind(code, message, details)


# Codes of a call without an answer, and how the message of grpc begins if it was not sent.
_NO_ANSWER = ("UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED", "DEADLINE_EXCEEDED")
_NOT_SENT = ("failed to connect to all addresses", "DNS resolution failed", "Name resolution fail")


def is_unsent(failure: Error) -> bool:
    """Whether a call failed because there was no connection."""
    return isinstance(failure, ExecwireError) and failure.message.startswith(_NOT_SENT)


def interrupted(failure: Error) -> Error:
    """Returns the error of a call that is not idempotent: whether it was done."""
    if not isinstance(failure, ExecwireError) or failure.code not in _NO_ANSWER:
        return failure
    if failure.from_server and not isinstance(failure, UnavailableError):
        return failure
    kind: Type[UnavailableError] = UnknownError
    outcome = "it may or may not have been done"
    if failure.from_server or is_unsent(failure):
        kind, outcome = NotDoneError, "nothing was done"
    details = Details(failure.reason, failure.metadata, [], failure.resource, failure.retry_after)
    return kind(failure.code, f"{failure.message}: {outcome}", details)


def from_rpc(error: grpc.RpcError) -> ExecwireError:
    """Restores the typed error of a call of a generated stub."""
    if not isinstance(error, (grpc.Call, grpc.aio.AioRpcError)):
        return make("UNKNOWN", str(error))
    code, status = error.code().name, b""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            status = value
    return make(code, error.details() or code, decode(status))
