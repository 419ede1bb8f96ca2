from execwire.v1 import process_event_pb2 as _process_event_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
SESSION_ACCESS_UNSPECIFIED: SessionAccess
SESSION_ACCESS_VIEW: SessionAccess
SESSION_ACCESS_WRITE: SessionAccess
WHEN_DETACHED_BLOCK: WhenDetached
WHEN_DETACHED_DISCARD_OLDEST: WhenDetached
WHEN_DETACHED_UNSPECIFIED: WhenDetached

class AttachSessionRequest(_message.Message):
    __slots__ = ["acknowledge", "attach", "detach", "pong"]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    acknowledge: SessionAcknowledge
    attach: SessionAttach
    detach: SessionDetach
    pong: SessionPong
    def __init__(self, attach: _Optional[_Union[SessionAttach, _Mapping]] = ..., acknowledge: _Optional[_Union[SessionAcknowledge, _Mapping]] = ..., detach: _Optional[_Union[SessionDetach, _Mapping]] = ..., pong: _Optional[_Union[SessionPong, _Mapping]] = ...) -> None: ...

class AttachSessionResponse(_message.Message):
    __slots__ = ["attached", "events", "ping", "released"]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    attached: SessionAttached
    events: SessionEvents
    ping: SessionPing
    released: SessionProcessReleased
    def __init__(self, attached: _Optional[_Union[SessionAttached, _Mapping]] = ..., events: _Optional[_Union[SessionEvents, _Mapping]] = ..., ping: _Optional[_Union[SessionPing, _Mapping]] = ..., released: _Optional[_Union[SessionProcessReleased, _Mapping]] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ["session_id"]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GrantSessionRequest(_message.Message):
    __slots__ = ["access", "principal", "session_id"]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    access: SessionAccess
    principal: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., principal: _Optional[str] = ..., access: _Optional[_Union[SessionAccess, str]] = ...) -> None: ...

class GrantSessionResponse(_message.Message):
    __slots__ = ["session"]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ["next_page_token", "sessions"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ["attached", "create_time", "expire_time", "grace", "grants", "principal", "process_count", "session_id", "when_detached"]
    class GrantsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SessionAccess
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SessionAccess, str]] = ...) -> None: ...
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PROCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WHEN_DETACHED_FIELD_NUMBER: _ClassVar[int]
    attached: bool
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    grace: _duration_pb2.Duration
    grants: _containers.ScalarMap[str, SessionAccess]
    principal: str
    process_count: int
    session_id: str
    when_detached: WhenDetached
    def __init__(self, session_id: _Optional[str] = ..., attached: bool = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., process_count: _Optional[int] = ..., principal: _Optional[str] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., when_detached: _Optional[_Union[WhenDetached, str]] = ..., grants: _Optional[_Mapping[str, SessionAccess]] = ...) -> None: ...

class SessionAcknowledge(_message.Message):
    __slots__ = ["process_id", "seq"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    seq: int
    def __init__(self, process_id: _Optional[str] = ..., seq: _Optional[int] = ...) -> None: ...

class SessionAttach(_message.Message):
    __slots__ = ["after_seq", "grace", "max_processes", "session_id", "when_detached"]
    class AfterSeqEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    MAX_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WHEN_DETACHED_FIELD_NUMBER: _ClassVar[int]
    after_seq: _containers.ScalarMap[str, int]
    grace: _duration_pb2.Duration
    max_processes: int
    session_id: str
    when_detached: WhenDetached
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[_Mapping[str, int]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., when_detached: _Optional[_Union[WhenDetached, str]] = ..., max_processes: _Optional[int] = ...) -> None: ...

class SessionAttached(_message.Message):
    __slots__ = ["instance_id", "output_window_bytes", "output_window_events", "resumed", "session"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WINDOW_EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    output_window_bytes: int
    output_window_events: int
    resumed: bool
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., resumed: bool = ..., output_window_bytes: _Optional[int] = ..., output_window_events: _Optional[int] = ..., instance_id: _Optional[str] = ...) -> None: ...

class SessionDetach(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SessionEvents(_message.Message):
    __slots__ = ["events", "process_id"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_process_event_pb2.ProcessEvent]
    process_id: str
    def __init__(self, process_id: _Optional[str] = ..., events: _Optional[_Iterable[_Union[_process_event_pb2.ProcessEvent, _Mapping]]] = ...) -> None: ...

class SessionPing(_message.Message):
    __slots__ = ["nonce"]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class SessionPong(_message.Message):
    __slots__ = ["nonce"]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class SessionProcessReleased(_message.Message):
    __slots__ = ["process_id"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    def __init__(self, process_id: _Optional[str] = ...) -> None: ...

class SessionAccess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class WhenDetached(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
