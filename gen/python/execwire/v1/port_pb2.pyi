from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConnectPortRequest(_message.Message):
    __slots__ = ["accept", "connect", "data"]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    accept: PortAccept
    connect: PortConnect
    data: bytes
    def __init__(self, connect: _Optional[_Union[PortConnect, _Mapping]] = ..., data: _Optional[bytes] = ..., accept: _Optional[_Union[PortAccept, _Mapping]] = ...) -> None: ...

class ConnectPortResponse(_message.Message):
    __slots__ = ["connected", "data", "end"]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    connected: PortConnected
    data: bytes
    end: PortEnd
    def __init__(self, connected: _Optional[_Union[PortConnected, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[PortEnd, _Mapping]] = ...) -> None: ...

class ListPortsRequest(_message.Message):
    __slots__ = ["process_id", "session_id"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ...) -> None: ...

class ListPortsResponse(_message.Message):
    __slots__ = ["ports", "truncated"]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ports: _containers.RepeatedCompositeFieldContainer[Port]
    truncated: bool
    def __init__(self, ports: _Optional[_Iterable[_Union[Port, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class ListenPortRequest(_message.Message):
    __slots__ = ["address", "listener_id", "port", "session_id"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    address: str
    listener_id: str
    port: int
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., listener_id: _Optional[str] = ...) -> None: ...

class ListenPortResponse(_message.Message):
    __slots__ = ["arrival", "listening"]
    ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    LISTENING_FIELD_NUMBER: _ClassVar[int]
    arrival: PortArrival
    listening: PortListening
    def __init__(self, listening: _Optional[_Union[PortListening, _Mapping]] = ..., arrival: _Optional[_Union[PortArrival, _Mapping]] = ...) -> None: ...

class Port(_message.Message):
    __slots__ = ["address", "pid", "port", "process_id", "program"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    address: str
    pid: int
    port: int
    process_id: str
    program: str
    def __init__(self, address: _Optional[str] = ..., port: _Optional[int] = ..., process_id: _Optional[str] = ..., pid: _Optional[int] = ..., program: _Optional[str] = ...) -> None: ...

class PortAccept(_message.Message):
    __slots__ = ["connection_id", "session_id"]
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    connection_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., connection_id: _Optional[str] = ...) -> None: ...

class PortArrival(_message.Message):
    __slots__ = ["connection_id", "peer_address"]
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    connection_id: str
    peer_address: str
    def __init__(self, connection_id: _Optional[str] = ..., peer_address: _Optional[str] = ...) -> None: ...

class PortConnect(_message.Message):
    __slots__ = ["host", "port", "session_id"]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class PortConnected(_message.Message):
    __slots__ = ["address"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class PortEnd(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class PortListening(_message.Message):
    __slots__ = ["address"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class WatchPortsRequest(_message.Message):
    __slots__ = ["process_id", "session_id"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., process_id: _Optional[str] = ...) -> None: ...

class WatchPortsResponse(_message.Message):
    __slots__ = ["closed", "opened", "truncated"]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    closed: _containers.RepeatedCompositeFieldContainer[Port]
    opened: _containers.RepeatedCompositeFieldContainer[Port]
    truncated: bool
    def __init__(self, closed: _Optional[_Iterable[_Union[Port, _Mapping]]] = ..., opened: _Optional[_Iterable[_Union[Port, _Mapping]]] = ..., truncated: bool = ...) -> None: ...
