"""Reading and writing all of something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._process import Writer


def write_all(to: "Writer", data: bytes) -> None:
    """Writes all of data, also to what takes a part at a time, as files without a buffer do."""
    view = memoryview(data)
    while len(view):
        written = to.write(bytes(view) if len(view) < len(data) else data)
        if not isinstance(written, int) or written >= len(view):
            return
        view = view[written:]
