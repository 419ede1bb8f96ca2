"""Reading and writing complete data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Union

#: Called with a number of bytes.
OnBytes = Optional[Callable[[int], object]]

if TYPE_CHECKING:
    from typing import Protocol

    class Writer(Protocol):
        """A destination of output, for example a binary file."""

        def write(self, data: bytes, /) -> object: ...

    class Reader(Protocol):
        """A source of input, for example a binary file. It blocks until it has something;
        None, as of a file that does not block, is refused."""

        def read(self, size: int, /) -> Optional[bytes]: ...


def as_bytes(data: Union[str, bytes, bytearray, memoryview]) -> bytes:
    """Returns input as bytes, or raises TypeError for numbers."""
    if isinstance(data, str):
        return data.encode("utf-8")
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def write_all(to: "Writer", data: bytes) -> None:
    """Writes all of data, even if ``write`` accepts only a part, as unbuffered files do."""
    view = memoryview(data)
    while len(view):
        written = to.write(bytes(view) if len(view) < len(data) else data)
        if not isinstance(written, int) or written >= len(view):
            return
        view = view[written:]
