"""Paths of the server, which need not be UTF-8.

In Python they are str with surrogate escapes, as returned by os.fsdecode, or bytes.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Union

#: A path of the server: bytes, or str with surrogate escapes for what is not UTF-8, as of
#: os.fsdecode.
PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def fields(path: PathLike, name: str = "path") -> Dict[str, Any]:
    """Returns the request field of a path."""
    path = os.fspath(path)
    raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    try:
        return {name: raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {"raw_" + name: raw}


def text(path: str, raw: bytes) -> str:
    """Returns the path of two fields of a response."""
    return raw.decode("utf-8", "surrogateescape") if raw else path


def shown(path: PathLike) -> str:
    """Returns a path for messages."""
    path = os.fspath(path)
    raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace")
