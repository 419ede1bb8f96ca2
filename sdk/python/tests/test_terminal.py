"""Programs at a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

import execwire
from execwire import aio

from .support import LONG, SDK, Program, TestCase, serve

server: Program


def setUpModule() -> None:
    global server
    server = serve()


def tearDownModule() -> None:
    server.stop()


PROGRAM = (
    "import execwire, signal, sys\n"
    "with execwire.connect(sys.argv[1]) as client:\n"
    "    signal.pthread_sigmask(signal.SIG_BLOCK, [int(n) for n in sys.argv[3:]])\n"
    "    exit = client.interactive([%r, '-c', sys.argv[2]])\n"
    "print('ended', exit.code)\n" % sys.executable
)

#: Reports on its terminal. Signals are bytes in a pipe, so that none is missed at any time;
#: a shell that is about to read would miss one.
INSIDE = (
    "import os, select, signal\n"
    "signals, wake = os.pipe()\n"
    "os.set_blocking(wake, False)\n"
    "signal.set_wakeup_fd(wake)\n"
    "for number in (signal.SIGINT, signal.SIGWINCH):\n"
    "    signal.signal(number, lambda *_: None)\n"
    "def size():\n"
    "    columns, rows = os.get_terminal_size(0)\n"
    "    print(rows, columns, flush=True)\n"
    "size()\n"
    "print(os.environ['TERM'], flush=True)\n"
    "print('ready', flush=True)\n"
    "while True:\n"
    "    ready, _, _ = select.select([0, signals], [], [])\n"
    "    for number in os.read(signals, 64) if signals in ready else b'':\n"
    "        print('int', flush=True) if number == signal.SIGINT else size()\n"
    "    if 0 in ready:\n"
    "        line = os.read(0, 64).decode().strip()\n"
    "        print('got', line, flush=True)\n"
    "        if line == 'end':\n"
    "            os._exit(6)\n"
)


class ScreenTest(TestCase):
    def test_screen(self) -> None:
        with execwire.connect(server.url) as client:
            with client.start(
                ["sh", "-c", "printf '\\033[1mbold\\033[m\\r\\nplain'; read line"],
                id="screen", terminal=(4, 20),
            ) as process:
                client.wait_for("screen", execwire.Wait(screen="plain", screen_idle=0.01))
                shown = client.screen("screen", styles=True)
                self.assertEqual([line.text for line in shown.lines], ["bold", "plain", "", ""])
                self.assertEqual(shown.lines[0].runs[0].sgr, "\033[0;1m")
                self.assertEqual((shown.cursor.row, shown.cursor.column), (1, 5))
                process.terminate()
            with self.assertRaises(execwire.ProcessEndedError):
                client.wait_for("screen", execwire.Wait(screen="never"))
        with self.assertRaises(execwire.UsageError):
            execwire.connect(server.url).wait_for("screen", execwire.Wait("x", screen="x"))

    def test_watch(self) -> None:
        with execwire.connect(server.url) as client:
            with client.start(
                ["sh", "-c", "printf 'first\\r\\n'; read line; printf second"],
                id="watched", terminal=(3, 20),
            ) as process:
                texts, typed = [], False
                with client.watch_screen("watched") as watch:
                    for screen in watch:
                        texts = [line.text for line in screen.lines]
                        self.assertEqual(len(texts), screen.size.rows)
                        if texts[0] == "first" and screen.size.rows == 3:
                            process.resize(4, 20)
                        elif texts[0] == "first" and not typed:
                            typed = True
                            process.write(b"\n")
                self.assertEqual(texts, ["first", "", "second", ""])
            with self.assertRaises(execwire.NotFoundError):
                next(client.watch_screen("none"))

    def test_watch_in_a_task_ends_with_it(self) -> None:
        async def watch() -> None:
            async with await aio.connect(server.url) as client:
                async with await client.start(["cat"], id="in a task", terminal=(3, 20)):
                    async for screen in client.watch_screen("in a task"):
                        self.assertEqual([line.text for line in screen.lines], ["", "", ""])
                        break

        asyncio.run(watch())


class Terminal(TestCase):
    def test_input_output_and_size_are_forwarded(self) -> None:
        self.talk()

    def test_size_change_in_any_thread(self) -> None:
        # The main thread, which waits for output, is not interrupted.
        self.talk(signal.SIGWINCH)

    def talk(self, *blocked: int) -> None:
        with Interpreter(server.url, INSIDE, *(str(int(n)) for n in blocked)) as screen:
            screen.until(b"30 100\r\nxterm\r\nready\r\n")
            screen.type(b"hello\r")
            screen.until(b"got hello\r\n")
            screen.type(b"\x03")  # for the program, not the interpreter
            screen.until(b"int\r\n")
            screen.resize(40, 120)
            screen.until(b"40 120\r\n")
            screen.type(b"end\r")
            screen.until(b"ended 6\r\n")

    def test_it_needs_a_terminal(self) -> None:
        completed = self.run_python(PROGRAM, server.url, "true", stdin=subprocess.DEVNULL)
        self.assertIn("are not a terminal", completed.stderr)


class Interpreter:
    """An interpreter that runs PROGRAM at a terminal, controlled from its other end."""

    def __init__(self, *argv: str) -> None:
        self._near, far = pty.openpty()
        self._text = b""
        self.resize(30, 100)
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", PROGRAM, *argv],
            env={**os.environ, "PYTHONPATH": str(SDK), "TERM": "xterm"},
            stdin=far, stdout=far, stderr=far,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(far)

    def __enter__(self) -> "Interpreter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._process.wait(LONG)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._near)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._near, keys)

    def until(self, text: bytes) -> None:
        """Reads the screen up to a text."""
        deadline = time.monotonic() + LONG
        while text not in self._text:
            if not self._read(deadline):
                seen, self._text = self._text, b""
                self._process.send_signal(signal.SIGABRT)  # prints the stacks of its threads
                while self._read(time.monotonic() + LONG):
                    pass
                raise AssertionError(f"no {text!r} in {seen!r}\n{self._text.decode()}")
        self._text = self._text.partition(text)[2]

    def _read(self, deadline: float) -> bool:
        """Reads available output; returns False at the end, and after the deadline."""
        ready, _, _ = select.select([self._near], [], [], max(0, deadline - time.monotonic()))
        try:
            data = os.read(self._near, 65536) if ready else b""
        except OSError:  # the other end is closed
            data = b""
        self._text += data
        return len(data) > 0


if __name__ == "__main__":
    unittest.main()
