from execwire.v1 import error_pb2 as _error_pb2
from execwire.v1 import filesystem_metadata_pb2 as _filesystem_metadata_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
WALK_LIMIT_DIRECTORIES: WalkLimit
WALK_LIMIT_ENTRIES: WalkLimit
WALK_LIMIT_UNSPECIFIED: WalkLimit

class WalkDirectoryRequest(_message.Message):
    __slots__ = ["follow_directory_symlinks", "ignore", "max_depth", "max_directories", "max_entries", "no_symlinks", "path", "raw_path", "sandbox", "skip_hidden_directories", "want_metadata"]
    FOLLOW_DIRECTORY_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SKIP_HIDDEN_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    WANT_METADATA_FIELD_NUMBER: _ClassVar[int]
    follow_directory_symlinks: bool
    ignore: _containers.RepeatedScalarFieldContainer[str]
    max_depth: int
    max_directories: int
    max_entries: int
    no_symlinks: bool
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    skip_hidden_directories: bool
    want_metadata: bool
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., max_depth: _Optional[int] = ..., max_directories: _Optional[int] = ..., max_entries: _Optional[int] = ..., follow_directory_symlinks: bool = ..., skip_hidden_directories: bool = ..., ignore: _Optional[_Iterable[str]] = ..., want_metadata: bool = ..., no_symlinks: bool = ...) -> None: ...

class WalkDirectoryResponse(_message.Message):
    __slots__ = ["end", "entries", "error"]
    END_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    end: WalkEnd
    entries: WalkEntries
    error: WalkError
    def __init__(self, entries: _Optional[_Union[WalkEntries, _Mapping]] = ..., error: _Optional[_Union[WalkError, _Mapping]] = ..., end: _Optional[_Union[WalkEnd, _Mapping]] = ...) -> None: ...

class WalkEnd(_message.Message):
    __slots__ = ["limit", "truncated"]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    limit: WalkLimit
    truncated: bool
    def __init__(self, truncated: bool = ..., limit: _Optional[_Union[WalkLimit, str]] = ...) -> None: ...

class WalkEntries(_message.Message):
    __slots__ = ["entries"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[WalkEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[WalkEntry, _Mapping]]] = ...) -> None: ...

class WalkEntry(_message.Message):
    __slots__ = ["link_target", "metadata", "path", "raw_link_target", "raw_path", "target_type", "type"]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    link_target: str
    metadata: _filesystem_metadata_pb2.FileMetadata
    path: str
    raw_link_target: bytes
    raw_path: bytes
    target_type: _filesystem_metadata_pb2.FileType
    type: _filesystem_metadata_pb2.FileType
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., type: _Optional[_Union[_filesystem_metadata_pb2.FileType, str]] = ..., target_type: _Optional[_Union[_filesystem_metadata_pb2.FileType, str]] = ..., metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ..., link_target: _Optional[str] = ..., raw_link_target: _Optional[bytes] = ...) -> None: ...

class WalkError(_message.Message):
    __slots__ = ["errno", "message", "path", "raw_path", "reason"]
    ERRNO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    errno: str
    message: str
    path: str
    raw_path: bytes
    reason: _error_pb2.ErrorReason
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., reason: _Optional[_Union[_error_pb2.ErrorReason, str]] = ..., errno: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class WalkLimit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
