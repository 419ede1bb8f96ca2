"""A program at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import unittest

import execwire

from .support import LONG, SDK, Program, TestCase, serve

server: Program


def setUpModule() -> None:
    global server
    server = serve()


def tearDownModule() -> None:
    server.stop()


PROGRAM = (
    "import execwire, sys\n"
    "with execwire.connect(sys.argv[1]) as client:\n"
    "    exit = client.interactive(['sh', '-c', sys.argv[2]])\n"
    "print('ended', exit.code)\n"
)


class Terminal(TestCase):
    def test_keys_output_and_sizes_are_passed(self) -> None:
        script = (
            "stty size; echo $TERM; trap 'echo int' INT; trap 'stty size' WINCH; echo ready; "
            "while :; do read line || continue; echo got $line; [ $line = end ] && exit 6; done"
        )
        near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, server.url, script],
            env={**os.environ, "PYTHONPATH": str(SDK), "TERM": "xterm"},
            stdin=far, stdout=far, stderr=far,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as interpreter:  # fmt: skip
            os.close(far)
            screen = Screen(near)
            screen.until(b"30 100\r\nxterm\r\nready\r\n")
            os.write(near, b"hello\r")
            screen.until(b"got hello\r\n")
            os.write(near, b"\x03")  # is for the program, and not for the interpreter
            screen.until(b"int\r\n")
            fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            screen.until(b"40 120\r\n")
            os.write(near, b"end\r")
            screen.until(b"ended 6\r\n")
            interpreter.wait(LONG)
        os.close(near)

    def test_it_needs_a_terminal(self) -> None:
        completed = self.run_python(PROGRAM, server.url, "true", stdin=subprocess.DEVNULL)
        self.assertIn("are no terminal", completed.stderr)


class Screen:
    """What came to the other end of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._text = descriptor, b""

    def until(self, text: bytes) -> None:
        signal.alarm(int(LONG))  # against hanging
        while text not in self._text:
            try:
                self._text += os.read(self._descriptor, 65536)
            except OSError as error:  # nobody is there any more
                raise AssertionError(f"no {text!r} in {self._text!r}") from error
        self._text = self._text.partition(text)[2]
        signal.alarm(0)


if __name__ == "__main__":
    unittest.main()
