from execwire.v1 import process_service_pb2 as _process_service_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
FEATURE_FILES: Feature
FEATURE_HTTP: Feature
FEATURE_KILL_TREE: Feature
FEATURE_LEASED_SESSIONS: Feature
FEATURE_NO_SYMLINKS: Feature
FEATURE_PORTS: Feature
FEATURE_PROCESSES: Feature
FEATURE_RUN_RESUME: Feature
FEATURE_SANDBOX: Feature
FEATURE_UNSPECIFIED: Feature
FEATURE_WAIT_CONDITIONS: Feature

class GetEnvironmentRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetEnvironmentResponse(_message.Message):
    __slots__ = ["architecture", "cpu_count", "direct_commands", "features", "guarded", "home_directory", "host_name", "instance_id", "kernel_release", "kill_method", "limits", "loopback_any_user", "operating_system", "prepared_commands", "required_sandbox", "sandbox_backends", "sandboxes", "server_version", "shell", "temporary_directory", "working_directory"]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIRECT_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    GUARDED_FIELD_NUMBER: _ClassVar[int]
    HOME_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    HOST_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_RELEASE_FIELD_NUMBER: _ClassVar[int]
    KILL_METHOD_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LOOPBACK_ANY_USER_FIELD_NUMBER: _ClassVar[int]
    OPERATING_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    PREPARED_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_BACKENDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    architecture: str
    cpu_count: int
    direct_commands: bool
    features: _containers.RepeatedScalarFieldContainer[Feature]
    guarded: bool
    home_directory: str
    host_name: str
    instance_id: str
    kernel_release: str
    kill_method: _process_service_pb2.KillMethod
    limits: ServerLimits
    loopback_any_user: bool
    operating_system: str
    prepared_commands: bool
    required_sandbox: _sandbox_pb2.SandboxPolicy
    sandbox_backends: _containers.RepeatedScalarFieldContainer[_sandbox_pb2.SandboxBackend]
    sandboxes: _containers.RepeatedCompositeFieldContainer[_sandbox_pb2.SandboxStatus]
    server_version: str
    shell: str
    temporary_directory: str
    working_directory: str
    def __init__(self, server_version: _Optional[str] = ..., operating_system: _Optional[str] = ..., architecture: _Optional[str] = ..., kernel_release: _Optional[str] = ..., host_name: _Optional[str] = ..., shell: _Optional[str] = ..., working_directory: _Optional[str] = ..., home_directory: _Optional[str] = ..., temporary_directory: _Optional[str] = ..., cpu_count: _Optional[int] = ..., limits: _Optional[_Union[ServerLimits, _Mapping]] = ..., features: _Optional[_Iterable[_Union[Feature, str]]] = ..., sandbox_backends: _Optional[_Iterable[_Union[_sandbox_pb2.SandboxBackend, str]]] = ..., kill_method: _Optional[_Union[_process_service_pb2.KillMethod, str]] = ..., guarded: bool = ..., direct_commands: bool = ..., prepared_commands: bool = ..., sandboxes: _Optional[_Iterable[_Union[_sandbox_pb2.SandboxStatus, _Mapping]]] = ..., required_sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., loopback_any_user: bool = ..., instance_id: _Optional[str] = ...) -> None: ...

class ServerLimits(_message.Message):
    __slots__ = ["awaited_paths_per_principal", "closed_process_retention", "default_grace", "file_handle_idle_time", "file_handles_per_session", "header_list_bytes", "http_head_bytes", "http_requests_per_principal", "max_grace", "max_process_retention", "max_wait", "message_bytes", "output_file_bytes", "output_file_bytes_total", "port_accept_timeout", "port_backlog", "port_connections_per_principal", "port_listeners_per_principal", "processes_per_session", "read_file_bytes", "readers_per_process", "retained_events", "retained_output_bytes", "retained_output_bytes_total", "sessions_per_principal", "sessions_total", "shutdown_grace", "snapshot_bytes", "stdin_queue_bytes", "stdin_write_bytes", "streams_per_connection", "unseen_process_bytes_per_principal", "unseen_process_retention", "unseen_processes_per_principal", "upload_retention", "uploads_per_principal", "watch_pending_bytes", "watched_directories_per_watch", "watches_per_principal", "window_bytes"]
    AWAITED_PATHS_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLOSED_PROCESS_RETENTION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_GRACE_FIELD_NUMBER: _ClassVar[int]
    FILE_HANDLES_PER_SESSION_FIELD_NUMBER: _ClassVar[int]
    FILE_HANDLE_IDLE_TIME_FIELD_NUMBER: _ClassVar[int]
    HEADER_LIST_BYTES_FIELD_NUMBER: _ClassVar[int]
    HTTP_HEAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HTTP_REQUESTS_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MAX_GRACE_FIELD_NUMBER: _ClassVar[int]
    MAX_PROCESS_RETENTION_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FILE_BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PORT_ACCEPT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    PORT_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    PORT_CONNECTIONS_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PORT_LISTENERS_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_PER_SESSION_FIELD_NUMBER: _ClassVar[int]
    READERS_PER_PROCESS_FIELD_NUMBER: _ClassVar[int]
    READ_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_OUTPUT_BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_GRACE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDIN_QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDIN_WRITE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_PER_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_PROCESSES_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_PROCESS_BYTES_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_PROCESS_RETENTION_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_RETENTION_FIELD_NUMBER: _ClassVar[int]
    WATCHED_DIRECTORIES_PER_WATCH_FIELD_NUMBER: _ClassVar[int]
    WATCHES_PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    WATCH_PENDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    awaited_paths_per_principal: int
    closed_process_retention: _duration_pb2.Duration
    default_grace: _duration_pb2.Duration
    file_handle_idle_time: _duration_pb2.Duration
    file_handles_per_session: int
    header_list_bytes: int
    http_head_bytes: int
    http_requests_per_principal: int
    max_grace: _duration_pb2.Duration
    max_process_retention: _duration_pb2.Duration
    max_wait: _duration_pb2.Duration
    message_bytes: int
    output_file_bytes: int
    output_file_bytes_total: int
    port_accept_timeout: _duration_pb2.Duration
    port_backlog: int
    port_connections_per_principal: int
    port_listeners_per_principal: int
    processes_per_session: int
    read_file_bytes: int
    readers_per_process: int
    retained_events: int
    retained_output_bytes: int
    retained_output_bytes_total: int
    sessions_per_principal: int
    sessions_total: int
    shutdown_grace: _duration_pb2.Duration
    snapshot_bytes: int
    stdin_queue_bytes: int
    stdin_write_bytes: int
    streams_per_connection: int
    unseen_process_bytes_per_principal: int
    unseen_process_retention: _duration_pb2.Duration
    unseen_processes_per_principal: int
    upload_retention: _duration_pb2.Duration
    uploads_per_principal: int
    watch_pending_bytes: int
    watched_directories_per_watch: int
    watches_per_principal: int
    window_bytes: int
    def __init__(self, retained_output_bytes: _Optional[int] = ..., retained_events: _Optional[int] = ..., window_bytes: _Optional[int] = ..., snapshot_bytes: _Optional[int] = ..., stdin_write_bytes: _Optional[int] = ..., stdin_queue_bytes: _Optional[int] = ..., message_bytes: _Optional[int] = ..., readers_per_process: _Optional[int] = ..., default_grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., closed_process_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., shutdown_grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., processes_per_session: _Optional[int] = ..., sessions_per_principal: _Optional[int] = ..., retained_output_bytes_total: _Optional[int] = ..., streams_per_connection: _Optional[int] = ..., header_list_bytes: _Optional[int] = ..., sessions_total: _Optional[int] = ..., read_file_bytes: _Optional[int] = ..., http_requests_per_principal: _Optional[int] = ..., http_head_bytes: _Optional[int] = ..., port_connections_per_principal: _Optional[int] = ..., port_listeners_per_principal: _Optional[int] = ..., port_backlog: _Optional[int] = ..., port_accept_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., file_handles_per_session: _Optional[int] = ..., file_handle_idle_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., uploads_per_principal: _Optional[int] = ..., upload_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., watches_per_principal: _Optional[int] = ..., watched_directories_per_watch: _Optional[int] = ..., watch_pending_bytes: _Optional[int] = ..., awaited_paths_per_principal: _Optional[int] = ..., unseen_process_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., unseen_processes_per_principal: _Optional[int] = ..., output_file_bytes: _Optional[int] = ..., output_file_bytes_total: _Optional[int] = ..., unseen_process_bytes_per_principal: _Optional[int] = ..., max_process_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Feature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
