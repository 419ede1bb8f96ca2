"""Collecting the output of a process."""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from ._events import Event, Output, Stream
from ._exit import Exit
from ._io import write_all
from .errors import Completed, OutputLimitError

if TYPE_CHECKING:
    from ._io import Writer

#: The default limit of returned output.
MAX_OUTPUT_BYTES = 256 << 20


class Collector:
    """The output of a process until its end. It is for one thread."""

    def __init__(
        self,
        text: bool,
        stdout: "Optional[Writer]",
        stderr: "Optional[Writer]",
        on_stdout: Optional[Callable[[Any], object]],
        on_stderr: Optional[Callable[[Any], object]],
        max_bytes: int,
    ) -> None:
        self._text, self._max_bytes, self._kept = text, max_bytes, 0
        self._out = _Collected(text, stdout, on_stdout)
        self._err = _Collected(text, stderr, on_stderr)

    def take(self, event: Event) -> object:
        """Returns what the callback for the output returned, if any."""
        if not isinstance(event, Output):
            return None
        collected = self._err if event.stream is Stream.STDERR else self._out
        if collected.writer is None:
            self._kept += len(event.data)
            if self._kept > self._max_bytes:
                raise OutputLimitError(self._max_bytes)
        return collected.add(event.data, False)

    def end(self, exit: Exit) -> "Completed[Any]":
        """Returns everything."""
        out, err = self._out.kept.getvalue(), self._err.kept.getvalue()
        if not self._text:
            return Completed(exit, out, err)
        return Completed(exit, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def rest(self) -> List[object]:
        """Calls callbacks for the beginning of a character at the end of output."""
        return [self._out.add(b"", True), self._err.add(b"", True)] if self._text else []


class _Collected:
    def __init__(
        self, text: bool, writer: "Optional[Writer]", callback: Optional[Callable[[Any], object]]
    ) -> None:
        self.writer, self.kept = writer, io.BytesIO()
        self._callback = callback
        self._decode: Optional[Callable[[bytes, bool], str]] = None
        if text:  # a character may be in two pieces
            self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def add(self, data: bytes, final: bool) -> object:
        if self.writer is None:
            self.kept.write(data)
        elif data:
            write_all(self.writer, data)
        if self._callback is None:
            return None
        piece = data if self._decode is None else self._decode(data, final)
        return self._callback(piece) if piece else None
