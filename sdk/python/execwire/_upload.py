"""Uploads."""

from __future__ import annotations

import hashlib
import io
import threading
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterator, Optional, Tuple, cast

import grpc

from . import errors
from ._io import OnBytes
from ._metadata import FileInfo, new_info, timestamp
from ._path import PathLike, fields, shown
from ._transport import Retry, Transport
from .v1 import filesystem_pb2, filesystem_transfer_pb2

if TYPE_CHECKING:
    from ._io import Reader

_PIECE_BYTES = 64 << 10
# Files up to this size are sent again instead of resumed.
_RESUME_BYTES = 256 << 10
# How much is sent between requests for the received size, if unconfirmed data must be
# buffered.
_CONFIRM_BYTES = 8 << 20
# Limits how often an upload starts over because the received data was unusable.
_MAX_RESTARTS = 3
_PIECES = 8  # limits queued requests
_DROP_TIMEOUT = 1.0  # seconds


@dataclass(frozen=True)
class Uploaded:
    """The result of an upload."""

    #: The size of the file.
    size: int
    #: Its digest, which the server has verified unless it wrote in place.
    sha256: bytes
    #: The new file; None if it was written in place.
    info: Optional[FileInfo]


class Upload:
    """One upload. The caller's thread reads the source."""

    def __init__(
        self,
        transport: Transport,
        path: PathLike,
        source: "Reader",
        *,
        in_place: bool,
        mode: Optional[int],
        modify_time_ns: Optional[int],
        if_match_sha256: bytes,
        if_missing: bool,
        sync: bool,
        upload_id: str,
        sandbox: Dict[str, Any],
        on_progress: OnBytes = None,
    ) -> None:
        self._transport, self._path = transport, path
        self._in_place, self._named = in_place, upload_id != ""
        head = filesystem_transfer_pb2.UploadHead(**fields(path), **sandbox)
        head.mode = filesystem_transfer_pb2.UPLOAD_MODE_IN_PLACE
        if not in_place:
            head.mode = filesystem_transfer_pb2.UPLOAD_MODE_REPLACE
        head.if_match_sha256, head.if_missing, head.sync = if_match_sha256, if_missing, sync
        if mode is not None:
            head.permissions = mode
        if modify_time_ns is not None:
            head.modify_time.CopyFrom(timestamp(modify_time_ns))
        self._head = head
        self._source, self._on_progress = _Source(source), on_progress
        self._reported = 0
        if not upload_id and not in_place and self._source.size > _RESUME_BYTES:
            upload_id = str(uuid.uuid4())
        head.upload_id = upload_id
        self._source.buffering = upload_id != ""
        # The digest of the first _hashed bytes.
        self._digest, self._hashed = hashlib.sha256(), 0
        self._known = 0  # what the server has certainly received
        self._asked = 0  # number of sent bytes at the last request for the received size
        self._complete = False  # whether the whole source was sent
        self._restarts = 0
        self._offset = 0  # of the last attempt
        self._lock = threading.Lock()
        self._call: Optional[grpc.Future[filesystem_transfer_pb2.UploadFileResponse]] = None
        self._aborted = False

    def run(self) -> Uploaded:
        """Uploads, and blocks until the file was replaced."""
        with self._transport.uploading(self.abort):
            try:
                return self._run()
            except (errors.ExecwireError, errors.ClosedError):
                raise
            except BaseException:  # of the source, or an interrupt
                self._drop()
                raise

    def abort(self) -> None:
        """Makes run fail with ClosedError, and the server drop the upload.

        It may be called by any thread, and blocks for a second at most. A file that was
        already replaced stays.
        """
        with self._lock:
            self._aborted = True
            call = self._call
        if call is not None:
            call.cancel()
        self._drop()

    def _run(self) -> Uploaded:
        retry, anew = Retry(self._transport), not self._named
        while True:
            try:
                return self._attempt(anew)
            except (grpc.RpcError, _ChannelClosed) as error:
                failure = self._transport.failure(error)
            anew = False
            if self._offset > self._known:
                self._known = self._offset
                retry.progress()
            if self._must_restart(failure):
                continue
            retry.again(failure)
            arrived = self._arrived()
            if arrived is not None:
                return arrived

    def _attempt(self, anew: bool) -> Uploaded:
        self._offset = 0
        if not anew and self._head.upload_id:
            self._offset = self._received()
        if not self._source.rewind(min(self._offset, self._hashed)):
            raise errors.UnavailableError(
                "UNAVAILABLE",
                f"failed to resume the upload of {shown(self._path)}: its source cannot be read from the start again",
            )
        requests = _Requests()
        with self._lock:
            self._check_resumable()
            try:
                call = self._transport.files.UploadFile.future(
                    self._transport.sending(iter(requests))
                )
            except ValueError as error:
                raise _ChannelClosed(str(error)) from None
            self._call = call
        call.add_done_callback(lambda _: requests.close())
        try:
            self._send(requests)
            answer = _result(call)
        except grpc.FutureCancelledError:
            self._check_resumable()
            raise
        finally:
            # Cancelled before the requests end, because their end would be a half-close.
            call.cancel()
            requests.close()
        if not self._complete or answer.size != self._hashed:
            raise errors.ProtocolError(f"it completed {shown(self._path)} after {answer.size} bytes")
        info = new_info(answer.metadata) if answer.HasField("metadata") else None
        return Uploaded(answer.size, self._digest.digest(), info)

    def _check_resumable(self) -> None:
        if self._aborted:
            raise errors.ClosedError("the upload was aborted")

    def _send(self, requests: "_Requests") -> None:
        """Sends everything after the offset, unless the call ends, whose result has the
        error."""
        request = filesystem_transfer_pb2.UploadFileRequest
        head = filesystem_transfer_pb2.UploadHead()
        head.CopyFrom(self._head)
        head.offset = self._offset
        if not requests.put(request(head=head)):
            return
        position = min(self._offset, self._hashed)
        while True:
            piece = self._source.next()
            if not piece:
                break
            end = position + len(piece)
            if end > self._hashed:
                self._digest.update(piece[max(0, self._hashed - position) :])
                self._hashed = end
            if end > self._offset:
                data = piece[max(0, self._offset - position) :]
                if not requests.put(request(data=data)):
                    return
            position = end
            if self._on_progress is not None and position > self._reported:
                self._reported = position
                self._on_progress(position)
            self._confirm(position)
        self._complete = True
        digest = b"" if self._in_place else self._digest.digest()
        if requests.put(request(end=filesystem_transfer_pb2.UploadEnd(sha256=digest))):
            requests.end()

    def _received(self) -> int:
        """Requests how much the server has."""
        request = filesystem_transfer_pb2.GetUploadRequest(upload_id=self._head.upload_id)
        try:
            answer = self._transport.files.GetUpload(request)
        except grpc.RpcError as error:
            if errors.from_rpc(error).reason == "UPLOAD_NOT_FOUND":
                return 0
            raise
        except ValueError as error:
            raise _ChannelClosed(str(error)) from None
        if answer.complete and not self._complete:
            # An earlier upload with the same id: its answer must not be mistaken for that
            # of this one.
            self._forget()
            return 0
        return answer.received_bytes

    def _confirm(self, position: int) -> None:
        """Drops buffered data that the server has received."""
        if self._source.kept < _CONFIRM_BYTES or position < self._asked + _CONFIRM_BYTES:
            return
        self._asked = position
        try:
            self._source.forget(self._received())
        except (grpc.RpcError, _ChannelClosed):
            pass  # the stream fails too

    def _must_restart(self, failure: errors.Error) -> bool:
        reason = failure.reason if isinstance(failure, errors.ExecwireError) else ""
        if not self._offset or reason not in ("UPLOAD_NOT_FOUND", "DIGEST_MISMATCH"):
            return False
        if self._restarts == _MAX_RESTARTS:
            return False
        self._restarts += 1
        self._known = self._hashed = 0
        self._complete = False
        self._digest = hashlib.sha256()
        return True

    def _arrived(self) -> Optional[Uploaded]:
        """Returns the result of the last attempt, if only its answer was lost."""
        if not self._complete or self._in_place:
            return None
        request = filesystem_pb2.GetMetadataRequest(**fields(self._path), want_sha256=True)
        if self._head.HasField("sandbox"):
            request.sandbox.CopyFrom(self._head.sandbox)
        try:
            answer = self._transport.files.GetMetadata(request)
        except (grpc.RpcError, ValueError):
            return None
        if answer.sha256 != self._digest.digest():
            return None
        info = new_info(answer.metadata)
        if self._head.HasField("permissions") and info.mode != self._head.permissions:
            return None
        if self._head.HasField("modify_time"):
            if info.modify_time_ns != self._head.modify_time.ToNanoseconds():
                return None
        return Uploaded(info.size, answer.sha256, info)

    def _drop(self) -> None:
        """Makes the server drop an upload with a generated id."""
        if not self._head.upload_id or self._named:
            return
        try:
            self._forget(_DROP_TIMEOUT)
        except (grpc.RpcError, ValueError):
            pass  # it expires

    def _forget(self, timeout: Optional[float] = None) -> None:
        # An upload that begins anew drops the earlier one, and one with a wrong digest is
        # dropped itself.
        head = filesystem_transfer_pb2.UploadHead()
        head.CopyFrom(self._head)
        head.ClearField("if_match_sha256")
        head.ClearField("if_missing")
        request = filesystem_transfer_pb2.UploadFileRequest
        end = filesystem_transfer_pb2.UploadEnd(sha256=bytes(hashlib.sha256().digest_size))
        try:
            self._transport.files.UploadFile(
                self._transport.sending(iter((request(head=head), request(end=end)))),
                timeout=timeout,
            )
        except grpc.RpcError as error:
            if errors.from_rpc(error).reason != "DIGEST_MISMATCH":
                raise


def _result(
    call: "grpc.Future[filesystem_transfer_pb2.UploadFileResponse]",
) -> filesystem_transfer_pb2.UploadFileResponse:
    try:
        return call.result()
    except ValueError as error:  # with an interceptor
        raise _ChannelClosed(str(error)) from None


class _ChannelClosed(ValueError):
    """The error of grpc for a closed channel."""


class _Source:
    """The content of an upload. Offsets count from the initial position of the reader."""

    def __init__(self, source: "Reader") -> None:
        self._read = source.read
        self._file: Optional[io.IOBase] = None
        #: The size in bytes; a large number if unknown.
        self.size = 1 << 63
        #: Whether rewind will be needed.
        self.buffering = False
        #: How many bytes are buffered for rewind.
        self.kept = 0
        # Pieces that may be requested again.
        self._list: Deque[Tuple[int, bytes]] = deque()
        self._again: Deque[bytes] = deque()
        self._at = 0
        try:
            file = cast(io.IOBase, source)
            self._start = file.tell()
            self.size = file.seek(0, io.SEEK_END) - self._start
            file.seek(self._start)
            self._file = file
        except (AttributeError, OSError, ValueError):
            pass  # it is not seekable

    def next(self) -> bytes:
        """Returns the next piece; empty at the end."""
        if self._again:
            return self._again.popleft()
        piece = self._read(_PIECE_BYTES)
        if piece is None:
            raise errors.UsageError("the source of an upload must block until it has something")
        if self._file is None and self.buffering and piece:
            self._list.append((self._at, piece))
            self.kept += len(piece)
        self._at += len(piece)
        return piece

    def rewind(self, offset: int) -> bool:
        """Continues at an earlier offset, if possible."""
        if self._file is not None:
            self._file.seek(self._start + offset)
            self._at = offset
            return True
        if offset == self._at:
            self._again.clear()
            return True
        if not self._list or offset < self._list[0][0]:
            return False
        self._again.clear()
        for at, piece in self._list:
            if at + len(piece) > offset:
                self._again.append(piece[max(0, offset - at) :])
        return True

    def forget(self, offset: int) -> None:
        """Releases everything before the offset."""
        while self._list and self._list[0][0] + len(self._list[0][1]) <= offset:
            self.kept -= len(self._list.popleft()[1])


class _Requests:
    """A bounded queue of requests for the thread of grpc."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # see Owner
        self._cond = threading.Condition(self._lock)
        self._waiting: Deque[filesystem_transfer_pb2.UploadFileRequest] = deque()
        self._ended = self._closed = False

    def put(self, request: filesystem_transfer_pb2.UploadFileRequest) -> bool:
        """Adds a request, and blocks while the queue is full. Returns False after the call
        has ended."""
        with self._lock:
            self._cond.wait_for(lambda: self._closed or len(self._waiting) < _PIECES)
            if self._closed:
                return False
            self._waiting.append(request)
            self._cond.notify_all()
            return True

    def end(self) -> None:
        """Ends the requests."""
        with self._lock:
            self._ended = True
            self._cond.notify_all()

    def close(self) -> None:
        """Records that the call has ended."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._cond.notify_all()

    def __iter__(self) -> Iterator[filesystem_transfer_pb2.UploadFileRequest]:
        while True:
            with self._lock:
                self._cond.wait_for(lambda: self._waiting or self._ended or self._closed)
                if not self._waiting:
                    return
                request = self._waiting.popleft()
                self._cond.notify_all()
            yield request
