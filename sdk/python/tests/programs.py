"""The example programs of the three SDKs, agent, upload and terminal, while each connection is cut
0.7 s after it was accepted.

    python3 -m tests.programs URL COMMAND...

runs them against a server: COMMAND with "{}" replaced by the name of the program. The tests of
the other SDKs call that, so that all are held against the same.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from typing import IO, Any, Callable, Dict, List, Sequence, Tuple

from .support import LONG, Wire, eventually

LIFETIME = 0.7


def check(url: str, command: Sequence[str]) -> None:
    """Runs the three programs, which mostly wait, at the same time."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        checks = [
            pool.submit(_check_one, url, name, [word.replace("{}", name) for word in command], run)
            for name, run in (("agent", agent), ("upload", upload), ("terminal", terminal))
        ]
    for one in checks:
        one.result()


def _check_one(url: str, name: str, argv: List[str], run: "Callable[[Program, str], None]") -> None:
    with tempfile.TemporaryDirectory(prefix="execwire-test-") as directory:
        # The second half of an upload begins only once the first was cut twice.
        with Wire(url, lifetime=LIFETIME, stalls=[200_000] * 2 if run is upload else []) as wire:
            program = Program(wire, name, argv)
            try:
                run(program, directory)
            finally:
                program.end()
            assert wire.cuts >= 2, f"{name}: {wire.cuts} cuts show little"
            assert not wire.stalls, f"{name}: {wire.stalls} were not reached"


class Program:
    """A program behind a proxy."""

    def __init__(self, wire: Wire, name: str, argv: List[str]) -> None:
        self.wire, self.name = wire, name
        self._argv = argv
        self._errors = tempfile.TemporaryFile("w+")

    def start(self, *arguments: str, **more: Any) -> None:
        self._process = subprocess.Popen([*self._argv, self.wire.url, *arguments], stderr=self._errors, **more)
        self._limit = threading.Timer(LONG, self._process.send_signal, (signal.SIGABRT,))
        self._limit.daemon = True
        self._limit.start()

    @property
    def stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def cut(self, times: int) -> None:
        """Waits until connections were cut so many times more."""
        cuts = self.wire.cuts + times
        assert eventually(lambda: self.wire.cuts >= cuts), f"{self.name}: no more cuts: {self.errors()}"

    def ended(self, code: int) -> str:
        """Waits until it exits with a code, and returns what it wrote to stderr."""
        got = self._process.wait()
        assert got == code, f"{self.name}: exit code {got}, not {code}: {self.errors()}"
        return self.errors()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def end(self) -> None:
        self._limit.cancel()
        self._process.kill()
        self._process.wait()
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


# --- the agent

#: Counts on stdout until it is stopped, and says on stderr how far.
COUNT = 'i=0; while [ ! -e stop ]; do i=$((i+1)); echo "line $i"; sleep 0.03; done; echo "to $i" >&2; echo $i >counted; exit 3'


def agent(program: Program, directory: str) -> None:
    program.start(directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(command: str, timeout: float = LONG, meanwhile: Callable[[], None] = lambda: None) -> Dict[str, Any]:
        program.stdin.write(json.dumps({"command": command, "timeout": timeout}) + "\n")
        program.stdin.flush()
        meanwhile()
        line = program.stdout.readline()
        assert line, f"{program.name}: no result: {program.errors()}"
        result: Dict[str, Any] = json.loads(line)
        return result

    def stop() -> None:
        program.cut(3)  # a client may have two connections
        pathlib.Path(directory, "stop").touch()

    counted = step(COUNT, meanwhile=stop)
    with open(os.path.join(directory, "counted")) as file:
        last = int(file.read())
    lines = "".join(f"line {n}\n" for n in range(1, last + 1))
    expect(counted, {"exit_code": 3, "timed_out": False, "stdout": lines, "stderr": f"to {last}\n"})
    late = step("echo $$ >late; exec sleep 1000", timeout=2 * LIFETIME)
    expect((late["exit_code"], late["timed_out"], late["stdout"]), (137, True, ""))
    # The next step sees what the others have left.
    expect(step("cat counted")["stdout"], f"{last}\n")
    program.stdin.close()
    shown = program.ended(0).splitlines()
    expect(sorted(shown), sorted([*lines.splitlines(), f"to {last}", f"{last}"]))
    expect([line for line in shown if line.startswith("line ")], lines.splitlines())


# --- the upload

PROGRESS = re.compile(r"(\d+) of (\d+) bytes: (.+)")


def upload(program: Program, directory: str) -> None:
    here, there = os.path.join(directory, "here"), os.path.join(directory, "there")
    total = make_tree(here)
    program.start(here, there, stdout=subprocess.PIPE, text=True)
    said = program.stdout.read()
    reports = [PROGRESS.fullmatch(line) for line in program.ended(0).splitlines()]
    done = [int(report[1]) for report in reports if report]
    assert len(done) == len(reports) > 60, f"{program.name}: reports: {program.errors()}"
    expect({int(report[2]) for report in reports if report}, {total})
    expect(done, sorted(done))
    expect(done[-1], total)
    assert said.startswith(f"63 files copied, {total} bytes"), said
    expect(tree(there), tree(here))


def make_tree(root: str) -> int:
    """Makes a directory with 63 files, and returns their size."""
    total = 0
    for n in range(60):
        total += make_file(os.path.join(root, f"dir {n % 7}", f"sub-{n % 3}", f"file-{n}"), 100 * n + 1, n)
    for n in range(3):
        total += make_file(os.path.join(root, "big", f"ü-{n}"), 700_000, n)
    os.mkdir(os.path.join(root, "empty"))
    os.symlink("big/ü-0", os.path.join(root, "link"))
    os.chmod(os.path.join(root, "big", "ü-1"), 0o755)
    return total


def make_file(path: str, size: int, n: int) -> int:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(hashlib.sha512(b"%d" % n).digest() * (size // 64 + 1))
        file.truncate(size)
    os.utime(path, (1_700_000_000 + n, 1_700_000_000 + n))
    return size


def tree(root: str) -> List[Tuple[object, ...]]:
    """What is below a directory: names, modes, times of files, and digests of content."""
    found: List[Tuple[object, ...]] = []
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            entry: Tuple[object, ...] = (os.path.relpath(path, root), info.st_mode)
            if os.path.islink(path):
                entry += (os.readlink(path),)
            elif name in files:
                with open(path, "rb") as file:
                    entry += (info.st_mtime, hashlib.sha256(file.read()).hexdigest())
            found.append(entry)
    return sorted(found)


# --- the terminal

#: Says its size, answers lines, and waits for another size.
ANSWER = """stty size
while read -r line; do
  case $line in
    size) while [ "$(stty size)" = "31 97" ]; do sleep 0.02; done; stty size ;;
    end) exit 7 ;;
    *) echo "got $line" ;;
  esac
done"""


def terminal(program: Program, _: str) -> None:
    near, far = pty.openpty()
    resize(near, 31, 97)
    mode = termios.tcgetattr(near)
    program.start(
        "sh", "-c", ANSWER,
        env={**os.environ, "TERM": "xterm"}, stdin=far, stdout=far,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(far)
    screen = b""

    def until(text: str) -> None:
        nonlocal screen
        expected.append(text)
        while not screen.endswith(text.encode()):
            data = read(near)
            assert data, f"{program.name}: no {text!r} in {screen!r}: {program.errors()}"
            screen += data

    expected: List[str] = []
    until("31 97\r\n")
    for n in range(3):
        program.cut(1)
        type_keys(near, f"line {n}\r")
        until(f"line {n}\r\ngot line {n}\r\n")
    program.cut(1)
    resize(near, 40, 120)
    type_keys(near, "size\r")
    until("size\r\n40 120\r\n")
    type_keys(near, "end\r")
    until("end\r\n")
    notices = program.ended(7)
    data = read(near)
    expect(termios.tcgetattr(near), mode)
    os.close(near)
    expect((screen + data).decode(), "".join(expected))
    expect(set(notices.splitlines()), {"", "[connection lost]", "[connection restored]"})


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def type_keys(terminal: int, keys: str) -> None:
    os.write(terminal, keys.encode())


def read(terminal: int) -> bytes:
    """Reads what is on the screen; nothing once the program has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def expect(got: object, wanted: object) -> None:
    assert got == wanted, f"{got!r}, and not {wanted!r}"


if __name__ == "__main__":
    check(sys.argv[1], sys.argv[2:])
