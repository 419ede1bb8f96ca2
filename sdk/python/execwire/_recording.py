"""Recordings of processes in the format of asciinema."""

from __future__ import annotations

import codecs
import json
import time
from typing import Any, Dict, Iterator, List, Optional

from . import errors
from ._events import Stream
from ._follow import Received
from ._transport import Transport
from .v1 import process_event_pb2, process_pb2, process_service_pb2

_MAX_EVENT_BYTES = 32 << 10  # of output: lines stay below 200 KiB, whatever is in them


class Recording(Iterator[str]):
    """A recording of a process until it has closed, line by line. See Client.recording.

    ``close``, or the end of a ``with`` block, ends it, also for a blocked thread. What it had
    by then is a recording that ends there, also before an error.
    """

    # Times are in ns: those of the recording since its begin, those of the server since 1970,
    # or 0 if it is of an older version, which sends none.

    def __init__(
        self, transport: Transport, session_id: str, process_id: str, version: int, live: bool, title: str
    ) -> None:
        if version not in (2, 3):
            raise errors.UsageError(f"the version of a recording is 2 or 3, not {version}")
        select = process_service_pb2.GetProcessRequest(session_id=session_id, process_id=process_id)
        process = transport.repeat(lambda: transport.processes.GetProcess(select)).process
        # Of the command only the program: the arguments can have secrets.
        self._cast = _Cast(version, process.argv[0] if process.argv else "", title)
        self._cast.resize(0, process.terminal_size.columns, process.terminal_size.rows)
        self._began = 0  # by the clock of the server; 0: not known yet
        self._local: Optional[int] = None  # when it began, if that was no event of the process
        self._last = 0
        self._missing: List[str] = []  # of the output before the next event
        request = process_service_pb2.WatchProcessRequest(
            session_id=session_id, process_id=process_id, resizes=True
        )
        if live or not process.last_seq:
            # What time it is by the clock of the server is known with the first output.
            shown = _screen(transport, session_id, process) if live else None
            if shown is not None:
                self._cast.resize(0, shown.screen.size.columns, shown.screen.size.rows)
            self._local = time.monotonic_ns()
            self._cast.begin(time.time_ns())
            request.after_seq = process.last_seq
            if shown is not None:
                self._cast.output(0, Stream.TERMINAL, shown.repaint)
                request.after_seq = shown.screen.seq
        self._received = Received(transport, request, known=True)
        self._lines = self._record()

    def close(self) -> None:
        """Ends the recording. Closing twice is not an error."""
        self._received.close()

    def __next__(self) -> str:
        return next(self._lines)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self) -> Iterator[str]:
        failure: Optional[errors.Error] = None
        yield from self._cast.take()
        try:
            for event, _ in self._received:
                self._event(event)
                yield from self._cast.take()
        except errors.Error as error:
            failure = error
        self._cast.begin(time.time_ns())
        self._write_missing()
        self._cast.end(self._last)
        log = self._received.log
        exit = log.exit() if log.closed else None
        if exit is not None:
            known = exit.code is not None or exit.signal is not None
            self._cast.exit(self._last, exit.shell_code if known else None)
        yield from self._cast.take()
        if failure is not None:
            raise failure

    def _event(self, event: process_event_pb2.ProcessEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "resized":
            at = self._since(event.resized.time.ToNanoseconds())
            self._cast.resize(at, event.resized.columns, event.resized.rows)
        elif kind == "output":
            read = event.output.read_time.ToNanoseconds()
            self._begin(read)
            if not self._began and read:  # just now; sizes and exits can be older
                self._began = read - self._since(0)  # the clocks may differ
            at = self._since(read)
            self._write_missing()
            self._cast.output(at, Stream(event.output.stream), event.output.data)
        elif kind == "gap":
            bound = "up to " if event.gap.upper_bound else ""
            self._missing.append(f"{bound}{event.gap.dropped_bytes} bytes of output are missing")
        elif kind == "exited":  # output of descendants may follow
            ended = event.exited.exit.exit_time.ToNanoseconds()
            self._begin(ended)
            self._since(ended)

    def _begin(self, at: int) -> None:
        if not self._cast.begun:
            self._began = at
            self._cast.begin(at)

    def _since(self, at: int) -> int:
        """The time of the recording at a time of the server. If either is not known, that is
        now, or the time of the last event if it began with one."""
        if at and self._began:
            self._last = max(self._last, at - self._began)
        elif self._local is not None:
            self._last = max(self._last, time.monotonic_ns() - self._local)
        return self._last

    def _write_missing(self) -> None:
        for label in self._missing:
            self._cast.event(self._last, "m", label)
        self._missing.clear()


def _screen(
    transport: Transport, session_id: str, process: process_pb2.Process
) -> Optional[process_service_pb2.GetScreenResponse]:
    """Returns what the terminal of a process shows, if it has one."""
    if not process.has_terminal:
        return None
    request = process_service_pb2.GetScreenRequest(
        session_id=session_id, process_id=process.process_id, repaint=True
    )
    try:
        return transport.repeat(lambda: transport.processes.GetScreen(request))
    except errors.ExecwireError as error:
        if error.reason != "SCREEN_UNAVAILABLE":
            raise
        return None


class _Cast:
    """Makes the lines of a recording."""

    def __init__(self, version: int, command: str, title: str) -> None:
        self._version, self._command, self._title = version, command, title
        self._columns, self._rows = 80, 24  # without a terminal
        self._lines: List[str] = []
        self._last = 0  # the time of the last event, in µs
        decoder = codecs.getincrementaldecoder("utf-8")
        streams = (Stream.TERMINAL, Stream.STDOUT, Stream.STDERR)
        self._decoders = {stream: decoder("replace") for stream in streams}
        self.begun = False

    def take(self) -> List[str]:
        """Returns the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def begin(self, at: int) -> None:
        """Writes the header, once."""
        if self.begun:
            return
        self.begun = True
        header: Dict[str, Any] = {"version": self._version}
        if self._version == 2:
            header.update(width=self._columns, height=self._rows)
        else:
            header.update(term={"cols": self._columns, "rows": self._rows})
        header.update(timestamp=at // 10**9, command=self._command, title=self._title)
        header = {name: value for name, value in header.items() if value}
        self._lines.append(json.dumps(header, separators=(",", ":")) + "\n")

    def resize(self, at: int, columns: int, rows: int) -> None:
        """Sets the size of the terminal, if that is another one."""
        if columns and rows and (columns, rows) != (self._columns, self._rows):
            self._columns, self._rows = columns, rows
            if self.begun:
                self.event(at, "r", f"{columns}x{rows}")

    def output(self, at: int, stream: Stream, data: bytes) -> None:
        """Writes output. The bytes of a rune that is not complete wait for the rest of it; what
        is not UTF-8 becomes U+FFFD."""
        if stream is not Stream.TERMINAL:  # which does that by itself
            data = data.replace(b"\n", b"\r\n")
        for start in range(0, len(data), _MAX_EVENT_BYTES):
            text = self._decoders[stream].decode(data[start : start + _MAX_EVENT_BYTES])
            if text:
                self.event(at, "o", text)

    def event(self, at: int, code: str, data: str) -> None:
        """Writes an event, not before the last one."""
        now = max(at // 1000, self._last)
        shown = now - self._last if self._version == 3 else now
        self._last = now
        # JSON in ASCII, for files of any encoding.
        self._lines.append(f'[{shown // 10**6}.{shown % 10**6:06}, "{code}", {json.dumps(data)}]\n')

    def end(self, at: int) -> None:
        """Writes runes that are not complete."""
        for decoder in self._decoders.values():
            rest = decoder.decode(b"", True)
            if rest:
                self.event(at, "o", rest)

    def exit(self, at: int, status: Optional[int]) -> None:
        """Writes the exit status, if it is known."""
        if status is None:
            self.event(at, "m", "the exit status is not known")
        elif self._version == 2:
            self.event(at, "m", f"exit status {status}")
        else:
            self.event(at, "x", str(status))
