"""Finds out why a server cannot be reached, which gRPC does not tell.

A probe makes a connection of its own, sends what gRPC sends first, and judges the first
bytes of the answer. No credentials are sent.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
import urllib.parse
from dataclasses import dataclass
from typing import Optional

from ._tls import TLSFiles

# How long a server may take to answer, in seconds.
_TIMEOUT = 5.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_EMPTY_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
# Where a frame has its type, and the types with which a server may begin.
_TYPE, _SETTINGS, _GOAWAY = 3, 4, 7
_LOST = "the connection is lost before the server has answered"
_NOT_GRPC = "something listens there, but it does not speak gRPC"
# What says that a connection was lost, or not accepted yet, and nothing of the server.
_LOSSES = (
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    BlockingIOError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


@dataclass(frozen=True)
class Verdict:
    """Why a server could not be reached."""

    why: str
    #: Whether another attempt may succeed.
    transient: bool = False
    #: Whether nothing listens there.
    refused: bool = False


def probe(parts: urllib.parse.SplitResult, tls: TLSFiles, timeout: float) -> Verdict:
    """Asks a server, for a few seconds at most."""
    deadline = time.monotonic() + min(timeout, _TIMEOUT)
    secure = parts.scheme == "grpcs"
    try:
        with _connect(parts, deadline) as plain:
            if not secure:
                verdict = _judge(_greet(plain, deadline), parts)
            else:
                with _wrap(plain, tls, parts.hostname or "") as connection:
                    verdict = _judge(_greet(connection, deadline), parts)
    except ssl.SSLCertVerificationError as error:
        return Verdict(f"its certificate is not good: {error.verify_message}; ca_file names whom to trust")
    except socket.timeout:
        return Verdict("no answer", transient=True)
    except ConnectionRefusedError as error:
        return Verdict(error.strerror or str(error), refused=True)
    except OSError as error:
        if not _is_loss(error):
            return Verdict(error.strerror or str(error))
        verdict = Verdict(_LOST, transient=True)
    if verdict.transient and verdict.why == _LOST:
        if parts.scheme == "grpc" and _speaks_tls(parts, deadline):
            return Verdict(_NOT_GRPC + ", or only with TLS (grpcs://)")
        if secure and _speaks_plain(parts, deadline):
            return Verdict("what listens there does not speak TLS: if it is on this host, use grpc://")
    return verdict


def _connect(parts: urllib.parse.SplitResult, deadline: float) -> socket.socket:
    left = max(0.01, deadline - time.monotonic())
    if parts.scheme != "unix":
        return socket.create_connection((parts.hostname or "", parts.port or 0), left)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(left)
        connection.connect(urllib.parse.unquote(parts.path))
    except BaseException:
        connection.close()
        raise
    return connection


def _wrap(connection: socket.socket, tls: TLSFiles, host: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.set_alpn_protocols(["h2"])
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return _shake_hands(context, connection, host)


def _shake_hands(
    context: ssl.SSLContext, connection: socket.socket, host: Optional[str]
) -> ssl.SSLSocket:
    """Begins TLS. wrap_socket itself does nothing if the connection is lost already."""
    wrapped = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        wrapped.do_handshake()
    except BaseException:
        wrapped.close()
        raise
    return wrapped


def _is_loss(error: OSError) -> bool:
    return isinstance(error, _LOSSES) or error.errno == errno.ENOTCONN


def _greet(connection: socket.socket, deadline: float) -> bytes:
    """Sends what gRPC sends first, and returns the beginning of the answer."""
    try:
        connection.sendall(_PREFACE + _EMPTY_SETTINGS)
    except OSError as error:
        if not _is_loss(error):
            raise
        # The server may have answered and be gone.
    answer = b""
    while len(answer) < len(_EMPTY_SETTINGS):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            more = connection.recv(len(_EMPTY_SETTINGS) - len(answer))
        except OSError as error:
            if not answer or not (isinstance(error, socket.timeout) or _is_loss(error)):
                raise
            break
        if not more:
            break
        answer += more
    return answer


def _judge(answer: bytes, parts: urllib.parse.SplitResult) -> Verdict:
    if not answer:
        return Verdict(_LOST, transient=True)
    if len(answer) == len(_EMPTY_SETTINGS) and answer[_TYPE] in (_SETTINGS, _GOAWAY):
        return Verdict(_LOST, transient=True)  # it speaks HTTP/2
    return Verdict(_NOT_GRPC + (", or only with TLS (grpcs://)" if parts.scheme == "grpc" else ""))


def _speaks_tls(parts: urllib.parse.SplitResult, deadline: float) -> bool:
    """Whether a server that is to speak without TLS answers the beginning of a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # No certificate is judged, because nothing is sent.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connect(parts, deadline) as connection, _shake_hands(context, connection, None):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plain(parts: urllib.parse.SplitResult, deadline: float) -> bool:
    """Whether a server that is to speak TLS answers what does not."""
    try:
        with _connect(parts, deadline) as connection:
            answer = _greet(connection, deadline)
    except OSError:
        return False
    alert = 21  # the type of the record that ends a handshake
    return len(answer) > 0 and answer[0] != alert
