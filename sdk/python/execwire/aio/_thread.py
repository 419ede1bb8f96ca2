"""Calls that block, beside the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Callable, Optional, TypeVar

_Result = TypeVar("_Result")


async def in_thread(
    call: Callable[[], _Result], undo: Optional[Callable[[], object]] = None
) -> _Result:
    """Makes a call in a thread of its own.

    When the task is cancelled the call goes on, and its result is dropped; ``undo`` is
    then called in a thread, too, and waited for.
    """
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[_Result]" = loop.create_future()

    def settle(result: Optional[_Result], error: Optional[BaseException]) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as e:
            error = e
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop is over, and nobody waits

    threading.Thread(target=run, name="execwire call", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        if undo is not None:
            await asyncio.shield(in_thread(undo))
        raise


class Change:
    """Wakes a task when another thread says that something has changed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __call__(self) -> None:
        """Says so. It does not block."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # the loop is over, and nobody waits

    def forget(self) -> None:
        """Is called before looking, so that no change is missed after it."""
        self._event.clear()

    async def wait(self) -> None:
        """Blocks until there was a change since forget."""
        await self._event.wait()
