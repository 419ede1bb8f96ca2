from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
UPGRADE_STATE_DONE: UpgradeState
UPGRADE_STATE_FAILED: UpgradeState
UPGRADE_STATE_RUNNING: UpgradeState
UPGRADE_STATE_UNSPECIFIED: UpgradeState

class GetUpgradeRequest(_message.Message):
    __slots__ = ["upgrade_id"]
    UPGRADE_ID_FIELD_NUMBER: _ClassVar[int]
    upgrade_id: str
    def __init__(self, upgrade_id: _Optional[str] = ...) -> None: ...

class GetUpgradeResponse(_message.Message):
    __slots__ = ["upgrade"]
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    upgrade: Upgrade
    def __init__(self, upgrade: _Optional[_Union[Upgrade, _Mapping]] = ...) -> None: ...

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

class Upgrade(_message.Message):
    __slots__ = ["error", "pause", "previous_version", "state", "upgrade_id", "version"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    error: str
    pause: _duration_pb2.Duration
    previous_version: str
    state: UpgradeState
    upgrade_id: str
    version: str
    def __init__(self, upgrade_id: _Optional[str] = ..., state: _Optional[_Union[UpgradeState, str]] = ..., previous_version: _Optional[str] = ..., version: _Optional[str] = ..., error: _Optional[str] = ..., pause: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class UpgradeRequest(_message.Message):
    __slots__ = ["binary", "upgrade_id"]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_ID_FIELD_NUMBER: _ClassVar[int]
    binary: str
    upgrade_id: str
    def __init__(self, upgrade_id: _Optional[str] = ..., binary: _Optional[str] = ...) -> None: ...

class UpgradeResponse(_message.Message):
    __slots__ = ["upgrade"]
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    upgrade: Upgrade
    def __init__(self, upgrade: _Optional[_Union[Upgrade, _Mapping]] = ...) -> None: ...

class UpgradeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
