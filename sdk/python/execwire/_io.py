"""Reading and writing all of something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._process import Writer


def as_bytes(data: object) -> bytes:
    """Returns input as bytes, or raises TypeError: text has to be encoded, and a number
    is no number of zeros."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))  # type: ignore[arg-type]


def write_all(to: "Writer", data: bytes) -> None:
    """Writes all of data, also to what takes a part at a time, as files without a buffer do."""
    view = memoryview(data)
    while len(view):
        written = to.write(bytes(view) if len(view) < len(data) else data)
        if not isinstance(written, int) or written >= len(view):
            return
        view = view[written:]
