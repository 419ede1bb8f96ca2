"""Files of the server."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import unittest

import execwire
from execwire import ChangeKind, FileType

from .support import Program, TestCase, serve

server: Program
client: execwire.Client


def setUpModule() -> None:
    global server, client
    server = serve()
    client = execwire.connect(server.url)


def tearDownModule() -> None:
    client.close()
    server.stop()


class Content(TestCase):
    def test_write_and_read(self) -> None:
        for data in (b"", b"x", os.urandom(300_000)):
            uploaded = client.files.write(self.path("f"), data, mode=0o640)
            self.assertEqual(uploaded.size, len(data))
            self.assertEqual(uploaded.sha256, hashlib.sha256(data).digest())
            self.assertEqual(client.files.read(self.path("f")), data)
            assert uploaded.info is not None
            self.assertEqual(uploaded.info.mode, 0o640)

    def test_a_part_of_a_file(self) -> None:
        client.files.write(self.path("f"), b"0123456789")
        part = io.BytesIO()
        downloaded = client.files.download(self.path("f"), part, offset=2, length=3)
        self.assertEqual((part.getvalue(), downloaded.size), (b"234", 3))
        self.assertEqual(downloaded.info.size, 10)
        with self.assertRaises(execwire.ChangedError):
            client.files.download(self.path("f"), part, if_version="another")

    def test_local_files(self) -> None:
        with open(self.path("local"), "wb") as file:
            file.write(os.urandom(500_000))
        os.chmod(self.path("local"), 0o751)
        client.files.upload_file(self.path("local"), self.path("remote"))
        client.files.download_file(self.path("remote"), self.path("back"))
        with open(self.path("local"), "rb") as first, open(self.path("back"), "rb") as second:
            self.assertEqual(first.read(), second.read())
        self.assertEqual(os.stat(self.path("back")).st_mode & 0o777, 0o751)
        with self.assertRaises(FileNotFoundError):
            client.files.download_file(self.path("missing"), self.path("none"))
        self.assertEqual(sorted(os.listdir(self.directory)), ["back", "local", "remote"])

    def test_upload_conditions(self) -> None:
        path = self.path("f")
        client.files.upload(path, io.BytesIO(b"one"), if_missing=True)
        with self.assertRaises(FileExistsError):
            client.files.upload(path, io.BytesIO(b"two"), if_missing=True)
        right = hashlib.sha256(b"one").digest()
        client.files.upload(path, io.BytesIO(b"two"), if_match_sha256=right)
        with self.assertRaises(execwire.ChangedError):
            client.files.upload(path, io.BytesIO(b"three"), if_match_sha256=right)
        self.assertEqual(client.files.read(path), b"two")
        inode = os.stat(path).st_ino
        client.files.upload(path, io.BytesIO(b"in place"), in_place=True)
        self.assertEqual((client.files.read(path), os.stat(path).st_ino), (b"in place", inode))
        client.files.upload(path, io.BytesIO(b"t"), modify_time_ns=10**18)
        self.assertEqual(client.files.stat(path).modify_time_ns, 10**18)

    def test_failing_source_leaves_previous_file(self) -> None:
        client.files.write(self.path("f"), b"before")

        class Failing:
            def read(self, size: int) -> bytes:
                raise OSError(5, "Input/output error")

        with self.assertRaisesRegex(OSError, "Input/output error"):
            client.files.upload(self.path("f"), Failing())
        self.assertEqual(client.files.read(self.path("f")), b"before")

    def test_failing_writer_ends_download(self) -> None:
        client.files.write(self.path("f"), bytes(1_000_000))
        closed = io.BytesIO()
        closed.close()
        with self.assertRaisesRegex(execwire.UsageError, "closed file"):
            client.files.download(self.path("f"), closed)


class Names(TestCase):
    def test_stat_and_links(self) -> None:
        client.files.write(self.path("f"), b"content")
        client.files.symlink("f", self.path("link"))
        info = client.files.stat(self.path("link"), sha256=True)
        self.assertEqual((info.type, info.size, info.is_symlink), (FileType.REGULAR, 7, True))
        self.assertEqual(info.sha256, hashlib.sha256(b"content").digest())
        self.assertEqual(info.modify_time_ns, os.stat(self.path("f")).st_mtime_ns)
        link = client.files.lstat(self.path("link"))
        self.assertEqual((link.type, link.link_target), (FileType.SYMLINK, "f"))
        self.assertEqual(client.files.realpath(self.path("link")), os.path.realpath(self.path("f")))
        self.assertTrue(client.files.exists(self.path("link")))
        self.assertFalse(client.files.exists(self.path("nothing")))

    def test_directories(self) -> None:
        client.files.mkdir(self.path("a/b/c"), parents=True)
        client.files.mkdir(self.path("a/b/c"), parents=True)
        client.files.mkdir(self.path("d"), mode=0o700)
        self.assertEqual(os.stat(self.path("d")).st_mode & 0o777, 0o700)
        with self.assertRaises(FileExistsError):
            client.files.mkdir(self.path("d"))
        client.files.write(self.path("a/x"), b"")
        client.files.symlink("b", self.path("a/l"))
        entries = client.files.list(self.path("a"))
        self.assertEqual([e.name for e in entries], ["b", "l", "x"])
        self.assertEqual([e.type for e in entries], [FileType.DIRECTORY, FileType.SYMLINK, FileType.REGULAR])
        self.assertEqual(entries[1].target_type, FileType.DIRECTORY)
        with self.assertRaises(execwire.ExecwireError) as caught:
            client.files.remove(self.path("a"))
        self.assertEqual(caught.exception.reason, "DIRECTORY_NOT_EMPTY")
        client.files.remove(self.path("a"), recursive=True)
        client.files.remove(self.path("a"), recursive=True)
        with self.assertRaises(FileNotFoundError):
            client.files.remove(self.path("a"))
        with self.assertRaises(NotADirectoryError):
            client.files.write(self.path("f"), b"")
            client.files.list(self.path("f"))
        with self.assertRaises(IsADirectoryError):
            client.files.read(self.path("d"))

    def test_rename_and_copy(self) -> None:
        client.files.write(self.path("a"), b"a")
        client.files.write(self.path("b"), b"b")
        with self.assertRaises(FileExistsError):
            client.files.rename(self.path("a"), self.path("b"), replace=False)
        client.files.rename(self.path("a"), self.path("b"))
        self.assertEqual(client.files.read(self.path("b")), b"a")
        client.files.mkdir(self.path("tree/sub"), parents=True)
        client.files.write(self.path("tree/sub/x"), b"x")
        os.mkfifo(self.path("tree/fifo"))
        self.assertEqual(client.files.copy(self.path("tree"), self.path("copy"), recursive=True), 1)
        self.assertEqual(client.files.read(self.path("copy/sub/x")), b"x")

    def test_names_that_are_not_utf8(self) -> None:
        name = os.fsencode(self.directory) + b"/\xff\xfe"
        client.files.write(name, b"odd")
        (entry,) = client.files.list(self.directory)
        self.assertEqual(os.fsencode(entry.name), b"\xff\xfe")
        self.assertEqual(client.files.read(self.path(entry.name)), b"odd")
        (walked,) = client.files.walk(self.directory)
        self.assertEqual(walked.path, entry.name)
        with self.assertRaises(FileNotFoundError):
            client.files.read(name + b"x")

    def test_walk(self) -> None:
        for path in ("a/b/c", ".git/x", "z"):
            client.files.mkdir(self.path(path), parents=True)
        client.files.write(self.path("a/f"), b"12345")
        walked = {e.path: e for e in client.files.walk(self.directory, ignore=[".git"], metadata=True)}
        self.assertEqual(list(walked), ["a", "z", "a/b", "a/f", "a/b/c"])
        info = walked["a/f"].info
        assert info is not None
        self.assertEqual(info.size, 5)
        self.assertEqual([e.path for e in client.files.walk(self.directory, max_depth=0)], [".git", "a", "z"])
        with self.assertRaises(execwire.LimitError):
            list(client.files.walk(self.directory, max_entries=2))
        with self.assertRaises(FileNotFoundError):
            list(client.files.walk(self.path("nothing")))

    def test_watch(self) -> None:
        with client.files.watch(self.directory, recursive=True, settle=0, ignore=["*.tmp"]) as watch:
            os.mkdir(self.path("new"))
            self._see(watch, "new", ChangeKind.CREATED)
            with open(self.path("new/f"), "w") as file:
                file.write("x")
            open(self.path("ignored.tmp"), "w").close()
            self._see(watch, "new/f", ChangeKind.CREATED)
            os.unlink(self.path("new/f"))
            self._see(watch, "new/f", ChangeKind.REMOVED)
            closer = threading.Timer(0.05, watch.close)
            closer.start()
            self.assertEqual([e for e in watch if e.overflow], [])
            closer.join()
        with self.assertRaises(FileNotFoundError):
            client.files.watch(self.path("nothing"))

    def _see(self, watch: execwire.Watch, path: str, kind: ChangeKind) -> None:
        for event in watch:
            for change in event.changes:
                self.assertFalse(change.path.endswith(".tmp"))
                if (change.path, change.kind) == (path, kind):
                    return

    def test_removed_directory_ends_watch(self) -> None:
        client.files.mkdir(self.path("gone"))
        with client.files.watch(self.path("gone")) as watch:
            os.rmdir(self.path("gone"))
            lost = next(watch).lost
            assert lost is not None
            self.assertEqual(lost[0], "")
            with self.assertRaises(FileNotFoundError):
                next(watch)


if __name__ == "__main__":
    unittest.main()
