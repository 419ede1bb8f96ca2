"""Metadata of files."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional

from google.protobuf import timestamp_pb2

from .v1 import filesystem_metadata_pb2


class FileType(enum.Enum):
    """The type of a directory entry."""

    #: Unknown: a link to nothing, or without permission to look.
    UNKNOWN = filesystem_metadata_pb2.FILE_TYPE_UNSPECIFIED
    REGULAR = filesystem_metadata_pb2.FILE_TYPE_REGULAR
    DIRECTORY = filesystem_metadata_pb2.FILE_TYPE_DIRECTORY
    SYMLINK = filesystem_metadata_pb2.FILE_TYPE_SYMLINK
    FIFO = filesystem_metadata_pb2.FILE_TYPE_FIFO
    SOCKET = filesystem_metadata_pb2.FILE_TYPE_SOCKET
    CHARACTER_DEVICE = filesystem_metadata_pb2.FILE_TYPE_CHARACTER_DEVICE
    BLOCK_DEVICE = filesystem_metadata_pb2.FILE_TYPE_BLOCK_DEVICE

    @classmethod
    def _missing_(cls, value: object) -> "FileType":
        return cls.UNKNOWN


@dataclass(frozen=True)
class FileInfo:
    """The description of a file."""

    #: Its type; of stat(), that of the target of a link.
    type: FileType
    #: Whether the path itself is a symbolic link.
    is_symlink: bool
    #: In bytes, if meaningful for the type.
    size: int
    #: The permission bits, of mode 07777.
    mode: int
    #: The number of its owner.
    user_id: int
    #: The number of its group.
    group_id: int
    #: How many names the file has.
    link_count: int
    #: When its content was last modified, in nanoseconds since 1970.
    modify_time_ns: int
    #: When it was last read, likewise.
    access_time_ns: int
    #: When its content or metadata last changed, likewise.
    change_time_ns: int
    #: The creation time; None if the file system does not record it.
    birth_time_ns: Optional[int]
    #: Changes whenever the file changes; opaque.
    version: str
    #: The target of a link, as written in it; only of lstat().
    link_target: str = ""
    #: The digest of a regular file; only if requested.
    sha256: bytes = b""


def new_info(
    m: filesystem_metadata_pb2.FileMetadata, link_target: str = "", sha256: bytes = b""
) -> FileInfo:
    """Converts the message for a file."""
    return FileInfo(
        type=FileType(m.type),
        is_symlink=m.is_symlink,
        size=m.size,
        mode=m.mode,
        user_id=m.user_id,
        group_id=m.group_id,
        link_count=m.link_count,
        modify_time_ns=m.modify_time.ToNanoseconds(),
        access_time_ns=m.access_time.ToNanoseconds(),
        change_time_ns=m.change_time.ToNanoseconds(),
        birth_time_ns=m.birth_time.ToNanoseconds() if m.HasField("birth_time") else None,
        version=m.version,
        link_target=link_target,
        sha256=sha256,
    )


def timestamp(nanoseconds: int) -> timestamp_pb2.Timestamp:
    """Converts nanoseconds since 1970 to a message."""
    message = timestamp_pb2.Timestamp()
    message.FromNanoseconds(nanoseconds)
    return message
