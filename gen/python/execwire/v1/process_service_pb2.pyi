from execwire.v1 import process_pb2 as _process_pb2
from execwire.v1 import process_command_pb2 as _process_command_pb2
from execwire.v1 import process_event_pb2 as _process_event_pb2
from execwire.v1 import process_run_pb2 as _process_run_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
KILL_METHOD_CGROUP: KillMethod
KILL_METHOD_DESCENDANTS: KillMethod
KILL_METHOD_PROCESS_GROUP: KillMethod
KILL_METHOD_UNSPECIFIED: KillMethod

class AcknowledgeOutputRequest(_message.Message):
    __slots__ = ["owner_id", "process_id", "seq", "session_id"]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    owner_id: str
    process_id: str
    seq: int
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., owner_id: _Optional[str] = ..., seq: _Optional[int] = ...) -> None: ...

class AcknowledgeOutputResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CloseStdinRequest(_message.Message):
    __slots__ = ["process_id", "session_id"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ...) -> None: ...

class CloseStdinResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DetachProcessRequest(_message.Message):
    __slots__ = ["owner_id", "process_id", "session_id"]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    owner_id: str
    process_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., owner_id: _Optional[str] = ...) -> None: ...

class DetachProcessResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetProcessRequest(_message.Message):
    __slots__ = ["process_id", "session_id", "with_usage"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_USAGE_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    with_usage: bool
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., with_usage: bool = ...) -> None: ...

class GetProcessResponse(_message.Message):
    __slots__ = ["instance_id", "process", "usage"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    process: _process_pb2.Process
    usage: ProcessUsage
    def __init__(self, process: _Optional[_Union[_process_pb2.Process, _Mapping]] = ..., instance_id: _Optional[str] = ..., usage: _Optional[_Union[ProcessUsage, _Mapping]] = ...) -> None: ...

class GetScreenRequest(_message.Message):
    __slots__ = ["process_id", "repaint", "session_id", "styles"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    REPAINT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STYLES_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    repaint: bool
    session_id: str
    styles: bool
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., styles: bool = ..., repaint: bool = ...) -> None: ...

class GetScreenResponse(_message.Message):
    __slots__ = ["repaint", "screen"]
    REPAINT_FIELD_NUMBER: _ClassVar[int]
    SCREEN_FIELD_NUMBER: _ClassVar[int]
    repaint: bytes
    screen: Screen
    def __init__(self, screen: _Optional[_Union[Screen, _Mapping]] = ..., repaint: _Optional[bytes] = ...) -> None: ...

class ListProcessesRequest(_message.Message):
    __slots__ = ["last_output_bytes", "page_size", "page_token", "session_id"]
    LAST_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    last_output_bytes: int
    page_size: int
    page_token: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., last_output_bytes: _Optional[int] = ...) -> None: ...

class ListProcessesResponse(_message.Message):
    __slots__ = ["next_page_token", "processes"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    processes: _containers.RepeatedCompositeFieldContainer[_process_pb2.Process]
    def __init__(self, processes: _Optional[_Iterable[_Union[_process_pb2.Process, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class OwnProcessRequest(_message.Message):
    __slots__ = ["resume", "start"]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    resume: _process_run_pb2.RunResume
    start: _process_run_pb2.RunStart
    def __init__(self, start: _Optional[_Union[_process_run_pb2.RunStart, _Mapping]] = ..., resume: _Optional[_Union[_process_run_pb2.RunResume, _Mapping]] = ...) -> None: ...

class OwnProcessResponse(_message.Message):
    __slots__ = ["events", "started"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    events: _process_run_pb2.RunEvents
    started: _process_run_pb2.RunStarted
    def __init__(self, started: _Optional[_Union[_process_run_pb2.RunStarted, _Mapping]] = ..., events: _Optional[_Union[_process_run_pb2.RunEvents, _Mapping]] = ...) -> None: ...

class PatternMatch(_message.Message):
    __slots__ = ["data", "offset", "seq", "stream"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    seq: int
    stream: _process_event_pb2.OutputStream
    def __init__(self, stream: _Optional[_Union[_process_event_pb2.OutputStream, str]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., seq: _Optional[int] = ...) -> None: ...

class ProcessUsage(_message.Message):
    __slots__ = ["cpu_time", "output_bytes", "programs", "resident_bytes", "time"]
    CPU_TIME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    cpu_time: _duration_pb2.Duration
    output_bytes: int
    programs: int
    resident_bytes: int
    time: _timestamp_pb2.Timestamp
    def __init__(self, time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., cpu_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., resident_bytes: _Optional[int] = ..., programs: _Optional[int] = ..., output_bytes: _Optional[int] = ...) -> None: ...

class ReadOutputRequest(_message.Message):
    __slots__ = ["after_seq", "max_bytes", "process_id", "session_id", "wait"]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    max_bytes: int
    process_id: str
    session_id: str
    wait: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReadOutputResponse(_message.Message):
    __slots__ = ["closed", "events", "exit", "last_seq", "next_after_seq"]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    closed: bool
    events: _containers.RepeatedCompositeFieldContainer[_process_event_pb2.ProcessEvent]
    exit: _process_event_pb2.ExitRecord
    last_seq: int
    next_after_seq: int
    def __init__(self, events: _Optional[_Iterable[_Union[_process_event_pb2.ProcessEvent, _Mapping]]] = ..., next_after_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., exit: _Optional[_Union[_process_event_pb2.ExitRecord, _Mapping]] = ..., closed: bool = ...) -> None: ...

class ResizeTerminalRequest(_message.Message):
    __slots__ = ["process_id", "session_id", "size"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    size: _process_command_pb2.TerminalSize
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., size: _Optional[_Union[_process_command_pb2.TerminalSize, _Mapping]] = ...) -> None: ...

class ResizeTerminalResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Screen(_message.Message):
    __slots__ = ["alternate", "cursor", "lines", "seq", "size", "title"]
    ALTERNATE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    alternate: bool
    cursor: ScreenCursor
    lines: _containers.RepeatedCompositeFieldContainer[ScreenLine]
    seq: int
    size: _process_command_pb2.TerminalSize
    title: str
    def __init__(self, seq: _Optional[int] = ..., size: _Optional[_Union[_process_command_pb2.TerminalSize, _Mapping]] = ..., lines: _Optional[_Iterable[_Union[ScreenLine, _Mapping]]] = ..., cursor: _Optional[_Union[ScreenCursor, _Mapping]] = ..., title: _Optional[str] = ..., alternate: bool = ...) -> None: ...

class ScreenCursor(_message.Message):
    __slots__ = ["column", "row", "visible"]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_FIELD_NUMBER: _ClassVar[int]
    column: int
    row: int
    visible: bool
    def __init__(self, row: _Optional[int] = ..., column: _Optional[int] = ..., visible: bool = ...) -> None: ...

class ScreenLine(_message.Message):
    __slots__ = ["row", "runs", "text"]
    ROW_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    row: int
    runs: _containers.RepeatedCompositeFieldContainer[ScreenRun]
    text: str
    def __init__(self, row: _Optional[int] = ..., text: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[ScreenRun, _Mapping]]] = ...) -> None: ...

class ScreenRun(_message.Message):
    __slots__ = ["sgr", "text"]
    SGR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    sgr: str
    text: str
    def __init__(self, text: _Optional[str] = ..., sgr: _Optional[str] = ...) -> None: ...

class SignalProcessRequest(_message.Message):
    __slots__ = ["process_id", "session_id", "signal", "target"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    signal: _process_event_pb2.Signal
    target: _process_command_pb2.SignalTarget
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., signal: _Optional[_Union[_process_event_pb2.Signal, str]] = ..., target: _Optional[_Union[_process_command_pb2.SignalTarget, str]] = ...) -> None: ...

class SignalProcessResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SnapshotOutputRequest(_message.Message):
    __slots__ = ["process_id", "session_id"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ...) -> None: ...

class SnapshotOutputResponse(_message.Message):
    __slots__ = ["last_seq", "process", "streams"]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    last_seq: int
    process: _process_pb2.Process
    streams: _containers.RepeatedCompositeFieldContainer[StreamSnapshot]
    def __init__(self, streams: _Optional[_Iterable[_Union[StreamSnapshot, _Mapping]]] = ..., last_seq: _Optional[int] = ..., process: _Optional[_Union[_process_pb2.Process, _Mapping]] = ...) -> None: ...

class StartProcessResponse(_message.Message):
    __slots__ = ["process"]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: _process_pb2.Process
    def __init__(self, process: _Optional[_Union[_process_pb2.Process, _Mapping]] = ...) -> None: ...

class StreamSnapshot(_message.Message):
    __slots__ = ["head", "omitted_bytes", "stream", "tail", "total_bytes"]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    OMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    head: bytes
    omitted_bytes: int
    stream: _process_event_pb2.OutputStream
    tail: bytes
    total_bytes: int
    def __init__(self, stream: _Optional[_Union[_process_event_pb2.OutputStream, str]] = ..., head: _Optional[bytes] = ..., tail: _Optional[bytes] = ..., omitted_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class TerminateProcessRequest(_message.Message):
    __slots__ = ["process_id", "session_id", "termination"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    termination: _process_command_pb2.Termination
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., termination: _Optional[_Union[_process_command_pb2.Termination, _Mapping]] = ...) -> None: ...

class TerminateProcessResponse(_message.Message):
    __slots__ = ["exit", "method", "verified_empty", "was_running"]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_EMPTY_FIELD_NUMBER: _ClassVar[int]
    WAS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    exit: _process_event_pb2.ExitRecord
    method: KillMethod
    verified_empty: bool
    was_running: bool
    def __init__(self, was_running: bool = ..., exit: _Optional[_Union[_process_event_pb2.ExitRecord, _Mapping]] = ..., method: _Optional[_Union[KillMethod, str]] = ..., verified_empty: bool = ...) -> None: ...

class WaitForClosed(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class WaitForExit(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class WaitForIdle(_message.Message):
    __slots__ = ["silence"]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    silence: _duration_pb2.Duration
    def __init__(self, silence: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitForPattern(_message.Message):
    __slots__ = ["after_seq", "regular_expression", "stream"]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    REGULAR_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    regular_expression: str
    stream: _process_event_pb2.OutputStream
    def __init__(self, regular_expression: _Optional[str] = ..., stream: _Optional[_Union[_process_event_pb2.OutputStream, str]] = ..., after_seq: _Optional[int] = ...) -> None: ...

class WaitForPort(_message.Message):
    __slots__ = ["port"]
    PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    def __init__(self, port: _Optional[int] = ...) -> None: ...

class WaitForScreen(_message.Message):
    __slots__ = ["idle", "regular_expression"]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    REGULAR_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    idle: _duration_pb2.Duration
    regular_expression: str
    def __init__(self, regular_expression: _Optional[str] = ..., idle: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitProcessRequest(_message.Message):
    __slots__ = ["closed", "exit", "idle", "pattern", "port", "process_id", "screen", "session_id", "wait"]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SCREEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    closed: WaitForClosed
    exit: WaitForExit
    idle: WaitForIdle
    pattern: WaitForPattern
    port: WaitForPort
    process_id: str
    screen: WaitForScreen
    session_id: str
    wait: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., exit: _Optional[_Union[WaitForExit, _Mapping]] = ..., closed: _Optional[_Union[WaitForClosed, _Mapping]] = ..., pattern: _Optional[_Union[WaitForPattern, _Mapping]] = ..., port: _Optional[_Union[WaitForPort, _Mapping]] = ..., idle: _Optional[_Union[WaitForIdle, _Mapping]] = ..., screen: _Optional[_Union[WaitForScreen, _Mapping]] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitProcessResponse(_message.Message):
    __slots__ = ["match", "process", "satisfied", "screen"]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SATISFIED_FIELD_NUMBER: _ClassVar[int]
    SCREEN_FIELD_NUMBER: _ClassVar[int]
    match: PatternMatch
    process: _process_pb2.Process
    satisfied: bool
    screen: Screen
    def __init__(self, satisfied: bool = ..., process: _Optional[_Union[_process_pb2.Process, _Mapping]] = ..., match: _Optional[_Union[PatternMatch, _Mapping]] = ..., screen: _Optional[_Union[Screen, _Mapping]] = ...) -> None: ...

class WatchProcessRequest(_message.Message):
    __slots__ = ["after_seq", "process_id", "resizes", "session_id"]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    RESIZES_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    process_id: str
    resizes: bool
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., resizes: bool = ...) -> None: ...

class WatchProcessResponse(_message.Message):
    __slots__ = ["events"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_process_event_pb2.ProcessEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_process_event_pb2.ProcessEvent, _Mapping]]] = ...) -> None: ...

class WatchScreenRequest(_message.Message):
    __slots__ = ["process_id", "session_id", "styles"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STYLES_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    styles: bool
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., styles: bool = ...) -> None: ...

class WatchScreenResponse(_message.Message):
    __slots__ = ["screen"]
    SCREEN_FIELD_NUMBER: _ClassVar[int]
    screen: Screen
    def __init__(self, screen: _Optional[_Union[Screen, _Mapping]] = ...) -> None: ...

class WriteStdinRequest(_message.Message):
    __slots__ = ["data", "end_of_file", "offset", "owner_id", "process_id", "session_id", "write_id"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_OF_FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end_of_file: bool
    offset: int
    owner_id: str
    process_id: str
    session_id: str
    write_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., data: _Optional[bytes] = ..., write_id: _Optional[str] = ..., owner_id: _Optional[str] = ..., offset: _Optional[int] = ..., end_of_file: bool = ...) -> None: ...

class WriteStdinResponse(_message.Message):
    __slots__ = ["accepted_offset"]
    ACCEPTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    accepted_offset: int
    def __init__(self, accepted_offset: _Optional[int] = ...) -> None: ...

class KillMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
