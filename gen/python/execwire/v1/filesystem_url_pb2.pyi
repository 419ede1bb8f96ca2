from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
FILE_URL_METHOD_GET: FileURLMethod
FILE_URL_METHOD_PUT: FileURLMethod
FILE_URL_METHOD_UNSPECIFIED: FileURLMethod

class SignFileURLRequest(_message.Message):
    __slots__ = ["expiry", "max_bytes", "method", "path", "raw_path"]
    EXPIRY_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    expiry: _duration_pb2.Duration
    max_bytes: int
    method: FileURLMethod
    path: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., method: _Optional[_Union[FileURLMethod, str]] = ..., expiry: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class SignFileURLResponse(_message.Message):
    __slots__ = ["expire_time", "url"]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    expire_time: _timestamp_pb2.Timestamp
    url: str
    def __init__(self, url: _Optional[str] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FileURLMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
