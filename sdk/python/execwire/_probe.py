"""Finds out why a server cannot be reached, which gRPC does not report.

A probe connects separately, sends the HTTP/2 preface, and examines the first bytes of
the answer. No credentials are sent.
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

# The schemes of servers with TLS. Both mean the same.
TLS_SCHEMES = ("tls", "grpcs")
# How long a server may take to answer, in seconds.
_TIMEOUT = 5.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_EMPTY_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
# The offset of the type in a frame, and the types with which a server may begin.
_TYPE, _SETTINGS, _GOAWAY = 3, 4, 7
_LOST = "the connection is lost before the server has answered"
_NOT_GRPC = "the server does not speak gRPC"
# Errors of a lost connection, or of one not yet accepted.
_LOSSES = (
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    BlockingIOError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


@dataclass(frozen=True)
class ProbeResult:
    """Why a server could not be reached."""

    why: str
    #: Whether another attempt may succeed.
    transient: bool = False
    #: Whether the connection was refused.
    refused: bool = False


def probe(parts: urllib.parse.SplitResult, tls: TLSFiles, timeout: float) -> ProbeResult:
    """Probes a server, for a few seconds at most."""
    deadline = time.monotonic() + min(timeout, _TIMEOUT)
    secure = parts.scheme in TLS_SCHEMES
    try:
        with _connect(parts, deadline) as plain:
            if not secure:
                verdict = _classify(_send_preface(plain, deadline), parts)
            else:
                with _wrap(plain, tls, parts.hostname or "") as connection:
                    verdict = _classify(_send_preface(connection, deadline), parts)
    except ssl.SSLCertVerificationError as error:
        return ProbeResult(f"its certificate is not trusted: {error.verify_message}; ca_file names the authorities to trust")
    except socket.timeout:
        return ProbeResult("no answer", transient=True)
    except ConnectionRefusedError as error:
        return ProbeResult(error.strerror or str(error), refused=True)
    except OSError as error:
        if not _is_loss(error):
            return ProbeResult(error.strerror or str(error))
        verdict = ProbeResult(_LOST, transient=True)
    if verdict.transient and verdict.why == _LOST:
        if parts.scheme in ("tcp", "grpc") and _speaks_tls(parts, deadline):
            return ProbeResult(_NOT_GRPC + ", or only with TLS (tls://)")
        if secure and _speaks_plain(parts, deadline):
            return ProbeResult("the server does not use TLS: if it is on this host, use tcp://")
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
    return _handshake(context, connection, host)


def _handshake(
    context: ssl.SSLContext, connection: socket.socket, host: Optional[str]
) -> ssl.SSLSocket:
    """Starts TLS. wrap_socket itself does nothing if the connection is already lost."""
    wrapped = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        wrapped.do_handshake()
    except BaseException:
        wrapped.close()
        raise
    return wrapped


def _is_loss(error: OSError) -> bool:
    return isinstance(error, _LOSSES) or error.errno == errno.ENOTCONN


def _send_preface(connection: socket.socket, deadline: float) -> bytes:
    """Sends the HTTP/2 preface, and returns the beginning of the answer."""
    try:
        connection.sendall(_PREFACE + _EMPTY_SETTINGS)
    except OSError as error:
        if not _is_loss(error):
            raise
        # The server may have answered and closed.
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


def _classify(answer: bytes, parts: urllib.parse.SplitResult) -> ProbeResult:
    if not answer:
        return ProbeResult(_LOST, transient=True)
    if len(answer) == len(_EMPTY_SETTINGS) and answer[_TYPE] in (_SETTINGS, _GOAWAY):
        return ProbeResult(_LOST, transient=True)  # it speaks HTTP/2
    return ProbeResult(_NOT_GRPC + (", or only with TLS (tls://)" if parts.scheme in ("tcp", "grpc") else ""))


def _speaks_tls(parts: urllib.parse.SplitResult, deadline: float) -> bool:
    """Whether a server that should not use TLS answers a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate is not verified, because no data is sent.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connect(parts, deadline) as connection, _handshake(context, connection, None):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plain(parts: urllib.parse.SplitResult, deadline: float) -> bool:
    """Whether a server that should use TLS answers without it."""
    try:
        with _connect(parts, deadline) as connection:
            answer = _send_preface(connection, deadline)
    except OSError:
        return False
    alert = 21  # TLS record type alert
    return len(answer) > 0 and answer[0] != alert
