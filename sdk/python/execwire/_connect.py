"""Connections to servers."""

from __future__ import annotations

import functools
import ipaddress
import os
import queue
import time
import urllib.parse
from typing import Any, Callable, List, Optional, Tuple

import grpc

from ._backoff import Backoff
from ._probe import TLS_SCHEMES, probe
from ._program import forward, serve
from ._tls import TLSFiles
from ._token import Authenticator, TokenFile, check_token
from ._transport import POLL_INTERVAL, Transport
from .errors import ConnectError, CredentialError, UsageError

_URL_SYNTAX = (
    "write it as tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH, "
    "relay+wss://HOST/executor/ID?role=harness or local:"
)
_MESSAGE_BYTES = 16 << 20
_SYSTEM_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"

_OPTIONS: List[Tuple[str, Any]] = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),  # limits an attempt
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Only this package repeats calls.
    ("grpc.enable_retries", 0),
    # Proxies are for the web, not for this host or its network.
    ("grpc.enable_http_proxy", 0),
    # Clients do not share connections.
    ("grpc.use_local_subchannel_pool", 1),
]


def open_transport(
    url: str,
    *,
    token: Optional[str],
    token_file: Optional[str],
    tls: TLSFiles,
    timeout: float,
    program: Optional[str],
) -> Transport:
    """Connects, and blocks until the server has answered. See connect()."""
    if token is not None and token_file is not None:
        raise UsageError("give token or token_file, not both")
    parts = _parse(url)
    on_close: List[Callable[[], None]] = []
    target, secure, authority, helper_url = "", False, "", ""
    if parts.scheme in ("relay+ws", "relay+wss", ""):
        if token is not None:
            raise UsageError("a relay requires token_file instead of token")
        if parts.scheme:
            helper = forward(url, _forward_flags(token_file, tls), program)
        else:
            helper = serve(program)
        on_close.append(helper.close)
        helper_url = helper.url
        target, token_file = "unix:" + urllib.parse.urlsplit(helper_url).path, None
    elif parts.scheme == "unix":
        target = "unix:" + urllib.parse.unquote(parts.path)
    else:
        target, secure = parts.netloc, parts.scheme in TLS_SCHEMES
        authority = parts.hostname or ""
    try:
        source = _token_source(token, token_file)
        if source is not None and authority and not secure:
            _require_loopback(authority)
        # For a relay or a private server, the socket of the helper answers.
        asked = urllib.parse.urlsplit(helper_url) if helper_url else parts
        credentials = _credentials(secure, tls)
        channel: grpc.Channel = _channel(grpc, target, credentials)
        try:
            _wait_ready(channel, url or "local:", asked, tls, timeout)
        except BaseException:
            # A thread of grpc polls subscriptions at this interval, and complains on
            # stderr about a channel that is closed meanwhile.
            time.sleep(POLL_INTERVAL)
            channel.close()
            raise
    except BaseException:
        for end in on_close:
            end()
        raise
    if source is not None:
        channel = grpc.intercept_channel(channel, Authenticator(source))
    return Transport(
        channel,
        functools.partial(_channel, grpc.aio, target, credentials),
        url or "local:",
        on_close,
        source,
    )


def _parse(url: str) -> urllib.parse.SplitResult:
    shown = url.split("?")[0]  # the query may have a signature
    if url in ("", "local:"):
        return urllib.parse.urlsplit("")
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"failed to parse server URL {shown!r}: {_URL_SYNTAX}") from None
    if parts.scheme in ("ws", "wss", "stdio"):
        raise UsageError(
            f"failed to parse server URL {shown!r}: {parts.scheme} is for clients of JSON-RPC; "
            "this package speaks gRPC, by tcp://, tls:// or unix://"
        )
    if parts.scheme in ("http", "https"):
        raise UsageError(
            f"failed to parse server URL {shown!r}: http is for web clients: write it as "
            "tcp://HOST:PORT, or tls://HOST:PORT for https; a hub needs an executor, too"
        )
    if parts.scheme not in ("tcp", "tls", "grpc", "grpcs", "unix", "relay+ws", "relay+wss"):
        raise UsageError(f"failed to parse server URL {shown!r}: {_URL_SYNTAX}")
    if parts.scheme in ("tcp", "tls", "grpc", "grpcs"):
        if not parts.hostname or port is None:
            raise UsageError(
                f"failed to parse server URL {shown!r}: host and port are required: "
                f"{parts.scheme}://HOST:PORT"
            )
        if parts.path.strip("/") or parts.query or "@" in parts.netloc:
            raise UsageError(
                f"failed to parse server URL {shown!r}: nothing may follow or precede host "
                f"and port: {parts.scheme}://HOST:PORT"
            )
    if parts.scheme == "unix" and (parts.netloc or not parts.path.startswith("/")):
        raise UsageError(
            f"failed to parse server URL {shown!r}: the path must be absolute: unix:///PATH"
        )
    return parts


def _forward_flags(token_file: Optional[str], tls: TLSFiles) -> List[str]:
    flags: List[str] = []
    for name, value in (
        ("--token-file", token_file),
        ("--tls-ca", tls.ca_file),
        ("--tls-cert", tls.cert_file),
        ("--tls-key", tls.key_file),
    ):
        if value is not None:
            flags += [name, value]
    return flags


def _token_source(token: Optional[str], token_file: Optional[str]) -> Optional[Callable[[], str]]:
    if token_file is not None:
        return TokenFile(os.fspath(token_file))
    if token is not None:
        checked = check_token(token.encode("utf-8"), "the token")
        return lambda: checked
    return None


def _require_loopback(host: str) -> None:
    """Rejects a host to which a token would be sent in plain text."""
    if host == "localhost":
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass
    raise CredentialError(
        f"a token is not sent to {host} in plain text: use tls://, or localhost or an address of loopback"
    )


def _channel(api: Any, target: str, credentials: Optional[grpc.ChannelCredentials]) -> Any:
    """Returns a channel of grpc or grpc.aio."""
    if credentials is None:
        return api.insecure_channel(target, _OPTIONS)
    return api.secure_channel(target, credentials, _OPTIONS)


def _credentials(secure: bool, tls: TLSFiles) -> Optional[grpc.ChannelCredentials]:
    if not secure:
        return None
    if (tls.cert_file is None) != (tls.key_file is None):
        raise UsageError("give cert_file and key_file together")
    return grpc.ssl_channel_credentials(
        _pem(tls.ca_file or _SYSTEM_AUTHORITIES) if tls.ca_file or _system() else None,
        _pem(tls.key_file),
        _pem(tls.cert_file),
    )


def _system() -> bool:
    return os.path.exists(_SYSTEM_AUTHORITIES)


def _pem(path: Optional[str]) -> Optional[bytes]:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CredentialError(f"{path} cannot be read: {error.strerror}") from error


def _wait_ready(
    channel: grpc.Channel,
    url: str,
    parts: urllib.parse.SplitResult,
    tls: TLSFiles,
    timeout: float,
) -> None:
    """Returns once the server has answered.

    A connection lost before that is retried until the timeout. Permanent failures raise
    at once.
    """
    states: "queue.Queue[grpc.ChannelConnectivity]" = queue.Queue()
    deadline = time.monotonic() + timeout
    backoff, lost = Backoff(), ""
    begun, failed, pause = False, False, timeout
    channel.subscribe(states.put, try_to_connect=True)
    try:
        while True:
            left = deadline - time.monotonic()
            try:
                state = states.get(timeout=max(0.0, min(left, pause)))
            except queue.Empty:
                if left <= pause:
                    why = lost or "no answer"
                    raise ConnectError(f"failed to reach {url}: {why} after {timeout:g} s") from None
            else:
                if state is grpc.ChannelConnectivity.READY:
                    return
                if state is grpc.ChannelConnectivity.IDLE and begun:
                    # It was ready for a moment.
                    channel.unsubscribe(states.put)
                    channel.subscribe(states.put, try_to_connect=True)
                begun = begun or state is grpc.ChannelConnectivity.CONNECTING
                failed = failed or state in _FAILED
            if not failed:
                continue
            verdict = probe(parts, tls, max(0.1, deadline - time.monotonic()))
            # A refused connection after a lost one: the server is restarting.
            if not (verdict.transient or verdict.refused and lost):
                raise ConnectError(f"failed to reach {url}: {verdict.why}")
            # The channel retries by itself, without reporting failures.
            lost, pause = verdict.why, backoff.next()
    finally:
        channel.unsubscribe(states.put)


_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
