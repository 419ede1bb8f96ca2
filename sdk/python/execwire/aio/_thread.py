"""Blocking calls in threads beside the event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    List,
    Optional,
    Tuple,
    TypeVar,
    cast,
)

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Concatenate, ParamSpec

    _P = ParamSpec("_P")
    _Sync = TypeVar("_Sync")
    _Item = TypeVar("_Item", covariant=True)

    class Closable(Protocol[_Item]):
        """What iterate() iterates over."""

        def __iter__(self) -> Iterator[_Item]: ...

        def close(self) -> None:
            """Ends it, also for a blocked thread."""


_Result = TypeVar("_Result")


async def in_thread(
    call: Callable[[], _Result],
    undo: Optional[Callable[[], object]] = None,
    drop: Optional[Callable[[_Result], object]] = None,
) -> _Result:
    """Makes a call in a thread of its own.

    If the task is cancelled, the call continues, and its result is passed to ``drop`` in
    that thread; ``undo`` is called in another thread at once, and waited for.
    """
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[_Result]" = loop.create_future()
    # Set once it is known whether the task has received the result.
    decided, taken = threading.Event(), cast(List[bool], [])

    def settle(result: Optional[_Result], error: Optional[BaseException]) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(_Result, result))

    def run() -> None:
        result: Optional[_Result] = None
        error: Optional[BaseException] = None
        try:
            result = call()
        except StopIteration as e:  # which a future does not take
            error = RuntimeError("a reader, a writer or a callback raised StopIteration")
            error.__cause__ = e
        except BaseException as e:
            error = e
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            decided.set()  # the loop has ended
        if drop is not None and error is None:
            decided.wait()
            if not taken:
                drop(cast(_Result, result))

    threading.Thread(target=run, name="execwire call", daemon=True).start()
    try:
        result = await future
        taken.append(True)
        return result
    except asyncio.CancelledError:
        if undo is not None:
            await asyncio.shield(in_thread(undo))
        raise
    finally:
        decided.set()


def awaitable(
    method: "Callable[Concatenate[_Sync, _P], _Result]",
) -> "Callable[Concatenate[Any, _P], Coroutine[Any, Any, _Result]]":
    """Returns a method for a class of this package that calls that of ``self._sync`` in a
    thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *arguments: "_P.args", **options: "_P.kwargs") -> _Result:
        return await in_thread(lambda: method(self._sync, *arguments, **options))

    return call


def called_here(callback: Optional[Callable[..., object]]) -> Optional[Callable[..., None]]:
    """Returns a function for other threads that has a callback called in this event loop."""
    if callback is None:
        return None
    loop, wanted = asyncio.get_running_loop(), callback

    def call(*arguments: object) -> None:
        try:
            loop.call_soon_threadsafe(wanted, *arguments)
        except RuntimeError:
            pass  # the loop has ended

    return call


async def iterate(open: "Callable[[], Closable[_Result]]") -> AsyncIterator[_Result]:
    """Iterates over what ``open`` returns, and closes it at the end."""
    items = await in_thread(open, drop=_close)
    try:
        while True:
            # A thread for each, which has nothing to do once it is closed.
            item, more = await in_thread(lambda: _next(items))
            if not more:
                return
            yield cast(_Result, item)
    finally:
        _close(items)


def _close(items: "Closable[_Result]") -> None:
    try:
        items.close()
    except ValueError:
        pass  # a generator that a thread executes, which ends with its next item


def _next(items: "Closable[_Result]") -> "Tuple[Optional[_Result], bool]":
    for item in items:
        return item, True
    return None, False


class Change:
    """Wakes a task after a change in another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __call__(self) -> None:
        """Reports a change. It does not block."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # the loop has ended

    def forget(self) -> None:
        """Called before checking the state, so that no later change is missed."""
        self._event.clear()

    async def wait(self) -> None:
        """Blocks until there was a change since forget."""
        await self._event.wait()
