"""Types of the generated stubs, as far as this package uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Iterator, Optional, TypeVar

import grpc

from .v1 import (
    environment_pb2,
    environment_pb2_grpc,
    filesystem_pb2,
    filesystem_pb2_grpc,
    filesystem_transfer_pb2,
    filesystem_walk_pb2,
    filesystem_watch_pb2,
    port_pb2,
    port_pb2_grpc,
    process_command_pb2,
    process_run_pb2,
    process_service_pb2,
    process_service_pb2_grpc,
)

_Q = TypeVar("_Q", contravariant=True)
_A = TypeVar("_A", covariant=True)

if TYPE_CHECKING:
    from typing import Protocol

    class Unary(Protocol[_Q, _A]):
        """A call with one request and one response."""

        def __call__(self, request: _Q, timeout: Optional[float] = None) -> _A: ...

        def future(self, request: _Q) -> "grpc.Future[_A]": ...

    class Answers(Protocol[_Q, _A]):
        """A call with one request and a stream of responses."""

        def __call__(
            self, request: _Q, timeout: Optional[float] = None
        ) -> "grpc.CallIterator[_A]": ...

    class Requests(Protocol[_Q, _A]):
        """A call with a stream of requests and one response."""

        def __call__(self, requests: Iterator[_Q], timeout: Optional[float] = None) -> _A: ...

        def future(self, requests: Iterator[_Q]) -> "grpc.Future[_A]": ...

    class Both(Protocol[_Q, _A]):
        """A call with streams in both directions."""

        def __call__(self, requests: Iterator[_Q]) -> "grpc.CallIterator[_A]": ...

else:

    class Unary(Generic[_Q, _A]):
        """See above; at run time it has no members."""

    Answers = Requests = Both = Unary


class Processes:
    """The stub of ProcessService."""

    StartProcess: Unary[
        process_command_pb2.StartProcessRequest, process_service_pb2.StartProcessResponse
    ]
    RunProcess: Both[process_run_pb2.RunProcessRequest, process_run_pb2.RunProcessResponse]
    WatchProcess: Answers[
        process_service_pb2.WatchProcessRequest, process_service_pb2.WatchProcessResponse
    ]
    ReadOutput: Unary[
        process_service_pb2.ReadOutputRequest, process_service_pb2.ReadOutputResponse
    ]
    GetScreen: Unary[
        process_service_pb2.GetScreenRequest, process_service_pb2.GetScreenResponse
    ]
    WatchScreen: Answers[
        process_service_pb2.WatchScreenRequest, process_service_pb2.WatchScreenResponse
    ]
    ResizeTerminal: Unary[
        process_service_pb2.ResizeTerminalRequest, process_service_pb2.ResizeTerminalResponse
    ]
    SignalProcess: Unary[
        process_service_pb2.SignalProcessRequest, process_service_pb2.SignalProcessResponse
    ]
    TerminateProcess: Unary[
        process_service_pb2.TerminateProcessRequest, process_service_pb2.TerminateProcessResponse
    ]
    WaitProcess: Unary[
        process_service_pb2.WaitProcessRequest, process_service_pb2.WaitProcessResponse
    ]
    GetProcess: Unary[
        process_service_pb2.GetProcessRequest, process_service_pb2.GetProcessResponse
    ]
    ListProcesses: Unary[
        process_service_pb2.ListProcessesRequest, process_service_pb2.ListProcessesResponse
    ]


class FileSystem:
    """The stub of FileSystemService."""

    DownloadFile: Answers[
        filesystem_transfer_pb2.DownloadFileRequest, filesystem_transfer_pb2.DownloadFileResponse
    ]
    UploadFile: Requests[
        filesystem_transfer_pb2.UploadFileRequest, filesystem_transfer_pb2.UploadFileResponse
    ]
    GetUpload: Unary[
        filesystem_transfer_pb2.GetUploadRequest, filesystem_transfer_pb2.GetUploadResponse
    ]
    CreateDirectory: Unary[
        filesystem_pb2.CreateDirectoryRequest, filesystem_pb2.CreateDirectoryResponse
    ]
    GetMetadata: Unary[filesystem_pb2.GetMetadataRequest, filesystem_pb2.GetMetadataResponse]
    SetMetadata: Unary[filesystem_pb2.SetMetadataRequest, filesystem_pb2.SetMetadataResponse]
    ReadDirectory: Answers[
        filesystem_pb2.ReadDirectoryRequest, filesystem_pb2.ReadDirectoryResponse
    ]
    RemovePath: Unary[filesystem_pb2.RemovePathRequest, filesystem_pb2.RemovePathResponse]
    CopyPath: Unary[filesystem_pb2.CopyPathRequest, filesystem_pb2.CopyPathResponse]
    RenamePath: Unary[filesystem_pb2.RenamePathRequest, filesystem_pb2.RenamePathResponse]
    CreateSymlink: Unary[
        filesystem_pb2.CreateSymlinkRequest, filesystem_pb2.CreateSymlinkResponse
    ]
    CanonicalizePath: Unary[
        filesystem_pb2.CanonicalizePathRequest, filesystem_pb2.CanonicalizePathResponse
    ]
    WalkDirectory: Answers[
        filesystem_walk_pb2.WalkDirectoryRequest, filesystem_walk_pb2.WalkDirectoryResponse
    ]
    WatchDirectory: Answers[
        filesystem_watch_pb2.WatchDirectoryRequest, filesystem_watch_pb2.WatchDirectoryResponse
    ]


class Environment:
    """The stub of EnvironmentService."""

    GetEnvironment: Unary[
        environment_pb2.GetEnvironmentRequest, environment_pb2.GetEnvironmentResponse
    ]


class Ports:
    """The stub of PortService."""

    ListPorts: Unary[port_pb2.ListPortsRequest, port_pb2.ListPortsResponse]
    WatchPorts: Answers[port_pb2.WatchPortsRequest, port_pb2.WatchPortsResponse]
    ConnectPort: Both[port_pb2.ConnectPortRequest, port_pb2.ConnectPortResponse]


def processes(channel: grpc.Channel) -> Processes:
    """Returns the stub of ProcessService."""
    stub: Any = process_service_pb2_grpc.ProcessServiceStub
    return stub(channel)  # type: ignore[no-any-return]


def files(channel: grpc.Channel) -> FileSystem:
    """Returns the stub of FileSystemService."""
    stub: Any = filesystem_pb2_grpc.FileSystemServiceStub
    return stub(channel)  # type: ignore[no-any-return]


def environment(channel: grpc.Channel) -> Environment:
    """Returns the stub of EnvironmentService."""
    stub: Any = environment_pb2_grpc.EnvironmentServiceStub
    return stub(channel)  # type: ignore[no-any-return]


def ports(channel: grpc.Channel) -> Ports:
    """Returns the stub of PortService."""
    stub: Any = port_pb2_grpc.PortServiceStub
    return stub(channel)  # type: ignore[no-any-return]
