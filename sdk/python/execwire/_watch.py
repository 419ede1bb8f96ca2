"""Watches of directories."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

import grpc

from . import errors
from ._command import duration
from ._metadata import FileType
from ._path import PathLike, fields, shown, text
from ._transport import Transport
from .v1 import filesystem_watch_pb2


class ChangeKind(enum.Enum):
    """The kind of a change."""

    #: It is new, or was replaced, with everything below it.
    CREATED = filesystem_watch_pb2.WATCH_CHANGE_KIND_CREATED
    #: The content of the file was written.
    MODIFIED = filesystem_watch_pb2.WATCH_CHANGE_KIND_MODIFIED
    #: Mode, owner, times or other metadata changed.
    METADATA = filesystem_watch_pb2.WATCH_CHANGE_KIND_METADATA
    #: It was removed, with everything below it.
    REMOVED = filesystem_watch_pb2.WATCH_CHANGE_KIND_REMOVED
    #: A kind that this package does not know, from a newer server.
    UNKNOWN = filesystem_watch_pb2.WATCH_CHANGE_KIND_UNSPECIFIED

    @classmethod
    def _missing_(cls, value: object) -> "ChangeKind":
        return cls.UNKNOWN


@dataclass(frozen=True)
class Change:
    """A change of a path."""

    #: Relative to the watched directory.
    path: str
    #: What happened.
    kind: ChangeKind
    #: Its type now; UNKNOWN if it does not exist.
    type: FileType


@dataclass(frozen=True)
class WatchEvent:
    """An event of a watch: one of its members is set."""

    #: Changes, at most one for each path.
    changes: Tuple[Change, ...] = ()
    #: Changes were lost: rescan everything.
    overflow: bool = False
    #: A directory that is no longer watched, with everything below it: its path, relative
    #: to the watched directory, and the reason. None otherwise.
    lost: Optional[Tuple[str, str]] = None


class Watch(Iterator[WatchEvent]):
    """Changes in a directory.

    Iterating blocks until there is an event. Between calls the server collects changes,
    up to an overflow. ``close``, or the end of a ``with`` block, ends the watch, also
    for a blocked thread.
    """

    def __init__(
        self,
        transport: Transport,
        path: PathLike,
        recursive: bool,
        ignore: Sequence[str],
        settle: Optional[float],
        sandbox: Dict[str, Any],
    ) -> None:
        request = filesystem_watch_pb2.WatchDirectoryRequest(
            **fields(path), **sandbox, recursive=recursive, ignore=ignore
        )
        if settle is not None:
            request.settle.CopyFrom(duration(settle))
        self._transport, self._path, self._closed = transport, shown(path), False
        self._call = transport.once(lambda: transport.files.WatchDirectory(request))
        try:
            first = transport.once(lambda: next(self._call, None))
            if first is None or first.WhichOneof("event") != "started":
                raise errors.ProtocolError(f"it did not confirm the watch of {self._path}")
        except BaseException:
            self._call.cancel()
            raise

    def close(self) -> None:
        """Ends the watch. Closing twice is not an error."""
        self._closed = True
        self._call.cancel()

    def __next__(self) -> WatchEvent:
        while True:
            try:
                message = next(self._call, None)
            except (grpc.RpcError, ValueError) as error:
                if self._closed:
                    raise StopIteration from None
                raise self._transport.failure(error) from None
            if message is None:
                raise errors.ProtocolError(f"it ended the watch of {self._path} without a reason")
            event = _event(message)
            if event is not None:
                return event

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _event(message: filesystem_watch_pb2.WatchDirectoryResponse) -> Optional[WatchEvent]:
    kind = message.WhichOneof("event")
    if kind == "changes":
        return WatchEvent(
            changes=tuple(
                Change(text(c.path, c.raw_path), ChangeKind(c.kind), FileType(c.type))
                for c in message.changes.changes
            )
        )
    if kind == "overflow":
        return WatchEvent(overflow=True)
    if kind == "lost":
        return WatchEvent(
            lost=(text(message.lost.path, message.lost.raw_path), message.lost.message)
        )
    return None
