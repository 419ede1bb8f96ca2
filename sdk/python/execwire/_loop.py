"""The event loop of all processes, in a thread of its own.

grpc.aio serves any number of calls with it. A call of the blocking API costs two threads
instead, which wake ten times a second.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from typing import Any, Coroutine, Optional

import grpc

from .errors import UsageError

_END_TIMEOUT = 5.0  # seconds


class _Loop:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="execwire", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_lock = threading.Lock()
_current: Optional[_Loop] = None


def event_loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of this interpreter, which it starts the first time."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():  # after a fork
            _current = _Loop()
        return _current.loop


def refuse_in_loop() -> None:
    """Raises UsageError in the thread of the loop, where a wait for it would never end."""
    if _current is not None and threading.current_thread() is _current.thread:
        raise UsageError("on_lost and on_resumed must not call the client or its processes")


def in_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine in the loop, and blocks until its end."""
    try:
        refuse_in_loop()
    except UsageError:
        coroutine.close()
        raise
    asyncio.run_coroutine_threadsafe(coroutine, event_loop()).result()


#: The open channels of the loop.
channels: "weakref.WeakSet[grpc.aio.Channel]" = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """Ends the threads of grpc: the interpreter stops others where they are."""
    if _current is not None and _current.pid == os.getpid():
        closing = asyncio.run_coroutine_threadsafe(_close(), _current.loop)
        try:
            closing.result(_END_TIMEOUT)
        except Exception:
            pass  # the interpreter ends


async def _close() -> None:
    for channel in list(channels):
        await channel.close()
