"""Copies of directories between this machine and the server."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Dict, Optional, Sequence, Set

from . import errors
from ._metadata import FileType
from ._path import PathLike, shown
from ._pattern import Ignore

if TYPE_CHECKING:
    from typing import Any, Protocol

    from ._metadata import FileInfo

    class Remote(Protocol):
        """The methods of Files that are used here."""

        def stat(self, path: PathLike) -> FileInfo: ...
        def walk_all(self, path: PathLike, ignore: Sequence[str]) -> Sequence[Any]: ...
        def mkdir(self, path: PathLike, *, parents: bool) -> None: ...
        def remove(self, path: PathLike, *, recursive: bool) -> None: ...
        def link(self, target: PathLike, path: PathLike) -> None: ...
        def download_file(
            self, path: PathLike, local: str, *, on_progress: Callable[[int], object]
        ) -> object: ...
        def upload(
            self,
            path: PathLike,
            source: Any,
            *,
            mode: int,
            modify_time_ns: int,
            on_progress: Callable[[int], object],
        ) -> object: ...


#: How many files are copied at once.
_PARALLEL = 8

#: Called with the bytes copied so far, the bytes to copy, and the path of the current file,
#: relative to the directory.
OnProgress = Callable[[int, int, str], object]


@dataclass
class Transferred:
    """What was copied, and what was changed for it."""

    #: Files that were copied.
    files: int = 0
    #: Links that were copied.
    links: int = 0
    #: Directories that were made.
    directories: int = 0
    #: Files and links that were up to date.
    skipped: int = 0
    #: FIFOs, sockets and devices, which are not copied.
    omitted: int = 0
    #: Paths of the destination that were removed.
    deleted: int = 0
    #: The size of the copied files.
    bytes: int = 0


@dataclass
class _Entry:
    type: FileType
    size: int = 0
    mode: int = 0
    modify_time_ns: int = 0
    link_target: str = ""


_Tree = Dict[str, _Entry]


class Transfer:
    """One copy of a file or a directory, in either direction."""

    def __init__(
        self,
        files: "Remote",
        local: str,
        remote: PathLike,
        *,
        pull: bool,
        update: bool,
        delete: bool,
        ignore: Sequence[str],
        on_progress: Optional[OnProgress],
    ) -> None:
        self._files, self._local, self._remote = files, local, os.fsdecode(remote)
        if self._remote:  # an empty path is not the root: the server refuses it
            self._remote = self._remote.rstrip("/") or "/"
        self._pull, self._update, self._delete = pull, update, delete
        self._ignore, self._on_progress = list(ignore), on_progress
        self._done = Transferred()
        self._total = 0
        self._lock = threading.Lock()
        self._moved = 0
        self._stopped = threading.Event()

    def abort(self) -> None:
        """Makes run stop before the next file, with ClosedError."""
        self._stopped.set()

    def run(self) -> Transferred:
        """Copies, and blocks until everything was copied or one file has failed."""
        source = self._remote_tree(True) if self._pull else self._local_tree(True)
        if source[""].type is not FileType.DIRECTORY:
            self._total = source[""].size
            self._copy("", source[""])
            return self._done
        there = self._local_tree(False) if self._pull else self._remote_tree(False)
        self._clear(source, there)
        for path, entry in source.items():
            if entry.type is FileType.DIRECTORY:
                self._make_directory(path, there)
        regular = {p: e for p, e in source.items() if e.type is FileType.REGULAR}
        for path in regular:  # an upload would replace the target of a link
            if not self._pull and path in there and there[path].type is FileType.SYMLINK:
                self._check()
                self._remove(path)
        current = {p for p, e in regular.items() if self._update and _same(e, there.get(p))}
        self._done.skipped += len(current)
        self._total = sum(e.size for p, e in regular.items() if p not in current)
        self._copy_all({p: e for p, e in regular.items() if p not in current})
        # Last, so that nothing is written through them.
        for path, entry in source.items():
            if entry.type is FileType.SYMLINK:
                self._link(path, entry, there.get(path))
            elif entry.type not in (FileType.REGULAR, FileType.DIRECTORY):
                self._done.omitted += 1
        self._check()
        return self._done

    def _check(self) -> None:
        if self._stopped.is_set():
            raise errors.ClosedError("the transfer was aborted")

    # --- what there is; the key "" is the directory itself

    def _local_tree(self, source: bool) -> _Tree:
        try:
            tree = {"": _local_entry(self._local, follow=True)}
        except FileNotFoundError:
            if source:
                raise
            return {}
        ignored = Ignore(self._ignore)

        def add(directory: str, prefix: str) -> None:
            with os.scandir(directory) as entries:
                for found in sorted(entries, key=lambda e: e.name):
                    entry, path = _local_entry(found.path), prefix + found.name
                    if ignored.matches(path, entry.type is FileType.DIRECTORY):
                        continue
                    tree[path] = entry
                    if entry.type is FileType.DIRECTORY:
                        add(found.path, path + "/")

        if tree[""].type is FileType.DIRECTORY:
            add(self._local, "")
        return tree

    def _remote_tree(self, source: bool) -> _Tree:
        try:
            info = self._files.stat(self._remote)
        except FileNotFoundError:
            if source:
                raise
            return {}
        tree = {"": _Entry(info.type, info.size, info.mode, info.modify_time_ns)}
        if info.type is not FileType.DIRECTORY:
            return tree
        for found in self._files.walk_all(self._remote, self._ignore):
            if found.error is not None:
                raise found.error
            parent = tree.get(os.path.dirname(found.path))
            name = os.path.basename(found.path)
            if parent is None or parent.type is not FileType.DIRECTORY or name in ("", ".", ".."):
                raise errors.ProtocolError(f"{found.path!r} is not in a directory of the walk")
            if found.path in tree:  # a directory and then a link, to write through it
                raise errors.ProtocolError(f"{found.path!r} is twice in the walk")
            i = found.info
            if i is None:
                raise errors.make("PERMISSION_DENIED", f"failed to look at {self._there(found.path)}")
            tree[found.path] = _Entry(found.type, i.size, i.mode, i.modify_time_ns, i.link_target)
        return tree

    # --- changes of the destination

    def _clear(self, source: _Tree, there: _Tree) -> None:
        """Removes what is not in the source, or in the way, if that is wanted."""
        if there and there[""].type is not FileType.DIRECTORY:
            where = self._local if self._pull else shown(self._remote)
            raise errors.NotDirectoryError("FAILED_PRECONDITION", f"{where} is not a directory")
        removed: Set[str] = set()
        for path, found in list(there.items()):
            wanted = source.get(path)
            if os.path.dirname(path) in removed:  # with its directory
                removed.add(path)
                del there[path]
            elif path and (wanted is None or wanted.type is not found.type):
                if self._delete:
                    self._check()
                    self._remove(path)
                    self._done.deleted += 1
                    removed.add(path)
                    del there[path]
                elif wanted is not None and FileType.DIRECTORY in (wanted.type, found.type):
                    directory = found.type is FileType.DIRECTORY
                    kind = errors.IsDirectoryError if directory else errors.NotDirectoryError
                    raise kind(
                        "FAILED_PRECONDITION", f"{path} is in the way: delete=True removes it"
                    )

    def _remove(self, path: str) -> None:
        if not self._pull:
            self._files.remove(self._there(path), recursive=True)
            return
        at = self._here(path)
        if os.path.isdir(at) and not os.path.islink(at):
            shutil.rmtree(at)
        else:
            os.unlink(at)

    def _make_directory(self, path: str, there: _Tree) -> None:
        if path in there:
            return
        self._check()
        self._done.directories += 1
        if self._pull:
            os.makedirs(self._here(path), exist_ok=not path)
        else:
            self._files.mkdir(self._there(path), parents=True)

    def _link(self, path: str, entry: _Entry, found: Optional[_Entry]) -> None:
        if found is not None and found.link_target == entry.link_target:
            self._done.skipped += 1
            return
        self._check()
        if found is not None:
            self._remove(path)
        if self._pull:
            os.symlink(entry.link_target, self._here(path))
        else:
            self._files.link(entry.link_target, self._there(path))
        self._done.links += 1

    # --- content

    def _copy_all(self, files: _Tree) -> None:
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL, "execwire transfer") as pool:
            copies = [pool.submit(self._copy, path, entry) for path, entry in files.items()]
            try:
                concurrent.futures.wait(copies, return_when=concurrent.futures.FIRST_EXCEPTION)
            finally:
                if any(c.done() and c.exception() for c in copies) or not all(c.done() for c in copies):
                    self._stopped.set()
        failures = [error for error in (c.exception() for c in copies) if error is not None]
        for failure in failures:
            if not isinstance(failure, errors.ClosedError):
                raise failure
        for failure in failures:
            raise failure

    def _copy(self, path: str, entry: _Entry) -> None:
        self._check()
        here, there = self._here(path), self._there(path)
        before = 0

        def report(moved: int) -> None:
            nonlocal before
            self._check()
            with self._lock:
                self._moved += moved - before
                before = moved
                if self._on_progress is not None:
                    self._on_progress(self._moved, self._total, path or os.path.basename(here))

        if self._pull:
            self._files.download_file(there, here, on_progress=report)
            os.utime(here, ns=(entry.modify_time_ns, entry.modify_time_ns))
        else:
            with open(here, "rb") as file:
                self._files.upload(
                    there,
                    file,
                    mode=entry.mode & 0o777,
                    modify_time_ns=entry.modify_time_ns,
                    on_progress=report,
                )
        with self._lock:
            self._done.files += 1
            self._done.bytes += before

    def _here(self, path: str) -> str:
        return os.path.join(self._local, path) if path else self._local

    def _there(self, path: str) -> str:
        return os.path.join(self._remote, path) if path else self._remote


def _same(entry: _Entry, found: Optional[_Entry]) -> bool:
    return (
        found is not None
        and found.type is entry.type
        and found.size == entry.size
        and found.modify_time_ns == entry.modify_time_ns
        and found.mode & 0o777 == entry.mode & 0o777
    )


def _local_entry(path: str, follow: bool = False) -> _Entry:
    info = os.stat(path) if follow else os.lstat(path)
    if stat.S_ISLNK(info.st_mode):
        return _Entry(FileType.SYMLINK, link_target=os.readlink(path))
    kind = FileType.UNKNOWN
    if stat.S_ISREG(info.st_mode):
        kind = FileType.REGULAR
    elif stat.S_ISDIR(info.st_mode):
        kind = FileType.DIRECTORY
    return _Entry(kind, info.st_size, info.st_mode & 0o7777, info.st_mtime_ns)
