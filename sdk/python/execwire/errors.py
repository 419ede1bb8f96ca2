"""Errors, typed by why they happened.

Branch on the class, or on ``reason``, never on the message.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Type

import grpc

from ._status import Details, decode

if TYPE_CHECKING:
    from ._exit import Completed, Exit


class Error(Exception):
    """What every error of this package is. Errors can be pickled."""

    def __reduce__(self) -> Tuple[Any, ...]:
        told = None
        if isinstance(self, OSError) and self.errno is not None:
            told = self.errno, self.strerror, self.filename
        return _restore, (type(self), self.args, self.__dict__, told)


def _restore(
    kind: Type[Error], args: Tuple[Any, ...], members: Dict[str, Any], told: Optional[Tuple[Any, ...]]
) -> Error:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(members)
    if told is not None and isinstance(error, OSError):
        _tell(error, *told)
    return error


class UsageError(Error, ValueError):
    """An argument, a URL or a combination of options cannot be meant."""


class CredentialError(Error):
    """A token or a certificate cannot be used, or must not be sent there."""


class ConnectError(Error, ConnectionError):
    """A server could not be reached."""


class ClosedError(Error, ConnectionError):
    """The client was closed, or the process was let go of."""


@dataclass(frozen=True)
class FieldViolation:
    """What is wrong with a field of a request."""

    field: str
    description: str


class ExecwireError(Error):
    """An error that a server answered with."""

    #: The gRPC code, e.g. ``"NOT_FOUND"``.
    code: str
    #: Why, e.g. ``"PROCESS_NOT_FOUND"``: a name of ErrorReason without its prefix.
    #: Empty when the error is not from an execwire server but from what lies between.
    reason: str
    #: The text for people.
    message: str
    #: The fields of the request that are wrong.
    fields: List[FieldViolation]
    #: The process, session or path in question, or empty.
    resource: str
    #: What the reason is documented to carry, e.g. ``limit_bytes``.
    metadata: Dict[str, str]
    #: How long the server asks to wait, in seconds; 0 when it does not ask.
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
            # Where the operating system said nothing, the class says which it is.
            number = getattr(errno, self.metadata.get("errno", ""), self._number)
            _tell(self, number, message, self.resource or None)

    # What errno is of an error that is an OSError too.
    _number = 0

    @property
    def from_server(self) -> bool:
        """Whether an execwire server made the error, and not what lies between."""
        return self.reason != ""

    def __str__(self) -> str:
        more = [
            f"{f.field}: {f.description}" if f.description not in self.message else f.field
            for f in self.fields
            if f.description not in self.message or f.field not in self.message
        ]
        return f"{self.message} ({'; '.join(more)})" if more else self.message


def _tell(error: OSError, number: int, message: str, path: Optional[str]) -> None:
    error.errno, error.strerror, error.filename = number, message, path


class NotFoundError(ExecwireError):
    """What was named is not there, or is somebody else's."""


class PathNotFoundError(NotFoundError, FileNotFoundError):
    """A path, or a part of it, does not exist."""

    _number = errno.ENOENT


class AlreadyExistsError(ExecwireError):
    """What was to be made is there already."""


class PathExistsError(AlreadyExistsError, FileExistsError):
    """A path exists already."""

    _number = errno.EEXIST


class PermissionDeniedError(ExecwireError, PermissionError):
    """The server, or its operating system, does not allow it."""

    _number = errno.EACCES


class IsDirectoryError(ExecwireError, IsADirectoryError):
    """A path is a directory, and the call is not for those."""

    _number = errno.EISDIR


class NotDirectoryError(ExecwireError, NotADirectoryError):
    """A path, or what is before one of its slashes, is not a directory."""

    _number = errno.ENOTDIR


class UnauthenticatedError(ExecwireError):
    """The caller is not known to the server: no token, or a wrong one."""


class InvalidRequestError(ExecwireError, ValueError):
    """A field of the request is malformed; ``fields`` says which."""


class LimitError(ExecwireError):
    """A limit of the server or of its machine was reached; ``metadata`` says which."""


class StartError(ExecwireError):
    """A process could not be started."""


class ProgramNotFoundError(StartError, NotFoundError, FileNotFoundError):
    """The program was not found: no such file, or not in the PATH of the process."""

    _number = errno.ENOENT


class SandboxError(StartError):
    """The sandbox cannot be had; nothing ran, and no file was touched."""


class StdinClosedError(ExecwireError, BrokenPipeError):
    """The process takes no input any more: it, or its caller, has closed it."""

    _number = errno.EPIPE


class ProcessEndedError(ExecwireError, ProcessLookupError):
    """The process has ended, and nothing of it is left to act on."""

    _number = errno.ESRCH


class TakenOverError(ExecwireError):
    """Somebody else owns the process, the session or the upload now."""


class UnavailableError(ExecwireError, ConnectionError):
    """The server cannot be reached, or starts nothing new; try again."""


class UnimplementedError(ExecwireError, NotImplementedError):
    """The server does not have what was asked for."""


class ChangedError(ExecwireError):
    """A file is not what it was taken for: its content, version or digest differs."""


class ProtocolError(Error):
    """A server broke the contract; what was received cannot be trusted to be whole."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the server broke the contract: {problem}")


class LostError(Error, ConnectionError):
    """The connection was lost, and what became of the process cannot be learned."""

    #: The process.
    process_id: str
    #: Whether the server ever said that it runs. If not, whether it ran is not known.
    started: bool
    #: How it ended if that was still told, though perhaps not all of its output.
    exit: "Optional[Exit]"
    #: The seq of the last event that was received.
    last_seq: int
    #: What the last attempt failed with.
    cause: Optional[BaseException]

    def __init__(
        self,
        process_id: str,
        started: bool,
        exit: "Optional[Exit]",
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
            state = "of which it is not known whether it ran"
        super().__init__(self._text(state, lost))
        self.__cause__ = cause

    def _text(self, state: str, lost: float) -> str:
        return (
            f"failed to resume process {self.process_id}, {state}, for {lost:.1f} s: {self.cause}"
        )


class RestartedError(LostError):
    """The server was restarted, which ended the process."""

    def _text(self, state: str, lost: float) -> str:
        return f"the server was restarted; the process {self.process_id} ended with it"


def is_restarted(instance_id: str, error: Optional[BaseException]) -> bool:
    """Whether an error is the answer of another run of the server than the one with the id."""
    answered = error.metadata.get("instance_id", "") if isinstance(error, ExecwireError) else ""
    return bool(instance_id and answered and answered != instance_id)


class OutputLimitError(Error):
    """A process wrote more than was to be kept of it; it was terminated."""

    #: The bound that was passed, in bytes.
    limit_bytes: int

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(
            f"the process wrote more than max_output_bytes, {limit_bytes}: give run() a file "
            "for stdout, or iterate over events"
        )


class ExitError(Error):
    """A process did not succeed, and success was asked for by ``check``."""

    #: What it wrote, and how it ended.
    completed: "Completed"

    def __init__(self, completed: "Completed") -> None:
        self.completed = completed
        tail = completed.stderr[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
        super().__init__(str(completed.exit) + (f": {tail}" if tail else ""))


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
    """Returns the error for what a server answered."""
    reason = details.reason if details else ""
    kind = _BY_REASON.get(reason, _BY_CODE.get(code, ExecwireError))
    return kind(code, message, details)


def from_rpc(error: grpc.RpcError) -> ExecwireError:
    """Restores the typed error from what a call of a generated stub raised."""
    code = error.code().name if isinstance(error, grpc.Call) else "UNKNOWN"
    if not isinstance(error, grpc.Call):
        return make(code, str(error))
    status = b""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            status = value
    return make(code, error.details() or code, decode(status))
