from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
MISSING_PATH_BEHAVIOR_SKIP: MissingPathBehavior
MISSING_PATH_BEHAVIOR_UNSPECIFIED: MissingPathBehavior
NETWORK_ACCESS_ENABLED: NetworkAccess
NETWORK_ACCESS_RESTRICTED: NetworkAccess
NETWORK_ACCESS_UNSPECIFIED: NetworkAccess
SANDBOX_ACCESS_NONE: SandboxAccess
SANDBOX_ACCESS_READ: SandboxAccess
SANDBOX_ACCESS_UNSPECIFIED: SandboxAccess
SANDBOX_ACCESS_WRITE: SandboxAccess
SANDBOX_BACKEND_BUBBLEWRAP: SandboxBackend
SANDBOX_BACKEND_LANDLOCK: SandboxBackend
SANDBOX_BACKEND_UNSPECIFIED: SandboxBackend
SPECIAL_PATH_KIND_MINIMAL: SpecialPathKind
SPECIAL_PATH_KIND_PROJECT_ROOTS: SpecialPathKind
SPECIAL_PATH_KIND_ROOT: SpecialPathKind
SPECIAL_PATH_KIND_SLASH_TMP: SpecialPathKind
SPECIAL_PATH_KIND_TMPDIR: SpecialPathKind
SPECIAL_PATH_KIND_UNSPECIFIED: SpecialPathKind

class DisabledSandbox(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ExternalSandbox(_message.Message):
    __slots__ = ["network"]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    network: NetworkAccess
    def __init__(self, network: _Optional[_Union[NetworkAccess, str]] = ...) -> None: ...

class FileSystemPolicy(_message.Message):
    __slots__ = ["restricted", "unrestricted"]
    RESTRICTED_FIELD_NUMBER: _ClassVar[int]
    UNRESTRICTED_FIELD_NUMBER: _ClassVar[int]
    restricted: RestrictedFileSystem
    unrestricted: UnrestrictedFileSystem
    def __init__(self, restricted: _Optional[_Union[RestrictedFileSystem, _Mapping]] = ..., unrestricted: _Optional[_Union[UnrestrictedFileSystem, _Mapping]] = ...) -> None: ...

class ManagedSandbox(_message.Message):
    __slots__ = ["file_system", "network", "workspace_roots"]
    FILE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ROOTS_FIELD_NUMBER: _ClassVar[int]
    file_system: FileSystemPolicy
    network: NetworkAccess
    workspace_roots: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, file_system: _Optional[_Union[FileSystemPolicy, _Mapping]] = ..., network: _Optional[_Union[NetworkAccess, str]] = ..., workspace_roots: _Optional[_Iterable[str]] = ...) -> None: ...

class RestrictedFileSystem(_message.Message):
    __slots__ = ["entries", "glob_scan_max_depth"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    GLOB_SCAN_MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[SandboxEntry]
    glob_scan_max_depth: int
    def __init__(self, entries: _Optional[_Iterable[_Union[SandboxEntry, _Mapping]]] = ..., glob_scan_max_depth: _Optional[int] = ...) -> None: ...

class SandboxEntry(_message.Message):
    __slots__ = ["access", "glob", "missing_path_behavior", "path", "special"]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    GLOB_FIELD_NUMBER: _ClassVar[int]
    MISSING_PATH_BEHAVIOR_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FIELD_NUMBER: _ClassVar[int]
    access: SandboxAccess
    glob: str
    missing_path_behavior: MissingPathBehavior
    path: str
    special: SpecialPath
    def __init__(self, path: _Optional[str] = ..., glob: _Optional[str] = ..., special: _Optional[_Union[SpecialPath, _Mapping]] = ..., access: _Optional[_Union[SandboxAccess, str]] = ..., missing_path_behavior: _Optional[_Union[MissingPathBehavior, str]] = ...) -> None: ...

class SandboxPolicy(_message.Message):
    __slots__ = ["disabled", "external", "managed"]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    MANAGED_FIELD_NUMBER: _ClassVar[int]
    disabled: DisabledSandbox
    external: ExternalSandbox
    managed: ManagedSandbox
    def __init__(self, managed: _Optional[_Union[ManagedSandbox, _Mapping]] = ..., disabled: _Optional[_Union[DisabledSandbox, _Mapping]] = ..., external: _Optional[_Union[ExternalSandbox, _Mapping]] = ...) -> None: ...

class SandboxReport(_message.Message):
    __slots__ = ["backend", "freezes_metadata", "hides_processes", "network", "reports_signals_as_codes", "restricts_files"]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    FREEZES_METADATA_FIELD_NUMBER: _ClassVar[int]
    HIDES_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    REPORTS_SIGNALS_AS_CODES_FIELD_NUMBER: _ClassVar[int]
    RESTRICTS_FILES_FIELD_NUMBER: _ClassVar[int]
    backend: SandboxBackend
    freezes_metadata: bool
    hides_processes: bool
    network: NetworkAccess
    reports_signals_as_codes: bool
    restricts_files: bool
    def __init__(self, backend: _Optional[_Union[SandboxBackend, str]] = ..., network: _Optional[_Union[NetworkAccess, str]] = ..., restricts_files: bool = ..., hides_processes: bool = ..., freezes_metadata: bool = ..., reports_signals_as_codes: bool = ...) -> None: ...

class SandboxStatus(_message.Message):
    __slots__ = ["backend", "problem", "program", "works"]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    WORKS_FIELD_NUMBER: _ClassVar[int]
    backend: SandboxBackend
    problem: str
    program: str
    works: bool
    def __init__(self, backend: _Optional[_Union[SandboxBackend, str]] = ..., works: bool = ..., problem: _Optional[str] = ..., program: _Optional[str] = ...) -> None: ...

class SpecialPath(_message.Message):
    __slots__ = ["kind", "sub_path"]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_PATH_FIELD_NUMBER: _ClassVar[int]
    kind: SpecialPathKind
    sub_path: str
    def __init__(self, kind: _Optional[_Union[SpecialPathKind, str]] = ..., sub_path: _Optional[str] = ...) -> None: ...

class UnrestrictedFileSystem(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SpecialPathKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SandboxAccess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class MissingPathBehavior(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class NetworkAccess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SandboxBackend(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
