"""A process owned by this client."""

from __future__ import annotations

import collections
import io
import signal as _signal
import sys
import threading
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Iterable,
    Iterator,
    Literal,
    Optional,
    Union,
    cast,
    overload,
)

from . import errors
from ._collect import MAX_OUTPUT_BYTES, Collector
from ._command import duration
from ._events import Event, Output, Stream
from ._exit import Exit, new_exit
from ._io import as_bytes, write_all
from ._owner import Owner
from ._ports import Ports, PortWatch, list_ports
from ._stdin import BLOCK_BYTES
from ._wait import Wait, Waiting
from .v1 import process_command_pb2, process_pb2, process_service_pb2

if TYPE_CHECKING:
    from ._io import Reader, Writer
    from ._transport import Transport

#: Input of a process.
Input = Union[str, bytes, "Reader", Iterable[bytes]]

_TARGETS = {
    "group": process_command_pb2.SIGNAL_TARGET_GROUP,
    "process": process_command_pb2.SIGNAL_TARGET_PROCESS,
    "foreground": process_command_pb2.SIGNAL_TARGET_FOREGROUND,
}


@dataclass(frozen=True)
class Terminated:
    """The result of terminate()."""

    #: Whether it had not exited before.
    was_running: bool
    #: How it ended; None if unknown.
    exit: Optional[Exit]
    #: Whether the server verified that no descendant is left.
    verified_empty: bool


class Process:
    """A process, its input and its output.

    It is owned: a lost connection is resumed while the server keeps the process, and
    nothing is lost or delivered twice. Its output is buffered until it is consumed by
    ``events()``, ``lines()``, ``communicate()`` or ``wait()``; until then the process
    blocks after one window (1 MiB by default), as on an unread pipe, and no more than
    that is buffered here. All methods may be called by several threads.

    With ``with``, a started process is killed at the end of the block, and an attached
    one continues.
    """

    def __init__(self, transport: "Transport", owner: Owner, info: process_pb2.Process) -> None:
        self._transport, self._owner, self._lines = transport, owner, Lines()
        #: The id of the process in its session.
        self.id: str = owner.process_id
        #: The session; empty is the default session.
        self.session_id: str = owner.session_id
        #: Its pid on the server, for information.
        self.pid: int = info.pid
        #: Whether its descriptors 0, 1 and 2 are a terminal.
        self.has_terminal: bool = info.has_terminal
        #: The description of the server at its start.
        self.info = info

    def __repr__(self) -> str:
        return f"<execwire.Process {self.id} pid={self.pid}>"

    # --- output

    def events(self) -> Iterator[Event]:
        """Iterates over events until the process has closed.

        Each event is delivered to one iteration, and consumed when the next one is
        requested. Raises LostError, or another error if events end before the process
        does.
        """
        owner = self._owner
        owner.add_iterator()
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
            owner.remove_iterator()

    def output(self, stream: Optional[Stream] = None) -> Iterator[bytes]:
        """Iterates over output: of one stream, or of all.

        Output of other streams is discarded, and so are gaps.
        """
        for event in self.events():
            if isinstance(event, Output) and (stream is None or event.stream is stream):
                yield event.data

    def lines(self, stderr: "Optional[Writer]" = None) -> Iterator[bytes]:
        """Iterates over the lines of stdout or the terminal, with their line ends.

        stderr is written to ``stderr``, or discarded. Consumed but undelivered lines are
        kept for the next iteration. Raises UsageError for a line of more than 64 MiB.
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
        """Blocks until the process has closed, and returns how it ended.

        Output without a consumer is consumed meanwhile, and its last 1 MiB is kept for
        ``events()``. Raises TimeoutError after ``timeout`` seconds; the process
        continues.
        """
        return self._owner.wait(timeout)

    @overload
    def communicate(
        self,
        input: Optional[Input] = None,
        *,
        text: Literal[True] = True,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> errors.Completed[str]: ...

    @overload
    def communicate(
        self,
        input: Optional[Input] = None,
        *,
        text: Literal[False],
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[bytes], object]] = None,
        on_stderr: Optional[Callable[[bytes], object]] = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> errors.Completed[bytes]: ...

    def communicate(
        self,
        input: Optional[Input] = None,
        *,
        text: bool = True,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[Any], object]] = None,
        on_stderr: Optional[Callable[[Any], object]] = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> errors.Completed[Any]:
        """Writes input and closes stdin, consumes all output, and waits for the end.

        The options are those of ``Client.run``. Terminals write to ``stdout``.
        """
        feeder = None
        if input is not None:
            feeder = _Feeder(self, as_bytes(input) if isinstance(input, str) else input)
        else:
            self._owner.close_stdin()
        collector = Collector(text, stdout, stderr, on_stdout, on_stderr, max_output_bytes)
        try:
            for event in self.events():
                collector.take(event)
            collector.rest()
            exit = self.wait()
        except BaseException as error:
            self.close()
            if feeder is not None and feeder.failure is not None and isinstance(error, errors.Error):
                raise feeder.failure from None  # the reason why the process was closed
            raise
        finally:
            if feeder is not None:
                feeder.stop()
        if feeder is not None and feeder.failure is not None:
            raise feeder.failure
        return collector.end(exit)

    # --- input

    def write(self, data: Union[str, bytes]) -> None:
        """Writes to the stdin of the process; text as UTF-8.

        It blocks while a window of input (1 MiB by default) is unaccepted. Raises
        StdinClosedError when the process accepts no more.
        """
        self._owner.write(as_bytes(data))

    def close_stdin(self) -> None:
        """Closes stdin after everything written. It does not block.

        A terminal gets its end-of-file character.
        """
        self._owner.close_stdin()

    # --- control

    def signal(self, number: int, target: str = "group") -> None:
        """Sends a signal to the process ``group``, the ``process``, or the ``foreground``
        group of its terminal. It is sent once: raises UnknownError if the connection is
        lost meanwhile, and NotDoneError if it was lost before."""
        if target not in _TARGETS:
            raise errors.UsageError(f"target is group, process or foreground, not {target!r}")
        request = process_service_pb2.SignalProcessRequest(
            session_id=self.session_id,
            process_id=self.id,
            target=_TARGETS[target],
        )
        setattr(request, "signal", int(number))  # accepts numbers without a name
        self._transport.change(lambda: self._transport.processes.SignalProcess(request))

    def interrupt(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
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

        They receive SIGTERM, and SIGKILL after ``grace`` seconds.
        """
        return self._terminate(graceful(grace))

    def kill(self) -> Terminated:
        """Kills the process and all its descendants with SIGKILL."""
        return self._terminate(
            process_command_pb2.Termination(force=process_command_pb2.ForcedTermination())
        )

    def _terminate(self, termination: process_command_pb2.Termination) -> Terminated:
        return terminate(self._transport, self.session_id, self.id, termination)

    # --- ports and conditions

    def ports(self) -> Ports:
        """Returns the TCP ports on which it and its descendants listen now."""
        return list_ports(self._transport, self.session_id, self.id)

    def watch_ports(self) -> PortWatch:
        """Iterates over changes of these ports, until the process has closed; see
        PortWatch."""
        return PortWatch(self._transport, self.session_id, self.id)

    def wait_for(
        self,
        pattern: Optional[str] = None,
        *,
        port: Optional[int] = None,
        idle: Optional[float] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Blocks until output matches ``pattern``, until it or a descendant listens on
        ``port``, or until it has been silent for ``idle`` seconds; see Wait.

        Raises TimeoutError after ``timeout`` seconds, and ProcessEndedError if the
        process ends before. Returns the match of a pattern. It consumes no output: a
        process that writes more than a window before waits for its reader.
        """
        return self.waiting(Wait(pattern, 0, port, idle, timeout)).run()

    def waiting(self, condition: Wait) -> Waiting:
        """For execwire.aio: prepares ``wait_for``."""
        return Waiting(self._transport, self.session_id, self.id, condition)

    # --- the end

    @property
    def exit(self) -> Optional[Exit]:
        """How the process ended, or None if unknown. It never blocks."""
        return self._owner.exit

    @property
    def last_seq(self) -> int:
        """The seq of the last consumed event, with which ``attach`` can continue."""
        return self._owner.last_seq

    @property
    def resumed(self) -> int:
        """How often the process was resumed after a lost connection."""
        return self._owner.resumed

    def detach(self) -> None:
        """Gives up ownership: the process continues without an owner, and can be attached
        to.

        Input already written is delivered, unless the process takes longer than a second
        to accept it.
        """
        self._owner.detach()

    def close(self) -> None:
        """Releases the process; one that was started here and still runs is killed.

        An attached one continues without an owner. Closing twice is not an error.
        """
        owner = self._owner
        if not owner.ended and not self._transport.closed.is_set():
            if owner.existing:
                self._try_to_detach()
            else:
                owner.kill()
        owner.release()

    def _try_to_detach(self) -> None:
        thread = threading.Thread(target=self._detach_quietly, daemon=True)
        thread.start()
        thread.join(_CLOSE_TIMEOUT)  # without a connection, the grace period ends the process

    def _detach_quietly(self) -> None:
        try:
            self._owner.detach()
        except errors.Error:
            pass

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def graceful(seconds: float) -> process_command_pb2.Termination:
    """Returns a termination with SIGTERM before SIGKILL."""
    return process_command_pb2.Termination(
        graceful=process_command_pb2.GracefulTermination(timeout=duration(seconds))
    )


def terminate(
    transport: "Transport",
    session_id: str,
    process_id: str,
    termination: process_command_pb2.Termination,
) -> Terminated:
    """Ends a process, and blocks until it and its descendants are gone."""
    request = process_service_pb2.TerminateProcessRequest(
        session_id=session_id, process_id=process_id, termination=termination
    )
    answer = transport.repeat(lambda: transport.processes.TerminateProcess(request))
    exit = new_exit(process_id, answer.exit) if answer.HasField("exit") else None
    return Terminated(answer.was_running, exit, answer.verified_empty)


_LINE_BYTES = 64 << 20
_CLOSE_TIMEOUT = 5.0


class Lines:
    """Consumed but undelivered lines of a process."""

    def __init__(self) -> None:
        #: Complete lines.
        self.whole: "Deque[bytes]" = collections.deque()
        self._rest = io.BytesIO()

    def take(self, event: Event, stderr: "Optional[Writer]") -> None:
        """Splits output into lines, and writes stderr."""
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
        """Completes a last line without a line end."""
        if self._rest.tell():
            self.whole.append(self._rest.getvalue())
            self._rest = io.BytesIO()


class _Feeder:
    """Writes input concurrently with reading output."""

    def __init__(self, process: Process, input: Input) -> None:
        self._process, self._input = process, input
        # If the interpreter ends while a thread reads sys.stdin.buffer, it aborts in
        # closing sys.stdin, unless that thread references it.
        self._stdin_references = sys.stdin, sys.__stdin__
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
            return  # the process accepts no more, or is lost, which events() raises
        except BaseException as error:
            self.failure = error
            self._process.close()

    def stop(self) -> None:
        """Ends the feeding. A pending read is not interrupted; its result is discarded."""
        self._stopped.set()
        if isinstance(self._input, (bytes, bytearray, memoryview)):
            self._thread.join()


def _pieces(input: Input, stopped: Callable[[], bool]) -> Iterator[bytes]:
    if isinstance(input, (bytes, bytearray, memoryview)):
        if len(input):  # a process without input raises even after its end
            yield bytes(input)
        return
    # Reads available data without filling a buffer.
    read = getattr(input, "read1", None) or getattr(input, "read", None)
    if read is None:
        yield from cast("Iterable[bytes]", input)
        return
    while not stopped():
        piece = read(BLOCK_BYTES)
        if not piece:
            return
        yield piece

