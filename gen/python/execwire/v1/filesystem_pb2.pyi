from execwire.v1 import filesystem_handle_pb2 as _filesystem_handle_pb2
from execwire.v1 import filesystem_metadata_pb2 as _filesystem_metadata_pb2
from execwire.v1 import filesystem_transfer_pb2 as _filesystem_transfer_pb2
from execwire.v1 import filesystem_url_pb2 as _filesystem_url_pb2
from execwire.v1 import filesystem_walk_pb2 as _filesystem_walk_pb2
from execwire.v1 import filesystem_watch_pb2 as _filesystem_watch_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CanonicalizePathRequest(_message.Message):
    __slots__ = ["path", "raw_path", "sandbox"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ...) -> None: ...

class CanonicalizePathResponse(_message.Message):
    __slots__ = ["path", "raw_path"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class CopyPathRequest(_message.Message):
    __slots__ = ["destination_path", "raw_destination_path", "raw_source_path", "recursive", "sandbox", "source_path"]
    DESTINATION_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_DESTINATION_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_SOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
    destination_path: str
    raw_destination_path: bytes
    raw_source_path: bytes
    recursive: bool
    sandbox: _sandbox_pb2.SandboxPolicy
    source_path: str
    def __init__(self, source_path: _Optional[str] = ..., raw_source_path: _Optional[bytes] = ..., destination_path: _Optional[str] = ..., raw_destination_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., recursive: bool = ...) -> None: ...

class CopyPathResponse(_message.Message):
    __slots__ = ["omitted_special_files"]
    OMITTED_SPECIAL_FILES_FIELD_NUMBER: _ClassVar[int]
    omitted_special_files: int
    def __init__(self, omitted_special_files: _Optional[int] = ...) -> None: ...

class CreateDirectoryRequest(_message.Message):
    __slots__ = ["no_symlinks", "path", "permissions", "raw_path", "recursive", "sandbox"]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    no_symlinks: bool
    path: str
    permissions: int
    raw_path: bytes
    recursive: bool
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., recursive: bool = ..., permissions: _Optional[int] = ..., no_symlinks: bool = ...) -> None: ...

class CreateDirectoryResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CreateSymlinkRequest(_message.Message):
    __slots__ = ["path", "raw_path", "raw_target", "sandbox", "target"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_TARGET_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    path: str
    raw_path: bytes
    raw_target: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    target: str
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., target: _Optional[str] = ..., raw_target: _Optional[bytes] = ...) -> None: ...

class CreateSymlinkResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DirectoryEntry(_message.Message):
    __slots__ = ["name", "raw_name", "target_type", "type"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAW_NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    raw_name: bytes
    target_type: _filesystem_metadata_pb2.FileType
    type: _filesystem_metadata_pb2.FileType
    def __init__(self, name: _Optional[str] = ..., raw_name: _Optional[bytes] = ..., type: _Optional[_Union[_filesystem_metadata_pb2.FileType, str]] = ..., target_type: _Optional[_Union[_filesystem_metadata_pb2.FileType, str]] = ...) -> None: ...

class GetMetadataRequest(_message.Message):
    __slots__ = ["no_follow", "no_symlinks", "path", "raw_path", "sandbox", "want_sha256"]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    WANT_SHA256_FIELD_NUMBER: _ClassVar[int]
    no_follow: bool
    no_symlinks: bool
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    want_sha256: bool
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., no_follow: bool = ..., want_sha256: bool = ..., no_symlinks: bool = ...) -> None: ...

class GetMetadataResponse(_message.Message):
    __slots__ = ["link_target", "metadata", "raw_link_target", "sha256"]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RAW_LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    link_target: str
    metadata: _filesystem_metadata_pb2.FileMetadata
    raw_link_target: bytes
    sha256: bytes
    def __init__(self, metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ..., link_target: _Optional[str] = ..., raw_link_target: _Optional[bytes] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ReadDirectoryRequest(_message.Message):
    __slots__ = ["no_symlinks", "path", "raw_path", "sandbox"]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    no_symlinks: bool
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., no_symlinks: bool = ...) -> None: ...

class ReadDirectoryResponse(_message.Message):
    __slots__ = ["entries"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[DirectoryEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[DirectoryEntry, _Mapping]]] = ...) -> None: ...

class ReadFileRequest(_message.Message):
    __slots__ = ["no_symlinks", "path", "raw_path", "sandbox"]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    no_symlinks: bool
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., no_symlinks: bool = ...) -> None: ...

class ReadFileResponse(_message.Message):
    __slots__ = ["data", "metadata"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    metadata: _filesystem_metadata_pb2.FileMetadata
    def __init__(self, data: _Optional[bytes] = ..., metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ...) -> None: ...

class RemovePathRequest(_message.Message):
    __slots__ = ["ignore_missing", "no_symlinks", "path", "raw_path", "recursive", "sandbox"]
    IGNORE_MISSING_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    ignore_missing: bool
    no_symlinks: bool
    path: str
    raw_path: bytes
    recursive: bool
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., recursive: bool = ..., ignore_missing: bool = ..., no_symlinks: bool = ...) -> None: ...

class RemovePathResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RenamePathRequest(_message.Message):
    __slots__ = ["destination_path", "no_replace", "raw_destination_path", "raw_source_path", "sandbox", "source_path"]
    DESTINATION_PATH_FIELD_NUMBER: _ClassVar[int]
    NO_REPLACE_FIELD_NUMBER: _ClassVar[int]
    RAW_DESTINATION_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_SOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
    destination_path: str
    no_replace: bool
    raw_destination_path: bytes
    raw_source_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    source_path: str
    def __init__(self, source_path: _Optional[str] = ..., raw_source_path: _Optional[bytes] = ..., destination_path: _Optional[str] = ..., raw_destination_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., no_replace: bool = ...) -> None: ...

class RenamePathResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SetMetadataRequest(_message.Message):
    __slots__ = ["modify_time", "no_symlinks", "path", "permissions", "raw_path", "sandbox", "touch"]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    TOUCH_FIELD_NUMBER: _ClassVar[int]
    modify_time: _timestamp_pb2.Timestamp
    no_symlinks: bool
    path: str
    permissions: int
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    touch: bool
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., permissions: _Optional[int] = ..., modify_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., touch: bool = ..., no_symlinks: bool = ...) -> None: ...

class SetMetadataResponse(_message.Message):
    __slots__ = ["metadata"]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    metadata: _filesystem_metadata_pb2.FileMetadata
    def __init__(self, metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ...) -> None: ...

class WriteFileRequest(_message.Message):
    __slots__ = ["data", "no_symlinks", "path", "raw_path", "sandbox"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    no_symlinks: bool
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., data: _Optional[bytes] = ..., no_symlinks: bool = ...) -> None: ...

class WriteFileResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...
