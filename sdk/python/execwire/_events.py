"""Events of a process: each one once, in order, and nothing missing without a gap."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Union

from ._exit import Exit, new_exit
from .errors import ProtocolError
from .v1 import process_event_pb2, process_pb2


class Stream(enum.Enum):
    """The source of output."""

    STDOUT = process_event_pb2.OUTPUT_STREAM_STDOUT
    STDERR = process_event_pb2.OUTPUT_STREAM_STDERR
    TERMINAL = process_event_pb2.OUTPUT_STREAM_TERMINAL


@dataclass(frozen=True)
class Output:
    """Output of the process."""

    #: The sequence number of the event, from 1, consecutive over all kinds.
    seq: int
    #: Where it was written.
    stream: Stream
    #: How many bytes of the stream precede the data.
    offset: int
    #: The output. Boundaries between events have no meaning.
    data: bytes
    #: When the server read it from the process, in nanoseconds since 1970; it never decreases.
    #: None: the server has no times. Not compared.
    read_time_ns: Optional[int] = field(default=None, compare=False)


@dataclass(frozen=True)
class Exited:
    """The process exited; its descendants may still write."""

    #: The number of the event.
    seq: int
    #: How the process ended.
    exit: Exit


@dataclass(frozen=True)
class Closed:
    """No more events follow. The last event."""

    #: The number of the event, the highest.
    seq: int
    #: How the process ended.
    exit: Exit


class GapCause(enum.Enum):
    """Why output is missing."""

    #: It was beyond the limits of the process or of this client, or its owner had acknowledged it.
    LIMIT = process_event_pb2.GAP_CAUSE_LIMIT
    #: The files of all processes of the server had reached their limit, in bytes or in number.
    FILES_FULL = process_event_pb2.GAP_CAUSE_FILES_FULL
    #: The file system of the server's output files had too little free space.
    DISK_FULL = process_event_pb2.GAP_CAUSE_DISK_FULL
    #: The server could not write it to the file of the process.
    WRITE_FAILED = process_event_pb2.GAP_CAUSE_WRITE_FAILED
    #: The server could not read it from the file of the process. It may be possible later.
    READ_FAILED = process_event_pb2.GAP_CAUSE_READ_FAILED
    #: The server is older than this member, or the cause is one that this package does not know.
    UNKNOWN = process_event_pb2.GAP_CAUSE_UNSPECIFIED

    @classmethod
    def _missing_(cls, value: object) -> "GapCause":
        return cls.UNKNOWN


@dataclass(frozen=True)
class Gap:
    """Output is missing: it was evicted."""

    #: The seq of the next event.
    first_available_seq: int
    #: An upper bound of the missing bytes over all streams.
    dropped_bytes: int
    #: Why it is missing; of several causes, the last.
    cause: GapCause = GapCause.UNKNOWN


#: An event of a process, in order.
Event = Union[Output, Exited, Closed, Gap]


class EventLog:
    """Checks received events. It is for one thread."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        #: The seq of the last received event.
        self.last = 0
        self.record: Optional[process_event_pb2.ExitRecord] = None
        self.closed = False
        self.resumed = 0
        self._dropped = 0
        self._offsets: Dict[Stream, int] = {stream: 0 for stream in Stream}
        # Streams whose next output may have a higher offset.
        self._gap: Dict[Stream, bool] = {stream: False for stream in Stream}
        # Streams whose first offset is unknown.
        self._unknown_start: Dict[Stream, bool] = {stream: False for stream in Stream}

    def start_after(self, after_seq: int) -> None:
        """Begins after an event that another client consumed."""
        self.last = after_seq
        if after_seq:
            self._unknown_start = {stream: True for stream in Stream}

    def set_initial_state(self, process: process_pb2.Process) -> None:
        """Records the state of a process when earlier events were skipped."""
        if self.record is None and process.HasField("exit"):
            self.record = process.exit
        if process.state == process_pb2.PROCESS_STATE_CLOSED and process.last_seq == self.last:
            self.closed = self.record is not None

    def take(self, events: Iterable[process_event_pb2.ProcessEvent]) -> List[Event]:
        """Returns the new events."""
        new: List[Event] = []
        for event in events:
            taken = self._take(event)
            if taken is not None:
                new.append(taken)
        return new

    def exit(self) -> Optional[Exit]:
        """How the process ended, if known."""
        if self.record is None:
            return None
        return new_exit(
            self.process_id,
            self.record,
            stdout_bytes=self._offsets[Stream.STDOUT],
            stderr_bytes=self._offsets[Stream.STDERR],
            terminal_bytes=self._offsets[Stream.TERMINAL],
            dropped_bytes=self._dropped,
            resumed=self.resumed,
        )

    def _take(self, event: process_event_pb2.ProcessEvent) -> Optional[Event]:
        kind = event.WhichOneof("event")
        if kind == "gap":
            return self._skip(event)
        if event.seq <= self.last and event.seq:
            return None  # already received
        if event.seq != self.last + 1:
            raise ProtocolError(f"seq {event.seq} follows seq {self.last} without a gap")
        if self.closed:
            raise ProtocolError(f"seq {event.seq} follows the closed event")
        taken: Optional[Event] = None
        if kind == "output":
            taken = self._output(event)
        elif kind == "exited":
            if not event.exited.HasField("exit"):
                raise ProtocolError("the exited event has no exit record")
            self.record = event.exited.exit
            exit = self.exit()
            assert exit is not None
            taken = Exited(event.seq, exit)
        elif kind == "closed":
            taken = self._end(event)
        self.last = event.seq
        return taken

    def _output(self, event: process_event_pb2.ProcessEvent) -> Output:
        output = event.output
        try:
            stream = Stream(output.stream)
        except ValueError:
            raise ProtocolError(f"output of an unknown stream, number {output.stream}") from None
        if self._unknown_start[stream]:
            self._unknown_start[stream], self._offsets[stream] = False, output.offset
        expected = self._offsets[stream]
        if output.offset != expected and (not self._gap[stream] or output.offset < expected):
            raise ProtocolError(
                f"{stream.name.lower()} goes on at offset {output.offset} instead of {expected}"
            )
        self._dropped += output.offset - expected
        self._offsets[stream] = output.offset + len(output.data)
        self._gap[stream] = False
        read_time_ns = output.read_time.ToNanoseconds() if output.HasField("read_time") else None
        return Output(event.seq, stream, output.offset, output.data, read_time_ns)

    def _skip(self, event: process_event_pb2.ProcessEvent) -> Optional[Gap]:
        following = event.gap.first_available_seq
        if event.seq or self.closed:
            raise ProtocolError(f"a gap up to seq {following} after seq {self.last}")
        if following <= self.last + 1:
            return None  # the missing events were received before
        self.last = following - 1
        self._gap = {stream: True for stream in Stream}
        return Gap(following, event.gap.dropped_bytes, GapCause(event.gap.cause))

    def _end(self, event: process_event_pb2.ProcessEvent) -> Closed:
        for total in event.closed.totals:
            try:
                stream = Stream(total.stream)
            except ValueError:
                continue
            if self._unknown_start[stream]:
                self._offsets[stream] = total.bytes
            had = self._offsets[stream]
            if total.bytes != had and (not self._gap[stream] or total.bytes < had):
                raise ProtocolError(
                    f"{had} bytes of {stream.name.lower()} were sent and {total.bytes} were announced"
                )
            self._dropped += total.bytes - had
            self._offsets[stream] = total.bytes
        exit = self.exit()
        if exit is None:
            raise ProtocolError("the process closed without an exit record")
        self.closed = True
        return Closed(event.seq, exit)
