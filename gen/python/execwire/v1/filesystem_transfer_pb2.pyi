from execwire.v1 import filesystem_metadata_pb2 as _filesystem_metadata_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
UPLOAD_MODE_IN_PLACE: UploadMode
UPLOAD_MODE_REPLACE: UploadMode
UPLOAD_MODE_UNSPECIFIED: UploadMode

class DownloadEnd(_message.Message):
    __slots__ = ["changed", "sha256"]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    sha256: bytes
    def __init__(self, sha256: _Optional[bytes] = ..., changed: bool = ...) -> None: ...

class DownloadFileRequest(_message.Message):
    __slots__ = ["fail_if_changed", "if_version", "length", "no_symlinks", "offset", "path", "raw_path", "sandbox", "want_sha256"]
    FAIL_IF_CHANGED_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    WANT_SHA256_FIELD_NUMBER: _ClassVar[int]
    fail_if_changed: bool
    if_version: str
    length: int
    no_symlinks: bool
    offset: int
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    want_sha256: bool
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., want_sha256: bool = ..., if_version: _Optional[str] = ..., no_symlinks: bool = ..., fail_if_changed: bool = ...) -> None: ...

class DownloadFileResponse(_message.Message):
    __slots__ = ["data", "end", "head"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end: DownloadEnd
    head: DownloadHead
    def __init__(self, head: _Optional[_Union[DownloadHead, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[DownloadEnd, _Mapping]] = ...) -> None: ...

class DownloadHead(_message.Message):
    __slots__ = ["metadata"]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    metadata: _filesystem_metadata_pb2.FileMetadata
    def __init__(self, metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ...) -> None: ...

class GetUploadRequest(_message.Message):
    __slots__ = ["upload_id"]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    upload_id: str
    def __init__(self, upload_id: _Optional[str] = ...) -> None: ...

class GetUploadResponse(_message.Message):
    __slots__ = ["complete", "expire_time", "path", "raw_path", "received_bytes"]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    expire_time: _timestamp_pb2.Timestamp
    path: str
    raw_path: bytes
    received_bytes: int
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., received_bytes: _Optional[int] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., complete: bool = ...) -> None: ...

class UploadEnd(_message.Message):
    __slots__ = ["sha256"]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    def __init__(self, sha256: _Optional[bytes] = ...) -> None: ...

class UploadFileRequest(_message.Message):
    __slots__ = ["data", "end", "head"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end: UploadEnd
    head: UploadHead
    def __init__(self, head: _Optional[_Union[UploadHead, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[UploadEnd, _Mapping]] = ...) -> None: ...

class UploadFileResponse(_message.Message):
    __slots__ = ["created", "metadata", "sha256", "size"]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    created: bool
    metadata: _filesystem_metadata_pb2.FileMetadata
    sha256: bytes
    size: int
    def __init__(self, size: _Optional[int] = ..., sha256: _Optional[bytes] = ..., metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ..., created: bool = ...) -> None: ...

class UploadHead(_message.Message):
    __slots__ = ["if_match_sha256", "if_match_version", "if_missing", "mode", "modify_time", "no_symlinks", "offset", "path", "permissions", "raw_path", "sandbox", "sync", "upload_id"]
    IF_MATCH_SHA256_FIELD_NUMBER: _ClassVar[int]
    IF_MATCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    IF_MISSING_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    if_match_sha256: bytes
    if_match_version: str
    if_missing: bool
    mode: UploadMode
    modify_time: _timestamp_pb2.Timestamp
    no_symlinks: bool
    offset: int
    path: str
    permissions: int
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    sync: bool
    upload_id: str
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., mode: _Optional[_Union[UploadMode, str]] = ..., upload_id: _Optional[str] = ..., offset: _Optional[int] = ..., if_match_sha256: _Optional[bytes] = ..., if_missing: bool = ..., permissions: _Optional[int] = ..., modify_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., sync: bool = ..., no_symlinks: bool = ..., if_match_version: _Optional[str] = ...) -> None: ...

class UploadMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
