from execwire.v1 import filesystem_metadata_pb2 as _filesystem_metadata_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
OPEN_MODE_READ: OpenMode
OPEN_MODE_REPLACE: OpenMode
OPEN_MODE_UNSPECIFIED: OpenMode

class CloseFileRequest(_message.Message):
    __slots__ = ["handle_id", "session_id"]
    HANDLE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    handle_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., handle_id: _Optional[str] = ...) -> None: ...

class CloseFileResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class OpenFileRequest(_message.Message):
    __slots__ = ["handle_id", "mode", "no_symlinks", "path", "raw_path", "sandbox", "session_id"]
    HANDLE_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NO_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    handle_id: str
    mode: OpenMode
    no_symlinks: bool
    path: str
    raw_path: bytes
    sandbox: _sandbox_pb2.SandboxPolicy
    session_id: str
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., session_id: _Optional[str] = ..., handle_id: _Optional[str] = ..., mode: _Optional[_Union[OpenMode, str]] = ..., no_symlinks: bool = ...) -> None: ...

class OpenFileResponse(_message.Message):
    __slots__ = ["metadata"]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    metadata: _filesystem_metadata_pb2.FileMetadata
    def __init__(self, metadata: _Optional[_Union[_filesystem_metadata_pb2.FileMetadata, _Mapping]] = ...) -> None: ...

class ReadBlockRequest(_message.Message):
    __slots__ = ["handle_id", "length", "offset", "session_id"]
    HANDLE_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    handle_id: str
    length: int
    offset: int
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., handle_id: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class ReadBlockResponse(_message.Message):
    __slots__ = ["data", "eof"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    eof: bool
    def __init__(self, data: _Optional[bytes] = ..., eof: bool = ...) -> None: ...

class WriteBlockRequest(_message.Message):
    __slots__ = ["data", "handle_id", "offset", "session_id"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HANDLE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    handle_id: str
    offset: int
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., handle_id: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class WriteBlockResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class OpenMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
