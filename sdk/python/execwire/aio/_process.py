"""A process owned by this client, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Literal,
    Optional,
    Union,
    overload,
)

from .. import errors
from .._collect import MAX_OUTPUT_BYTES, Collector
from .._events import Event, Output, Stream
from .._exit import Exit
from .._io import as_bytes
from .._owner import Owner
from .._ports import PortChange
from .._process import Lines
from .._process import Process as SyncProcess
from .._wait import Wait
from ..errors import Completed
from ._thread import Change, awaitable, in_thread, iterate

if TYPE_CHECKING:
    from .._io import Writer


class Process:
    """A process, its input and its output: execwire.Process for asyncio.

    Its output is buffered until it is consumed; until then the process blocks. With
    ``async with``, a started process is killed at the end of the block. Cancelling a
    task does not affect the process.
    """

    def __init__(self, process: SyncProcess, owner: Owner) -> None:
        self._sync, self._owner, self._lines = process, owner, Lines()
        #: The id of the process in its session.
        self.id: str = process.id
        #: The session; empty is the default session.
        self.session_id: str = process.session_id
        #: Its pid on the server, for information.
        self.pid: int = process.pid
        #: Whether its descriptors 0, 1 and 2 are a terminal.
        self.has_terminal: bool = process.has_terminal
        #: The description of the server at its start.
        self.info = process.info

    def __repr__(self) -> str:
        return f"<execwire.aio.Process {self.id} pid={self.pid}>"

    signal = awaitable(SyncProcess.signal)
    interrupt = awaitable(SyncProcess.interrupt)
    resize = awaitable(SyncProcess.resize)
    terminate = awaitable(SyncProcess.terminate)
    kill = awaitable(SyncProcess.kill)
    ports = awaitable(SyncProcess.ports)
    detach = awaitable(SyncProcess.detach)

    async def events(self) -> AsyncIterator[Event]:
        """Iterates over events until the process has closed.

        Each event is delivered to one iteration, and consumed when the next one is
        requested. Raises LostError, or another error if events end before the process
        does.
        """
        owner, change = self._owner, Change()
        owner.add_iterator()
        owner.listen(change)
        try:
            while True:
                change.forget()
                there, event = owner.try_next()
                if not there:
                    await change.wait()
                    continue
                if event is None:
                    return
                try:
                    yield event
                finally:
                    owner.take(event)
        finally:
            owner.unlisten(change)
            owner.remove_iterator()

    async def output(self, stream: Optional[Stream] = None) -> AsyncIterator[bytes]:
        """Iterates over output: of one stream, or of all."""
        async for event in self.events():
            if isinstance(event, Output) and (stream is None or event.stream is stream):
                yield event.data

    async def lines(self, stderr: "Optional[Writer]" = None) -> AsyncIterator[bytes]:
        """Iterates over the lines of stdout or the terminal, with their line ends.

        stderr is written to ``stderr``, or discarded. Consumed but undelivered lines,
        also after a cancellation, are kept for the next iteration.
        """
        lines = self._lines
        while lines.whole:
            yield lines.whole.popleft()
        async for event in self.events():
            lines.take(event, stderr)
            while lines.whole:
                yield lines.whole.popleft()
        lines.end()
        while lines.whole:
            yield lines.whole.popleft()

    async def wait(self, timeout: Optional[float] = None) -> Exit:
        """Blocks until the process has closed, and returns how it ended. Output without a
        consumer is consumed meanwhile. Raises TimeoutError after ``timeout`` seconds."""
        if timeout is not None:
            try:
                return await asyncio.wait_for(self.wait(), timeout)
            except asyncio.TimeoutError:
                raise TimeoutError(
                    f"process {self.id} has not ended after {timeout} s"
                ) from None
        change = Change()
        self._owner.listen(change)
        try:
            while True:
                change.forget()
                exit = self._owner.try_wait()
                if exit is not None:
                    return exit
                await change.wait()
        finally:
            self._owner.unlisten(change)

    async def write(self, data: Union[str, bytes]) -> None:
        """Writes to the stdin of the process, and blocks while a window of input is
        unaccepted. A cancelled task may have written a part."""
        left = memoryview(as_bytes(data))
        change = Change()
        self._owner.listen(change)
        try:
            while True:
                change.forget()
                left = left[self._owner.write(left, 0) :]
                if not left:
                    return
                await change.wait()
        finally:
            self._owner.unlisten(change)

    @overload
    async def communicate(
        self,
        input: Union[str, bytes, None] = None,
        *,
        text: Literal[True] = True,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> Completed[str]: ...

    @overload
    async def communicate(
        self,
        input: Union[str, bytes, None] = None,
        *,
        text: Literal[False],
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[bytes], object]] = None,
        on_stderr: Optional[Callable[[bytes], object]] = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> Completed[bytes]: ...

    async def communicate(
        self,
        input: Union[str, bytes, None] = None,
        *,
        text: bool = True,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[Any], object]] = None,
        on_stderr: Optional[Callable[[Any], object]] = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> Completed[Any]:
        """Writes input and closes stdin, consumes all output, and waits for the end; the
        options are those of Client.run."""
        feeder = asyncio.ensure_future(self._feed(as_bytes(input or b"")))
        collector = Collector(text, stdout, stderr, on_stdout, on_stderr, max_output_bytes)
        try:
            async for event in self.events():
                await _awaited(collector.take(event))
            for result in collector.rest():
                await _awaited(result)
            exit = await self.wait()
            failure = await feeder
        except BaseException:
            await asyncio.shield(self.close())
            raise
        finally:
            feeder.cancel()
        if failure is not None:
            raise failure
        return collector.end(exit)

    async def _feed(self, input: bytes) -> Optional[errors.UsageError]:
        try:
            if input:
                await self.write(input)
            self.close_stdin()
        except errors.UsageError as error:
            return error
        except errors.Error:
            pass  # the process accepts no more, or is lost, which events() raises
        return None

    def close_stdin(self) -> None:
        """Closes stdin after everything written. It does not block."""
        self._owner.close_stdin()

    def watch_ports(self) -> AsyncIterator[PortChange]:
        """Iterates over changes of these ports, until the process has closed."""
        return iterate(self._sync.watch_ports)

    async def wait_for(
        self,
        pattern: Optional[str] = None,
        *,
        port: Optional[int] = None,
        idle: Optional[float] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Waits for output, a port or silence; see execwire.Process.wait_for."""
        waiting = self._sync.waiting(Wait(pattern, 0, port, idle, timeout))
        return await in_thread(waiting.run, waiting.cancel)

    async def close(self) -> None:
        """Kills the process if it was started here and has not ended."""
        if self._owner.over:
            return
        await in_thread(self._sync.close)

    @property
    def exit(self) -> Optional[Exit]:
        """How the process ended, or None if unknown."""
        return self._owner.exit

    @property
    def last_seq(self) -> int:
        """The seq of the last consumed event, with which ``attach`` can continue."""
        return self._owner.last_seq

    @property
    def resumed(self) -> int:
        """How often the process was resumed after a lost connection."""
        return self._owner.resumed

    async def __aenter__(self) -> "Process":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())


async def _awaited(result: object) -> None:
    if inspect.isawaitable(result):
        await result
