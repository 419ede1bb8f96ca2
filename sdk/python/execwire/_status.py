"""The details of an error: google.rpc.Status as bytes.

The package of its messages is not installed everywhere, so the required parts are
decoded here: ErrorInfo, BadRequest, ResourceInfo and RetryInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Tuple, Union

_DOMAIN = "execwire.v1"
_PREFIX = "type.googleapis.com/google.rpc."


@dataclass
class Details:
    """The details of an error from a server."""

    reason: str = ""
    metadata: Dict[str, str] = field(default_factory=lambda: {})
    fields: List[Tuple[str, str]] = field(default_factory=lambda: [])
    resource: str = ""
    retry_after: float = 0.0


def decode(status: bytes) -> Details:
    """Decodes a Status. Malformed or unknown parts are skipped."""
    details = Details()
    try:
        for number, value in _fields(status):
            if number == 3 and isinstance(value, bytes):
                _detail(details, value)
    except ValueError:
        return details
    return details


def _detail(details: Details, packed: bytes) -> None:
    parts = dict(_fields(packed))
    name, value = _text(parts.get(1, b"")), parts.get(2, b"")
    if not isinstance(value, bytes):
        return
    if name == _PREFIX + "ErrorInfo":
        _error_info(details, value)
    elif name == _PREFIX + "BadRequest":
        for number, violation in _fields(value):
            if number == 1 and isinstance(violation, bytes):
                entry = dict(_fields(violation))
                details.fields.append((_text(entry.get(1, b"")), _text(entry.get(2, b""))))
    elif name == _PREFIX + "ResourceInfo":
        details.resource = _text(dict(_fields(value)).get(2, b""))
    elif name == _PREFIX + "RetryInfo":
        delay = dict(_fields(value)).get(1, b"")
        if isinstance(delay, bytes):
            parts = dict(_fields(delay))
            details.retry_after = _number(parts.get(1, 0)) + _number(parts.get(2, 0)) / 1e9


def _error_info(details: Details, value: bytes) -> None:
    reason, domain, metadata = "", "", {}
    for number, member in _fields(value):
        if number == 1:
            reason = _text(member)
        elif number == 2:
            domain = _text(member)
        elif number == 3 and isinstance(member, bytes):
            entry = dict(_fields(member))
            metadata[_text(entry.get(1, b""))] = _text(entry.get(2, b""))
    if domain == _DOMAIN:
        details.reason, details.metadata = reason, metadata


_Value = Union[int, bytes]


def _text(value: _Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _number(value: _Value) -> float:
    """A number of RetryInfo, never negative."""
    return float(value) if isinstance(value, int) and value < 1 << 63 else 0.0


def _fields(data: bytes) -> Iterator[Tuple[int, _Value]]:
    """The fields of a message: numbers and texts; others are skipped."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, size = key & 7, 0
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind == 1:
            size = 8
        elif kind == 5:
            size = 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("a field is cut")
        if kind == 2:
            yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a number is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is too long")
