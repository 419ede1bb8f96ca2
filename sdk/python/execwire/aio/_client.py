"""The client of a server, for asyncio."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
    cast,
    overload,
)

import grpc

from .. import _client as sync
from .. import errors
from .._collect import MAX_OUTPUT_BYTES
from .._command import Command, CommandLine, ResourceLimit, Terminal, TerminalSize
from .._events import Event
from .._exit import Exit
from .._forward import Local
from .._forward import Forward as SyncForward
from .._io import OnBytes, as_bytes
from .._owner import OnLost, OnResumed, Owner
from .._path import PathLike
from .._ports import PortChange, Ports
from ..errors import Completed
from ..files import DirectoryEntry, WalkEntry
from ..files import Files as SyncFiles
from ..sandbox import SandboxLike
from ..v1 import environment_pb2, process_pb2
from .._download import Downloaded
from .._metadata import FileInfo
from .._upload import Uploaded
from .._watch import Watch, WatchEvent
from .._process import Process as SyncProcess
from .._process import Terminated
from .._terminal import connect_terminal
from .._transfer import OnProgress, Transferred
from .._wait import Wait
from ._process import Process
from ._thread import Change, called_here, in_thread, iterate

if TYPE_CHECKING:
    from .._io import Reader, Writer

_BATCH = 1000  # entries of a walk fetched together


class Files:
    """Files of the server: execwire.Files for asyncio.

    A cancelled task stops waiting; the server may still execute its call. An upload is
    aborted, and leaves the previous file.
    """

    def __init__(self, files: SyncFiles) -> None:
        self._files = files

    @overload
    async def read(self, path: PathLike, *, text: Literal[False] = False) -> bytes: ...

    @overload
    async def read(self, path: PathLike, *, text: Literal[True]) -> str: ...

    async def read(self, path: PathLike, *, text: bool = False) -> Union[str, bytes]:
        """Returns the content of a file, of any size; with ``text`` decoded as UTF-8."""
        content = await in_thread(lambda: self._files.read(path))
        return content.decode("utf-8") if text else content

    def stream(self, path: PathLike) -> AsyncIterator[bytes]:
        """Iterates over the content of a file, of any size, as it arrives."""
        return iterate(lambda: self._files.stream(path))

    async def write(
        self, path: PathLike, data: Union[str, bytes], *, mode: Optional[int] = None
    ) -> Uploaded:
        """Replaces the content of a file atomically, or creates it; text as UTF-8."""
        return await self.upload(path, io.BytesIO(as_bytes(data)), mode=mode)

    async def edit(self, path: PathLike, old: str, new: str, *, every: bool = False) -> int:
        """Replaces ``old`` in a text file by ``new``, atomically, and returns how often."""
        return await in_thread(lambda: self._files.edit(path, old, new, every=every))

    async def push(
        self,
        local: "os.PathLike[str] | str",
        path: PathLike,
        *,
        update: bool = False,
        delete: bool = False,
        ignore: Sequence[str] = (),
        on_progress: Optional[OnProgress] = None,
    ) -> Transferred:
        """Copies a file or a directory of this machine to ``path``. ``on_progress`` is
        called in other threads."""
        copy = self._files.transfer(local, path, False, update, delete, ignore, on_progress)
        return await in_thread(copy.run, copy.abort)

    async def pull(
        self,
        path: PathLike,
        local: "os.PathLike[str] | str",
        *,
        update: bool = False,
        delete: bool = False,
        ignore: Sequence[str] = (),
        on_progress: Optional[OnProgress] = None,
    ) -> Transferred:
        """Copies a file or a directory of the server to ``local``. ``on_progress`` is
        called in other threads."""
        copy = self._files.transfer(local, path, True, update, delete, ignore, on_progress)
        return await in_thread(copy.run, copy.abort)

    async def sync(
        self,
        local: "os.PathLike[str] | str",
        path: PathLike,
        *,
        delete: bool = False,
        ignore: Sequence[str] = (),
        on_progress: Optional[OnProgress] = None,
    ) -> Transferred:
        """Is ``push`` of what differs."""
        return await self.push(
            local, path, update=True, delete=delete, ignore=ignore, on_progress=on_progress
        )

    async def glob(self, pattern: str) -> "List[str]":
        """Returns the paths that match an absolute pattern, sorted."""
        return await in_thread(lambda: self._files.glob(pattern))

    async def chmod(self, path: PathLike, mode: int) -> None:
        """Sets the permission bits."""
        await in_thread(lambda: self._files.chmod(path, mode))

    async def download(
        self,
        path: PathLike,
        to: "Writer",
        *,
        offset: int = 0,
        length: Optional[int] = None,
        if_version: str = "",
        on_progress: OnBytes = None,
    ) -> Downloaded:
        """Writes a file to a writer, which is called in another thread, as ``on_progress``
        is."""
        return await in_thread(
            lambda: self._files.download(
                path,
                to,
                offset=offset,
                length=length,
                if_version=if_version,
                on_progress=on_progress,
            )
        )

    async def download_file(
        self,
        path: PathLike,
        local: "os.PathLike[str] | str",
        *,
        on_progress: OnBytes = None,
    ) -> Downloaded:
        """Writes a file to a local one, which is replaced when it is complete."""
        return await in_thread(
            lambda: self._files.download_file(path, local, on_progress=on_progress)
        )

    async def upload(
        self,
        path: PathLike,
        source: "Reader",
        *,
        in_place: bool = False,
        mode: Optional[int] = None,
        modify_time_ns: Optional[int] = None,
        if_match_sha256: bytes = b"",
        if_missing: bool = False,
        sync: bool = False,
        upload_id: str = "",
        on_progress: OnBytes = None,
    ) -> Uploaded:
        """Writes the content of a reader, which is called in another thread, to a file."""
        upload = self._files.uploading(
            path,
            source,
            in_place=in_place,
            mode=mode,
            modify_time_ns=modify_time_ns,
            if_match_sha256=if_match_sha256,
            if_missing=if_missing,
            sync=sync,
            upload_id=upload_id,
            on_progress=on_progress,
        )
        return await in_thread(upload.run, upload.abort)

    async def upload_file(self, local: "os.PathLike[str] | str", path: PathLike) -> Uploaded:
        """Uploads a local file with its permission bits."""
        with await in_thread(lambda: open(local, "rb")) as source:
            return await self.upload(path, source, mode=os.fstat(source.fileno()).st_mode & 0o777)

    async def stat(self, path: PathLike, *, sha256: bool = False) -> FileInfo:
        """Describes a file, following links."""
        return await in_thread(lambda: self._files.stat(path, sha256=sha256))

    async def lstat(self, path: PathLike) -> FileInfo:
        """Describes a file without following a link."""
        return await in_thread(lambda: self._files.lstat(path))

    async def realpath(self, path: PathLike) -> str:
        """Returns the path with all links resolved."""
        return await in_thread(lambda: self._files.realpath(path))

    async def exists(self, path: PathLike) -> bool:
        """Whether a path exists, following links."""
        return await in_thread(lambda: self._files.exists(path))

    async def list(self, path: PathLike) -> "List[DirectoryEntry]":
        """Returns the entries of a directory, sorted by name."""
        return await in_thread(lambda: self._files.list(path))

    async def walk(
        self,
        path: PathLike,
        *,
        max_depth: Optional[int] = None,
        max_entries: Optional[int] = None,
        ignore: Sequence[str] = (),
        follow_directory_symlinks: bool = False,
        metadata: bool = False,
    ) -> AsyncIterator[WalkEntry]:
        """Iterates over everything below a directory, breadth first."""
        entries = self._files.walk(
            path,
            max_depth=max_depth,
            max_entries=max_entries,
            ignore=ignore,
            follow_directory_symlinks=follow_directory_symlinks,
            metadata=metadata,
        )
        while True:
            batch, failure = await in_thread(lambda: _batch(entries))
            for entry in batch:
                yield entry
            if failure is not None:
                raise failure
            if len(batch) < _BATCH:
                return

    async def watch(
        self,
        path: PathLike,
        *,
        recursive: bool = False,
        ignore: Sequence[str] = (),
        settle: Optional[float] = None,
    ) -> AsyncIterator[WatchEvent]:
        """Iterates over changes in a directory. The first event is empty: the watch has
        begun."""
        watch = await in_thread(
            lambda: self._files.watch(path, recursive=recursive, ignore=ignore, settle=settle),
            drop=Watch.close,
        )
        try:
            yield WatchEvent()
            while True:
                event = await in_thread(lambda: next(watch, None))
                if event is None:
                    return
                yield event
        finally:
            watch.close()

    async def mkdir(
        self, path: PathLike, *, parents: bool = False, mode: Optional[int] = None
    ) -> None:
        """Makes a directory."""
        await in_thread(lambda: self._files.mkdir(path, parents=parents, mode=mode))

    async def remove(self, path: PathLike, *, recursive: bool = False) -> None:
        """Removes a file, a link or a directory."""
        await in_thread(lambda: self._files.remove(path, recursive=recursive))

    async def rename(
        self, source: PathLike, destination: PathLike, *, replace: bool = True
    ) -> None:
        """Renames atomically."""
        await in_thread(lambda: self._files.rename(source, destination, replace=replace))

    async def copy(
        self, source: PathLike, destination: PathLike, *, recursive: bool = False
    ) -> int:
        """Copies within the server."""
        return await in_thread(lambda: self._files.copy(source, destination, recursive=recursive))

    async def symlink(self, target: PathLike, path: PathLike) -> None:
        """Makes a symbolic link to target."""
        await in_thread(lambda: self._files.symlink(target, path))


def _batch(entries: "Iterator[WalkEntry]") -> "Tuple[List[WalkEntry], Optional[errors.Error]]":
    batch: List[WalkEntry] = []
    try:
        batch.extend(itertools.islice(entries, _BATCH))
    except errors.Error as error:  # after the entries before it
        return batch, error
    return batch, None


class Client:
    """A server: execwire.Client for asyncio."""

    def __init__(self, client: sync.Client) -> None:
        self._client = client
        #: Files of the server.
        self.files = Files(client.files)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._client.url

    @property
    def channel(self) -> grpc.Channel:
        """The channel of the blocking client, for generated stubs of execwire.v1."""
        return self._client.channel

    def __repr__(self) -> str:
        return f"<execwire.aio.Client {self.url}>"

    def with_sandbox(self, sandbox: SandboxLike) -> "Client":
        """Returns a client of the same server that confines processes and file calls."""
        return Client(self._client.with_sandbox(sandbox))

    async def describe(self) -> environment_pb2.GetEnvironmentResponse:
        """Describes the server and its machine."""
        return await in_thread(self._client.describe)

    async def start(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = True,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Process:
        """Starts a process and owns it; the options are those of execwire.Client.start.

        If the task is cancelled, no process is left behind.
        """
        started = Command.of(locals())
        lost, resumed = called_here(on_lost), called_here(on_resumed)
        return await self._own(lambda: self._client.starting(started, grace, lost, resumed))

    @overload
    async def run(
        self,
        command: CommandLine,
        *,
        text: Literal[True] = True,
        input: Union[str, bytes, None] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Completed[str]: ...

    @overload
    async def run(
        self, command: CommandLine, *, text: Literal[False], **options: Any
    ) -> Completed[bytes]: ...

    async def run(  # type: ignore[misc]
        self,
        command: CommandLine,
        *,
        text: bool = True,
        input: Union[str, bytes, None] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[Any], object]] = None,
        on_stderr: Optional[Callable[[Any], object]] = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Completed[Any]:
        """Runs a command to its end; the options are those of execwire.Client.run.

        Callbacks are called in the event loop of the task, and those for output are awaited
        if they return an awaitable. Writers must not block. If the task is cancelled, the process is killed.
        """
        started = Command.of({**locals(), "stdin": input is not None})
        lost, resumed = called_here(on_lost), called_here(on_resumed)
        process = await self._own(lambda: self._client.starting(started, grace, lost, resumed))
        async with process:
            completed = await process.communicate(
                input,
                text=cast("Literal[True]", text),
                stdout=stdout,
                stderr=stderr,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                max_output_bytes=max_output_bytes,
            )
        return completed.finish(check)

    async def attach(
        self,
        id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
    ) -> Process:
        """Takes over an existing process."""
        lost, resumed = called_here(on_lost), called_here(on_resumed)
        return await self._own(
            lambda: self._client.attaching(id, session_id, after_seq, grace, lost, resumed)
        )

    async def interactive(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        sandbox: Optional[SandboxLike] = None,
    ) -> Exit:
        """Runs a program at this terminal. If the task is cancelled, it is killed."""
        process, size = await in_thread(
            lambda: self._client.starting_here(command, cwd, env, inherit_env, sandbox),
            drop=_close_started,
        )
        try:
            return await in_thread(lambda: connect_terminal(process, size), process.close)
        finally:
            await asyncio.shield(in_thread(process.close))

    async def start_detached(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = False,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> process_pb2.Process:
        """Starts a process without an owner, which never blocks on a reader."""
        options = {k: v for k, v in locals().items() if k not in ("self", "command")}
        return await in_thread(lambda: self._client.start_detached(command, **options))

    def follow(
        self, id: str, *, session_id: str = "", after_seq: int = 0
    ) -> AsyncIterator[Event]:
        """Iterates over the events of a process, without owning or blocking it."""
        return iterate(
            lambda: self._client.follow(id, session_id=session_id, after_seq=after_seq)
        )

    async def read(
        self,
        id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        wait: float = 0.0,
        max_bytes: int = 1 << 20,
    ) -> List[Event]:
        """Returns retained events after a cursor that fit into ``max_bytes``."""
        return await in_thread(
            lambda: self._client.read(
                id, session_id=session_id, after_seq=after_seq, wait=wait, max_bytes=max_bytes
            )
        )

    async def wait_for(self, id: str, condition: Wait, *, session_id: str = "") -> bytes:
        """Waits until a condition holds; see execwire.Client.wait_for."""
        waiting = self._client.waiting(id, condition, session_id)
        return await in_thread(waiting.run, waiting.cancel)

    async def get(self, id: str, *, session_id: str = "") -> process_pb2.Process:
        """Describes a process."""
        return await in_thread(lambda: self._client.get(id, session_id=session_id))

    async def processes(self, *, session_id: str = "") -> AsyncIterator[process_pb2.Process]:
        """Iterates over the processes of a session, including retained closed ones."""
        for process in await in_thread(lambda: list(self._client.processes(session_id=session_id))):
            yield process

    async def terminate(
        self, id: str, *, session_id: str = "", grace: float = 5.0
    ) -> Terminated:
        """Ends a process and all its descendants: SIGTERM, and SIGKILL after ``grace``
        seconds."""
        return await in_thread(
            lambda: self._client.terminate(id, session_id=session_id, grace=grace)
        )

    async def ports(self, *, session_id: str = "", process_id: str = "") -> Ports:
        """Returns the TCP ports on which processes listen now."""
        return await in_thread(
            lambda: self._client.ports(session_id=session_id, process_id=process_id)
        )

    def watch_ports(
        self, *, session_id: str = "", process_id: str = ""
    ) -> AsyncIterator[PortChange]:
        """Iterates over changes of ports. The first one has those that are open."""
        return iterate(
            lambda: self._client.watch_ports(session_id=session_id, process_id=process_id)
        )

    def forward(
        self,
        port: int,
        *,
        host: str = "",
        local: Local = 0,
        session_id: str = "",
        max_connections: int = 256,
        on_error: Optional[Callable[[errors.Error], object]] = None,
    ) -> "Forward":
        """Forwards connections, within ``async with``; the options are those of
        execwire.Client.forward. ``on_error`` is called in another thread."""
        return Forward(
            lambda: self._client.forward(
                port,
                host=host,
                local=local,
                session_id=session_id,
                max_connections=max_connections,
                on_error=on_error,
            )
        )

    async def _own(self, make: "Callable[[], Owner]") -> Process:
        owner = await in_thread(make)
        change = Change()
        owner.listen(change)
        try:
            owner.begin_soon()
            while True:
                change.forget()
                info = owner.try_begin()
                if info is not None:
                    return Process(self._client.owned(owner, info), owner)
                await change.wait()
        except errors.Error:
            owner.release()
            raise
        except BaseException:

            def undo() -> None:
                if not owner.existing:
                    owner.kill()
                owner.release()

            await asyncio.shield(in_thread(undo))
            raise
        finally:
            owner.unlisten(change)

    async def close(self) -> None:
        """Ends all calls, kills processes started by this client, and closes the
        connection."""
        await in_thread(self._client.close)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await asyncio.shield(self.close())


def _close_started(started: "Tuple[SyncProcess, TerminalSize]") -> None:
    started[0].close()


class Forward:
    """What Client.forward returns. ``async with`` gives an execwire.Forward, which has the
    ``address`` and the ``port``, and closes it at the end of the block."""

    def __init__(self, open: "Callable[[], SyncForward]") -> None:
        self._open = open

    async def __aenter__(self) -> SyncForward:
        self._forward = await in_thread(self._open, drop=SyncForward.close)
        return self._forward

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await asyncio.shield(in_thread(self._forward.close))


async def connect(
    url: str,
    *,
    token: Optional[str] = None,
    token_file: Optional[str] = None,
    ca_file: Optional[str] = None,
    cert_file: Optional[str] = None,
    key_file: Optional[str] = None,
    timeout: float = 30.0,
    program: Optional[str] = None,
) -> Client:
    """Connects to a server; the options are those of execwire.connect."""
    return Client(
        await in_thread(
            lambda: sync.connect(
                url,
                token=token,
                token_file=token_file,
                ca_file=ca_file,
                cert_file=cert_file,
                key_file=key_file,
                timeout=timeout,
                program=program,
            ),
            drop=lambda client: client.close(),
        )
    )


async def launch(*, program: Optional[str] = None) -> Client:
    """Starts a private server for this program, and connects to it."""
    return await connect("local:", program=program)
