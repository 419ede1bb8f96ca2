"""Processes: output, input, and how they end."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock

import execwire
from execwire._collect import Collector
from execwire._loop import event_loop
from execwire import Closed, Exited, ExitCause, Gap, GapCause, Output, Stream

from .support import LONG, PROGRAM, SDK, Program, TestCase, alive, ended, eventually, serve

server: Program
client: execwire.Client


def setUpModule() -> None:
    global server, client
    server = serve()
    client = execwire.connect(server.url)


def tearDownModule() -> None:
    client.close()
    server.stop()


class Run(TestCase):
    def test_streams_and_exit_code(self) -> None:
        completed = client.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertEqual((completed.stdout, completed.stderr), ("out\n", "err\n"))
        self.assertEqual((completed.exit.code, completed.exit.signal), (3, None))
        self.assertEqual(completed.exit.cause, ExitCause.EXITED)
        self.assertEqual((completed.exit.stdout_bytes, completed.exit.stderr_bytes), (4, 4))
        self.assertFalse(completed.exit.ok)
        self.assertEqual(completed.exit.shell_code, 3)

    def test_killed_by_signal(self) -> None:
        exit = client.run(["sh", "-c", "kill -9 $$"]).exit
        self.assertEqual((exit.code, exit.signal, exit.shell_code), (None, 9, 137))
        self.assertIn("SIGKILL", str(exit))

    def test_check_raises_with_the_end_of_stderr(self) -> None:
        with self.assertRaises(execwire.ExitError) as caught:
            client.run(["sh", "-c", "echo part; echo why >&2; exit 7"], check=True)
        self.assertEqual(caught.exception.completed.stdout, "part\n")
        self.assertIn("exited with code 7: why", str(caught.exception))
        self.assertEqual(client.run(["echo", "ok"], check=True).stdout, "ok\n")

    def test_input_of_every_kind(self) -> None:
        data = os.urandom(3_000_000)
        for kind in (data, io.BytesIO(data), iter([data[:10], data[10:]])):
            self.assertEqual(client.run(["cat"], input=kind, text=False).stdout, data)
        with open(os.path.join(self.directory, "in"), "w+b", buffering=0) as file:
            file.write(data)
            file.seek(0)
            self.assertEqual(client.run(["cat"], input=file, text=False).stdout, data)
        self.assertEqual(client.run(["cat"]).stdout, "")

    def test_unread_input_is_not_an_error(self) -> None:
        self.assertEqual(client.run(["true"], input=bytes(8 << 20)).exit.code, 0)

    def test_unread_stdin_does_not_abort_interpreter(self) -> None:
        program = (
            "import execwire, sys\n"
            "with execwire.connect(sys.argv[1]) as client:\n"
            "    print(client.run(['true'], input=sys.stdin.buffer).exit.code)\n"
        )
        near, far = os.pipe()  # which is silent and does not end
        try:
            ran = self.run_python(program, server.url, stdin=near)
        finally:
            os.close(near)
            os.close(far)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "0\n", ""))

    def test_text_and_bytes(self) -> None:
        self.assertEqual(client.run("printf '\\344x'; cat", input="ä").stdout, "\ufffdxä")
        self.assertEqual(client.run("cat", input="ä", text=False).stdout, "ä".encode())
        with client.start("cat") as process:
            process.write("ä")
            self.assertEqual(process.communicate(text=False).stdout, "ä".encode())
        with self.assertRaises(TypeError):
            client.run(["cat"], input=5)  # type: ignore[call-overload]
        with client.start(["cat"]) as process, self.assertRaises(TypeError):
            process.write(5)  # type: ignore[arg-type]

    def test_a_string_is_for_a_shell_and_a_list_is_not(self) -> None:
        self.assertEqual(client.run("echo a | tr a b; echo $((1 + 1))").stdout, "b\n2\n")
        self.assertEqual(client.run(["echo", "a | tr a b", "*"]).stdout, "a | tr a b *\n")
        with self.assertRaisesRegex(execwire.UsageError, "a command is text"):
            client.run(b"true")  # type: ignore[call-overload]

    def test_callbacks_get_output_as_it_arrives(self) -> None:
        out, err = [], []
        with client.start("echo one; read x; echo e >&2; printf '\\303'; read x; printf '\\244'") as process:

            def on_stdout(text: str) -> None:
                out.append(text)
                if text == "one\n":  # later the process may have ended
                    process.write("go\n")

            def on_stderr(text: str) -> None:
                err.append(text)
                process.write("go\n")

            # communicate() would close stdin, which the callbacks still write to.
            collector = Collector(True, None, None, on_stdout, on_stderr, 100)
            for event in process.events():
                collector.take(event)
            collector.rest()
            done = collector.end(process.wait())
        self.assertEqual(("".join(out), "".join(err)), ("one\nä", "e\n"))
        self.assertEqual((out[0], done.stdout, done.stderr), ("one\n", "one\nä", "e\n"))
        pieces = []
        client.run("printf '\\303'", on_stdout=pieces.append)
        self.assertEqual(pieces, ["\ufffd"])
        client.run(["printf", "x"], text=False, on_stdout=pieces.append)
        self.assertEqual(pieces[1:], [b"x"])

    def test_a_failing_callback_kills_process(self) -> None:
        def fail(text: str) -> None:
            raise KeyError(text[0])

        with self.assertRaisesRegex(KeyError, "y"):
            client.run(["yes"], on_stdout=fail, id="failed-callback")
        self.assertTrue(client.get("failed-callback").HasField("exit"))

    def test_failing_input_kills_process(self) -> None:
        def broken():  # type: ignore[no-untyped-def]
            yield b"one\n"
            raise OSError("the disk is gone")

        with self.assertRaisesRegex(OSError, "the disk is gone"):
            client.run(["cat"], input=broken(), id="broken-input")
        self.assertTrue(client.get("broken-input").HasField("exit"))

    def test_output_to_files(self) -> None:
        with open(self.path("out"), "wb", buffering=0) as out:
            completed = client.run(["seq", "200000"], stdout=out)
        self.assertEqual(completed.stdout, "")
        with open(self.path("out"), "rb") as out:
            self.assertEqual(out.read(), b"".join(b"%d\n" % i for i in range(1, 200001)))

    def test_failing_writer_kills_process(self) -> None:
        class Full:
            def write(self, data: bytes) -> int:
                raise OSError(28, "No space left on device")

        with self.assertRaises(OSError):
            client.run(["yes"], stdout=Full(), id="full")
        self.assertTrue(client.get("full").HasField("exit"))

    def test_output_limit_kills_process(self) -> None:
        with self.assertRaisesRegex(execwire.OutputLimitError, "max_output_bytes, 1000000"):
            client.run(["yes"], max_output_bytes=1_000_000, id="too-much")
        self.assertTrue(client.get("too-much").HasField("exit"))

    def test_directory_and_environment(self) -> None:
        self.assertEqual(client.run(["pwd"], cwd=self.directory).stdout.strip(), self.directory)
        home = client.describe().home_directory
        default = os.path.realpath(home) if os.path.isdir(home) else "/"
        self.assertEqual(client.run(["pwd"]).stdout.strip(), default)
        printed = client.run(["sh", "-c", "echo $A; echo ${HOME:-none}"], env={"A": "b c"}).stdout
        self.assertEqual(printed.split("\n")[0], "b c")
        bare = client.run(["/usr/bin/env"], env={"A": "1"}, inherit_env="none").stdout
        self.assertEqual(bare, "A=1\n")

    def test_limits(self) -> None:
        with self.assertRaises(execwire.ProcessTimeoutError) as caught:
            client.run("echo begun; sleep 600", timeout=0.2)
        self.assertIsInstance(caught.exception, TimeoutError)
        exit = caught.exception.completed.exit
        self.assertEqual((exit.cause, exit.signal), (ExitCause.TIMEOUT, 9))
        with self.assertRaises(execwire.ProcessTimeoutError) as caught:
            client.run("echo; sleep 600", no_output_timeout=0.2)
        self.assertEqual(caught.exception.completed.exit.cause, ExitCause.NO_OUTPUT)
        limits = {"open_files": 99, "core_bytes": (0, None), "cpu_seconds": None}
        limited = client.run("nice; ulimit -n; ulimit -Sc", nice=3, resource_limits=limits)
        base = int(client.run("nice").stdout)
        self.assertEqual(limited.stdout, f"{min(base + 3, 19)}\n99\n0\n")
        with self.assertRaisesRegex(execwire.UsageError, "'open', .* open_files"):
            client.run("true", resource_limits={"open": 1})

    def test_another_user(self) -> None:
        ran = client.run("id -un; pwd; echo $USER", user="nobody")
        self.assertEqual(ran.stdout, "nobody\n/\nnobody\n")
        self.assertEqual(client.run("id -u; id -G", user="4321:1").stdout, "4321\n1\n")
        started = client.start_detached(["true"], user="nobody")
        self.assertEqual(started.user, "nobody")
        with self.assertRaisesRegex(execwire.InvalidRequestError, "no such"):
            client.run("id", user="no such")

    def test_a_terminal(self) -> None:
        completed = client.run(["sh", "-c", "tty; stty size"], terminal=(11, 99))
        self.assertRegex(completed.stdout, r"^/dev/pts/\d+\r\n11 99\r\n$")
        self.assertEqual(completed.exit.terminal_bytes, len(completed.stdout))
        ended = client.run(["cat"], terminal=True, input=b"no line end")
        self.assertIn("no line end", ended.stdout)

    def test_a_sandbox(self) -> None:
        confined = client.with_sandbox(execwire.Sandbox(writable=[self.directory]))
        outside = self.path("..") + "/execwire-sandbox-%d" % os.getpid()
        script = f"echo in >{self.path('in')} && echo out >{outside}"
        exit = confined.run(["sh", "-c", script], cwd=self.directory).exit
        self.assertNotEqual(exit.code, 0)
        self.assertTrue(exit.sandbox_denied)
        self.assertTrue(os.path.exists(self.path("in")))
        self.assertFalse(os.path.exists(outside))
        with self.assertRaises(execwire.ExecwireError) as caught:
            confined.files.write(outside, b"x")
        self.assertIn(
            caught.exception.reason, ("READ_ONLY_FILE_SYSTEM", "PERMISSION_DENIED")
        )
        self.assertEqual(client.run(["sh", "-c", f"echo x >{outside}; rm {outside}"]).exit.code, 0)

    def test_failures_to_start_are_typed(self) -> None:
        with self.assertRaises(execwire.ProgramNotFoundError) as caught:
            client.run(["no-such-program"])
        self.assertIsInstance(caught.exception, FileNotFoundError)
        self.assertEqual(caught.exception.reason, "PROGRAM_NOT_FOUND")
        with self.assertRaises(execwire.StartError) as start:
            client.run(["true"], cwd="/no/such/directory")
        self.assertEqual(start.exception.reason, "BAD_WORKING_DIRECTORY")
        with self.assertRaises(execwire.InvalidRequestError) as invalid:
            client.run([])
        self.assertEqual(invalid.exception.fields[0].field, "start.process.command.direct.argv")
        with self.assertRaisesRegex(execwire.UsageError, "inherit_env"):
            client.run(["true"], inherit_env="some")

    def test_start_with_id_is_repeatable(self) -> None:
        first = client.run(["sh", "-c", "cat; echo $$"], input=b"x\n", id="again")
        again = client.run(["sh", "-c", "cat; echo $$"], input=b"x\n", id="again")
        self.assertEqual(first.stdout, again.stdout)
        with self.assertRaises(execwire.AlreadyExistsError):
            client.run(["true"], id="again")
        with self.assertRaisesRegex(execwire.UsageError, "ended before"):
            client.run(["sh", "-c", "cat; echo $$"], input=b"", id="again")

    def test_shorter_repeated_input_fails(self) -> None:
        argv = ["sh", "-c", "cat"]
        client.run(argv, input=b"x\n", id="shorter")
        with client.start(argv, stdin=True, id="shorter") as process:
            process.wait()
            with self.assertRaisesRegex(execwire.UsageError, "ended before"):
                process.close_stdin()
        with client.start(argv, stdin=True, id="shorter") as process:
            process.wait()
            with self.assertRaises(execwire.StdinClosedError):
                process.write(b"x\n")
            process.close_stdin()  # its length is unknown


class Handle(TestCase):
    def test_events_come_in_order_and_end_with_closed(self) -> None:
        events = []
        with client.start("echo out; read x; echo err >&2; exit 4") as process:
            for event in process.events():
                events.append(event)
                if len(events) == 1:
                    process.write("go\n")
        self.assertEqual([e.seq for e in events], [1, 2, 3, 4])  # type: ignore[union-attr]
        self.assertEqual(events[0], Output(1, Stream.STDOUT, 0, b"out\n"))
        self.assertEqual(events[1], Output(2, Stream.STDERR, 0, b"err\n"))
        assert isinstance(events[0], Output) and isinstance(events[1], Output)
        assert isinstance(events[2], Exited) and isinstance(events[3], Closed)
        self.assertLess(0, events[0].read_time_ns or 0)
        self.assertLessEqual(events[0].read_time_ns or 0, events[1].read_time_ns or 0)
        self.assertEqual((events[2].exit.code, events[3].exit.code), (4, 4))
        self.assertEqual(process.exit, events[3].exit)

    def test_writing_and_reading_in_turns(self) -> None:
        with client.start(["cat"]) as process:
            lines = process.lines()
            for i in range(100):
                process.write(b"line %d\n" % i)
                self.assertEqual(next(lines), b"line %d\n" % i)
            process.write(b"no end")
            process.close_stdin()
            self.assertEqual(list(lines), [b"no end"])
            self.assertEqual(process.wait().code, 0)
            with self.assertRaises(execwire.UsageError):
                process.write(b"more")

    def test_undelivered_lines_are_kept(self) -> None:
        script = r"printf 'one\ntwo\nthr'; read go; printf 'ee\nfour'"
        with client.start(["sh", "-c", script]) as process:
            self.assertEqual(next(process.lines()), b"one\n")
            self.assertEqual(next(process.lines()), b"two\n")
            process.write(b"\n")
            self.assertEqual(next(process.lines()), b"three\n")
            self.assertEqual(list(process.lines()), [b"four"])
            self.assertEqual(list(process.lines()), [])

    def test_wait_consumes_output_and_keeps_end(self) -> None:
        with client.start(["sh", "-c", "head -c 10000000 /dev/zero; echo end"]) as process:
            exit = process.wait(LONG)
            self.assertEqual((exit.code, exit.stdout_bytes), (0, 10_000_004))
            gap, *events = list(process.events())
            assert isinstance(gap, Gap)
            output = b"".join(e.data for e in events if isinstance(e, Output))
            self.assertTrue(output.endswith(b"\0end\n"))
            self.assertEqual(gap.dropped_bytes + len(output), 10_000_004)
            self.assertIs(gap.cause, GapCause.LIMIT)

    def test_wait_timeout(self) -> None:
        with client.start(["sleep", "600"]) as process:
            with self.assertRaises(TimeoutError):
                process.wait(0.05)
            self.assertIsNone(process.exit)

    def test_signals_and_errors(self) -> None:
        script = "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.01; done"
        with client.start(["sh", "-c", script]) as process:
            lines = process.lines()
            self.assertEqual(next(lines), b"ready\n")
            process.signal(signal.SIGUSR1, "process")
            self.assertEqual(next(lines), b"got\n")
            self.assertEqual(process.wait().code, 5)
            with self.assertRaises(execwire.ProcessEndedError) as caught:
                process.signal(signal.SIGUSR1)
            self.assertIsInstance(caught.exception, ProcessLookupError)

    def test_resizing_a_terminal(self) -> None:
        script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done"
        with client.start(["sh", "-c", script], terminal=True) as process:
            self.assertTrue(process.has_terminal)
            lines = process.lines()
            self.assertEqual(next(lines), b"ready\r\n")
            process.resize(33, 77)
            self.assertEqual(next(lines), b"33 77\r\n")
        with client.start(["cat"]) as process:
            with self.assertRaises(execwire.ExecwireError) as caught:
                process.resize(1, 1)
            self.assertEqual(caught.exception.reason, "NOT_A_TERMINAL")

    def test_terminating_ends_descendants(self) -> None:
        with client.start(["sh", "-c", "sleep 600 & echo $!; wait"]) as process:
            child = int(next(process.lines()))
            ended = process.terminate()
            self.assertTrue(ended.was_running)
            assert ended.exit is not None
            self.assertEqual(ended.exit.cause, ExitCause.TERMINATED)
            self.assertFalse(alive(child))
            self.assertEqual(process.wait().cause, ExitCause.TERMINATED)
            self.assertFalse(process.kill().was_running)

    def test_leaving_block_kills_process(self) -> None:
        with client.start(["sleep", "600"]) as process:
            pass
        self.assertFalse(alive(process.pid))
        with self.assertRaises(execwire.ClosedError):
            process.write(b"x")
        process.close()

    def test_write_without_stdin_fails(self) -> None:
        with client.start(["sleep", "600"], stdin=False) as process:
            self.assertTrue(_refuses(process))
        client.start_detached(["sleep", "600"], id="no-input")
        with client.attach("no-input") as process:
            self.assertTrue(eventually(lambda: _refuses(process)))
        client.terminate("no-input", grace=0)

    def test_write_to_closed_stdin_fails(self) -> None:
        with client.start(["sh", "-c", "exec <&-; sleep 600"]) as process:
            self.assertTrue(eventually(lambda: _refuses(process)))

    def test_communicate(self) -> None:
        with client.start(["sh", "-c", "cat; echo e >&2"]) as process:
            completed = process.communicate(b"hello")
        self.assertEqual((completed.stdout, completed.stderr), ("hello", "e\n"))

    def test_processes_need_no_threads(self) -> None:
        client.run("true")  # starts those that all processes share
        before = threading.active_count()
        processes = [client.start("cat") for _ in range(20)]
        self.assertLessEqual(threading.active_count(), before)
        self.assertEqual({p.communicate("x").stdout for p in processes}, {"x"})

    def test_calls_of_on_lost_that_would_never_return_fail(self) -> None:
        with client.start("cat") as process:
            for call in (process.wait, process.close, client.close, lambda: client.run("true")):

                async def lost() -> None:
                    call()

                with self.assertRaisesRegex(execwire.UsageError, "on_lost .* must not call"):
                    asyncio.run_coroutine_threadsafe(lost(), event_loop()).result(LONG)
            self.assertEqual(process.communicate("x").stdout, "x")

    def test_concurrent_writes_are_complete(self) -> None:
        with client.start(["cat"]) as process:
            def write(name: int) -> None:
                for i in range(50):
                    process.write(b"%d %d\n" % (name, i))

            threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            process.close_stdin()
            lines = list(process.lines())
        self.assertEqual(len(lines), 400)
        for name in range(8):
            mine = [line for line in lines if line.startswith(b"%d " % name)]
            self.assertEqual(mine, [b"%d %d\n" % (name, i) for i in range(50)])


def _refuses(process: execwire.Process) -> bool:
    try:
        process.write(b"x" * 1000)
    except execwire.StdinClosedError as error:
        assert isinstance(error, BrokenPipeError)
        return True
    return False


class NotOwned(TestCase):
    """Existing processes that this client does not own."""

    def test_detach_and_attach(self) -> None:
        process = client.start(["cat"], id="detached")
        process.write(b"one\n")
        events = process.events()
        self.assertEqual(next(events).data, b"one\n")  # type: ignore[union-attr]
        events.close()  # type: ignore[attr-defined]
        seq = process.last_seq
        process.detach()
        process.close()
        self.assertFalse(client.get("detached").owned)

        with client.attach("detached", after_seq=seq) as process:
            process.write(b"two\n")
            process.close_stdin()
            self.assertEqual(b"".join(process.output()), b"two\n")
            self.assertEqual(process.wait().stdout_bytes, 8)

    @unittest.mock.patch("execwire._owner._DETACH_TIMEOUT", LONG)
    def test_detach_delivers_input(self) -> None:
        for number in range(20):
            process = client.start(["cat"], id=f"ended-{number}")
            process.write(b"one")
            process.close_stdin()
            process.detach()
            with client.attach(process.id) as again:
                self.assertEqual(b"".join(again.output()), b"one")

    def test_closing_attached_process_does_not_kill(self) -> None:
        started = client.start_detached(["sleep", "600"], id="left")
        with client.attach("left") as process:
            self.assertEqual(process.pid, started.pid)
        self.assertTrue(alive(started.pid))
        self.assertTrue(client.terminate("left", grace=0).was_running)
        self.assertFalse(alive(started.pid))

    def test_takeover_raises(self) -> None:
        with client.start(["cat"], id="taken") as first:
            with client.attach("taken") as second:
                with self.assertRaises(execwire.TakenOverError):
                    first.wait(LONG)
                second.write(b"x")
                second.close_stdin()
                self.assertEqual(b"".join(second.output()), b"x")

    def test_unknown_process(self) -> None:
        for call in (client.attach, client.get, lambda i: list(client.follow(i)), client.terminate):
            with self.assertRaises(execwire.NotFoundError) as caught:
                call("missing")
            self.assertEqual(caught.exception.reason, "PROCESS_NOT_FOUND")

    def test_followers_get_retained_events(self) -> None:
        client.start_detached(["sh", "-c", "echo a; echo b >&2; exit 2"], id="followed")
        for _ in range(2):
            events = list(client.follow("followed"))
            output = {e.stream: e.data for e in events if isinstance(e, Output)}
            self.assertEqual(output, {Stream.STDOUT: b"a\n", Stream.STDERR: b"b\n"})
            assert isinstance(events[-1], Closed)
            self.assertEqual(events[-1].exit.code, 2)
        seqs = [e.seq for e in client.follow("followed", after_seq=2)]  # type: ignore[union-attr]
        self.assertEqual(seqs, list(range(3, seqs[-1] + 1)))

    def test_read_retained_events(self) -> None:
        client.start_detached(["sh", "-c", "echo a; exit 2"], id="read")
        self.assertIsInstance(list(client.follow("read"))[-1], Closed)
        events = client.read("read")
        self.assertEqual([type(e) for e in events], [Output, Exited, Closed])
        self.assertEqual(client.read("read", after_seq=events[-1].seq), [])  # type: ignore[union-attr]

    def test_lists_and_labels(self) -> None:
        client.start_detached(["echo", "said"], id="labelled", labels={"job": "7"}, keep=3600)
        self.assertIsInstance(list(client.follow("labelled"))[-1], Closed)
        found = {p.process_id: p for p in client.processes(last_output_bytes=3)}
        self.assertEqual(dict(found["labelled"].labels), {"job": "7"})
        self.assertEqual([tail.data for tail in found["labelled"].last_output], [b"id\n"])

    def test_keep_beyond_the_maximum(self) -> None:
        with self.assertRaisesRegex(execwire.ExecwireError, "keep"):
            client.start_detached(["true"], keep=1e9)

    def test_wait_for_conditions(self) -> None:
        script = "echo listening on 4711; read x; echo done"
        with client.start(["sh", "-c", script]) as process:
            found = client.wait_for(process.id, execwire.Wait(pattern=r"on \d+", timeout=LONG))
            self.assertEqual(found, b"on 4711")
            client.wait_for(process.id, execwire.Wait(idle=0.05, timeout=LONG))
            with self.assertRaises(TimeoutError):
                client.wait_for(process.id, execwire.Wait(pattern="never", timeout=0.05))
            process.close_stdin()
            process.wait(LONG)
            with self.assertRaises(execwire.ProcessEndedError):
                client.wait_for(process.id, execwire.Wait(pattern="never"))
            with self.assertRaises(execwire.UsageError):
                client.wait_for(process.id, execwire.Wait())


class Confined(TestCase):
    def test_close_ends_processes_of_confined_client(self) -> None:
        other = execwire.connect(server.url)
        process = other.with_sandbox(execwire.Sandbox()).start(["sleep", "600"])
        other.close()
        self.assertFalse(alive(process.pid))
        with self.assertRaises(execwire.ClosedError):
            other.start(["true"], cwd="/")


class Interrupted(TestCase):
    def test_ctrl_c_kills_process(self) -> None:
        for call in (
            "client.run(['sh', '-c', script])",
            "next(iter(client.start(['sh', '-c', script]).lines())); client.run(['sleep', '600'])",
        ):
            with self.subTest(call):
                self._interrupt(call)

    def test_ctrl_c_in_any_thread(self) -> None:
        # The main thread, which waits for the process, is not interrupted.
        block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); "
        self._interrupt(block + "client.run(['sh', '-c', script])")

    def _interrupt(self, call: str) -> None:
        pids = self.path("pids")
        if os.path.exists(pids):
            os.unlink(pids)
        script = f"sleep 600 & echo $! $$ >{pids}.new; mv {pids}.new {pids}; echo ready; wait"
        program = (
            "import execwire, sys\n"
            "script = sys.argv[2]\n"
            "with execwire.connect(sys.argv[1]) as client:\n"
            f"    {call}\n"
        )
        with subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", program, server.url, script],
            env={**os.environ, "PYTHONPATH": str(SDK)},
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as interpreter:
            self.assertTrue(eventually(lambda: os.path.exists(pids)))
            with open(pids) as file:
                started = [int(pid) for pid in file.read().split()]
            interpreter.send_signal(signal.SIGINT)
            stderr = ended(interpreter)
        self.assertIn(b"KeyboardInterrupt", stderr)
        self.assertNotIn(b"Exception in thread", stderr)
        for pid in started:
            self.assertFalse(alive(pid))


if __name__ == "__main__":
    unittest.main()
