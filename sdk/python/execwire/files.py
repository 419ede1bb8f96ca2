"""Files of the server."""

from __future__ import annotations

import io
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence

import grpc

from . import errors
from ._download import Download, Downloaded
from ._metadata import FileInfo, FileType, new_info
from ._path import PathLike, fields, shown, text
from ._status import Details
from ._transport import Transport
from ._upload import Upload, Uploaded
from ._watch import Watch
from .sandbox import SandboxLike, policy_of
from .v1 import error_pb2, filesystem_pb2, filesystem_walk_pb2

if TYPE_CHECKING:
    from ._process import Reader, Writer


@dataclass(frozen=True)
class DirectoryEntry:
    """A name in a directory."""

    name: str
    type: FileType
    #: What a link leads to; else the type itself.
    target_type: FileType


@dataclass(frozen=True)
class WalkEntry:
    """Something that is below a directory."""

    #: Relative to the directory that is walked.
    path: str
    type: FileType
    #: What it is, if metadata was asked for and could be had.
    info: Optional[FileInfo] = None
    #: Why a directory could not be read, which does not end the walk; else None.
    error: Optional[errors.ExecwireError] = None


class Files:
    """Files of the server.

    Paths are absolute and of the server's machine. One that is not UTF-8 is a str
    with surrogate escapes, or bytes. Calls that may be repeated, and streams, go on
    after a lost connection, for a minute and a quarter. Errors are of
    ``execwire.errors``; those for missing, existing and forbidden paths are
    FileNotFoundError, FileExistsError and PermissionError too.
    """

    def __init__(self, transport: Transport, sandbox: Optional[SandboxLike] = None) -> None:
        self._transport = transport
        self._sandbox: Dict[str, Any] = {}
        if sandbox is not None:
            self._sandbox = {"sandbox": policy_of(sandbox)}

    # --- content

    def read(self, path: PathLike) -> bytes:
        """Returns the content of a file, of any size."""
        content = io.BytesIO()
        self.download(path, content)
        return content.getvalue()

    def write(self, path: PathLike, data: bytes, *, mode: Optional[int] = None) -> Uploaded:
        """Replaces the content of a file in one step, or makes the file."""
        return self.upload(path, io.BytesIO(data), mode=mode)

    def download(
        self,
        path: PathLike,
        to: "Writer",
        *,
        offset: int = 0,
        length: Optional[int] = None,
        if_version: str = "",
    ) -> Downloaded:
        """Writes a file, or a part of it, to a writer, and holds it against its digest.

        Nothing is written twice. A file that was changed while the connection was lost
        is a ChangedError.
        """
        return Download(
            self._transport, path, to, offset, length, if_version, self._sandbox
        ).run()

    def download_file(self, path: PathLike, local: "os.PathLike[str] | str") -> Downloaded:
        """Writes a file to a local one, which is put into its place when it is whole.

        It gets the permission bits of the file of the server.
        """
        local = os.fspath(local)
        part = f"{local}.{uuid.uuid4()}.execwire-part"
        try:
            with open(part, "xb") as to:
                downloaded = self.download(path, to)
                os.fchmod(to.fileno(), downloaded.info.mode & 0o777)
            os.replace(part, local)
        except BaseException:
            try:
                os.unlink(part)
            except FileNotFoundError:
                pass
            raise
        return downloaded

    def upload(
        self,
        path: PathLike,
        source: "Reader",
        *,
        in_place: bool = False,
        mode: Optional[int] = None,
        modify_time_ns: Optional[int] = None,
        if_match_sha256: bytes = b"",
        if_missing: bool = False,
        sync: bool = False,
        upload_id: str = "",
    ) -> Uploaded:
        """Gives a file the content of a reader, from where it stands to its end.

        It is put into its place when it is whole and has arrived unchanged, by its
        SHA-256; a failure leaves what was there. ``mode`` is that of the file, which
        else keeps that of the one it replaces. ``in_place`` writes the file that is
        there, and nothing else goes with it. With an ``upload_id`` the same upload, begun
        again after a crash, goes on where it was.

        A lost connection is resumed from what the server has received: a source that
        can be sought is read again, and of another one a few MiB are kept here.
        """
        return self.uploading(
            path,
            source,
            in_place=in_place,
            mode=mode,
            modify_time_ns=modify_time_ns,
            if_match_sha256=if_match_sha256,
            if_missing=if_missing,
            sync=sync,
            upload_id=upload_id,
        ).run()

    def uploading(
        self,
        path: PathLike,
        source: "Reader",
        *,
        in_place: bool = False,
        mode: Optional[int] = None,
        modify_time_ns: Optional[int] = None,
        if_match_sha256: bytes = b"",
        if_missing: bool = False,
        sync: bool = False,
        upload_id: str = "",
    ) -> Upload:
        """Is for execwire.aio: an upload that is to be run."""
        return Upload(
            self._transport,
            path,
            source,
            in_place=in_place,
            mode=mode,
            modify_time_ns=modify_time_ns,
            if_match_sha256=if_match_sha256,
            if_missing=if_missing,
            sync=sync,
            upload_id=upload_id,
            sandbox=self._sandbox,
        )

    def upload_file(self, local: "os.PathLike[str] | str", path: PathLike) -> Uploaded:
        """Gives a file the content and the permission bits of a local one."""
        with open(local, "rb") as source:
            return self.upload(path, source, mode=os.fstat(source.fileno()).st_mode & 0o777)

    # --- what there is

    def stat(self, path: PathLike, *, sha256: bool = False) -> FileInfo:
        """Describes what a path leads to; with ``sha256`` the server reads it for that."""
        return self._stat(path, want_sha256=sha256)

    def lstat(self, path: PathLike) -> FileInfo:
        """Describes the path itself, should it be a link."""
        return self._stat(path, no_follow=True)

    def _stat(self, path: PathLike, **more: Any) -> FileInfo:
        request = filesystem_pb2.GetMetadataRequest(**fields(path), **more, **self._sandbox)
        answer = self._transport.repeat(lambda: self._transport.files.GetMetadata(request))
        target = text(answer.link_target, answer.raw_link_target)
        return new_info(answer.metadata, target, answer.sha256)

    def exists(self, path: PathLike) -> bool:
        """Whether a path leads to something."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, path: PathLike) -> List[DirectoryEntry]:
        """Returns the entries of a directory, sorted by their names."""
        request = filesystem_pb2.ReadDirectoryRequest(**fields(path), **self._sandbox)

        def read() -> "List[DirectoryEntry]":
            entries = []
            for message in self._transport.files.ReadDirectory(request):
                for e in message.entries:
                    name = text(e.name, e.raw_name)
                    if name in ("", ".", "..") or "/" in name or "\0" in name:
                        raise errors.ProtocolError(f"{name!r} is no name in {shown(path)}")
                    entries.append(
                        DirectoryEntry(name, FileType(e.type), FileType(e.target_type))
                    )
            return sorted(entries, key=lambda entry: entry.name)

        return self._transport.repeat(read)

    def walk(
        self,
        path: PathLike,
        *,
        max_depth: Optional[int] = None,
        max_entries: Optional[int] = None,
        ignore: Sequence[str] = (),
        follow_directory_symlinks: bool = False,
        metadata: bool = False,
    ) -> Iterator[WalkEntry]:
        """Iterates over all that is below a directory, breadth first.

        A directory that cannot be read is an entry with an error. Raises LimitError at
        the end if something was left out because of ``max_entries`` or the 250,000
        directories that a walk reads. A lost connection ends it with UnavailableError:
        begin anew.
        """
        request = filesystem_walk_pb2.WalkDirectoryRequest(
            **fields(path),
            **self._sandbox,
            max_depth=max_depth,
            max_entries=max_entries,
            ignore=ignore,
            follow_directory_symlinks=follow_directory_symlinks,
            want_metadata=metadata,
        )
        call = self._transport.once(lambda: self._transport.files.WalkDirectory(request))
        try:
            yield from self._walked(call, shown(path))
        except (grpc.RpcError, ValueError) as error:
            raise self._transport.failure(error) from None
        finally:
            call.cancel()

    def _walked(
        self, call: "grpc.CallIterator[filesystem_walk_pb2.WalkDirectoryResponse]", path: str
    ) -> Iterator[WalkEntry]:
        for message in call:
            kind = message.WhichOneof("message")
            if kind == "entries":
                for e in message.entries.entries:
                    info = None
                    if e.HasField("metadata"):
                        info = new_info(e.metadata, text(e.link_target, e.raw_link_target))
                    yield WalkEntry(text(e.path, e.raw_path), FileType(e.type), info)
            elif kind == "error":
                where = text(message.error.path, message.error.raw_path)
                yield WalkEntry(where, FileType.DIRECTORY, error=_walk_error(message.error))
            elif kind == "end":
                if message.end.truncated:
                    raise errors.LimitError(
                        "RESOURCE_EXHAUSTED", f"not all of {path} was walked: a limit was reached"
                    )
                return
        raise errors.ProtocolError(f"it ended the walk of {path} without saying so")

    def realpath(self, path: PathLike) -> str:
        """Returns the path of what a path leads to, without links."""
        request = filesystem_pb2.CanonicalizePathRequest(**fields(path), **self._sandbox)
        answer = self._transport.repeat(lambda: self._transport.files.CanonicalizePath(request))
        return text(answer.path, answer.raw_path)

    def watch(
        self,
        path: PathLike,
        *,
        recursive: bool = False,
        ignore: Sequence[str] = (),
        settle: Optional[float] = None,
    ) -> Watch:
        """Iterates over what happens in a directory, from when it returns on.

        After a lost connection nobody can say what happened meanwhile, so it raises
        UnavailableError: begin a new one and look at everything.
        """
        return Watch(self._transport, path, recursive, ignore, settle, self._sandbox)

    # --- changes

    def mkdir(
        self, path: PathLike, *, parents: bool = False, mode: Optional[int] = None
    ) -> None:
        """Makes a directory. With ``parents`` missing ones are made too, and one that is
        there is as good."""
        request = filesystem_pb2.CreateDirectoryRequest(
            **fields(path), **self._sandbox, recursive=parents, permissions=mode
        )
        self._change(parents, lambda: self._transport.files.CreateDirectory(request))

    def remove(self, path: PathLike, *, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory. With ``recursive`` all that is
        below goes too, and a path that is not there is as good."""
        request = filesystem_pb2.RemovePathRequest(
            **fields(path), **self._sandbox, recursive=recursive, ignore_missing=recursive
        )
        self._change(recursive, lambda: self._transport.files.RemovePath(request))

    def _change(self, repeatable: bool, call: "Callable[[], object]") -> None:
        if repeatable:
            self._transport.repeat(call)
        else:
            self._transport.once(call)

    def rename(self, source: PathLike, destination: PathLike, *, replace: bool = True) -> None:
        """Gives what is at one path another one, in one step."""
        request = filesystem_pb2.RenamePathRequest(
            **fields(source, "source_path"),
            **fields(destination, "destination_path"),
            **self._sandbox,
            no_replace=not replace,
        )
        self._transport.once(lambda: self._transport.files.RenamePath(request))

    def copy(self, source: PathLike, destination: PathLike, *, recursive: bool = False) -> int:
        """Copies from one path of the server to another, which is that of the copy itself.

        Returns how many FIFOs, sockets and devices were left out of a directory's copy.
        """
        request = filesystem_pb2.CopyPathRequest(
            **fields(source, "source_path"),
            **fields(destination, "destination_path"),
            **self._sandbox,
            recursive=recursive,
        )
        answer = self._transport.once(lambda: self._transport.files.CopyPath(request))
        return answer.omitted_special_files

    def symlink(self, target: PathLike, path: PathLike) -> None:
        """Makes a link at path that leads to target."""
        request = filesystem_pb2.CreateSymlinkRequest(
            **fields(path), **fields(target, "target"), **self._sandbox
        )
        self._transport.once(lambda: self._transport.files.CreateSymlink(request))


def _walk_error(error: filesystem_walk_pb2.WalkError) -> errors.ExecwireError:
    reason = error_pb2.ErrorReason.Name(error.reason)[len("ERROR_REASON_") :]
    return errors.make(
        "UNKNOWN",
        error.message,
        Details(reason=reason, metadata={"errno": error.errno} if error.errno else {}),
    )
