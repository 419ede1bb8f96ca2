"""Lost connections: nothing is lost or delivered twice without an error."""

from __future__ import annotations

import concurrent.futures
import hashlib
import io
import os
import resource
import tempfile
import threading
import time
import unittest
import unittest.mock
from typing import Callable, Iterator, List

import grpc

import execwire
from execwire import Gap, Output
from execwire._status import Details
from execwire.v1 import (
    filesystem_pb2,
    filesystem_pb2_grpc,
    process_service_pb2,
    process_service_pb2_grpc,
)

from .support import LONG, Program, TestCase, Wire, alive, eventually, serve

server: Program
direct: execwire.Client


def setUpModule() -> None:
    global server, direct
    server = serve()
    direct = execwire.connect(server.url)


def tearDownModule() -> None:
    direct.close()
    server.stop()


MIB = 1 << 20
#: A program that prints the given number of 16-byte lines, each different.
PRINT = "seq -f %015.0f 1 {lines}"


def printed(lines: int) -> str:
    digest = hashlib.sha256()
    for begin in range(1, lines + 1, 10000):
        end = min(lines, begin + 9999)
        digest.update(b"".join(b"%015d\n" % i for i in range(begin, end + 1)))
    return digest.hexdigest()


class Cut(TestCase):
    def test_24_mib_of_output_are_exact(self) -> None:
        lines = 24 * MIB // 16  # of 16 bytes
        digest = hashlib.sha256()

        class Digest:
            def write(self, data: bytes) -> None:
                digest.update(data)

        with Wire(server.url, cut_every_bytes=3 * MIB) as wire:
            with execwire.connect(wire.url) as client:
                completed = client.run(
                    ["sh", "-c", PRINT.format(lines=lines)], stdout=Digest()
                )
            self.assertGreater(wire.cuts, 4)
        self.assertEqual(completed.exit.code, 0)
        self.assertEqual(completed.exit.stdout_bytes, 24 * MIB)
        self.assertEqual(completed.exit.dropped_bytes, 0)
        self.assertGreater(completed.exit.resumed, 4)
        self.assertEqual(digest.hexdigest(), printed(lines))

    def test_input_is_delivered_exactly_once(self) -> None:
        data = os.urandom(24 * MIB)
        with Wire(server.url, cut_every_bytes=6 * MIB) as wire:
            with execwire.connect(wire.url) as client:
                # The data is echoed, so both directions are cut.
                completed = client.run(["cat"], input=data, text=False)
            self.assertGreater(wire.cuts, 4)
        self.assertEqual(len(completed.stdout), len(data))
        self.assertEqual(hashlib.sha256(completed.stdout).digest(), hashlib.sha256(data).digest())

    def test_cuts_while_writing_and_reading_in_turns(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            with client.start(["cat"]) as process:
                lines = process.lines()
                for i in range(8):
                    process.write(b"%d\n" % i)
                    wire.cut()
                    self.assertEqual(next(lines), b"%d\n" % i)
                process.close_stdin()
                wire.cut()
                self.assertEqual(list(lines), [])
                self.assertEqual(process.wait().code, 0)
                self.assertGreater(process.resumed, 3)

    @unittest.mock.patch("execwire._transport._SENDERS_TIMEOUT", LONG)
    def test_close_waits_for_threads_that_send(self) -> None:
        # The interpreter stops them where they are at its exit, perhaps with a lock that the
        # exit needs.
        client = execwire.connect(server.url)
        transport = client._transport

        def requests() -> "Iterator[int]":
            transport.closed.wait()
            time.sleep(0.5)  # without a wait, close returns earlier
            yield 1

        sender = threading.Thread(target=lambda: list(transport.sending(requests())))
        sender.start()
        self.assertTrue(eventually(lambda: sender in transport._senders))
        client.close()
        self.assertFalse(sender.is_alive())

    def test_start_during_cuts(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            client.describe()
            wire.block()
            timer = threading.Timer(0.5, wire.open)
            timer.start()
            self.assertEqual(client.run(["echo", "here"]).stdout, "here\n")
            timer.join()

    def test_callbacks_of_a_lost_connection(self) -> None:
        called = []
        resumed = threading.Event()
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            with client.start(
                "cat",
                on_lost=lambda error: called.append(type(error)),
                on_resumed=lambda: (called.append(None), resumed.set()),
            ) as process:
                wire.cut()
                self.assertTrue(resumed.wait(LONG))
                self.assertEqual(process.communicate("x").stdout, "x")
        self.assertEqual(called, [execwire.UnavailableError, None])

    def test_detached_start_is_repeated_for_limited_time(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            wire.block()
            with unittest.mock.patch("execwire._client.START_RETRY_TIMEOUT", 0.3):
                with self.assertRaises(execwire.LostError) as caught:
                    client.start_detached(["true"], cwd="/", id="late")
            self.assertFalse(caught.exception.started)
            self.assertEqual(caught.exception.process_id, "late")
            self.assertIsInstance(caught.exception.cause, execwire.UnavailableError)

    def test_closing_does_not_wait_for_a_description(self) -> None:
        with Wire(server.url) as wire:
            client = execwire.connect(wire.url)
            wire.block()
            failures = []

            def describe() -> None:
                try:
                    client.describe()
                except execwire.Error as error:
                    failures.append(type(error))

            asking = threading.Thread(target=describe)
            asking.start()
            self.assertTrue(eventually(client._shared.describing.locked))
            closing = threading.Thread(target=client.close)
            closing.start()
            # Before the request times out by itself.
            closing.join(LONG)
            self.assertTrue(client._transport.closed.is_set())
            asking.join(LONG)
            self.assertEqual(failures, [execwire.ClosedError])

    def test_unconsumed_events_are_sent_again(self) -> None:
        # Repeated cuts without a consumer: at most one window is buffered.
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            with client.start(["sh", "-c", PRINT.format(lines=MIB)]) as process:
                for round in range(4):
                    self.assertTrue(eventually(lambda: process._owner._queued > MIB // 2))
                    wire.cut()
                    self.assertTrue(eventually(lambda: process.resumed > round))
                self.assertLess(process._owner._queued, 2 * MIB)
                digest = hashlib.sha256()
                for data in process.output():
                    digest.update(data)
                self.assertEqual(process.wait().dropped_bytes, 0)
        self.assertEqual(digest.hexdigest(), printed(MIB))

    def test_attached_process_continues(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            client.start_detached(["cat"], stdin=True, id="attached")
            with client.attach("attached") as process:
                lines = process.lines()
                for i in range(4):
                    process.write(b"%d\n" % i)
                    wire.cut()
                    self.assertEqual(next(lines), b"%d\n" % i)
                process.close_stdin()
                self.assertEqual(process.wait().stdout_bytes, 8)

    def test_followers_resume(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            with direct.start(["cat"], id="watched") as process:
                events = client.follow("watched")
                for i in range(4):
                    process.write(b"%d\n" % i)
                    event = next(events)
                    assert isinstance(event, Output)
                    self.assertEqual(event.data, b"%d\n" % i)
                    wire.cut()
                process.close_stdin()
                self.assertEqual(len(list(events)), 2)

    def test_calls_are_retried(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            for _ in range(5):
                wire.cut()
                self.assertTrue(client.files.exists("/"))
            with client.start(["sleep", "600"]) as process:
                wire.cut()
                self.assertTrue(process.terminate(0).was_running)


class Unanswered(filesystem_pb2_grpc.FileSystemServiceServicer):
    """Receives a call, and does not answer it."""

    def __init__(self) -> None:
        self.received, self.end = threading.Event(), threading.Event()

    def RenamePath(self, request: object, context: object) -> object:
        self.received.set()
        self.end.wait(LONG)
        return filesystem_pb2.RenamePathResponse()


class UnansweredStart(process_service_pb2_grpc.ProcessServiceServicer):
    """Receives a start, and does not answer it."""

    def __init__(self) -> None:
        self.received, self.end = threading.Event(), threading.Event()

    def StartProcess(self, request: object, context: object) -> object:
        self.received.set()
        self.end.wait(LONG)
        return process_service_pb2.StartProcessResponse()

    def RunProcess(self, requests: Iterator[object], context: object) -> Iterator[object]:
        next(requests)
        self.received.set()
        self.end.wait(LONG)
        return iter(())


class Interrupted(TestCase):
    def test_a_change_says_whether_it_was_done(self) -> None:
        model = Unanswered()
        fake = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        filesystem_pb2_grpc.add_FileSystemServiceServicer_to_server(model, fake)
        port = fake.add_insecure_port("127.0.0.1:0")
        fake.start()
        self.addCleanup(lambda: fake.stop(None).wait())
        self.addCleanup(model.end.set)
        with Wire(f"tcp://127.0.0.1:{port}") as wire, execwire.connect(wire.url) as client:
            failures = []

            def rename() -> None:
                try:
                    client.files.rename("/a", "/b")
                except execwire.Error as error:
                    failures.append(error)

            renaming = threading.Thread(target=rename)
            renaming.start()
            self.assertTrue(model.received.wait(LONG))
            wire.block()
            renaming.join(LONG)
            self.assertIsInstance(failures[0], execwire.UnknownError)
            self.assertIn("may or may not have been done", str(failures[0]))
            wire.close()

            def not_done() -> bool:
                rename()
                return isinstance(failures[-1], execwire.NotDoneError)

            # An attempt that had begun before may still fail in another way.
            self.assertTrue(eventually(not_done))
            self.assertIn("nothing was done", str(failures[-1]))

    def test_an_answer_is_no_interruption(self) -> None:
        refused = execwire.errors.make("NOT_FOUND", "no", Details(reason="PATH_NOT_FOUND"))
        self.assertIs(execwire.errors.interrupted(refused), refused)
        draining = execwire.errors.make("UNAVAILABLE", "no", Details(reason="DRAINING"))
        self.assertIsInstance(execwire.errors.interrupted(draining), execwire.NotDoneError)


class Files(TestCase):
    def test_uploads_and_downloads_are_exact(self) -> None:
        data = os.urandom(24 * MIB)
        digest = hashlib.sha256(data).digest()

        class Unseekable:
            """Like a pipe."""

            def __init__(self) -> None:
                self.read = io.BytesIO(data).read

        # A wire for each, because one cuts at most MOST_CUTS times.
        for source in (io.BytesIO(data), Unseekable()):
            with Wire(server.url, cut_every_bytes=5 * MIB) as wire, execwire.connect(wire.url) as client:
                uploaded = client.files.upload(self.path("up"), source)  # type: ignore[arg-type]
                self.assertEqual((uploaded.size, uploaded.sha256), (len(data), digest))
                self.assertGreater(wire.cuts, 2)
            with open(self.path("up"), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).digest(), digest)
        with Wire(server.url, cut_every_bytes=5 * MIB) as wire, execwire.connect(wire.url) as client:
            read = client.files.read(self.path("up"))
            self.assertGreater(wire.cuts, 2)
        self.assertEqual(hashlib.sha256(read).digest(), digest)

    def test_changed_file_raises_changed_error(self) -> None:
        path = self.path("changing")
        with open(path, "wb") as file:
            file.write(bytes(8 * MIB))

        with Wire(server.url) as wire, execwire.connect(wire.url) as client:

            class Changing(io.BytesIO):
                def write(self, data: object) -> int:
                    if self.tell() == 0:
                        with open(path, "r+b") as file:
                            file.write(b"changed")
                        wire.cut()
                    return super().write(data)  # type: ignore[arg-type]

            with self.assertRaises(execwire.ChangedError) as caught:
                client.files.download(path, Changing())
            self.assertEqual(caught.exception.reason, "FILE_CHANGED")

    def test_close_aborts_upload(self) -> None:
        client = execwire.connect(server.url)

        class Closing(io.BytesIO):
            def read(self, size: "int | None" = -1) -> bytes:
                if self.tell() > MIB:
                    client.close()
                return super().read(size)

        with self.assertRaises(execwire.ClosedError):
            client.files.upload(self.path("up"), Closing(bytes(2 * MIB)))
        self.assertFalse(os.path.exists(self.path("up")))
        # With a token, an interceptor finds the channel closed.
        client = execwire.connect(server.url, token="3f" * 32)
        client.close()
        with self.assertRaises(execwire.ClosedError):
            client.files.write(self.path("up"), b"late")

    def test_upload_id_resumes_after_crash(self) -> None:
        data = os.urandom(4 * MIB)

        class Crash(Exception):
            pass

        class Crashing:
            def __init__(self) -> None:
                self.left = io.BytesIO(data)

            def read(self, size: int) -> bytes:
                if self.left.tell() > 3 * MIB:
                    raise Crash
                return self.left.read(size)

        with self.assertRaises(Crash):
            direct.files.upload(self.path("named"), Crashing(), upload_id="crashing")
        self.assertFalse(os.path.exists(self.path("named")))
        uploaded = direct.files.upload(self.path("named"), io.BytesIO(data), upload_id="crashing")
        self.assertEqual(uploaded.sha256, hashlib.sha256(data).digest())


class Lost(TestCase):
    def test_zero_grace_ends_process(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as client:
            with client.start(["sleep", "600"], grace=0) as process:
                wire.cut()
                with self.assertRaises(execwire.LostError) as caught:
                    process.wait(LONG)
                self.assertTrue(caught.exception.started)
                self.assertEqual(caught.exception.process_id, process.id)
                self.assertIsInstance(caught.exception, ConnectionError)
                with self.assertRaises(execwire.LostError):
                    process.write(b"x")
                with self.assertRaises(execwire.LostError):
                    list(process.events())
            self.assertTrue(eventually(lambda: not alive(process.pid)))

    def test_a_restarted_server_is_reported(self) -> None:
        with serve() as first, Wire(first.url) as wire, execwire.connect(wire.url) as client:
            process = client.start(["sleep", "600"], grace=3600)
            first.kill_server()
            with serve() as second:
                wire.lead(second.url)
                with self.assertRaises(execwire.RestartedError) as caught:
                    process.wait(LONG)
            self.assertIsInstance(caught.exception, execwire.LostError)
            self.assertEqual(
                str(caught.exception),
                f"the server was restarted; the process {process.id} ended with it",
            )
            process.close()

    def test_a_start_is_not_repeated_at_a_restarted_server(self) -> None:
        def start(client: execwire.Client, mark: str) -> object:
            return client.start(["touch", mark])

        def start_detached(client: execwire.Client, mark: str) -> object:
            return client.start_detached(["touch", mark])

        for call in (start, start_detached):
            with self.subTest(call.__name__), tempfile.TemporaryDirectory() as directory:
                self._restart_before_the_answer(call, os.path.join(directory, "mark"))

    def _restart_before_the_answer(
        self, call: Callable[[execwire.Client, str], object], mark: str
    ) -> None:
        model = UnansweredStart()
        fake = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        process_service_pb2_grpc.add_ProcessServiceServicer_to_server(model, fake)
        port = fake.add_insecure_port("127.0.0.1:0")
        fake.start()
        self.addCleanup(lambda: fake.stop(None).wait())
        self.addCleanup(model.end.set)
        with Wire(f"tcp://127.0.0.1:{port}") as wire, execwire.connect(wire.url) as client:
            failures: List[execwire.Error] = []

            def run() -> None:
                try:
                    call(client, mark)
                except execwire.Error as error:
                    failures.append(error)

            starting = threading.Thread(target=run)
            starting.start()
            self.assertTrue(model.received.wait(LONG))
            with serve() as second:
                wire.lead(second.url)
                wire.cut()
                starting.join(LONG)
                self.assertIsInstance(failures[0], execwire.RestartedError)
                self.assertIn("unknown whether", str(failures[0]))
                self.assertFalse(os.path.exists(mark))

    def test_new_server_does_not_know_process(self) -> None:
        with serve() as first, Wire(first.url) as wire:
            with execwire.connect(wire.url) as client:
                process = client.start(["sh", "-c", "echo one; sleep 600"])
                events = process.events()
                self.assertEqual(next(events).data, b"one\n")  # type: ignore[union-attr]
                wire.block()
                with serve() as second:
                    wire.lead(second.url)
                    wire.open()
                    with self.assertRaises(execwire.LostError) as caught:
                        list(events)
                self.assertEqual(caught.exception.last_seq, 1)
                self.assertIn("PROCESS_NOT_FOUND", str(getattr(caught.exception.cause, "reason")))
                process.close()

    def test_close_ends_every_call(self) -> None:
        client = execwire.connect(server.url)
        process = client.start(["sleep", "600"])
        watch = client.files.watch(self.directory)
        attached = direct.start(["sleep", "600"])
        attached.detach()
        failures = []

        def collect(call: object) -> None:
            try:
                call()  # type: ignore[operator]
            except Exception as error:
                failures.append(error)

        other = client.attach(attached.id)
        calls = (
            other.wait,
            lambda: list(other.events()),
            lambda: next(watch),
            lambda: client.wait_for(attached.id, execwire.Wait(pattern="never")),
        )
        threads = [threading.Thread(target=collect, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        client.close()
        for thread in threads:
            thread.join(LONG)
        self.assertEqual([type(f) for f in failures], [execwire.ClosedError] * len(calls))
        self.assertFalse(alive(process.pid))
        self.assertTrue(alive(attached.pid))
        for call in (lambda: client.run(["true"]), lambda: client.files.exists("/")):
            with self.assertRaises(execwire.ClosedError):
                call()
        client.close()
        direct.terminate(attached.id, grace=0)


class Slow(TestCase):
    def test_slow_consumer_blocks_process(self) -> None:
        counted = self.path("counted")
        script = f"for i in $(seq 64); do head -c {MIB} /dev/zero; echo $i >>{counted}; done"
        with direct.start(["sh", "-c", script]) as process:
            # Without a consumer, the process blocks after its window and pipes.
            self.assertTrue(eventually(lambda: process._owner._queued > MIB // 2))
            before = -1
            while process._owner._queued != before:
                before = process._owner._queued
                time.sleep(0.2)
            self.assertLess(before, 2 * MIB)
            with open(counted, "a+") as file:
                file.seek(0)
                self.assertLessEqual(len(file.readlines()), 2)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            taken = 0
            for data in process.output():
                taken += len(data)
            self.assertEqual(taken, 64 * MIB)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            self.assertLess(grown, 32 * 1024)  # KiB

    def test_slow_consumer_does_not_block_others(self) -> None:
        with direct.start(["yes"]) as slow:
            self.assertTrue(eventually(lambda: slow._owner._queued > MIB // 2))
            self.assertEqual(len(direct.run(["head", "-c", "20000000", "/dev/zero"]).stdout), 20_000_000)


if __name__ == "__main__":
    unittest.main()
