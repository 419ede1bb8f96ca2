from execwire.v1 import process_pb2 as _process_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
PROFILE_KIND_CPU: ProfileKind
PROFILE_KIND_GOROUTINE: ProfileKind
PROFILE_KIND_GOROUTINES: ProfileKind
PROFILE_KIND_HEAP: ProfileKind
PROFILE_KIND_MUTEX: ProfileKind
PROFILE_KIND_TRACE: ProfileKind
PROFILE_KIND_UNSPECIFIED: ProfileKind
UPGRADE_STATE_DONE: UpgradeState
UPGRADE_STATE_FAILED: UpgradeState
UPGRADE_STATE_RUNNING: UpgradeState
UPGRADE_STATE_UNSPECIFIED: UpgradeState

class DurationCounts(_message.Message):
    __slots__ = ["counts", "upper_bounds"]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    upper_bounds: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, upper_bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ["max_processes"]
    MAX_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    max_processes: int
    def __init__(self, max_processes: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ["processes", "server", "sessions", "time", "truncated"]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessStatus]
    server: ServerStatus
    sessions: _containers.RepeatedCompositeFieldContainer[SessionStatus]
    time: _timestamp_pb2.Timestamp
    truncated: bool
    def __init__(self, time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., server: _Optional[_Union[ServerStatus, _Mapping]] = ..., sessions: _Optional[_Iterable[_Union[SessionStatus, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[ProcessStatus, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class GetUpgradeRequest(_message.Message):
    __slots__ = ["upgrade_id"]
    UPGRADE_ID_FIELD_NUMBER: _ClassVar[int]
    upgrade_id: str
    def __init__(self, upgrade_id: _Optional[str] = ...) -> None: ...

class GetUpgradeResponse(_message.Message):
    __slots__ = ["upgrade"]
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    upgrade: Upgrade
    def __init__(self, upgrade: _Optional[_Union[Upgrade, _Mapping]] = ...) -> None: ...

class ProcessStatus(_message.Message):
    __slots__ = ["cpu_time", "file_bytes", "output_bytes", "owned", "pid", "principal", "process_id", "program", "readers", "resident_bytes", "retained_bytes", "session_id", "start_time", "state", "unacknowledged_bytes"]
    CPU_TIME_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu_time: _duration_pb2.Duration
    file_bytes: int
    output_bytes: int
    owned: bool
    pid: int
    principal: str
    process_id: str
    program: str
    readers: int
    resident_bytes: int
    retained_bytes: int
    session_id: str
    start_time: _timestamp_pb2.Timestamp
    state: _process_pb2.ProcessState
    unacknowledged_bytes: int
    def __init__(self, principal: _Optional[str] = ..., session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., pid: _Optional[int] = ..., state: _Optional[_Union[_process_pb2.ProcessState, str]] = ..., program: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., cpu_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., resident_bytes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., retained_bytes: _Optional[int] = ..., unacknowledged_bytes: _Optional[int] = ..., owned: bool = ..., readers: _Optional[int] = ..., file_bytes: _Optional[int] = ...) -> None: ...

class ReadAuditRequest(_message.Message):
    __slots__ = ["max_records"]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    max_records: int
    def __init__(self, max_records: _Optional[int] = ...) -> None: ...

class ReadAuditResponse(_message.Message):
    __slots__ = ["off", "records"]
    OFF_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    off: bool
    records: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, records: _Optional[_Iterable[str]] = ..., off: bool = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ReloadResponse(_message.Message):
    __slots__ = ["applied", "needs_restart"]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESTART_FIELD_NUMBER: _ClassVar[int]
    applied: _containers.RepeatedCompositeFieldContainer[SettingChange]
    needs_restart: _containers.RepeatedCompositeFieldContainer[SettingChange]
    def __init__(self, applied: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ..., needs_restart: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ...) -> None: ...

class ServerStatus(_message.Message):
    __slots__ = ["call_times", "cpu_time", "failed_starts", "goroutines", "resident_bytes", "start_times", "started_processes"]
    CALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    CPU_TIME_FIELD_NUMBER: _ClassVar[int]
    FAILED_STARTS_FIELD_NUMBER: _ClassVar[int]
    GOROUTINES_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STARTED_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    START_TIMES_FIELD_NUMBER: _ClassVar[int]
    call_times: DurationCounts
    cpu_time: _duration_pb2.Duration
    failed_starts: int
    goroutines: int
    resident_bytes: int
    start_times: DurationCounts
    started_processes: int
    def __init__(self, cpu_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., resident_bytes: _Optional[int] = ..., goroutines: _Optional[int] = ..., started_processes: _Optional[int] = ..., failed_starts: _Optional[int] = ..., start_times: _Optional[_Union[DurationCounts, _Mapping]] = ..., call_times: _Optional[_Union[DurationCounts, _Mapping]] = ...) -> None: ...

class SessionStatus(_message.Message):
    __slots__ = ["attached", "principal", "session_id"]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    attached: bool
    principal: str
    session_id: str
    def __init__(self, principal: _Optional[str] = ..., session_id: _Optional[str] = ..., attached: bool = ...) -> None: ...

class SettingChange(_message.Message):
    __slots__ = ["new_value", "old_value", "setting"]
    NEW_VALUE_FIELD_NUMBER: _ClassVar[int]
    OLD_VALUE_FIELD_NUMBER: _ClassVar[int]
    SETTING_FIELD_NUMBER: _ClassVar[int]
    new_value: str
    old_value: str
    setting: str
    def __init__(self, setting: _Optional[str] = ..., old_value: _Optional[str] = ..., new_value: _Optional[str] = ...) -> None: ...

class TakeProfileRequest(_message.Message):
    __slots__ = ["duration", "kind"]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    duration: _duration_pb2.Duration
    kind: ProfileKind
    def __init__(self, kind: _Optional[_Union[ProfileKind, str]] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TakeProfileResponse(_message.Message):
    __slots__ = ["data"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Upgrade(_message.Message):
    __slots__ = ["error", "pause", "previous_version", "state", "upgrade_id", "version"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    error: str
    pause: _duration_pb2.Duration
    previous_version: str
    state: UpgradeState
    upgrade_id: str
    version: str
    def __init__(self, upgrade_id: _Optional[str] = ..., state: _Optional[_Union[UpgradeState, str]] = ..., previous_version: _Optional[str] = ..., version: _Optional[str] = ..., error: _Optional[str] = ..., pause: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class UpgradeRequest(_message.Message):
    __slots__ = ["binary", "upgrade_id"]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_ID_FIELD_NUMBER: _ClassVar[int]
    binary: str
    upgrade_id: str
    def __init__(self, upgrade_id: _Optional[str] = ..., binary: _Optional[str] = ...) -> None: ...

class UpgradeResponse(_message.Message):
    __slots__ = ["upgrade"]
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    upgrade: Upgrade
    def __init__(self, upgrade: _Optional[_Union[Upgrade, _Mapping]] = ...) -> None: ...

class UpgradeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ProfileKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
