from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
EXIT_CAUSE_EXITED: ExitCause
EXIT_CAUSE_LIMIT: ExitCause
EXIT_CAUSE_LOST: ExitCause
EXIT_CAUSE_NO_OUTPUT: ExitCause
EXIT_CAUSE_SERVER_RESTARTED: ExitCause
EXIT_CAUSE_SERVER_SHUTDOWN: ExitCause
EXIT_CAUSE_TERMINATED: ExitCause
EXIT_CAUSE_TIMEOUT: ExitCause
EXIT_CAUSE_UNSPECIFIED: ExitCause
GAP_CAUSE_DISK_FULL: GapCause
GAP_CAUSE_FILES_FULL: GapCause
GAP_CAUSE_LIMIT: GapCause
GAP_CAUSE_READ_FAILED: GapCause
GAP_CAUSE_UNSPECIFIED: GapCause
GAP_CAUSE_WRITE_FAILED: GapCause
OUTPUT_STREAM_STDERR: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_TERMINAL: OutputStream
OUTPUT_STREAM_UNSPECIFIED: OutputStream
SIGNAL_ABRT: Signal
SIGNAL_ALRM: Signal
SIGNAL_BUS: Signal
SIGNAL_CHLD: Signal
SIGNAL_CONT: Signal
SIGNAL_FPE: Signal
SIGNAL_HUP: Signal
SIGNAL_ILL: Signal
SIGNAL_INT: Signal
SIGNAL_IO: Signal
SIGNAL_KILL: Signal
SIGNAL_PIPE: Signal
SIGNAL_PROF: Signal
SIGNAL_PWR: Signal
SIGNAL_QUIT: Signal
SIGNAL_SEGV: Signal
SIGNAL_STKFLT: Signal
SIGNAL_STOP: Signal
SIGNAL_SYS: Signal
SIGNAL_TERM: Signal
SIGNAL_TRAP: Signal
SIGNAL_TSTP: Signal
SIGNAL_TTIN: Signal
SIGNAL_TTOU: Signal
SIGNAL_UNSPECIFIED: Signal
SIGNAL_URG: Signal
SIGNAL_USR1: Signal
SIGNAL_USR2: Signal
SIGNAL_VTALRM: Signal
SIGNAL_WINCH: Signal
SIGNAL_XCPU: Signal
SIGNAL_XFSZ: Signal

class ExitRecord(_message.Message):
    __slots__ = ["cause", "exit_code", "exit_time", "sandbox_denied", "signal", "usage", "wall_time"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_TIME_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_DENIED_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    cause: ExitCause
    exit_code: int
    exit_time: _timestamp_pb2.Timestamp
    sandbox_denied: bool
    signal: Signal
    usage: ResourceUsage
    wall_time: _duration_pb2.Duration
    def __init__(self, exit_code: _Optional[int] = ..., signal: _Optional[_Union[Signal, str]] = ..., cause: _Optional[_Union[ExitCause, str]] = ..., exit_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., wall_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., usage: _Optional[_Union[ResourceUsage, _Mapping]] = ..., sandbox_denied: bool = ...) -> None: ...

class OutputGap(_message.Message):
    __slots__ = ["cause", "dropped_bytes", "first_available_seq", "upper_bound"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_AVAILABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    cause: GapCause
    dropped_bytes: int
    first_available_seq: int
    upper_bound: bool
    def __init__(self, first_available_seq: _Optional[int] = ..., dropped_bytes: _Optional[int] = ..., upper_bound: bool = ..., cause: _Optional[_Union[GapCause, str]] = ...) -> None: ...

class ProcessClosed(_message.Message):
    __slots__ = ["totals"]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    totals: _containers.RepeatedCompositeFieldContainer[StreamTotal]
    def __init__(self, totals: _Optional[_Iterable[_Union[StreamTotal, _Mapping]]] = ...) -> None: ...

class ProcessEvent(_message.Message):
    __slots__ = ["closed", "exited", "gap", "output", "resized", "seq"]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RESIZED_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    closed: ProcessClosed
    exited: ProcessExited
    gap: OutputGap
    output: ProcessOutput
    resized: TerminalResized
    seq: int
    def __init__(self, seq: _Optional[int] = ..., output: _Optional[_Union[ProcessOutput, _Mapping]] = ..., exited: _Optional[_Union[ProcessExited, _Mapping]] = ..., closed: _Optional[_Union[ProcessClosed, _Mapping]] = ..., gap: _Optional[_Union[OutputGap, _Mapping]] = ..., resized: _Optional[_Union[TerminalResized, _Mapping]] = ...) -> None: ...

class ProcessExited(_message.Message):
    __slots__ = ["exit"]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    exit: ExitRecord
    def __init__(self, exit: _Optional[_Union[ExitRecord, _Mapping]] = ...) -> None: ...

class ProcessOutput(_message.Message):
    __slots__ = ["data", "offset", "read_time", "stream"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_TIME_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    read_time: _timestamp_pb2.Timestamp
    stream: OutputStream
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., read_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ResourceUsage(_message.Message):
    __slots__ = ["max_resident_bytes", "system_time", "user_time"]
    MAX_RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_TIME_FIELD_NUMBER: _ClassVar[int]
    USER_TIME_FIELD_NUMBER: _ClassVar[int]
    max_resident_bytes: int
    system_time: _duration_pb2.Duration
    user_time: _duration_pb2.Duration
    def __init__(self, user_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., system_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_resident_bytes: _Optional[int] = ...) -> None: ...

class StreamTotal(_message.Message):
    __slots__ = ["bytes", "stream"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    stream: OutputStream
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., bytes: _Optional[int] = ...) -> None: ...

class TerminalResized(_message.Message):
    __slots__ = ["columns", "rows", "time"]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    time: _timestamp_pb2.Timestamp
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class GapCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExitCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Signal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
