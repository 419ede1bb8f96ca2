"""Tokens that authenticate the caller."""

from __future__ import annotations

import os
import stat
import threading
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import grpc

from .errors import CredentialError

_MOST_BYTES = 1 << 20


def read_token(path: str) -> str:
    """Returns the token in a file that only the user may be able to read."""
    try:
        # A FIFO without a writer must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CredentialError(f"{path} cannot be opened: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise CredentialError(f"{path} is not a regular file")
        mode = stat.S_IMODE(info.st_mode)
        mine = info.st_uid == os.geteuid()
        if mode & 0o004 or mode & 0o040 and mine:
            raise CredentialError(
                f"{path} can be read by others than its owner (mode {mode:04o}): chmod 600 {path}"
            )
        if mode & 0o022:
            raise CredentialError(
                f"{path} can be written by others than its owner (mode {mode:04o}): chmod go-w {path}"
            )
        return check_token(file.read(_MOST_BYTES), path)


def check_token(text: bytes, origin: str) -> str:
    """Returns the token without whitespace, if valid."""
    text = text.strip()
    if not text:
        raise CredentialError(f"{origin} holds no token")
    if any(byte <= 0x20 or byte > 0x7E for byte in text):
        raise CredentialError(f"{origin} holds more than one token: leave nothing but the token in it")
    return text.decode("ascii")


class TokenFile:
    """A token that is read again when its file changes. It may be used by several threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = self._look()
        self._token = read_token(path)

    def __call__(self) -> str:
        """Returns the token; the previous one if the file is unusable."""
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._token = read_token(self._path)
                except CredentialError:
                    pass
            return self._token

    def _look(self) -> Tuple[int, int, int]:
        try:
            info = os.stat(self._path)
        except OSError:
            return (0, 0, 0)
        return (info.st_ino, info.st_size, info.st_mtime_ns)


class _Details(NamedTuple):
    method: str
    timeout: Optional[float]
    metadata: Optional[Sequence[Tuple[str, str]]]
    credentials: Optional[Any]
    wait_for_ready: Optional[bool]
    compression: Optional[Any]


class Authenticator(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Sends a token with every call."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def _with_token(self, details: Any) -> _Details:
        metadata: List[Tuple[str, str]] = list(details.metadata or ())
        metadata.append(("authorization", "Bearer " + self._token()))
        return _Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Implements grpc.UnaryUnaryClientInterceptor."""
        return continuation(self._with_token(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """Implements grpc.UnaryStreamClientInterceptor."""
        return continuation(self._with_token(details), request)

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Implements grpc.StreamUnaryClientInterceptor."""
        return continuation(self._with_token(details), requests)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Implements grpc.StreamStreamClientInterceptor."""
        return continuation(self._with_token(details), requests)
