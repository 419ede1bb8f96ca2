from execwire.v1 import process_command_pb2 as _process_command_pb2
from execwire.v1 import process_event_pb2 as _process_event_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
PROCESS_STATE_CLOSED: ProcessState
PROCESS_STATE_EXITED: ProcessState
PROCESS_STATE_RUNNING: ProcessState
PROCESS_STATE_STARTING: ProcessState
PROCESS_STATE_UNSPECIFIED: ProcessState

class Process(_message.Message):
    __slots__ = ["argv", "exit", "first_available_seq", "has_terminal", "labels", "last_output", "last_seq", "owned", "pid", "process_id", "sandbox", "session_id", "start_time", "state", "terminal_size", "user", "working_directory"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGV_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_AVAILABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    HAS_TERMINAL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LAST_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    exit: _process_event_pb2.ExitRecord
    first_available_seq: int
    has_terminal: bool
    labels: _containers.ScalarMap[str, str]
    last_output: _containers.RepeatedCompositeFieldContainer[StreamTail]
    last_seq: int
    owned: bool
    pid: int
    process_id: str
    sandbox: _sandbox_pb2.SandboxReport
    session_id: str
    start_time: _timestamp_pb2.Timestamp
    state: ProcessState
    terminal_size: _process_command_pb2.TerminalSize
    user: str
    working_directory: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., state: _Optional[_Union[ProcessState, str]] = ..., pid: _Optional[int] = ..., argv: _Optional[_Iterable[str]] = ..., working_directory: _Optional[str] = ..., has_terminal: bool = ..., terminal_size: _Optional[_Union[_process_command_pb2.TerminalSize, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., exit: _Optional[_Union[_process_event_pb2.ExitRecord, _Mapping]] = ..., last_seq: _Optional[int] = ..., first_available_seq: _Optional[int] = ..., owned: bool = ..., labels: _Optional[_Mapping[str, str]] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxReport, _Mapping]] = ..., user: _Optional[str] = ..., last_output: _Optional[_Iterable[_Union[StreamTail, _Mapping]]] = ...) -> None: ...

class StreamTail(_message.Message):
    __slots__ = ["data", "stream"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    stream: _process_event_pb2.OutputStream
    def __init__(self, stream: _Optional[_Union[_process_event_pb2.OutputStream, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ProcessState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
