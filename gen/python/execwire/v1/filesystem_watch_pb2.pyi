from execwire.v1 import filesystem_metadata_pb2 as _filesystem_metadata_pb2
from execwire.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
WATCH_CHANGE_KIND_CREATED: WatchChangeKind
WATCH_CHANGE_KIND_METADATA: WatchChangeKind
WATCH_CHANGE_KIND_MODIFIED: WatchChangeKind
WATCH_CHANGE_KIND_REMOVED: WatchChangeKind
WATCH_CHANGE_KIND_UNSPECIFIED: WatchChangeKind
WATCH_LOST_REASON_MOVED: WatchLostReason
WATCH_LOST_REASON_NOT_ALLOWED: WatchLostReason
WATCH_LOST_REASON_NO_WATCHES: WatchLostReason
WATCH_LOST_REASON_REMOVED: WatchLostReason
WATCH_LOST_REASON_UNMOUNTED: WatchLostReason
WATCH_LOST_REASON_UNSPECIFIED: WatchLostReason

class AwaitPathsRequest(_message.Message):
    __slots__ = ["missing", "present", "sandbox"]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedCompositeFieldContainer[AwaitedPath]
    present: _containers.RepeatedCompositeFieldContainer[AwaitedPath]
    sandbox: _sandbox_pb2.SandboxPolicy
    def __init__(self, missing: _Optional[_Iterable[_Union[AwaitedPath, _Mapping]]] = ..., present: _Optional[_Iterable[_Union[AwaitedPath, _Mapping]]] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ...) -> None: ...

class AwaitPathsResponse(_message.Message):
    __slots__ = ["awaited", "started"]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    awaited: PathAwaited
    started: AwaitStarted
    def __init__(self, started: _Optional[_Union[AwaitStarted, _Mapping]] = ..., awaited: _Optional[_Union[PathAwaited, _Mapping]] = ...) -> None: ...

class AwaitStarted(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class AwaitedPath(_message.Message):
    __slots__ = ["path", "raw_path"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class PathAwaited(_message.Message):
    __slots__ = ["exists", "index"]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    index: int
    def __init__(self, index: _Optional[int] = ..., exists: bool = ...) -> None: ...

class WatchChange(_message.Message):
    __slots__ = ["kind", "path", "raw_path", "type"]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    kind: WatchChangeKind
    path: str
    raw_path: bytes
    type: _filesystem_metadata_pb2.FileType
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., kind: _Optional[_Union[WatchChangeKind, str]] = ..., type: _Optional[_Union[_filesystem_metadata_pb2.FileType, str]] = ...) -> None: ...

class WatchChanges(_message.Message):
    __slots__ = ["changes"]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[WatchChange]
    def __init__(self, changes: _Optional[_Iterable[_Union[WatchChange, _Mapping]]] = ...) -> None: ...

class WatchDirectoryRequest(_message.Message):
    __slots__ = ["ignore", "path", "raw_path", "recursive", "sandbox", "settle"]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    ignore: _containers.RepeatedScalarFieldContainer[str]
    path: str
    raw_path: bytes
    recursive: bool
    sandbox: _sandbox_pb2.SandboxPolicy
    settle: _duration_pb2.Duration
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxPolicy, _Mapping]] = ..., recursive: bool = ..., ignore: _Optional[_Iterable[str]] = ..., settle: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchDirectoryResponse(_message.Message):
    __slots__ = ["changes", "lost", "overflow", "started"]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    changes: WatchChanges
    lost: WatchLost
    overflow: WatchOverflow
    started: WatchStarted
    def __init__(self, started: _Optional[_Union[WatchStarted, _Mapping]] = ..., changes: _Optional[_Union[WatchChanges, _Mapping]] = ..., overflow: _Optional[_Union[WatchOverflow, _Mapping]] = ..., lost: _Optional[_Union[WatchLost, _Mapping]] = ...) -> None: ...

class WatchLost(_message.Message):
    __slots__ = ["message", "path", "raw_path", "reason"]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    message: str
    path: str
    raw_path: bytes
    reason: WatchLostReason
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., reason: _Optional[_Union[WatchLostReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class WatchOverflow(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class WatchStarted(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class WatchChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class WatchLostReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
