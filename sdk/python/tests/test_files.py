"""Files of the server."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import threading
import unittest
import unittest.mock
from typing import Any

import execwire
from execwire import ChangeKind, FileType
from execwire._pattern import Ignore
from execwire._transfer import Transfer
from execwire.files import WalkEntry

from .support import LONG, Endless, Program, TestCase, Wire, eventually, serve

server: Program
client: execwire.Client
files: execwire.Files


def setUpModule() -> None:
    global server, client, files
    server = serve()
    client = execwire.connect(server.url)
    files = client.files


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

    def test_text_and_streams(self) -> None:
        path = self.path("text")
        files.write(path, "grüße\n" * 20000)
        self.assertEqual(files.read(path, text=True), "grüße\n" * 20000)
        self.assertEqual(b"".join(files.stream(path)).decode(), "grüße\n" * 20000)
        self.assertTrue(next(iter(files.stream(path))))  # its end ends the call
        files.write(path, b"\xff")
        with self.assertRaises(UnicodeDecodeError):
            files.read(path, text=True)

    def test_edit(self) -> None:
        path = self.path("edited")
        files.write(path, "one two one\n", mode=0o640)
        self.assertEqual(files.edit(path, "two", "2"), 1)
        for old in ("three", "one", ""):
            with self.assertRaisesRegex(execwire.UsageError, "times"):
                files.edit(path, old, "1")
        self.assertEqual(files.edit(path, "one", "1", every=True), 2)
        self.assertEqual((files.read(path), files.stat(path).mode), (b"1 2 1\n", 0o640))

    def test_chmod(self) -> None:
        path = self.path("-mode")
        files.write(path, b"")
        files.chmod(path, 0o604)
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o604)
        with self.assertRaises(FileNotFoundError):
            files.chmod(self.path("none"), 0o600)

    def test_uploads_wait_for_their_turn(self) -> None:
        transport = client._transport
        with unittest.mock.patch.object(transport, "_uploads", threading.Semaphore(1)):
            source = Endless()
            first = threading.Thread(target=files.upload, args=(self.path("first"), source))
            second = threading.Thread(target=files.write, args=(self.path("second"), b"2"))
            first.start()
            self.assertTrue(eventually(lambda: transport._uploads._value == 0))  # type: ignore[attr-defined]
            second.start()
            source.close()
            first.join(LONG)
            second.join(LONG)
        self.assertEqual(files.read(self.path("second")), b"2")

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


class Trees(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.local, self.remote = self.path("local"), self.path("remote")
        for name in ("a/b/deep", "a/.hidden", "top", "skip/x", "a/y.o", "sub.txt/in"):
            path = os.path.join(self.local, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(name)
        os.chmod(os.path.join(self.local, "top"), 0o750)
        os.symlink("top", os.path.join(self.local, "link"))
        os.mkfifo(os.path.join(self.local, "fifo"))

    def names(self, directory: str) -> "list[str]":
        return sorted(e.path for e in files.walk(directory))

    def test_push_and_pull(self) -> None:
        seen = []
        pushed = files.push(
            self.local, self.remote, ignore=["skip/", "*.o"], on_progress=lambda *p: seen.append(p)
        )
        self.assertEqual((pushed.files, pushed.links, pushed.omitted), (4, 1, 1))
        total = sum(len(n) for n in ("a/b/deep", "a/.hidden", "top", "sub.txt/in"))
        self.assertEqual((pushed.bytes, seen[-1][:2]), (total, (total, total)))
        self.assertEqual(sorted({p[2] for p in seen}), ["a/.hidden", "a/b/deep", "sub.txt/in", "top"])
        names = ["a", "a/.hidden", "a/b", "a/b/deep", "link", "sub.txt", "sub.txt/in", "top"]
        self.assertEqual(self.names(self.remote), names)
        top = files.stat(self.remote + "/top")
        self.assertEqual(top.mode, 0o750)
        self.assertEqual(top.modify_time_ns, os.stat(self.local + "/top").st_mtime_ns)
        pulled = files.pull(self.remote, self.path("back"))
        self.assertEqual((pulled.files, pulled.links, pulled.bytes), (4, 1, total))
        self.assertEqual(self.names(self.path("back")), names)
        self.assertEqual(os.readlink(self.path("back/link")), "top")
        self.assertEqual(os.stat(self.path("back/top")).st_mtime_ns, top.modify_time_ns)
        again = files.pull(self.remote, self.path("back"), update=True)
        self.assertEqual((again.files, again.links, again.skipped), (0, 0, 5))
        one = files.push(self.local + "/top", self.path("one"))
        self.assertEqual((one.files, files.read(self.path("one"))), (1, b"top"))
        longest = self.path("n" * 255)
        os.link(self.local + "/top", longest)
        self.assertEqual(files.pull(longest, self.path("o" * 255)).files, 1)

    def test_sync_copies_what_differs_and_deletes(self) -> None:
        files.push(self.local, self.remote)
        os.unlink(self.local + "/top")
        os.mkdir(self.local + "/top")
        shutil.rmtree(self.local + "/a/b")
        with open(self.local + "/a/y.o", "w") as file:
            file.write("longer than before")
        os.unlink(self.local + "/link")
        files.write(self.remote + "/kept.log", "x")
        with self.assertRaisesRegex(NotADirectoryError, "top is in the way"):
            files.sync(self.local, self.remote)
        done = files.sync(self.local, self.remote, delete=True, ignore=["*.log"])
        # The directory a/b counts once; its file goes with it.
        self.assertEqual((done.files, done.deleted, done.directories), (1, 3, 1))
        self.assertEqual(
            self.names(self.remote),
            sorted([n for n in self.names(self.local) if n != "fifo"] + ["kept.log"]),
        )
        done = files.pull(self.remote, self.local, update=True, delete=True, ignore=["fifo"])
        self.assertEqual((done.files, done.deleted), (1, 0))

    def test_a_failing_file_ends_a_push(self) -> None:
        def fail(moved: int, total: int, path: str) -> None:
            raise KeyError(path)

        with self.assertRaises(KeyError):
            files.push(self.local, self.remote, on_progress=fail)
        with self.assertRaises(FileNotFoundError):
            files.push(self.path("none"), self.remote)
        with self.assertRaises(FileNotFoundError):
            files.pull(self.path("none"), self.path("back"))
        self.assertFalse(os.path.exists(self.path("back")))

    def test_a_file_replaces_a_link_and_not_its_target(self) -> None:
        files.push(self.local, self.remote)
        files.write(self.path("outside"), "before")
        os.unlink(self.remote + "/top")
        os.symlink("../outside", self.remote + "/top")
        files.push(self.local, self.remote)
        self.assertEqual(files.read(self.path("outside")), b"before")
        self.assertFalse(os.path.islink(self.remote + "/top"))

    def test_lost_connections_end_neither_the_walk_nor_a_link(self) -> None:
        os.mkdir(self.remote)
        with Wire(server.url) as wire, execwire.connect(wire.url) as cut:
            stubs = cut._transport.files
            walk, link = stubs.WalkDirectory, stubs.CreateSymlink
            lost = []

            def lose_walk(request: Any) -> Any:
                if "walk" in lost:
                    return walk(request)
                lost.append("walk")
                wire.block()
                call = walk(request)
                call.code()  # blocks until it has failed
                wire.open()
                return call

            def lose_link(request: Any) -> Any:
                made = link(request)
                if "link" in lost:
                    return made
                lost.append("link")
                wire.block()
                try:
                    return link(request)  # fails, and what it was for is done
                finally:
                    wire.open()

            with unittest.mock.patch.multiple(stubs, WalkDirectory=lose_walk, CreateSymlink=lose_link):
                self.assertEqual(cut.files.push(self.local, self.remote).links, 1)
        self.assertEqual(lost, ["walk", "link"])
        self.assertEqual(os.readlink(self.remote + "/link"), "top")

    def test_an_empty_path_is_not_the_root(self) -> None:
        remote = unittest.mock.Mock()
        remote.stat.side_effect = FileNotFoundError
        for path, asked in (("", ""), ("/", "/"), ("/a//", "/a")):
            with self.assertRaises(FileNotFoundError):
                pull(remote, path, self.local).run()
            remote.stat.assert_called_with(asked)

    def test_a_walk_that_is_wrong_changes_nothing(self) -> None:
        directory, link = files.lstat(self.local), files.lstat(self.local + "/link")
        remote = unittest.mock.Mock()
        remote.stat.return_value = directory
        tree = WalkEntry("a", FileType.DIRECTORY, directory)
        for entry, error in (
            (WalkEntry("a", FileType.SYMLINK, link), execwire.ProtocolError),
            (WalkEntry("b/c", FileType.SYMLINK, link), execwire.ProtocolError),
            (WalkEntry("..", FileType.DIRECTORY, directory), execwire.ProtocolError),
            (WalkEntry("top", FileType.REGULAR), PermissionError),  # it is there
        ):
            remote.walk_all.return_value = [tree, entry]
            before = self.names(self.directory)
            with self.assertRaises(error):
                pull(remote, "/a", self.local).run()
            self.assertEqual(self.names(self.directory), before)

    def test_patterns(self) -> None:
        for pattern, expected in (
            ("/*", ["a", "fifo", "link", "skip", "sub.txt", "top"]),
            ("/a/*", ["a/b", "a/y.o"]),
            ("/a/.h*", ["a/.hidden"]),
            ("/**/[dx]*", ["a/b/deep", "skip/x"]),
            ("/?[!k]*/*", ["sub.txt/in"]),
            ("/top", ["top"]),
            ("/none", []),
            ("/none/*", []),
        ):
            found = files.glob(self.local + pattern)
            self.assertEqual(found, [f"{self.local}/{name}" for name in expected], pattern)
        with self.assertRaisesRegex(execwire.UsageError, "absolute"):
            files.glob("*")

    def test_ignore_means_the_same_on_both_sides(self) -> None:
        everything = self.names(self.local)
        for pattern in ("b/", "b", "a/b", "/top", "*.o", "**/deep", "a/**", "y.?", "[st]*", "sub.*/", "skip/x/", "no", "[]a]", "[!]a]", "[\\]s]kip", "[\\w-z]", "[z-a]", "to[!z-a]"):
            ignored = Ignore([pattern])
            left = [e.path for e in files.walk(self.local, ignore=[pattern])]
            mine = [
                path
                for path in everything
                if not any(
                    ignored.matches(part, part != path or os.path.isdir(f"{self.local}/{part}") and not os.path.islink(f"{self.local}/{part}"))
                    for part in ("/".join(path.split("/")[: i + 1]) for i in range(path.count("/") + 1))
                )
            ]
            self.assertEqual(sorted(left), mine, pattern)


def pull(remote: unittest.mock.Mock, path: str, local: str) -> Transfer:
    return Transfer(remote, local, path, pull=True, update=False, delete=True, ignore=[], on_progress=None)


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
