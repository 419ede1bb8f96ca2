from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
ENVIRONMENT_INHERIT_ALL: EnvironmentInherit
ENVIRONMENT_INHERIT_CORE: EnvironmentInherit
ENVIRONMENT_INHERIT_NONE: EnvironmentInherit
ENVIRONMENT_INHERIT_UNSPECIFIED: EnvironmentInherit
LIMITED_RESOURCE_ADDRESS_SPACE_BYTES: LimitedResource
LIMITED_RESOURCE_CORE_BYTES: LimitedResource
LIMITED_RESOURCE_CPU_SECONDS: LimitedResource
LIMITED_RESOURCE_DATA_BYTES: LimitedResource
LIMITED_RESOURCE_FILE_BYTES: LimitedResource
LIMITED_RESOURCE_LOCKED_BYTES: LimitedResource
LIMITED_RESOURCE_OPEN_FILES: LimitedResource
LIMITED_RESOURCE_STACK_BYTES: LimitedResource
LIMITED_RESOURCE_UNSPECIFIED: LimitedResource
LIMITED_RESOURCE_USER_PROCESSES: LimitedResource
SIGNAL_TARGET_FOREGROUND: SignalTarget
SIGNAL_TARGET_GROUP: SignalTarget
SIGNAL_TARGET_PROCESS: SignalTarget
SIGNAL_TARGET_UNSPECIFIED: SignalTarget
STDIN_MODE_CLOSED: StdinMode
STDIN_MODE_PIPE: StdinMode
STDIN_MODE_UNSPECIFIED: StdinMode

class DirectCommand(_message.Message):
    __slots__ = ["arg0", "argv", "env", "environment_policy", "sandbox", "working_directory"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARG0_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_POLICY_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    arg0: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    environment_policy: EnvironmentPolicy
    sandbox: _sandbox_pb2.SandboxPolicy
    working_directory: str
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., arg0: _Optional[str] = ..., working_directory: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., environment_policy: _Optional[_Union[EnvironmentPolicy, _Mapping]] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ...) -> None: ...

class EnvironmentPolicy(_message.Message):
    __slots__ = ["exclude", "ignore_default_excludes", "include_only", "inherit", "set"]
    class SetEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    IGNORE_DEFAULT_EXCLUDES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ONLY_FIELD_NUMBER: _ClassVar[int]
    INHERIT_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    ignore_default_excludes: bool
    include_only: _containers.RepeatedScalarFieldContainer[str]
    inherit: EnvironmentInherit
    set: _containers.ScalarMap[str, str]
    def __init__(self, inherit: _Optional[_Union[EnvironmentInherit, str]] = ..., ignore_default_excludes: bool = ..., exclude: _Optional[_Iterable[str]] = ..., set: _Optional[_Mapping[str, str]] = ..., include_only: _Optional[_Iterable[str]] = ...) -> None: ...

class ForcedTermination(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GracefulTermination(_message.Message):
    __slots__ = ["timeout"]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    timeout: _duration_pb2.Duration
    def __init__(self, timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PipeIo(_message.Message):
    __slots__ = ["stdin"]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    stdin: StdinMode
    def __init__(self, stdin: _Optional[_Union[StdinMode, str]] = ...) -> None: ...

class PreparedCommand(_message.Message):
    __slots__ = ["argv", "env", "executable", "working_directory"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    executable: str
    working_directory: str
    def __init__(self, executable: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., working_directory: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProcessCommand(_message.Message):
    __slots__ = ["direct", "prepared"]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    direct: DirectCommand
    prepared: PreparedCommand
    def __init__(self, direct: _Optional[_Union[DirectCommand, _Mapping]] = ..., prepared: _Optional[_Union[PreparedCommand, _Mapping]] = ...) -> None: ...

class ProcessIo(_message.Message):
    __slots__ = ["pipes", "terminal"]
    PIPES_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    pipes: PipeIo
    terminal: TerminalIo
    def __init__(self, pipes: _Optional[_Union[PipeIo, _Mapping]] = ..., terminal: _Optional[_Union[TerminalIo, _Mapping]] = ...) -> None: ...

class ProcessLimits(_message.Message):
    __slots__ = ["nice", "no_output_timeout", "resource_limits", "retained_output_bytes", "timeout"]
    NICE_FIELD_NUMBER: _ClassVar[int]
    NO_OUTPUT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LIMITS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    nice: int
    no_output_timeout: _duration_pb2.Duration
    resource_limits: _containers.RepeatedCompositeFieldContainer[ResourceLimit]
    retained_output_bytes: int
    timeout: _duration_pb2.Duration
    def __init__(self, timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., no_output_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., resource_limits: _Optional[_Iterable[_Union[ResourceLimit, _Mapping]]] = ..., nice: _Optional[int] = ..., retained_output_bytes: _Optional[int] = ...) -> None: ...

class ResourceLimit(_message.Message):
    __slots__ = ["hard", "resource", "soft"]
    HARD_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    hard: int
    resource: LimitedResource
    soft: int
    def __init__(self, resource: _Optional[_Union[LimitedResource, str]] = ..., soft: _Optional[int] = ..., hard: _Optional[int] = ...) -> None: ...

class StartProcessRequest(_message.Message):
    __slots__ = ["command", "first_sent_ago", "io", "keep", "labels", "leave_descendants", "limits", "must_be_new", "process_id", "replace_closed", "session_id", "start_id", "user"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    FIRST_SENT_AGO_FIELD_NUMBER: _ClassVar[int]
    IO_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_DESCENDANTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MUST_BE_NEW_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    REPLACE_CLOSED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    command: ProcessCommand
    first_sent_ago: _duration_pb2.Duration
    io: ProcessIo
    keep: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    leave_descendants: bool
    limits: ProcessLimits
    must_be_new: bool
    process_id: str
    replace_closed: bool
    session_id: str
    start_id: str
    user: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ..., command: _Optional[_Union[ProcessCommand, _Mapping]] = ..., io: _Optional[_Union[ProcessIo, _Mapping]] = ..., limits: _Optional[_Union[ProcessLimits, _Mapping]] = ..., leave_descendants: bool = ..., must_be_new: bool = ..., labels: _Optional[_Mapping[str, str]] = ..., start_id: _Optional[str] = ..., replace_closed: bool = ..., user: _Optional[str] = ..., first_sent_ago: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., keep: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TerminalIo(_message.Message):
    __slots__ = ["size"]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: TerminalSize
    def __init__(self, size: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ["columns", "rows"]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class Termination(_message.Message):
    __slots__ = ["force", "graceful"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    GRACEFUL_FIELD_NUMBER: _ClassVar[int]
    force: ForcedTermination
    graceful: GracefulTermination
    def __init__(self, graceful: _Optional[_Union[GracefulTermination, _Mapping]] = ..., force: _Optional[_Union[ForcedTermination, _Mapping]] = ...) -> None: ...

class EnvironmentInherit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class StdinMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class LimitedResource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SignalTarget(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
