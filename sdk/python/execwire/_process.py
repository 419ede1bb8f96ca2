"""A process that runs and is owned from here."""

from __future__ import annotations

import collections
import io
import signal as _signal
import sys
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Deque, Iterable, Iterator, Optional, Type, Union, cast

from . import errors
from ._command import duration
from ._events import Event, Output, Stream
from ._exit import Completed, Exit, new_exit
from ._io import as_bytes, write_all
from ._owner import Owner
from ._stdin import BLOCK_BYTES
from .v1 import process_command_pb2, process_pb2, process_service_pb2

if TYPE_CHECKING:
    from typing import Protocol

    from ._transport import Transport

    class Writer(Protocol):
        """What output can be written to: a binary file, for example."""

        def write(self, data: bytes, /) -> object: ...

    class Reader(Protocol):
        """What input can be read from: a binary file, for example."""

        def read(self, size: int, /) -> bytes: ...


#: What the input of a process can be.
Input = Union[bytes, "Reader", Iterable[bytes]]

_TARGETS = {
    "group": process_command_pb2.SIGNAL_TARGET_GROUP,
    "process": process_command_pb2.SIGNAL_TARGET_PROCESS,
    "foreground": process_command_pb2.SIGNAL_TARGET_FOREGROUND,
}


@dataclass(frozen=True)
class Terminated:
    """How a process was ended."""

    #: Whether it had not exited when the call came.
    was_running: bool
    #: How it ended; None if that was not told.
    exit: Optional[Exit]
    #: Whether the server made sure that no descendant is left.
    verified_empty: bool


class Process:
    """A process, its input and its output.

    It is owned: a lost connection is resumed while the server keeps the process, and
    nothing is lost or told twice. What it writes waits until it is taken, by
    ``events()``, ``lines()``, ``communicate()`` or ``wait()``; meanwhile the process
    blocks once it has written a window (1 MiB by default), as on a pipe that nobody
    reads, and no more than that is kept here. All methods may be called by several
    threads.

    Used by ``with``, a process that was started is ended at the end of the block, and
    one that was attached to is left alone.
    """

    def __init__(self, transport: "Transport", owner: Owner, info: process_pb2.Process) -> None:
        self._transport, self._owner, self._lines = transport, owner, Lines()
        #: The id of the process in its session.
        self.id = owner.process_id
        #: The session; empty is the default session.
        self.session_id = owner.session_id
        #: Its id in the operating system, for people to look at.
        self.pid = info.pid
        #: Whether its descriptors 0, 1 and 2 are a terminal.
        self.has_terminal = info.has_terminal
        #: What the server says of it, as of its start.
        self.info = info

    def __repr__(self) -> str:
        return f"<execwire.Process {self.id} pid={self.pid}>"

    # --- output

    def events(self) -> Iterator[Event]:
        """Iterates over what happens, until the process has closed.

        Every event goes to one iteration, and counts as taken when the next one is
        asked for. Raises LostError, or why else events end before the process does.
        """
        owner = self._owner
        owner.opened()
        try:
            while True:
                event = owner.next()
                if event is None:
                    return
                try:
                    yield event
                finally:
                    owner.take(event)
        finally:
            owner.left()

    def output(self, stream: Optional[Stream] = None) -> Iterator[bytes]:
        """Iterates over output as it comes: that of one stream, or of all.

        That of others is dropped, and so are gaps.
        """
        for event in self.events():
            if isinstance(event, Output) and (stream is None or event.stream is stream):
                yield event.data

    def lines(self, stderr: "Optional[Writer]" = None) -> Iterator[bytes]:
        """Iterates over the lines of stdout, or of the terminal, with their ends.

        What comes on stderr is written to ``stderr``, or dropped. Lines that were taken
        and not asked for are kept for the next time. Raises UsageError for a line of
        more than 64 MiB.
        """
        lines = self._lines
        while lines.whole:
            yield lines.whole.popleft()
        for event in self.events():
            lines.take(event, stderr)
            while lines.whole:
                yield lines.whole.popleft()
        lines.end()
        while lines.whole:
            yield lines.whole.popleft()

    def wait(self, timeout: Optional[float] = None) -> Exit:
        """Blocks until the process has closed, and says how it ended.

        Output that nobody iterates over is taken meanwhile, and its last 1 MiB is kept
        for ``events()``. Raises TimeoutError after ``timeout`` seconds; the process
        goes on.
        """
        return self._owner.wait(timeout)

    def communicate(
        self,
        input: Optional[Input] = None,
        *,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        max_output_bytes: int = 256 << 20,
    ) -> Completed:
        """Writes the input and closes stdin, takes all output, and waits for the end.

        Output of which there is no writer is returned; more than ``max_output_bytes``
        of it ends the process and raises OutputLimitError. Terminals write to
        ``stdout``.
        """
        feeder = None
        if isinstance(input, str):
            raise errors.UsageError("input is bytes: encode text first")
        if input is not None:
            feeder = _Feeder(self, input)
        else:
            self._owner.close_stdin()
        collected = {Stream.STDOUT: io.BytesIO(), Stream.STDERR: io.BytesIO()}
        kept = 0
        try:
            for event in self.events():
                if not isinstance(event, Output):
                    continue
                stream = Stream.STDERR if event.stream is Stream.STDERR else Stream.STDOUT
                writer = stderr if stream is Stream.STDERR else stdout
                if writer is not None:
                    write_all(writer, event.data)
                    continue
                kept += len(event.data)
                if kept > max_output_bytes:
                    raise errors.OutputLimitError(max_output_bytes)
                collected[stream].write(event.data)
            exit = self.wait()
        except BaseException as error:
            self.close()
            if feeder is not None and feeder.failure is not None and isinstance(error, errors.Error):
                raise feeder.failure from None  # which is why the process was closed
            raise
        finally:
            if feeder is not None:
                feeder.stop()
        if feeder is not None and feeder.failure is not None:
            raise feeder.failure
        return Completed(
            exit, collected[Stream.STDOUT].getvalue(), collected[Stream.STDERR].getvalue()
        )

    # --- input

    def write(self, data: bytes) -> None:
        """Writes to the stdin of the process.

        It blocks while a window of input (1 MiB by default) was not accepted. Raises
        StdinClosedError when the process takes no more.
        """
        self._owner.write(as_bytes(data))

    def close_stdin(self) -> None:
        """Closes stdin after what was written. It does not block.

        A terminal gets its end-of-file character.
        """
        self._owner.close_stdin()

    # --- control

    def signal(self, number: int, target: str = "group") -> None:
        """Sends a signal to the process ``group``, the ``process``, or the ``foreground``
        group of its terminal. It is not sent twice: raises UnavailableError when the
        connection was lost in the middle."""
        if target not in _TARGETS:
            raise errors.UsageError(f"target is group, process or foreground, not {target!r}")
        request = process_service_pb2.SignalProcessRequest(
            session_id=self.session_id,
            process_id=self.id,
            target=_TARGETS[target],
        )
        setattr(request, "signal", int(number))  # also one without a name
        self._transport.once(lambda: self._transport.processes.SignalProcess(request))

    def interrupt(self) -> None:
        """Sends SIGINT, what Ctrl-C sends."""
        self.signal(_signal.SIGINT, "foreground" if self.has_terminal else "group")

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the terminal."""
        request = process_service_pb2.ResizeTerminalRequest(
            session_id=self.session_id,
            process_id=self.id,
            size=process_command_pb2.TerminalSize(rows=rows, columns=columns),
        )
        self._transport.repeat(lambda: self._transport.processes.ResizeTerminal(request))

    def terminate(self, grace: float = 5.0) -> Terminated:
        """Ends the process and all its descendants, and blocks until none is left.

        They get SIGTERM, and SIGKILL after ``grace`` seconds.
        """
        return self._terminate(graceful(grace))

    def kill(self) -> Terminated:
        """Ends the process and all its descendants at once, by SIGKILL."""
        return self._terminate(
            process_command_pb2.Termination(force=process_command_pb2.ForcedTermination())
        )

    def _terminate(self, termination: process_command_pb2.Termination) -> Terminated:
        return terminate(self._transport, self.session_id, self.id, termination)

    # --- the end

    @property
    def exit(self) -> Optional[Exit]:
        """How the process ended, or None as long as that is not known. It never blocks."""
        return self._owner.exit

    @property
    def last_seq(self) -> int:
        """The seq of the last event that was taken: where ``attach`` can go on."""
        return self._owner.last_seq

    @property
    def resumed(self) -> int:
        """How often the connection was lost and the process taken up again."""
        return self._owner.resumed

    def detach(self) -> None:
        """Gives the process up: it goes on without an owner, and can be attached to.

        Input that was written is passed on, unless the process takes longer than a
        second to accept it.
        """
        self._owner.detach()

    def close(self) -> None:
        """Ends the process if it was started from here and has not ended, and lets go of it.

        One that was attached to is given up and goes on. Closing twice is no error.
        """
        owner = self._owner
        if not owner.ended and not self._transport.closed.is_set():
            if owner.found:
                self._try_to_detach()
            else:
                owner.kill()
        owner.let_go()

    def _try_to_detach(self) -> None:
        thread = threading.Thread(target=self._detach_quietly, daemon=True)
        thread.start()
        thread.join(_CLOSE_TIMEOUT)  # where the server is gone, the grace ends the process

    def _detach_quietly(self) -> None:
        try:
            self._owner.detach()
        except errors.Error:
            pass

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


def graceful(seconds: float) -> process_command_pb2.Termination:
    """Returns a termination that asks before it kills."""
    return process_command_pb2.Termination(
        graceful=process_command_pb2.GracefulTermination(timeout=duration(seconds))
    )


def terminate(
    transport: "Transport",
    session_id: str,
    process_id: str,
    termination: process_command_pb2.Termination,
) -> Terminated:
    """Ends a process, and blocks until nothing is left of it."""
    request = process_service_pb2.TerminateProcessRequest(
        session_id=session_id, process_id=process_id, termination=termination
    )
    answer = transport.repeat(lambda: transport.processes.TerminateProcess(request))
    exit = new_exit(process_id, answer.exit) if answer.HasField("exit") else None
    return Terminated(answer.was_running, exit, answer.verified_empty)


_LINE_BYTES = 64 << 20
_CLOSE_TIMEOUT = 5.0


class Lines:
    """The lines of a process that were taken and not asked for yet."""

    def __init__(self) -> None:
        #: Those that are whole.
        self.whole: "Deque[bytes]" = collections.deque()
        self._rest = io.BytesIO()

    def take(self, event: Event, stderr: "Optional[Writer]") -> None:
        """Cuts output into lines, and passes on what is for stderr."""
        if not isinstance(event, Output):
            return
        if event.stream is Stream.STDERR:
            if stderr is not None:
                write_all(stderr, event.data)
            return
        *ends, rest = event.data.split(b"\n")
        for end in ends:
            self._rest.write(end + b"\n")
            self.whole.append(self._rest.getvalue())
            self._rest = io.BytesIO()
        self._rest.write(rest)
        if self._rest.tell() > _LINE_BYTES:
            raise errors.UsageError(f"a line has more than {_LINE_BYTES} bytes: use output()")

    def end(self) -> None:
        """Takes what came after the last line for one."""
        if self._rest.tell():
            self.whole.append(self._rest.getvalue())
            self._rest = io.BytesIO()


class _Feeder:
    """Writes input beside whoever takes output."""

    def __init__(self, process: Process, input: Input) -> None:
        self._process, self._input = process, input
        # An interpreter that ends while a thread reads sys.stdin.buffer would abort in
        # closing sys.stdin, unless that thread holds it.
        self._held = sys.stdin, sys.__stdin__
        self._stopped = threading.Event()
        #: Why the input could not be read, if so.
        self.failure: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, name="execwire input", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for piece in _pieces(self._input, self._stopped.is_set):
                if self._stopped.is_set():
                    return
                self._process.write(piece)
            self._process.close_stdin()
        except errors.UsageError as error:
            self.failure = error
        except errors.Error:
            return  # the process takes no more, or is lost, which events() tells
        except BaseException as error:
            self.failure = error
            self._process.close()

    def stop(self) -> None:
        """Ends the feeding. A read that is going on is left alone; its result is dropped."""
        self._stopped.set()
        if isinstance(self._input, (bytes, bytearray, memoryview)):
            self._thread.join()


def _pieces(input: Input, stopped: Callable[[], bool]) -> Iterator[bytes]:
    if isinstance(input, (bytes, bytearray, memoryview)):
        if len(input):  # that there is none is said also when the process is over
            yield bytes(input)
        return
    # What there is, and not only when a buffer is full.
    read = getattr(input, "read1", None) or getattr(input, "read", None)
    if read is None:
        yield from cast("Iterable[bytes]", input)
        return
    while not stopped():
        piece = read(BLOCK_BYTES)
        if not piece:
            return
        yield piece

