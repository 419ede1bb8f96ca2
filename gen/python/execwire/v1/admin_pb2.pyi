from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReloadRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ReloadResponse(_message.Message):
    __slots__ = ["applied", "needs_restart"]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESTART_FIELD_NUMBER: _ClassVar[int]
    applied: _containers.RepeatedCompositeFieldContainer[SettingChange]
    needs_restart: _containers.RepeatedCompositeFieldContainer[SettingChange]
    def __init__(self, applied: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ..., needs_restart: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ...) -> None: ...

class SettingChange(_message.Message):
    __slots__ = ["new_value", "old_value", "setting"]
    NEW_VALUE_FIELD_NUMBER: _ClassVar[int]
    OLD_VALUE_FIELD_NUMBER: _ClassVar[int]
    SETTING_FIELD_NUMBER: _ClassVar[int]
    new_value: str
    old_value: str
    setting: str
    def __init__(self, setting: _Optional[str] = ..., old_value: _Optional[str] = ..., new_value: _Optional[str] = ...) -> None: ...
