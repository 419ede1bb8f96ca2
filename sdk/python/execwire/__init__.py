"""Execwire: processes and files of other machines.

Output is delivered exactly once, across lost connections.

    import execwire

    with execwire.connect("tcp://127.0.0.1:7420") as server:
        print(server.run("uname -a", check=True).stdout)

``Client`` is the entry point. The generated messages and stubs are in ``execwire.v1``.
"""

from ._client import Client, connect, launch, relay_url
from ._command import TerminalSize
from ._download import Downloaded
from ._events import Closed, Event, Exited, Gap, GapCause, Output, Stream
from ._exit import Exit, ExitCause
from ._follow import Follow
from ._forward import Forward
from ._metadata import FileInfo, FileType
from ._ports import Port, PortChange, Ports, PortWatch
from ._process import Process, Terminated
from ._recording import Recording
from ._screen import ScreenWatch
from ._transfer import Transferred
from ._upload import Uploaded
from ._version import __version__
from ._wait import Wait
from ._watch import Change, ChangeKind, Watch, WatchEvent
from .errors import (
    AlreadyExistsError,
    ChangedError,
    ClosedError,
    Completed,
    ConnectError,
    CredentialError,
    Error,
    ExecwireError,
    ExitError,
    FieldViolation,
    InvalidRequestError,
    IsDirectoryError,
    LimitError,
    LostError,
    NotDirectoryError,
    NotDoneError,
    NotFoundError,
    OutputLimitError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    ProcessEndedError,
    ProcessTimeoutError,
    ProgramNotFoundError,
    ProtocolError,
    RestartedError,
    SandboxError,
    StartError,
    StdinClosedError,
    TakenOverError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
    UsageError,
)
from .files import DirectoryEntry, Files, WalkEntry
from .sandbox import Sandbox

__all__ = [
    "AlreadyExistsError",
    "Change",
    "ChangeKind",
    "ChangedError",
    "Client",
    "Closed",
    "ClosedError",
    "Completed",
    "ConnectError",
    "CredentialError",
    "DirectoryEntry",
    "Downloaded",
    "Error",
    "Event",
    "ExecwireError",
    "Exit",
    "ExitCause",
    "ExitError",
    "Exited",
    "FieldViolation",
    "FileInfo",
    "FileType",
    "Files",
    "Follow",
    "Forward",
    "Gap",
    "GapCause",
    "InvalidRequestError",
    "IsDirectoryError",
    "LimitError",
    "LostError",
    "NotDirectoryError",
    "NotDoneError",
    "NotFoundError",
    "Output",
    "OutputLimitError",
    "PathExistsError",
    "PathNotFoundError",
    "PermissionDeniedError",
    "Port",
    "PortChange",
    "PortWatch",
    "Ports",
    "Process",
    "ProcessEndedError",
    "ProcessTimeoutError",
    "ProgramNotFoundError",
    "ProtocolError",
    "Recording",
    "RestartedError",
    "Sandbox",
    "SandboxError",
    "ScreenWatch",
    "StartError",
    "StdinClosedError",
    "Stream",
    "TakenOverError",
    "TerminalSize",
    "Terminated",
    "Transferred",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "Uploaded",
    "UsageError",
    "Wait",
    "WalkEntry",
    "Watch",
    "WatchEvent",
    "__version__",
    "connect",
    "launch",
    "relay_url",
]
