"""A program at this terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from typing import TYPE_CHECKING, List

from . import errors
from ._command import TerminalSize

if TYPE_CHECKING:
    from ._exit import Exit
    from ._process import Process


# How long keys that are on their way may take when the program has ended, in seconds.
_KEYS_TIMEOUT = 5.0


def is_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return os.isatty(0) and os.isatty(1)


def size() -> TerminalSize:
    """Returns the size of this terminal."""
    columns, rows = os.get_terminal_size(1)
    return TerminalSize(rows or 24, columns or 80)


def attend(process: "Process") -> "Exit":
    """Passes keys and output between this terminal and that of a process, to its end."""
    before = termios.tcgetattr(0)
    over, wake = os.pipe()
    resized: List[bool] = []
    on_main = threading.current_thread() is threading.main_thread()
    handler = None
    if on_main:
        handler = signal.signal(signal.SIGWINCH, lambda *_: _wake(wake, resized))
    keys = threading.Thread(target=_pass_keys, args=(process, over, resized), daemon=True)
    try:
        tty.setraw(0)
        keys.start()
        for data in process.output():
            _write(data)
        return process.wait()
    finally:
        # First of all: what follows may be interrupted.
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        if on_main:
            signal.signal(signal.SIGWINCH, handler or signal.SIG_DFL)
        os.close(wake)
        if keys.ident is not None:
            keys.join(_KEYS_TIMEOUT)
        if not keys.is_alive():
            os.close(over)


def _wake(wake: int, resized: List[bool]) -> None:
    resized.append(True)
    try:
        os.write(wake, b"x")
    except OSError:
        pass


def _write(data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(1, view) :]


def _pass_keys(process: "Process", over: int, resized: List[bool]) -> None:
    """Passes keys until the end of the pipe over."""
    try:
        while True:
            ready, _, _ = select.select([0, over], [], [])
            if over in ready:
                if not os.read(over, 64):
                    return
                if resized:
                    resized.clear()
                    process.resize(*size())
                continue
            data = os.read(0, 4096)
            if not data:
                process.close_stdin()
                return
            process.write(data)
    except errors.Error:
        return  # the process takes no more, which its output tells


def flush() -> None:
    """Has what this program printed come before what the process does."""
    sys.stdout.flush()
