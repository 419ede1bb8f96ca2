from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
REDIRECT_POLICY_FOLLOW: RedirectPolicy
REDIRECT_POLICY_STOP: RedirectPolicy
REDIRECT_POLICY_UNSPECIFIED: RedirectPolicy

class FetchRequest(_message.Message):
    __slots__ = ["body", "headers", "method", "redirect_policy", "timeout", "url"]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_POLICY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    headers: _containers.RepeatedCompositeFieldContainer[HttpHeader]
    method: str
    redirect_policy: RedirectPolicy
    timeout: _duration_pb2.Duration
    url: str
    def __init__(self, method: _Optional[str] = ..., url: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[HttpHeader, _Mapping]]] = ..., body: _Optional[bytes] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., redirect_policy: _Optional[_Union[RedirectPolicy, str]] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ["data", "head"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    head: HttpHead
    def __init__(self, head: _Optional[_Union[HttpHead, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class HttpHead(_message.Message):
    __slots__ = ["headers", "status", "url"]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.RepeatedCompositeFieldContainer[HttpHeader]
    status: int
    url: str
    def __init__(self, status: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[HttpHeader, _Mapping]]] = ..., url: _Optional[str] = ...) -> None: ...

class HttpHeader(_message.Message):
    __slots__ = ["name", "raw_value", "value"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAW_VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    raw_value: bytes
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., raw_value: _Optional[bytes] = ...) -> None: ...

class RedirectPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
