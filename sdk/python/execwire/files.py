"""Files of the server."""

from __future__ import annotations

import hashlib
import io
import os
import re
import uuid
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generator,
    Iterator,
    List,
    Literal,
    Optional,
    Sequence,
    Union,
    overload,
)

import grpc

from . import errors
from ._download import Download, Downloaded
from ._io import OnBytes, as_bytes
from ._metadata import FileInfo, FileType, new_info
from ._path import PathLike, fields, shown, text
from ._pattern import has_magic, regex
from ._status import Details
from ._transfer import OnProgress, Transfer, Transferred
from ._transport import Retry, Transport
from ._upload import Upload, Uploaded
from ._watch import Watch
from .sandbox import SandboxLike, policy_of
from .v1 import error_pb2, filesystem_pb2, filesystem_walk_pb2

if TYPE_CHECKING:
    from ._io import Reader, Writer


@dataclass(frozen=True)
class DirectoryEntry:
    """An entry of a directory."""

    #: The name in the directory. Bytes that are not UTF-8 are surrogates, as of os.fsdecode.
    name: str
    #: Its type; of a link SYMLINK.
    type: FileType
    #: The type of the target of a link; else the type itself.
    target_type: FileType


@dataclass(frozen=True)
class WalkEntry:
    """An entry below a directory."""

    #: Relative to the walked directory.
    path: str
    #: Its type; of a link SYMLINK.
    type: FileType
    #: Its metadata, if requested and available.
    info: Optional[FileInfo] = None
    #: Why a directory could not be read, which does not end the walk; else None.
    error: Optional[errors.ExecwireError] = None


class Files:
    """Files of the server.

    Paths are absolute, on the server's machine. One that is not UTF-8 is a str with
    surrogate escapes, or bytes. Idempotent calls and streams are retried for 75 seconds
    after a lost connection; others raise UnknownError, or NotDoneError if nothing was done.
    Errors are those of ``execwire.errors``; for missing,
    existing and forbidden paths they are also FileNotFoundError, FileExistsError and
    PermissionError.
    """

    def __init__(self, transport: Transport, sandbox: Optional[SandboxLike] = None) -> None:
        self._transport = transport
        self._sandbox: Dict[str, Any] = {}
        if sandbox is not None:
            self._sandbox = {"sandbox": policy_of(sandbox)}

    # --- content

    @overload
    def read(self, path: PathLike, *, text: Literal[False] = False) -> bytes: ...

    @overload
    def read(self, path: PathLike, *, text: Literal[True]) -> str: ...

    def read(self, path: PathLike, *, text: bool = False) -> Union[str, bytes]:
        """Returns the content of a file, of any size; with ``text`` decoded as UTF-8, which
        raises UnicodeDecodeError for anything else."""
        content = io.BytesIO()
        self.download(path, content)
        return content.getvalue().decode("utf-8") if text else content.getvalue()

    def stream(self, path: PathLike) -> "Generator[bytes, None, None]":
        """Iterates over the content of a file, of any size, as it arrives.

        If the file is not read to its end, its digest is not verified.
        """
        return Download(self._transport, path, None, 0, None, "", self._sandbox).pieces()

    def write(
        self, path: PathLike, data: Union[str, bytes], *, mode: Optional[int] = None
    ) -> Uploaded:
        """Replaces the content of a file atomically, or creates it; text as UTF-8."""
        return self.upload(path, io.BytesIO(as_bytes(data)), mode=mode)

    def edit(self, path: PathLike, old: str, new: str, *, every: bool = False) -> int:
        """Replaces ``old`` in a text file by ``new``, atomically, and returns how often.

        Raises UsageError, and changes nothing, if ``old`` does not occur, or more than once
        without ``every``. Raises ChangedError if the file was changed meanwhile.
        """
        before = self.read(path)
        text = before.decode("utf-8")
        count = text.count(old) if old else 0
        if count == 0 or count > 1 and not every:
            raise errors.UsageError(f"old occurs {count} times in {shown(path)}")
        digest = hashlib.sha256(before).digest()
        data = text.replace(old, new).encode("utf-8")
        self.upload(path, io.BytesIO(data), if_match_sha256=digest)
        return count

    def download(
        self,
        path: PathLike,
        to: "Writer",
        *,
        offset: int = 0,
        length: Optional[int] = None,
        if_version: str = "",
        on_progress: OnBytes = None,
    ) -> Downloaded:
        """Writes a file, or a part of it, to a writer, and verifies its digest.

        ``on_progress`` is called with the number of bytes written so far.

        Nothing is written twice. If the file changes while the connection is lost, it
        raises ChangedError.
        """
        return Download(
            self._transport, path, to, offset, length, if_version, self._sandbox, on_progress
        ).run()

    def download_file(
        self,
        path: PathLike,
        local: "os.PathLike[str] | str",
        *,
        on_progress: OnBytes = None,
    ) -> Downloaded:
        """Writes a file to a local one, which is replaced when it is complete.

        It has the permission bits of the file on the server.
        """
        local = os.fspath(local)
        part = os.path.join(os.path.dirname(local), f".{uuid.uuid4()}.execwire-part")
        try:
            with open(part, "xb") as to:
                downloaded = self.download(path, to, on_progress=on_progress)
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
        on_progress: OnBytes = None,
    ) -> Uploaded:
        """Writes the content of a reader, from its current position, to a file.

        The file is replaced atomically once the content is complete and its SHA-256
        verified; a failure leaves the previous file. Without ``mode`` it has that of the
        replaced file. ``in_place`` writes the existing file, and excludes the other
        options. With an ``upload_id``, the same upload resumes after a crash.

        A lost connection is resumed from what the server has received: a seekable source
        is read again, otherwise a few MiB are buffered. ``on_progress`` is called with the
        number of bytes sent so far, which never decreases. At most 32 uploads of a client run
        at once; further ones wait.
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
            on_progress=on_progress,
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
        on_progress: OnBytes = None,
    ) -> Upload:
        """For execwire.aio: an upload to be run."""
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
            on_progress=on_progress,
        )

    def upload_file(self, local: "os.PathLike[str] | str", path: PathLike) -> Uploaded:
        """Uploads a local file with its permission bits."""
        with open(local, "rb") as source:
            return self.upload(path, source, mode=os.fstat(source.fileno()).st_mode & 0o777)

    # --- directories

    def push(
        self,
        local: "os.PathLike[str] | str",
        path: PathLike,
        *,
        update: bool = False,
        delete: bool = False,
        ignore: Sequence[str] = (),
        on_progress: Optional[OnProgress] = None,
    ) -> Transferred:
        """Copies a file or a directory of this machine to ``path``, which becomes its copy.

        Permission bits and modification times are copied, links as links, owners not.

        - ``update``: skips files with the same size, time and permission bits.
        - ``delete``: removes what the source does not have, or what is in the way.
        - ``ignore``: patterns of entries that are not copied, and removed only with a
          directory that the source does not have, as in .gitignore: "*" and "?" match no
          slash, "**" any directories. One with a slash before its end matches relative
          paths, any other names; one with a slash at its end only directories.
        - ``on_progress``: called with the bytes copied so far, the bytes to copy in total
          and the path of the current file, one call at a time, by several threads.

        Files are replaced one by one, each atomically, eight at a time. The first failure
        ends it.
        """
        return self.transfer(local, path, False, update, delete, ignore, on_progress).run()

    def pull(
        self,
        path: PathLike,
        local: "os.PathLike[str] | str",
        *,
        update: bool = False,
        delete: bool = False,
        ignore: Sequence[str] = (),
        on_progress: Optional[OnProgress] = None,
    ) -> Transferred:
        """Copies a file or a directory of the server to ``local``, which becomes its copy;
        the options are those of ``push``."""
        return self.transfer(local, path, True, update, delete, ignore, on_progress).run()

    def sync(
        self,
        local: "os.PathLike[str] | str",
        path: PathLike,
        *,
        delete: bool = False,
        ignore: Sequence[str] = (),
        on_progress: Optional[OnProgress] = None,
    ) -> Transferred:
        """Is ``push`` of what differs."""
        return self.transfer(local, path, False, True, delete, ignore, on_progress).run()

    def transfer(
        self,
        local: "os.PathLike[str] | str",
        path: PathLike,
        pull: bool,
        update: bool,
        delete: bool,
        ignore: Sequence[str],
        on_progress: Optional[OnProgress],
    ) -> Transfer:
        """For execwire.aio: a copy to be run."""
        return Transfer(
            self,
            os.fspath(local),
            path,
            pull=pull,
            update=update,
            delete=delete,
            ignore=ignore,
            on_progress=on_progress,
        )

    # --- what there is

    def glob(self, pattern: str) -> List[str]:
        """Returns the paths that match an absolute pattern, sorted, as a shell expands it:
        "*" and "?" match no slash and no dot at the beginning of a name, "[a-z]" a
        character, and "**" any directories."""
        components = pattern.split("/")
        fixed = next((i for i, c in enumerate(components) if has_magic(c)), len(components))
        if components[0]:
            raise errors.UsageError(f"the pattern {pattern!r} is not absolute")
        base, rest = "/".join(components[:fixed]), "/".join(components[fixed:])
        if not rest:
            return [pattern] if self._lexists(pattern) else []
        depth = None if "**" in rest else rest.count("/")
        expression = re.compile(regex(rest, hidden=False), re.DOTALL)
        try:
            entries = self.walk(base or "/", max_depth=depth)
            found = [e.path for e in entries if e.error is None and expression.fullmatch(e.path)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(f"{base}/{path}" for path in found)

    def _lexists(self, path: PathLike) -> bool:
        try:
            self.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def stat(self, path: PathLike, *, sha256: bool = False) -> FileInfo:
        """Describes a file, following links; with ``sha256`` the server also reads it."""
        return self._stat(path, want_sha256=sha256)

    def lstat(self, path: PathLike) -> FileInfo:
        """Describes a file without following a link."""
        return self._stat(path, no_follow=True)

    def _stat(self, path: PathLike, **more: Any) -> FileInfo:
        request = filesystem_pb2.GetMetadataRequest(**fields(path), **more, **self._sandbox)
        answer = self._transport.repeat(lambda: self._transport.files.GetMetadata(request))
        target = text(answer.link_target, answer.raw_link_target)
        return new_info(answer.metadata, target, answer.sha256)

    def exists(self, path: PathLike) -> bool:
        """Whether a path exists, following links."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, path: PathLike) -> List[DirectoryEntry]:
        """Returns the entries of a directory, sorted by name."""
        request = filesystem_pb2.ReadDirectoryRequest(**fields(path), **self._sandbox)

        def read() -> "List[DirectoryEntry]":
            entries: List[DirectoryEntry] = []
            for message in self._transport.files.ReadDirectory(request):
                for e in message.entries:
                    name = text(e.name, e.raw_name)
                    if name in ("", ".", "..") or "/" in name or "\0" in name:
                        raise errors.ProtocolError(f"{name!r} is not a valid name in {shown(path)}")
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
        """Iterates over everything below a directory, breadth first.

        A directory that cannot be read is an entry with an error. Raises LimitError at
        the end if something was omitted because of ``max_entries`` or the limit of
        250,000 directories. A lost connection raises UnavailableError: start over.
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

    def walk_all(self, path: PathLike, ignore: Sequence[str]) -> List[WalkEntry]:
        """For Transfer: everything below a directory, with metadata. A walk that the loss of
        the connection ends is started over."""
        retry = Retry(self._transport)
        while True:
            try:
                return list(self.walk(path, ignore=ignore, metadata=True))
            except errors.Error as error:
                failure = error
            retry.again(failure)

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
        raise errors.ProtocolError(f"it ended the walk of {path} without an end message")

    def realpath(self, path: PathLike) -> str:
        """Returns the path with all links resolved."""
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
        """Iterates over changes in a directory, from its return on.

        Changes during a lost connection are unknown, so it raises UnavailableError:
        start a new watch and rescan.
        """
        return Watch(self._transport, path, recursive, ignore, settle, self._sandbox)

    # --- changes

    def chmod(self, path: PathLike, mode: int) -> None:
        """Sets the permission bits, of mode 07777, following links."""
        request = filesystem_pb2.SetMetadataRequest(
            **fields(path), **self._sandbox, permissions=mode
        )
        self._transport.repeat(lambda: self._transport.files.SetMetadata(request))

    def mkdir(
        self, path: PathLike, *, parents: bool = False, mode: Optional[int] = None
    ) -> None:
        """Makes a directory. ``parents`` also makes missing parents, and accepts an
        existing directory."""
        request = filesystem_pb2.CreateDirectoryRequest(
            **fields(path), **self._sandbox, recursive=parents, permissions=mode
        )
        self._change(parents, lambda: self._transport.files.CreateDirectory(request))

    def remove(self, path: PathLike, *, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory. ``recursive`` also removes
        everything below, and accepts a missing path."""
        request = filesystem_pb2.RemovePathRequest(
            **fields(path), **self._sandbox, recursive=recursive, ignore_missing=recursive
        )
        self._change(recursive, lambda: self._transport.files.RemovePath(request))

    def _change(self, repeatable: bool, call: "Callable[[], object]") -> None:
        if repeatable:
            self._transport.repeat(call)
        else:
            self._transport.change(call)

    def rename(self, source: PathLike, destination: PathLike, *, replace: bool = True) -> None:
        """Renames atomically."""
        request = filesystem_pb2.RenamePathRequest(
            **fields(source, "source_path"),
            **fields(destination, "destination_path"),
            **self._sandbox,
            no_replace=not replace,
        )
        self._transport.change(lambda: self._transport.files.RenamePath(request))

    def copy(self, source: PathLike, destination: PathLike, *, recursive: bool = False) -> int:
        """Copies within the server, to exactly the path ``destination``.

        Returns how many FIFOs, sockets and devices of a directory were omitted.
        """
        request = filesystem_pb2.CopyPathRequest(
            **fields(source, "source_path"),
            **fields(destination, "destination_path"),
            **self._sandbox,
            recursive=recursive,
        )
        answer = self._transport.change(lambda: self._transport.files.CopyPath(request))
        return answer.omitted_special_files

    def symlink(self, target: PathLike, path: PathLike) -> None:
        """Makes a symbolic link to target."""
        request = filesystem_pb2.CreateSymlinkRequest(
            **fields(path), **fields(target, "target"), **self._sandbox
        )
        self._transport.change(lambda: self._transport.files.CreateSymlink(request))

    def link(self, target: PathLike, path: PathLike) -> None:
        """For Transfer: makes a symbolic link to target, unless there is one, so that the call
        can be repeated after a lost connection."""
        request = filesystem_pb2.CreateSymlinkRequest(
            **fields(path), **fields(target, "target"), **self._sandbox
        )
        try:
            self._transport.repeat(lambda: self._transport.files.CreateSymlink(request))
        except errors.PathExistsError:
            if self.lstat(path).link_target != target:
                raise


def _walk_error(error: filesystem_walk_pb2.WalkError) -> errors.ExecwireError:
    reason = error_pb2.ErrorReason.Name(error.reason)[len("ERROR_REASON_") :]
    return errors.make(
        "UNKNOWN",
        error.message,
        Details(reason=reason, metadata={"errno": error.errno} if error.errno else {}),
    )
