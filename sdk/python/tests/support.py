"""Servers, and a proxy whose connections can be cut."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Callable, Iterator, List, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[3]
SDK = ROOT / "sdk" / "python"
PROGRAM = ROOT / "bin" / "execwire"
HUB = ROOT / "bin" / "execwire-hub"
#: A limit against hanging, for slow machines.
LONG = 120.0
#: How often a proxy cuts by itself: what is always cut may never get through.
MOST_CUTS = 20

# A shell makes background commands ignore SIGINT, which interpreters started by tests
# would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Program:
    """An execwire program, which prints where it listens."""

    def __init__(self, *argv: str, urls: int = 1) -> None:
        self._log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self.process.stdout is not None
        self.urls = [self.process.stdout.readline().decode().strip() for _ in range(urls)]
        if not all(self.urls):
            self.kill()
            raise AssertionError(f"{argv} did not start: {self.log()}")

    @property
    def url(self) -> str:
        return self.urls[0]

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(LONG)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def kill_server(self) -> None:
        """Kills the server of this guardian, and waits for both."""
        for child in children(self.process.pid):
            os.kill(child, signal.SIGKILL)
        self.process.wait(LONG)

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()


def children(parent: int) -> List[int]:
    """The children of all threads of a process: a thread may end at any time."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def serve(*flags: str, listen: str = "tcp://127.0.0.1:0") -> Program:
    # Processes left by a test need no grace period.
    os.environ["EXECWIRE_SHUTDOWN_GRACE_PERIOD"] = "100ms"
    return Program(
        str(PROGRAM), "serve", "--listen", listen, "--log-level", "warn", *flags
    )


def unused_port() -> int:
    """A port that the system gives to no other socket by itself."""
    while True:
        port = random.randrange(10000, 32768)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue


class Wire:
    """A TCP proxy that can cut all connections at once, like a failed network, also whenever
    it has passed ``cut_every_bytes``.

    With ``lifetime``, each connection is cut so many seconds after it was accepted. Of ``stalls``,
    each is a number of bytes: a connection whose client sends that many passes no more of them on.
    """

    def __init__(
        self,
        url: str,
        cut_every_bytes: Optional[int] = None,
        lifetime: Optional[float] = None,
        stalls: Sequence[int] = (),
    ) -> None:
        host, _, port = url.rpartition("://")[2].rpartition(":")
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._pairs: List[socket.socket] = []
        self._threads: List[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = True
        self._cut_every, self._left = cut_every_bytes, cut_every_bytes or 0
        self._lifetime = lifetime
        #: What is left of them.
        self.stalls = list(stalls)
        #: How often an open connection was cut.
        self.cuts = 0
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.pass_on(near)

    def pass_on(self, near: socket.socket) -> None:
        """Forwards an established connection."""
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        with self._lock:
            if not self._open:
                near.close()
                far.close()
                return
            self._pairs += [near, far]
        if self._lifetime is not None and (self.stalls or self.cuts < MOST_CUTS):
            timer = threading.Timer(self._lifetime, self._expire, (near, far))
            timer.daemon = True
            timer.start()
        self._start(self._copy, near, far, False)
        self._start(self._copy, far, near, True)

    def _copy(self, source: socket.socket, to: socket.socket, back: bool) -> None:
        passed = 0
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if self._spent(len(data)):
                    self.cut()
                    return
                to.sendall(data)
                passed += len(data)
                if not back and self._stalled(passed):
                    return
        except OSError:
            pass
        self._end(source, to)

    def _stalled(self, passed: int) -> bool:
        with self._lock:
            if not self.stalls or passed < self.stalls[0]:
                return False
            self.stalls.pop(0)
            return True

    def _spent(self, size: int) -> bool:
        if self._cut_every is None or self.cuts >= MOST_CUTS:
            return False
        with self._lock:
            self._left -= size
            if self._left > 0:
                return False
            self._left = self._cut_every
            return True

    def _expire(self, *sockets: socket.socket) -> None:
        with self._lock:
            if sockets[0] in self._pairs:
                self.cuts += 1
        self._end(*sockets)

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            for s in sockets:
                if s in self._pairs:
                    self._pairs.remove(s)
                    reset(s)

    def cut(self) -> None:
        """Cuts all connections. New ones are accepted."""
        with self._lock:
            if self._pairs:
                self.cuts += 1
            for s in self._pairs:
                reset(s)
            self._pairs = []

    @contextlib.contextmanager
    def cutting(self, seconds: float) -> Iterator[None]:
        """Cuts all connections after each such time."""
        stop = threading.Event()

        def cut() -> None:
            while self.cuts < MOST_CUTS and not stop.wait(seconds):
                self.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            yield
        finally:
            stop.set()
            cutter.join()

    def block(self) -> None:
        """Cuts all connections, and rejects new ones until opened."""
        with self._lock:
            self._open = False
        self.cut()

    def open(self) -> None:
        """Accepts connections again."""
        with self._lock:
            self._open = True

    def lead(self, url: str) -> None:
        """Forwards new connections to another URL."""
        host, _, port = url.rpartition("://")[2].rpartition(":")
        self._target = (host, int(port))

    def close(self) -> None:
        self.block()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        for thread in self._threads:
            thread.join(LONG)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reset(s: socket.socket) -> None:
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    s.close()


class TestCase(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="execwire-test-")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def run_python(self, script: str, *argv: str, **more: object) -> "subprocess.CompletedProcess[str]":
        """Runs a script in another interpreter, as a user would."""
        environment = {**os.environ, "PYTHONPATH": str(SDK), "EXECWIRE_BIN": str(PROGRAM)}
        argv = (sys.executable, "-X", "faulthandler", "-c", script, *argv)
        return finish(argv, env=environment, **more)


def finish(argv: Sequence[str], **more: object) -> "subprocess.CompletedProcess[str]":
    """Runs an interpreter to its end. If it hangs, the test fails with its stacks, given
    ``-X faulthandler``."""
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more  # type: ignore[call-overload]
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            stdout, stderr = process.communicate()
            raise AssertionError(f"it hangs after {stdout!r}\n{stderr}") from None
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)


def ended(interpreter: "subprocess.Popen[bytes]") -> bytes:
    """Waits for an interpreter with ``-X faulthandler``, and returns its stderr."""
    try:
        _, stderr = interpreter.communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        interpreter.send_signal(signal.SIGABRT)
        _, stderr = interpreter.communicate()
        raise AssertionError(f"it hangs\n{stderr.decode()}") from None
    return stderr


def eventually(holds: Callable[[], bool]) -> bool:
    """Polls until a condition holds."""
    import time

    until = time.monotonic() + LONG
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def unnamed_files(directory: str) -> List[str]:
    """The unnamed files of a directory that a process has open: the uploads of a server."""
    found = []
    for fd in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith(directory + "/") and target.endswith(" (deleted)"):
            found.append(target)
    return found


class Endless:
    """A source of an upload that blocks after one megabyte, until it is closed."""

    def __init__(self) -> None:
        self._pieces = 16
        self._closed = threading.Event()

    def read(self, size: int) -> bytes:
        if self._pieces == 0:
            self._closed.wait()
            return b""
        self._pieces -= 1
        return bytes(size)

    def close(self) -> None:
        self._closed.set()
