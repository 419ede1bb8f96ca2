"""Screens of terminals."""

from __future__ import annotations

from typing import Iterator, Optional

import grpc

from ._transport import Retry, Transport
from .v1 import process_service_pb2


class ScreenWatch(Iterator[process_service_pb2.Screen]):
    """What a terminal shows: at first and after changes, at most 20 times a second.

    Each screen has all lines. Iterating blocks until there is a change; what was shown in
    between is left out. The watch survives a lost connection, and ends after the screen
    of the closed process. ``close``, or the end of a ``with`` block, ends it, also for a
    blocked thread. It is for one thread, except ``close``.
    """

    def __init__(
        self, transport: Transport, session_id: str, process_id: str, styles: bool
    ) -> None:
        self._request = process_service_pb2.WatchScreenRequest(
            session_id=session_id, process_id=process_id, styles=styles
        )
        self._transport, self._retry, self._closed = transport, Retry(transport), False
        self._open()

    def close(self) -> None:
        """Ends the watch. Closing twice is not an error."""
        self._closed = True
        self._call.cancel()

    def _open(self) -> None:
        # The first message of a call has all lines.
        self._shown: Optional[process_service_pb2.Screen] = None
        self._call = self._transport.once(
            lambda: self._transport.processes.WatchScreen(self._request)
        )
        if self._closed:  # meanwhile
            self._call.cancel()

    def __next__(self) -> process_service_pb2.Screen:
        while True:
            try:
                message = next(self._call, None)
            except (grpc.RpcError, ValueError) as error:
                if self._closed:
                    raise StopIteration from None
                self._retry.again(self._transport.failure(error))
                self._open()
                continue
            if message is None:
                raise StopIteration
            self._retry.progress()
            self._shown = _changed(self._shown, message.screen)
            # The caller may change what it receives.
            shown = process_service_pb2.Screen()
            shown.CopyFrom(self._shown)
            return shown

    def __enter__(self) -> "ScreenWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _changed(
    before: Optional[process_service_pb2.Screen], change: process_service_pb2.Screen
) -> process_service_pb2.Screen:
    """Returns a screen with the lines of ``before`` and those of ``change``."""
    if before is None or len(change.lines) >= change.size.rows:
        return change
    lines = {line.row: line for line in before.lines}
    lines.update((line.row, line) for line in change.lines)
    screen = process_service_pb2.Screen()
    screen.CopyFrom(change)
    del screen.lines[:]
    screen.lines.extend(lines[row] for row in sorted(lines))
    return screen
