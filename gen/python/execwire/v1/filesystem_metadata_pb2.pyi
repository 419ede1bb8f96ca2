from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
FILE_TYPE_BLOCK_DEVICE: FileType
FILE_TYPE_CHARACTER_DEVICE: FileType
FILE_TYPE_DIRECTORY: FileType
FILE_TYPE_FIFO: FileType
FILE_TYPE_REGULAR: FileType
FILE_TYPE_SOCKET: FileType
FILE_TYPE_SYMLINK: FileType
FILE_TYPE_UNSPECIFIED: FileType

class FileMetadata(_message.Message):
    __slots__ = ["access_time", "birth_time", "change_time", "group_id", "is_symlink", "link_count", "mode", "modify_time", "size", "type", "user_id", "version"]
    ACCESS_TIME_FIELD_NUMBER: _ClassVar[int]
    BIRTH_TIME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_TIME_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    IS_SYMLINK_FIELD_NUMBER: _ClassVar[int]
    LINK_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    access_time: _timestamp_pb2.Timestamp
    birth_time: _timestamp_pb2.Timestamp
    change_time: _timestamp_pb2.Timestamp
    group_id: int
    is_symlink: bool
    link_count: int
    mode: int
    modify_time: _timestamp_pb2.Timestamp
    size: int
    type: FileType
    user_id: int
    version: str
    def __init__(self, type: _Optional[_Union[FileType, str]] = ..., is_symlink: bool = ..., size: _Optional[int] = ..., mode: _Optional[int] = ..., user_id: _Optional[int] = ..., group_id: _Optional[int] = ..., link_count: _Optional[int] = ..., modify_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., access_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., change_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., birth_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[str] = ...) -> None: ...

class FileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
