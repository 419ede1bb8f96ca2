"""The program ``execwire`` as a helper: private servers, and forwards through a relay."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import threading
from typing import IO, List, Optional, Sequence, Set

from .errors import ConnectError, UsageError

#: How long the program may take until it listens, in seconds.
START_TIMEOUT = 60.0
# How long it may take to end, in seconds.
_END_TIMEOUT = 10.0
_TAIL_LINES = 20
# Closing a private server does not wait for its processes.
_SETTINGS = {"EXECWIRE_SHUTDOWN_GRACE_PERIOD": "0s"}


def find_program(program: Optional[str]) -> str:
    """Returns the path of the program: the argument, $EXECWIRE_BIN, or from PATH."""
    found = program or os.environ.get("EXECWIRE_BIN") or shutil.which("execwire")
    if not found:
        raise UsageError(
            "the program execwire is needed and not in PATH: install it, or name it by EXECWIRE_BIN"
        )
    return found


class Helper:
    """``execwire`` as a child that listens in a directory that only the user can enter.

    It ends with its stdin, and so with this interpreter in any case.
    """

    def __init__(self, what: str, command: Sequence[str], program: Optional[str]) -> None:
        self._directory = tempfile.mkdtemp(prefix="execwire-")
        self._stderr: List[str] = []
        self._process: Optional[subprocess.Popen[bytes]] = None
        #: The URL on which it listens.
        self.url = ""
        try:
            self._start(what, command, find_program(program))
        except BaseException:
            self.close()
            raise

    def _start(self, what: str, command: Sequence[str], program: str) -> None:
        path = os.path.join(self._directory, "server.sock")
        argv = [program, *command, "--listen", f"unix://{path}", "--until-stdin-closes"]
        try:
            # In a process group of its own, so that Ctrl-C is for this program only.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **_SETTINGS},
                start_new_session=True,
            )
        except OSError as error:
            raise ConnectError(f"failed to start {program}: {error.strerror}") from error
        self._process = process
        _running.add(self)
        assert process.stdout is not None and process.stderr is not None
        self._drain = threading.Thread(target=self._read, args=(process.stderr,), daemon=True)
        self._drain.start()
        timer = threading.Timer(START_TIMEOUT, process.kill)
        timer.daemon = True
        timer.start()
        try:
            self.url = process.stdout.readline().decode("utf-8", "replace").strip()
        finally:
            timer.cancel()
        if not self.url:
            process.wait()
            self._drain.join(_END_TIMEOUT)
            why = "; ".join(self._stderr[-3:]) or f"it ended with code {process.returncode}"
            raise ConnectError(f"failed to reach {what}: {why}")

    def _read(self, stderr: IO[bytes]) -> None:
        for line in stderr:
            self._stderr.append(line.decode("utf-8", "replace").strip())
            del self._stderr[:-_TAIL_LINES]

    def close(self) -> None:
        """Ends it, and waits until it has ended. Closing twice is not an error."""
        process, self._process = self._process, None
        _running.discard(self)
        try:
            if process is not None:
                self._end(process)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._drain.join(_END_TIMEOUT)
        if process.stderr is not None:
            process.stderr.close()


def forward(server: str, flags: Sequence[str], program: Optional[str]) -> Helper:
    """Starts a forward to a server that only ``execwire`` can reach."""
    shown = server.split("?")[0]  # the query may have a signature
    return Helper(shown, ["forward", "--server", server, *flags], program)


def serve(program: Optional[str]) -> Helper:
    """Starts a private server."""
    return Helper("a server of one's own", ["serve", "--log-level", "warn"], program)


_running: Set[Helper] = set()


@atexit.register
def _end_all() -> None:
    for helper in list(_running):
        helper.close()
