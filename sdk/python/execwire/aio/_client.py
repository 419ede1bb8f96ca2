"""The client of a server, for asyncio."""

from __future__ import annotations

import asyncio
import itertools
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
)

from .. import _client as sync
from .._exit import Completed
from .._owner import Owner
from .._path import PathLike
from ..files import DirectoryEntry, WalkEntry
from ..files import Files as SyncFiles
from ..sandbox import SandboxLike
from ..v1 import environment_pb2
from .._download import Downloaded
from .._metadata import FileInfo
from .._upload import Uploaded
from .._watch import WatchEvent
from ._process import Process
from ._thread import in_thread

if TYPE_CHECKING:
    from .._process import Reader, Writer

_BATCH = 1000  # entries of a walk that are fetched at once


class Files:
    """Files of the server: execwire.Files for asyncio.

    A task that is cancelled stops waiting; what the server was asked for it may do.
    """

    def __init__(self, files: SyncFiles) -> None:
        self._files = files

    async def read(self, path: PathLike) -> bytes:
        """Returns the content of a file, of any size."""
        return await in_thread(lambda: self._files.read(path))

    async def write(self, path: PathLike, data: bytes, *, mode: Optional[int] = None) -> Uploaded:
        """Replaces the content of a file in one step, or makes the file."""
        return await in_thread(lambda: self._files.write(path, data, mode=mode))

    async def download(self, path: PathLike, to: "Writer") -> Downloaded:
        """Writes a file to a writer, which is called in another thread."""
        return await in_thread(lambda: self._files.download(path, to))

    async def upload(self, path: PathLike, source: "Reader") -> Uploaded:
        """Gives a file the content of a reader, which is called in another thread."""
        return await in_thread(lambda: self._files.upload(path, source))

    async def stat(self, path: PathLike, *, sha256: bool = False) -> FileInfo:
        """Describes what a path leads to."""
        return await in_thread(lambda: self._files.stat(path, sha256=sha256))

    async def exists(self, path: PathLike) -> bool:
        """Whether a path leads to something."""
        return await in_thread(lambda: self._files.exists(path))

    async def list(self, path: PathLike) -> "List[DirectoryEntry]":
        """Returns the entries of a directory, sorted by their names."""
        return await in_thread(lambda: self._files.list(path))

    async def walk(self, path: PathLike, **options: Any) -> AsyncIterator[WalkEntry]:
        """Iterates over all that is below a directory; the options are those of
        execwire.Files.walk."""
        entries = self._files.walk(path, **options)
        while True:
            batch = await in_thread(lambda: list(itertools.islice(entries, _BATCH)))
            for entry in batch:
                yield entry
            if len(batch) < _BATCH:
                return

    async def watch(self, path: PathLike, **options: Any) -> AsyncIterator[WatchEvent]:
        """Iterates over what happens in a directory; the options are those of
        execwire.Files.watch. The first event is empty: the watch has begun."""
        watch = await in_thread(lambda: self._files.watch(path, **options))
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
        """Gives what is at one path another one, in one step."""
        await in_thread(lambda: self._files.rename(source, destination, replace=replace))

    async def copy(
        self, source: PathLike, destination: PathLike, *, recursive: bool = False
    ) -> int:
        """Copies from one path of the server to another."""
        return await in_thread(lambda: self._files.copy(source, destination, recursive=recursive))


class Client:
    """A server: execwire.Client for asyncio."""

    def __init__(self, client: sync.Client) -> None:
        self._client = client
        #: Files of the server.
        self.files = Files(client.files)

    def with_sandbox(self, sandbox: SandboxLike) -> "Client":
        """Returns a client of the same server that confines processes and calls about
        files."""
        return Client(self._client.with_sandbox(sandbox))

    async def describe(self) -> environment_pb2.GetEnvironmentResponse:
        """Describes the server and its machine."""
        return await in_thread(self._client.describe)

    async def start(self, argv: Sequence[str], **options: Any) -> Process:
        """Starts a process and owns it; the options are those of execwire.Client.start.

        A task that is cancelled before it runs leaves nothing behind.
        """
        return await self._own(lambda: self._client.starting(argv, **options))

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: Optional[bytes] = None,
        check: bool = False,
        max_output_bytes: int = 256 << 20,
        **options: Any,
    ) -> Completed:
        """Runs a process to its end; the other options are those of execwire.Client.run.

        A task that is cancelled ends the process.
        """
        async with await self.start(argv, stdin=input is not None, **options) as process:
            completed = await process.communicate(input, max_output_bytes=max_output_bytes)
        return completed.check() if check else completed

    async def attach(
        self,
        process_id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        grace: Optional[float] = None,
    ) -> Process:
        """Takes up a process that is there and owns it from now on."""
        return await self._own(
            lambda: self._client.attaching(process_id, session_id, after_seq, grace)
        )

    async def _own(self, make: "Callable[[], Owner]") -> Process:
        owner = await in_thread(make)

        def undo() -> None:
            if not owner.found:
                owner.kill()
            owner.let_go()

        process = await in_thread(lambda: self._client.own(owner), undo)
        return Process(process, owner)

    async def close(self) -> None:
        """Ends all calls, processes that were started from here, and the connection."""
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


async def connect(url: str, **options: Any) -> Client:
    """Connects to a server; the options are those of execwire.connect."""
    return Client(await in_thread(lambda: sync.connect(url, **options)))


async def launch(*, program: Optional[str] = None) -> Client:
    """Starts a server for this program alone, and connects to it."""
    return await connect("local:", program=program)
