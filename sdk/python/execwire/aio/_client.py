"""The client of a server, for asyncio."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
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
    Union,
    cast,
    overload,
)

import grpc

from .. import errors
from .._client import Client as SyncClient
from .._client import connect as sync_connect
from .._collect import MAX_OUTPUT_BYTES
from .._command import Command, CommandLine, ResourceLimit, Terminal, TerminalSize
from .._events import Event
from .._exit import Exit
from .._forward import Local
from .._forward import Forward as SyncForward
from .._io import OnBytes, as_bytes
from .._owner import OnLost, OnResumed, Owner
from .._path import PathLike
from .._ports import PortChange
from ..errors import Completed
from ..files import WalkEntry
from ..files import Files as SyncFiles
from ..sandbox import SandboxLike
from ..v1 import process_pb2, process_service_pb2
from .._upload import Uploaded
from .._watch import Watch, WatchEvent
from .._process import Process as SyncProcess
from .._terminal import connect_terminal
from .._transfer import OnProgress, Transferred
from .._wait import Wait
from ._process import Process
from ._thread import Change, awaitable, called_here, in_thread, iterate

if TYPE_CHECKING:
    from .._io import Reader, Writer

_BATCH = 1000  # entries of a walk fetched together


class Files:
    """Files of the server: execwire.Files for asyncio.

    A cancelled task stops waiting; the server may still execute its call. An upload is
    aborted, and leaves the previous file. Readers, writers and ``on_progress`` are called in
    other threads.
    """

    def __init__(self, files: SyncFiles) -> None:
        self._sync = files

    edit = awaitable(SyncFiles.edit)
    download = awaitable(SyncFiles.download)
    download_file = awaitable(SyncFiles.download_file)
    stat = awaitable(SyncFiles.stat)
    lstat = awaitable(SyncFiles.lstat)
    realpath = awaitable(SyncFiles.realpath)
    exists = awaitable(SyncFiles.exists)
    list = awaitable(SyncFiles.list)
    glob = awaitable(SyncFiles.glob)
    chmod = awaitable(SyncFiles.chmod)
    mkdir = awaitable(SyncFiles.mkdir)
    remove = awaitable(SyncFiles.remove)
    rename = awaitable(SyncFiles.rename)
    copy = awaitable(SyncFiles.copy)
    symlink = awaitable(SyncFiles.symlink)

    @overload
    async def read(self, path: PathLike, *, text: Literal[False] = False) -> bytes: ...

    @overload
    async def read(self, path: PathLike, *, text: Literal[True]) -> str: ...

    async def read(self, path: PathLike, *, text: bool = False) -> Union[str, bytes]:
        """Returns the content of a file, of any size; with ``text`` decoded as UTF-8."""
        content = await in_thread(lambda: self._sync.read(path))
        return content.decode("utf-8") if text else content

    def stream(self, path: PathLike) -> AsyncIterator[bytes]:
        """Iterates over the content of a file, of any size, as it arrives."""
        return iterate(lambda: self._sync.stream(path))

    async def write(
        self, path: PathLike, data: Union[str, bytes], *, mode: Optional[int] = None
    ) -> Uploaded:
        """Replaces the content of a file atomically, or creates it; text as UTF-8."""
        return await self.upload(path, io.BytesIO(as_bytes(data)), mode=mode)

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
        copy = self._sync.transfer(local, path, False, update, delete, ignore, on_progress)
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
        copy = self._sync.transfer(local, path, True, update, delete, ignore, on_progress)
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
        upload = self._sync.uploading(
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
        entries = self._sync.walk(
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
            lambda: self._sync.watch(path, recursive=recursive, ignore=ignore, settle=settle),
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

def _batch(entries: "Iterator[WalkEntry]") -> "Tuple[List[WalkEntry], Optional[errors.Error]]":
    batch: List[WalkEntry] = []
    try:
        batch.extend(itertools.islice(entries, _BATCH))
    except errors.Error as error:  # after the entries before it
        return batch, error
    return batch, None


class Client:
    """A server: execwire.Client for asyncio."""

    def __init__(self, client: SyncClient) -> None:
        self._sync = client
        #: Files of the server.
        self.files = Files(client.files)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._sync.url

    @property
    def channel(self) -> grpc.Channel:
        """The channel of the blocking client, for generated stubs of execwire.v1."""
        return self._sync.channel

    def __repr__(self) -> str:
        return f"<execwire.aio.Client {self.url}>"

    def with_sandbox(self, sandbox: SandboxLike) -> "Client":
        """Returns a client of the same server that confines processes and file calls."""
        return Client(self._sync.with_sandbox(sandbox))

    describe = awaitable(SyncClient.describe)
    start_detached = awaitable(SyncClient.start_detached)
    read = awaitable(SyncClient.read)
    get = awaitable(SyncClient.get)
    terminate = awaitable(SyncClient.terminate)
    ports = awaitable(SyncClient.ports)

    async def start(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        user: str = "",
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
        return await self._own(self._sync.starting(started, grace, lost, resumed))

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
        user: str = "",
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
        self,
        command: CommandLine,
        *,
        text: Literal[False],
        input: Union[str, bytes, None] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[bytes], object]] = None,
        on_stderr: Optional[Callable[[bytes], object]] = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        cwd: Optional[str] = None,
        user: str = "",
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
    ) -> Completed[bytes]: ...

    async def run(
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
        user: str = "",
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
        process = await self._own(self._sync.starting(started, grace, lost, resumed))
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
            self._sync.attaching(id, session_id, after_seq, grace, lost, resumed)
        )

    async def interactive(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        sandbox: Optional[SandboxLike] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
    ) -> Exit:
        """Runs a program at this terminal. If the task is cancelled, it is killed."""
        lost, resumed = called_here(on_lost), called_here(on_resumed)
        process, size = await in_thread(
            lambda: self._sync.starting_here(command, cwd, env, inherit_env, sandbox, lost, resumed),
            drop=_close_started,
        )
        try:
            return await in_thread(lambda: connect_terminal(process, size), process.close)
        finally:
            await asyncio.shield(in_thread(process.close))

    def follow(
        self, id: str, *, session_id: str = "", after_seq: int = 0
    ) -> AsyncIterator[Event]:
        """Iterates over the events of a process, without owning or blocking it."""
        return iterate(
            lambda: self._sync.follow(id, session_id=session_id, after_seq=after_seq)
        )

    def recording(
        self,
        id: str,
        *,
        session_id: str = "",
        version: int = 2,
        live: bool = False,
        title: str = "",
    ) -> AsyncIterator[str]:
        """Iterates over the lines of a recording; see execwire.Client.recording. ``live``
        begins with the first one."""
        return iterate(
            lambda: self._sync.recording(
                id, session_id=session_id, version=version, live=live, title=title
            )
        )

    async def screen(
        self, id: str, *, session_id: str = "", styles: bool = False
    ) -> process_service_pb2.Screen:
        """Returns what the terminal of a process shows; see execwire.Client.screen."""
        return await in_thread(
            lambda: self._sync.screen(id, session_id=session_id, styles=styles)
        )

    def watch_screen(
        self, id: str, *, session_id: str = "", styles: bool = False
    ) -> AsyncIterator[process_service_pb2.Screen]:
        """Iterates over what the terminal of a process shows, until it has closed."""
        return iterate(
            lambda: self._sync.watch_screen(id, session_id=session_id, styles=styles)
        )

    async def wait_for(self, id: str, condition: Wait, *, session_id: str = "") -> bytes:
        """Waits until a condition holds; see execwire.Client.wait_for."""
        waiting = self._sync.waiting(id, condition, session_id)
        return await in_thread(waiting.run, waiting.cancel)

    async def processes(
        self, *, session_id: str = "", last_output_bytes: int = 0
    ) -> AsyncIterator[process_pb2.Process]:
        """Iterates over the processes of a session, including retained closed ones.

        ``last_output_bytes`` is how much of the end of each stream they have in
        ``last_output``, at most 4096.
        """
        for process in await in_thread(
            lambda: list(
                self._sync.processes(session_id=session_id, last_output_bytes=last_output_bytes)
            )
        ):
            yield process

    def watch_ports(
        self, *, session_id: str = "", process_id: str = ""
    ) -> AsyncIterator[PortChange]:
        """Iterates over changes of ports. The first one has those that are open."""
        return iterate(
            lambda: self._sync.watch_ports(session_id=session_id, process_id=process_id)
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
            lambda: self._sync.forward(
                port,
                host=host,
                local=local,
                session_id=session_id,
                max_connections=max_connections,
                on_error=on_error,
            )
        )

    async def _own(self, owner: Owner) -> Process:
        change = Change()
        owner.listen(change)
        try:
            owner.begin_soon()
            while True:
                change.forget()
                info = owner.try_begin()
                if info is not None:
                    return Process(self._sync.owned(owner, info), owner)
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
        await in_thread(self._sync.close)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
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

    async def __aexit__(self, *_: object) -> None:
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
            lambda: sync_connect(
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
