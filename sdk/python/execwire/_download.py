"""Downloads."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Generator, Iterator, Optional

import grpc

from . import errors
from ._io import OnBytes, write_all
from ._metadata import FileInfo, new_info
from ._path import PathLike, fields, shown
from ._transport import Retry, Transport
from .v1 import filesystem_transfer_pb2

if TYPE_CHECKING:
    from ._io import Writer


@dataclass(frozen=True)
class Downloaded:
    """The result of a download."""

    #: The number of bytes written.
    size: int
    #: The file at the start.
    info: FileInfo
    #: Whether the file changed during the download, so that the content may be a mixture.
    changed: bool


class Download:
    """One download."""

    def __init__(
        self,
        transport: Transport,
        path: PathLike,
        to: "Optional[Writer]",
        offset: int,
        length: Optional[int],
        if_version: str,
        sandbox: Dict[str, Any],
        on_progress: OnBytes = None,
    ) -> None:
        self._transport, self._path, self._to = transport, path, to
        self._offset, self._length, self._if_version = offset, length, if_version
        self._sandbox, self._on_progress = sandbox, on_progress
        self._info: Optional[FileInfo] = None
        self._written = 0
        self._changed = False

    def run(self) -> Downloaded:
        """Downloads, and blocks until everything was written."""
        with contextlib.closing(self.pieces()) as pieces:
            for data in pieces:
                self._write(data)
        assert self._info is not None
        return Downloaded(self._written, self._info, self._changed)

    def pieces(self) -> "Generator[bytes, None, None]":
        """Iterates over the content, across lost connections."""
        retry = Retry(self._transport)
        while True:
            before = self._written
            try:
                yield from self._attempt()
                return
            except (grpc.RpcError, ValueError) as error:
                failure = self._transport.failure(error)
            if self._written > before:
                retry.progress()
            retry.again(failure)

    def _attempt(self) -> Iterator[bytes]:
        request = filesystem_transfer_pb2.DownloadFileRequest(
            **fields(self._path),
            **self._sandbox,
            offset=self._offset + self._written,
            want_sha256=True,
            if_version=self._if_version,
        )
        if self._written and self._info is not None:
            request.if_version = self._info.version
        if self._length is not None:
            request.length = self._length - self._written
        digest, ended = hashlib.sha256(), False
        call = self._transport.files.DownloadFile(request)
        try:
            for message in call:
                kind = message.WhichOneof("message")
                if kind == "head":
                    self._info = self._info or new_info(message.head.metadata)
                elif kind == "data":
                    if self._info is None or ended:
                        raise self._broken("it sent data before the head or after the end")
                    digest.update(message.data)
                    if self._length is not None and self._written + len(message.data) > self._length:
                        raise self._broken("it sent more than it was asked for")
                    self._written += len(message.data)
                    yield message.data
                elif kind == "end":
                    ended = True
                    self._changed = self._changed or message.end.changed
                    if message.end.sha256 != digest.digest():
                        raise self._broken("the received content does not match the SHA-256 of the server")
        finally:
            call.cancel()
        if not ended or self._info is None:
            raise self._broken("it did not confirm that the file is complete")

    def _write(self, data: bytes) -> None:
        assert self._to is not None
        try:
            write_all(self._to, data)
        except ValueError as error:  # a closed file, not the channel
            raise errors.UsageError(f"failed to write the content of {shown(self._path)}: {error}") from error
        if self._on_progress is not None:
            self._on_progress(self._written)

    def _broken(self, how: str) -> errors.ProtocolError:
        return errors.ProtocolError(f"{how}, of {shown(self._path)}")
