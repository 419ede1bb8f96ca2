"""Running a program at this terminal."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from typing import TYPE_CHECKING, Generator, Optional

from . import errors
from ._command import TerminalSize

if TYPE_CHECKING:
    from types import FrameType

    from ._exit import Exit
    from ._process import Process


# How long input in transit may take after the program has ended, in seconds.
_INPUT_TIMEOUT = 5.0
# How late a size change is noticed that the main thread does not wait for, in seconds.
_SIZE_INTERVAL = 0.5


def is_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return os.isatty(0) and os.isatty(1)


def size() -> TerminalSize:
    """Returns the size of this terminal."""
    columns, rows = os.get_terminal_size(1)
    return TerminalSize(rows or 24, columns or 80)


def connect_terminal(process: "Process", started_with: TerminalSize) -> "Exit":
    """Forwards input and output between this terminal and that of a process, until its end."""
    before = termios.tcgetattr(0)
    over, wake = os.pipe()
    main = threading.current_thread() is threading.main_thread()
    interval = None if main else _SIZE_INTERVAL
    keys = threading.Thread(target=_forward_input, args=(process, over, started_with, interval), daemon=True)
    try:
        with _notify_resize(wake):
            tty.setraw(0)
            keys.start()
            for data in process.output():
                _write(data)
            return process.wait()
    finally:
        # First: what follows may be interrupted.
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        os.close(wake)
        if keys.ident is not None:
            keys.join(_INPUT_TIMEOUT)
        if not keys.is_alive():
            os.close(over)


@contextlib.contextmanager
def _notify_resize(wake: int) -> Generator[None, None, None]:
    """Writes to a pipe on each size change of this terminal, if called in the main thread.

    The interpreter writes there as soon as the kernel delivers the signal, to any
    thread. A handler in Python is not sufficient: it runs on the main thread, between
    two of its instructions, and that thread blocks until there is output.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    os.set_blocking(wake, False)
    handler = signal.signal(signal.SIGWINCH, _ignore)
    earlier = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier)
        signal.signal(signal.SIGWINCH, handler or signal.SIG_DFL)


def _ignore(number: int, frame: Optional[FrameType]) -> None:
    """Replaces the default, which would not write to the pipe."""


def _write(data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(1, view) :]


def _forward_input(
    process: "Process", over: int, passed: TerminalSize, interval: Optional[float]
) -> None:
    """Forwards input and sizes until the end of the pipe over. passed is the current size
    of the process."""
    try:
        while True:
            # Checked first: it may have changed before signals were handled.
            if size() != passed:
                passed = size()
                process.resize(*passed)
            ready, _, _ = select.select([0, over], [], [], interval)
            if over in ready:
                if not os.read(over, 64):
                    return
                continue
            if not ready:
                continue
            data = os.read(0, 4096)
            if not data:
                process.close_stdin()
                return
            process.write(data)
    except errors.Error:
        return  # the process accepts no more, which its output reports


def flush() -> None:
    """Flushes what this program printed before the process does."""
    sys.stdout.flush()
