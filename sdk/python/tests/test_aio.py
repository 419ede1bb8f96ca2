"""Tests of execwire.aio."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
import unittest
import unittest.mock

import execwire
from execwire import Closed, Output, aio

from .support import PROGRAM, SDK, Endless, Program, TestCase, Wire, alive, ended, eventually, serve, unnamed_files

server: Program


def setUpModule() -> None:
    global server
    server = serve()


def tearDownModule() -> None:
    server.stop()


class Aio(TestCase, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.client = await aio.connect(server.url)

    async def asyncTearDown(self) -> None:
        await self.client.close()

    async def test_run(self) -> None:
        done = await self.client.run(["sh", "-c", "cat; echo err >&2; exit 3"], input=b"in")
        self.assertEqual((done.stdout, done.stderr, done.exit.code), ("in", "err\n", 3))
        with self.assertRaises(execwire.ExitError):
            await self.client.run(["false"], check=True)
        with self.assertRaises(execwire.ProgramNotFoundError):
            await self.client.run(["no-such-program"])
        with self.assertRaises(execwire.OutputLimitError):
            await self.client.run(["yes"], max_output_bytes=1000)
        self.assertEqual((await self.client.describe()).operating_system, "linux")
        self.assertEqual((await self.client.run("id -un", user="nobody")).stdout, "nobody\n")

    async def test_callbacks_may_be_coroutines(self) -> None:
        pieces = []

        async def on_stdout(data: bytes) -> None:
            await asyncio.sleep(0)
            pieces.append(data)

        done = await self.client.run("echo a; echo b >&2", text=False, on_stdout=on_stdout, on_stderr=pieces.append)
        self.assertEqual(sorted(pieces), [b"a\n", b"b\n"])
        self.assertEqual((done.stdout, done.stderr), (b"a\n", b"b\n"))
        with self.assertRaises(execwire.ProcessTimeoutError):
            await self.client.run("sleep 600", timeout=0.2)

    async def test_input_is_of_any_size(self) -> None:
        data = bytes(16 << 20)
        done = await self.client.run(["wc", "-c"], input=data)
        self.assertEqual(int(done.stdout), len(data))
        async with await self.client.start(["cat"]) as process:
            process.close_stdin()
            with self.assertRaises(execwire.UsageError):
                await process.communicate(b"late")

    async def test_cancelling_a_launch_leaves_no_server(self) -> None:
        from execwire._program import _running

        os.environ["EXECWIRE_BIN"] = str(PROGRAM)
        while True:
            launching = asyncio.ensure_future(aio.launch())
            while not _running:
                await asyncio.sleep(0.01)
            if launching.cancel():
                break
            await (await launching).close()  # it was there before this task ran again
        with self.assertRaises(asyncio.CancelledError):
            await launching
        while _running:
            await asyncio.sleep(0.01)

    async def test_many_at_once(self) -> None:
        done = await asyncio.gather(
            *(self.client.run(["cat"], input=b"%d" % i * 1000) for i in range(30))
        )
        self.assertEqual([d.stdout for d in done], [str(i) * 1000 for i in range(30)])

    async def test_writing_and_reading_in_turns(self) -> None:
        async with await self.client.start(["cat"]) as process:
            lines = process.lines()
            for i in range(50):
                await process.write(b"line %d\n" % i)
                self.assertEqual(await lines.__anext__(), b"line %d\n" % i)
            process.close_stdin()
            self.assertEqual([line async for line in lines], [])
            self.assertEqual((await process.wait()).code, 0)

    async def test_cancelled_lines_are_kept(self) -> None:
        script = r"printf 'one\ntwo\nthr'; read go; printf 'ee\n'"
        async with await self.client.start(["sh", "-c", script]) as process:
            lines = process.lines()
            received = [await lines.__anext__(), await lines.__anext__()]
            step = asyncio.ensure_future(lines.__anext__())
            await asyncio.sleep(0)
            step.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await step
            await process.write(b"\n")
            received += [line async for line in process.lines()]
            self.assertEqual(received, [b"one\n", b"two\n", b"three\n"])

    async def test_events_end_with_closed(self) -> None:
        async with await self.client.start(["echo", "out"]) as process:
            events = [event async for event in process.events()]
        self.assertIsInstance(events[0], Output)
        self.assertIsInstance(events[-1], Closed)

    async def test_blocked_write_does_not_block_others(self) -> None:
        data = os.urandom(4 << 20)
        async with await self.client.start(["cat"]) as process:
            writing = asyncio.ensure_future(process.write(data))
            self.assertEqual((await self.client.run(["echo", "free"])).stdout, "free\n")
            self.assertFalse(writing.done())
            read = bytearray()
            async for piece in process.output():
                read += piece
                if len(read) == len(data):
                    process.close_stdin()
            await writing
            self.assertEqual(bytes(read), data)

    async def test_cancelling_kills_process(self) -> None:
        pids = self.path("pids")
        running = asyncio.ensure_future(
            self.client.run(["sh", "-c", f"echo $$ >{pids}.new; mv {pids}.new {pids}; sleep 600"])
        )
        while not os.path.exists(pids):
            await asyncio.sleep(0.01)
        running.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await running
        with open(pids) as file:
            self.assertFalse(alive(int(file.read())))

    async def test_cancelling_an_upload_aborts_it(self) -> None:
        source = Endless()
        self.addCleanup(source.close)
        uploading = asyncio.ensure_future(self.client.files.upload(self.path("f"), source))
        while not unnamed_files(self.directory):
            await asyncio.sleep(0.01)
        uploading.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await uploading
        self.assertEqual(unnamed_files(self.directory), [])
        source.close()
        await self.client.files.list(self.directory)
        self.assertEqual(os.listdir(self.directory), [])

    async def test_any_exception_of_a_reader_is_raised(self) -> None:
        for raised, caught in ((OSError(5, "gone"), OSError), (StopIteration(), RuntimeError)):
            source = unittest.mock.Mock(spec=["read"])
            source.read.side_effect = raised
            with self.assertRaises(caught):
                await self.client.files.upload(self.path("f"), source)

    async def test_closing_aborts_uploads(self) -> None:
        source = Endless()
        self.addCleanup(source.close)
        client = await aio.connect(server.url)
        uploading = asyncio.ensure_future(client.files.upload(self.path("f"), source))
        while not unnamed_files(self.directory):
            await asyncio.sleep(0.01)
        await client.close()
        self.assertEqual(unnamed_files(self.directory), [])
        source.close()
        with self.assertRaises(execwire.ClosedError):
            await uploading

    async def test_cancelling_wait_does_not_kill_process(self) -> None:
        async with await self.client.start(["sleep", "600"]) as process:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 0.05)
            self.assertTrue(alive(process.pid))
            self.assertTrue((await process.terminate(0)).was_running)
            self.assertEqual((await process.wait()).cause, execwire.ExitCause.TERMINATED)

    async def test_control(self) -> None:
        script = "trap 'stty size' WINCH; trap 'exit 5' USR1; echo ready; while :; do sleep 0.01; done"
        async with await self.client.start(["sh", "-c", script], terminal=True) as process:
            lines = process.lines()
            self.assertEqual(await lines.__anext__(), b"ready\r\n")
            await process.resize(33, 77)
            self.assertEqual(await lines.__anext__(), b"33 77\r\n")
            await process.signal(signal.SIGUSR1)
            self.assertEqual((await process.wait()).code, 5)

    async def test_detach_and_attach(self) -> None:
        process = await self.client.start(["cat"])
        await process.detach()
        async with await self.client.attach(process.id) as again:
            done = await again.communicate(b"hello")
        self.assertEqual(done.stdout, "hello")

    async def test_files(self) -> None:
        files = self.client.files
        await files.mkdir(self.path("d/e"), parents=True)
        await files.write(self.path("d/f"), b"content")
        self.assertEqual(await files.read(self.path("d/f")), b"content")
        self.assertEqual((await files.stat(self.path("d/f"))).size, 7)
        self.assertEqual([e.name for e in await files.list(self.path("d"))], ["e", "f"])
        self.assertEqual([e.path async for e in files.walk(self.directory)], ["d", "d/e", "d/f"])
        with self.assertRaises(FileNotFoundError):
            await files.read(self.path("none"))
        watch = files.watch(self.directory, settle=0)
        self.assertEqual((await watch.__anext__()).changes, ())
        await files.rename(self.path("d/f"), self.path("g"))
        self.assertEqual((await watch.__anext__()).changes[0].path, "g")
        await watch.aclose()  # type: ignore[attr-defined]

    async def test_trees_and_content(self) -> None:
        files = self.client.files
        os.mkdir(self.path("local"))
        for name in ("a", "b"):
            with open(self.path("local/" + name), "w") as file:
                file.write(name * 10)
        moved = []
        pushed = await files.push(self.path("local"), self.path("remote"), on_progress=lambda *p: moved.append(p))
        self.assertEqual((pushed.files, moved[-1][:2]), (2, (20, 20)))
        self.assertEqual((await files.sync(self.path("local"), self.path("remote"))).skipped, 2)
        self.assertEqual((await files.pull(self.path("remote"), self.path("back"))).bytes, 20)
        found = await files.glob(self.path("remote") + "/*")
        self.assertEqual(found, [self.path("remote/a"), self.path("remote/b")])
        await files.chmod(found[0], 0o600)
        self.assertEqual(await files.edit(found[0], "aaaaaaaaaa", "c"), 1)
        self.assertEqual(await files.read(found[0], text=True), "c")
        self.assertEqual([p async for p in files.stream(found[1])], [b"b" * 10])

    async def test_processes_of_others(self) -> None:
        started = await self.client.start_detached("read x; echo $x; sleep 600", stdin=True, id="aio-other")
        self.assertEqual((await self.client.get("aio-other")).pid, started.pid)
        follow = self.client.follow("aio-other")
        async with await self.client.attach("aio-other") as process:
            await process.write("hi\n")
            event = await follow.__anext__()
            assert isinstance(event, execwire.Output)
            self.assertEqual(event.data, b"hi\n")
            with self.assertRaises(TimeoutError):
                await process.wait(0.01)
            waiting = asyncio.ensure_future(follow.__anext__())
            self.assertTrue((await self.client.terminate("aio-other", grace=0)).was_running)
            self.assertIsInstance(await waiting, execwire.Exited)
        await follow.aclose()  # type: ignore[attr-defined]
        self.assertEqual(await self.client.wait_for("aio-other", execwire.Wait("hi")), b"hi")
        events = await self.client.read("aio-other")
        self.assertIsInstance(events[0], execwire.Output)
        self.assertIn("aio-other", [p.process_id async for p in self.client.processes()])

    async def test_a_cancelled_follow_ends(self) -> None:
        async with await self.client.start("cat") as process:
            follow = self.client.follow(process.id)
            waiting = asyncio.ensure_future(follow.__anext__())
            while not calling():
                await asyncio.sleep(0.01)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            while calling():
                await asyncio.sleep(0.01)

    async def test_output_is_exact_while_the_connection_is_cut(self) -> None:
        with Wire(server.url, cut_every_bytes=2 << 20) as wire:
            async with await aio.connect(wire.url) as client:
                data = os.urandom(6 << 20)
                done = await client.run(["cat"], input=data, text=False)
            self.assertGreater(wire.cuts, 2)
        self.assertEqual(done.stdout, data)

    async def test_a_lost_connection_is_reported_in_the_loop(self) -> None:
        called, resumed = [], asyncio.Event()

        def on_resumed() -> None:
            called.append(threading.current_thread())
            resumed.set()  # which may be called in the loop only

        with Wire(server.url) as wire:
            async with await aio.connect(wire.url) as client:
                async with await client.start(
                    "cat",
                    on_lost=lambda error: called.append(type(error)),
                    on_resumed=on_resumed,
                ) as process:
                    wire.cut()
                    await resumed.wait()
                    self.assertEqual((await process.communicate("x")).stdout, "x")
        self.assertEqual(called, [execwire.UnavailableError, threading.current_thread()])

    async def test_a_restarted_server_is_reported(self) -> None:
        with serve() as first, Wire(first.url) as wire:
            async with await aio.connect(wire.url) as client:
                process = await client.start(["sleep", "600"], grace=3600)
                first.kill_server()
                with serve() as second:
                    wire.lead(second.url)
                    with self.assertRaises(execwire.RestartedError):
                        await process.wait()

    async def test_lost_process_raises_lost_error(self) -> None:
        with Wire(server.url) as wire:
            async with await aio.connect(wire.url) as client:
                process = await client.start(["sleep", "600"], grace=0)
                wire.cut()
                with self.assertRaises(execwire.LostError):
                    await process.wait()
                with self.assertRaises(execwire.LostError):
                    await process.write(b"x")


def calling() -> bool:
    return any(thread.name == "execwire call" for thread in threading.enumerate())


class Surface(unittest.TestCase):
    def test_it_is_that_of_the_blocking_client(self) -> None:
        for name in ("Client", "Process", "Files"):
            theirs, mine = public(getattr(execwire, name)), public(getattr(aio, name))
            self.assertEqual(mine, theirs, name)
        for name in ("connect", "launch", "relay_url"):
            self.assertEqual(parameters(getattr(aio, name)), parameters(getattr(execwire, name)), name)


def public(of: type) -> "dict[str, object]":
    """The methods of a class with their parameters, except those that are for this package."""
    return {
        name: parameters(member) if callable(member) else "property"
        for name, member in vars(of).items()
        if not name.startswith("_") and not (member.__doc__ or "").startswith("For ")
    }


def parameters(function: object) -> "list[tuple[str, object, object]]":
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [(p.name, p.kind, p.default) for p in found]


class Interrupted(TestCase):
    def test_ctrl_c_kills_process(self) -> None:
        pids = self.path("pids")
        program = (
            "import asyncio, sys\n"
            "from execwire import aio\n"
            # A signal that arrives right before the loop blocks is handled when it wakes.
            "async def wake():\n"
            "    while True:\n"
            "        await asyncio.sleep(0.5)\n"
            "async def main():\n"
            "    waking = asyncio.create_task(wake())\n"
            "    async with await aio.connect(sys.argv[1]) as client:\n"
            "        await client.run(['sh', '-c', sys.argv[2]])\n"
            "asyncio.run(main())\n"
        )
        script = f"echo $$ >{pids}.new; mv {pids}.new {pids}; sleep 600"
        import subprocess
        import sys

        with subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", program, server.url, script],
            env={**os.environ, "PYTHONPATH": str(SDK)}, stderr=subprocess.PIPE, start_new_session=True,
        ) as interpreter:  # fmt: skip
            self.assertTrue(eventually(lambda: os.path.exists(pids)))
            interpreter.send_signal(signal.SIGINT)
            stderr = ended(interpreter)
        self.assertIn(b"KeyboardInterrupt", stderr)
        with open(pids) as file:
            self.assertFalse(alive(int(file.read())))


if __name__ == "__main__":
    unittest.main()
