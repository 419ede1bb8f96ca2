from execwire.v1 import error_pb2 as _error_pb2
from execwire.v1 import process_pb2 as _process_pb2
from execwire.v1 import process_command_pb2 as _process_command_pb2
from execwire.v1 import process_event_pb2 as _process_event_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunAcknowledge(_message.Message):
    __slots__ = ["seq"]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class RunDetach(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RunEvents(_message.Message):
    __slots__ = ["events"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_process_event_pb2.ProcessEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_process_event_pb2.ProcessEvent, _Mapping]]] = ...) -> None: ...

class RunProcessRequest(_message.Message):
    __slots__ = ["acknowledge", "detach", "resize", "resume", "signal", "start", "stdin", "terminate"]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    TERMINATE_FIELD_NUMBER: _ClassVar[int]
    acknowledge: RunAcknowledge
    detach: RunDetach
    resize: _process_command_pb2.TerminalSize
    resume: RunResume
    signal: RunSignal
    start: RunStart
    stdin: RunStdin
    terminate: _process_command_pb2.Termination
    def __init__(self, start: _Optional[_Union[RunStart, _Mapping]] = ..., resume: _Optional[_Union[RunResume, _Mapping]] = ..., stdin: _Optional[_Union[RunStdin, _Mapping]] = ..., resize: _Optional[_Union[_process_command_pb2.TerminalSize, _Mapping]] = ..., signal: _Optional[_Union[RunSignal, _Mapping]] = ..., terminate: _Optional[_Union[_process_command_pb2.Termination, _Mapping]] = ..., acknowledge: _Optional[_Union[RunAcknowledge, _Mapping]] = ..., detach: _Optional[_Union[RunDetach, _Mapping]] = ...) -> None: ...

class RunProcessResponse(_message.Message):
    __slots__ = ["events", "rejected", "started", "stdin_accepted"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    STDIN_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    events: RunEvents
    rejected: RunRejected
    started: RunStarted
    stdin_accepted: RunStdinAccepted
    def __init__(self, started: _Optional[_Union[RunStarted, _Mapping]] = ..., events: _Optional[_Union[RunEvents, _Mapping]] = ..., stdin_accepted: _Optional[_Union[RunStdinAccepted, _Mapping]] = ..., rejected: _Optional[_Union[RunRejected, _Mapping]] = ...) -> None: ...

class RunRejected(_message.Message):
    __slots__ = ["message", "reason"]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    message: str
    reason: _error_pb2.ErrorReason
    def __init__(self, reason: _Optional[_Union[_error_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class RunResume(_message.Message):
    __slots__ = ["after_seq", "grace", "instance_id", "process_id", "session_id"]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    grace: _duration_pb2.Duration
    instance_id: str
    process_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., instance_id: _Optional[str] = ...) -> None: ...

class RunSignal(_message.Message):
    __slots__ = ["signal", "target"]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    signal: _process_event_pb2.Signal
    target: _process_command_pb2.SignalTarget
    def __init__(self, signal: _Optional[_Union[_process_event_pb2.Signal, str]] = ..., target: _Optional[_Union[_process_command_pb2.SignalTarget, str]] = ...) -> None: ...

class RunStart(_message.Message):
    __slots__ = ["grace", "process"]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    process: _process_command_pb2.StartProcessRequest
    def __init__(self, process: _Optional[_Union[_process_command_pb2.StartProcessRequest, _Mapping]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ["instance_id", "output_window_bytes", "output_window_events", "owner_id", "process", "resumed", "stdin_offset", "stdin_window_bytes"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WINDOW_EVENTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    STDIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STDIN_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    output_window_bytes: int
    output_window_events: int
    owner_id: str
    process: _process_pb2.Process
    resumed: bool
    stdin_offset: int
    stdin_window_bytes: int
    def __init__(self, process: _Optional[_Union[_process_pb2.Process, _Mapping]] = ..., resumed: bool = ..., stdin_offset: _Optional[int] = ..., stdin_window_bytes: _Optional[int] = ..., output_window_bytes: _Optional[int] = ..., output_window_events: _Optional[int] = ..., instance_id: _Optional[str] = ..., owner_id: _Optional[str] = ...) -> None: ...

class RunStdin(_message.Message):
    __slots__ = ["data", "end_of_file", "offset"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_OF_FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end_of_file: bool
    offset: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., end_of_file: bool = ...) -> None: ...

class RunStdinAccepted(_message.Message):
    __slots__ = ["end_of_file", "offset"]
    END_OF_FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    end_of_file: bool
    offset: int
    def __init__(self, offset: _Optional[int] = ..., end_of_file: bool = ...) -> None: ...
