"""A process that is owned from here, for asyncio."""

from __future__ import annotations

import asyncio
import io
from types import TracebackType
from typing import AsyncIterator, Optional, Type

from .. import _process as sync
from .. import errors
from .._events import Event, Output, Stream
from .._exit import Completed, Exit
from .._io import as_bytes
from .._owner import Owner
from .._process import Terminated
from ._thread import Change, in_thread


class Process:
    """A process, its input and its output: execwire.Process for asyncio.

    What it writes waits until it is taken, and so does the process. Used by ``async
    with``, a process that was started is ended at the end of the block. A task that is
    cancelled leaves the process as it is.
    """

    def __init__(self, process: sync.Process, owner: Owner) -> None:
        self._process, self._owner, self._lines = process, owner, sync.Lines()
        self.id, self.session_id = process.id, process.session_id
        self.pid, self.has_terminal = process.pid, process.has_terminal
        self.info = process.info

    def __repr__(self) -> str:
        return f"<execwire.aio.Process {self.id} pid={self.pid}>"

    async def events(self) -> AsyncIterator[Event]:
        """Iterates over what happens, until the process has closed.

        Every event goes to one iteration, and counts as taken when the next one is
        asked for. Raises LostError, or why else events end before the process does.
        """
        owner, change = self._owner, Change()
        owner.opened()
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
            owner.left()

    async def output(self, stream: Optional[Stream] = None) -> AsyncIterator[bytes]:
        """Iterates over output as it comes: that of one stream, or of all."""
        async for event in self.events():
            if isinstance(event, Output) and (stream is None or event.stream is stream):
                yield event.data

    async def lines(self, stderr: "Optional[sync.Writer]" = None) -> AsyncIterator[bytes]:
        """Iterates over the lines of stdout, or of the terminal, with their ends.

        What comes on stderr is written to ``stderr``, or dropped. Lines that were taken
        and not asked for, also because a step was cancelled, are kept for the next time.
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

    async def wait(self) -> Exit:
        """Blocks until the process has closed, and says how it ended. Output that nobody
        iterates over is taken meanwhile."""
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

    async def write(self, data: bytes) -> None:
        """Writes to the stdin of the process, and blocks while a window of input was not
        accepted. A task that is cancelled may have written a part."""
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

    async def communicate(
        self, input: Optional[bytes] = None, *, max_output_bytes: int = 256 << 20
    ) -> Completed:
        """Writes the input and closes stdin, takes all output, and waits for the end."""
        feeder = asyncio.ensure_future(self._feed(as_bytes(input or b"")))
        collected = {Stream.STDOUT: io.BytesIO(), Stream.STDERR: io.BytesIO()}
        kept = 0
        try:
            async for event in self.events():
                if isinstance(event, Output):
                    kept += len(event.data)
                    if kept > max_output_bytes:
                        raise errors.OutputLimitError(max_output_bytes)
                    stream = Stream.STDERR if event.stream is Stream.STDERR else Stream.STDOUT
                    collected[stream].write(event.data)
            exit = await self.wait()
            failure = await feeder
        except BaseException:
            await asyncio.shield(self.close())
            raise
        finally:
            feeder.cancel()
        if failure is not None:
            raise failure
        stdout, stderr = collected[Stream.STDOUT], collected[Stream.STDERR]
        return Completed(exit, stdout.getvalue(), stderr.getvalue())

    async def _feed(self, input: bytes) -> Optional[errors.UsageError]:
        try:
            if input:
                await self.write(input)
            self.close_stdin()
        except errors.UsageError as error:
            return error
        except errors.Error:
            pass  # the process takes no more, or is lost, which events() tells
        return None

    def close_stdin(self) -> None:
        """Closes stdin after what was written. It does not block."""
        self._owner.close_stdin()

    async def signal(self, number: int, target: str = "group") -> None:
        """Sends a signal to the process ``group``, the ``process`` or the ``foreground``."""
        await in_thread(lambda: self._process.signal(number, target))

    async def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the terminal."""
        await in_thread(lambda: self._process.resize(rows, columns))

    async def terminate(self, grace: float = 5.0) -> Terminated:
        """Ends the process and all its descendants: SIGTERM, and SIGKILL after a while."""
        return await in_thread(lambda: self._process.terminate(grace))

    async def kill(self) -> Terminated:
        """Ends the process and all its descendants at once."""
        return await in_thread(self._process.kill)

    async def detach(self) -> None:
        """Gives the process up: it goes on without an owner."""
        await in_thread(self._owner.detach)

    async def close(self) -> None:
        """Ends the process if it was started from here and has not ended."""
        await in_thread(self._process.close)

    @property
    def exit(self) -> Optional[Exit]:
        """How the process ended, or None as long as that is not known."""
        return self._owner.exit

    @property
    def resumed(self) -> int:
        """How often the connection was lost and the process taken up again."""
        return self._owner.resumed

    async def __aenter__(self) -> "Process":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await asyncio.shield(self.close())
