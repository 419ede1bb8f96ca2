"""Connecting over every transport, and the errors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from typing import Callable

import execwire

from .support import HUB, LONG, PROGRAM, SDK, Program, TestCase, Wire, alive, eventually, reset, serve, unused_port


def setUpModule() -> None:
    os.environ["EXECWIRE_BIN"] = str(PROGRAM)


def certificate(directory: str) -> tuple[str, str]:
    """Makes a self-signed certificate for localhost."""
    certificate, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    os.chmod(key, 0o600)
    return certificate, key


class Transports(TestCase):
    def test_tcp_and_unix(self) -> None:
        with serve() as server, execwire.connect(server.url) as client:
            self.assertEqual(client.run(["echo", "tcp"]).stdout, "tcp\n")
            self.assertEqual(client.describe().operating_system, "linux")
        with serve(listen=f"unix://{self.path('s')}") as server:
            with execwire.connect(server.url) as client:
                self.assertEqual(client.run(["echo", "unix"]).stdout, "unix\n")

    def test_tls_and_tokens(self) -> None:
        certificate_file, key = certificate(self.directory)
        principals, token = self.path("principals.toml"), self.path("token")
        secret = "3f" * 32
        for path, text in (
            (token, secret + "\n"),
            (principals, f'[[principal]]\nname = "ann"\ntoken_file = "{token}"\nallow = ["all"]\n'),
        ):
            with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(text)
        os.environ.update(
            EXECWIRE_TLS_CERT=certificate_file,
            EXECWIRE_TLS_KEY=key,
            EXECWIRE_PRINCIPALS_FILE=principals,
        )
        self.addCleanup(
            lambda: [os.environ.pop("EXECWIRE_" + n) for n in ("TLS_CERT", "TLS_KEY", "PRINCIPALS_FILE")]
        )
        with serve(listen="tls://localhost:0") as server:
            with execwire.connect(server.url, ca_file=certificate_file, token_file=token) as client:
                self.assertEqual(client.run(["cat"], input=b"safe").stdout, "safe")
                client.files.write(self.path("x"), b"1")
                self.assertEqual(client.files.read(self.path("x")), b"1")
            with execwire.connect(server.url, ca_file=certificate_file, token=secret) as client:
                self.assertEqual(client.run(["echo", "hi"]).stdout, "hi\n")
            with execwire.connect(server.url, ca_file=certificate_file, token="wrong" * 10) as client:
                with self.assertRaises(execwire.UnauthenticatedError) as caught:
                    client.run(["true"])
                self.assertEqual(caught.exception.reason, "UNAUTHENTICATED")
            with self.assertRaisesRegex(execwire.ConnectError, "certificate is not trusted.*ca_file"):
                execwire.connect(server.url, token_file=token)
            plain = server.url.replace("tls:", "tcp:")
            with self.assertRaisesRegex(execwire.ConnectError, "only with TLS"):
                execwire.connect(plain)

    def test_a_relay(self) -> None:
        with Program(str(HUB), "--listen", "http://127.0.0.1:0") as hub:
            with Executor(hub.url, "build-1"):
                url = execwire.relay_url(hub.url, "build-1")
                client = connect_when_there(url)
                with client:
                    self.assertEqual(client.run(["cat"], input=b"far").stdout, "far")
                    data = os.urandom(3_000_000)
                    client.files.write(self.path("far"), data)
                    self.assertEqual(client.files.read(self.path("far")), data)
            with self.assertRaises(execwire.ConnectError):
                execwire.connect(execwire.relay_url(hub.url, "missing"))

    def test_launch(self) -> None:
        with execwire.launch() as client:
            self.assertEqual(client.describe().working_directory, os.getcwd())
            process = client.start_detached(["sleep", "600"])
        self.assertTrue(eventually(lambda: not alive(process.pid)))

    def test_launched_server_ends_with_interpreter(self) -> None:
        program = (
            "import execwire, os, sys\n"
            "client = execwire.launch()\n"
            "process = client.start(['sh', '-c', 'echo $PPID; sleep 600'])\n"
            "server = int(next(process.lines()))\n"
            "print(server, process.pid, flush=True)\n"
        )
        for end in ("", "sys.stdin.read()"):
            with subprocess.Popen(
                [sys.executable, "-c", program + end],
                env={**os.environ, "PYTHONPATH": str(SDK)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as interpreter:
                assert interpreter.stdout is not None
                pids = [int(pid) for pid in interpreter.stdout.readline().split()]
                self.assertEqual(len(pids), 2)
                if end:
                    self.assertTrue(all(alive(pid) for pid in pids))
                    interpreter.send_signal(signal.SIGKILL)
                interpreter.wait(LONG)
            self.assertTrue(eventually(lambda: not any(alive(pid) for pid in pids)))


def is_connected(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


class Raw:
    """Serves connections one at a time, with a function that gets their number."""

    def __init__(self, take: Callable[[int, socket.socket], object]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._take = take
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                self._take(self.connections - 1, connection)
            except OSError:
                connection.close()  # the client closed first

    def __enter__(self) -> "Raw":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LONG)


class Executor:
    """A server behind a hub."""

    def __init__(self, hub: str, name: str) -> None:
        self._process = subprocess.Popen(
            [str(PROGRAM), "serve", "--listen", "off", "--remote", hub, "--executor-id", name,
             "--log-level", "error"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            # This hub must not get the credentials of codex.
            env={**os.environ, "CODEX_HOME": "/nonexistent"},
        )  # fmt: skip

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(LONG)


def connect_when_there(url: str) -> execwire.Client:
    until = time.monotonic() + LONG
    while True:
        try:
            return execwire.connect(url)
        except execwire.ConnectError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class Failures(TestCase):
    def test_urls(self) -> None:
        for url, why in {
            "127.0.0.1:7420": "write it as",
            "http://127.0.0.1:7420": "write it as tcp://",
            "https://127.0.0.1": "tls://HOST:PORT for https",
            "tls://localhost": "host and port are required",
            "grpc://localhost": "host and port are required",
            "grpc://localhost:x": "write it as",
            "grpc://localhost:1/path": "nothing may follow",
            "grpc://ann@localhost:1": "nothing may follow",
            "unix://relative": "must be absolute",
            "ws://127.0.0.1:7420": "JSON-RPC",
        }.items():
            with self.subTest(url), self.assertRaisesRegex(execwire.UsageError, why):
                execwire.connect(url)
        with self.assertRaises(execwire.UsageError):
            execwire.relay_url("ftp://hub", "x")
        with self.assertRaises(execwire.UsageError):
            execwire.relay_url("https://hub", "a/b")
        self.assertEqual(
            execwire.relay_url("https://hub.example.org/base/", "build-1"),
            "relay+wss://hub.example.org/base/executor/build-1?role=harness",
        )

    def test_connection_refused(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"grpc://127.0.0.1:{listener.getsockname()[1]}"
            with self.assertRaisesRegex(execwire.ConnectError, "no answer after 0.3 s"):
                execwire.connect(url, timeout=0.3)
        with self.assertRaisesRegex(execwire.ConnectError, "Connection refused"):
            execwire.connect(f"grpc://127.0.0.1:{unused_port()}")
        with self.assertRaisesRegex(execwire.ConnectError, "No such file"):
            execwire.connect(f"unix://{self.path('nothing')}")
        with self.assertRaisesRegex(execwire.ConnectError, "failed to start"):
            execwire.launch(program="/no/such/program")

    def test_not_grpc_fails_at_once(self) -> None:
        answers = {b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail.example.com ESMTP\r\n"}

        def say(s: socket.socket, answer: bytes) -> None:
            s.sendall(answer)
            s.shutdown(socket.SHUT_WR)
            while s.recv(4096):  # closing with unread bytes sends a reset, which can overtake the answer
                pass
            s.close()

        for answer in answers:
            with Raw(lambda _, s, a=answer: say(s, a)) as raw:
                # Not " after 120 s".
                with self.assertRaisesRegex(execwire.ConnectError, r"does not speak gRPC.*\(tls://\)$"):
                    execwire.connect(raw.url, timeout=LONG)

    def test_reset_before_probe_is_transient(self) -> None:
        import urllib.parse
        from unittest import mock

        from execwire import _probe
        from execwire._tls import TLSFiles

        connect = _probe._connect

        def connect_and_be_reset(parts: urllib.parse.SplitResult, deadline: float) -> socket.socket:
            connection = connect(parts, deadline)
            connected.release()
            self.assertTrue(eventually(lambda: not is_connected(connection)))
            return connection

        connected = threading.Semaphore(0)
        with Raw(lambda _, s: (connected.acquire(), reset(s))) as raw, mock.patch.object(_probe, "_connect", connect_and_be_reset):
            for scheme in ("tcp", "grpcs"):
                parts = urllib.parse.urlsplit(raw.url)._replace(scheme=scheme)
                verdict = _probe.probe(parts, TLSFiles(), LONG)
                self.assertTrue(verdict.transient, verdict)

    def test_every_connection_lost_fails_at_timeout(self) -> None:
        with Raw(lambda _, s: s.close()) as raw:
            # Long enough that an attempt fails before, also on a slow machine.
            with self.assertRaisesRegex(execwire.ConnectError, "is lost before.* after 3 s"):
                execwire.connect(raw.url, timeout=3)

    def test_lost_before_answer_is_retried(self) -> None:
        def half_a_frame(s: socket.socket) -> None:
            s.sendall(bytes((0, 0, 6, 4, 0, 0, 0, 0, 0, 0)))
            reset(s)

        with serve() as server:
            for name, end in {
                "reset": reset,
                "closed": socket.socket.close,
                "closed when the client has greeted": lambda s: (s.recv(24), s.close()),
                "reset after the first frame": half_a_frame,
            }.items():
                with self.subTest(name), Wire(server.url) as wire:
                    with Raw(lambda n, s, e=end: e(s) if n < 4 else wire.pass_on(s)) as raw:
                        with execwire.connect(raw.url) as client:
                            self.assertEqual(client.run(["echo", "hi"]).stdout, "hi\n")
                        self.assertGreater(raw.connections, 4)

    def test_tokens_are_not_sent_in_plain_text(self) -> None:
        token = self.path("token")
        with open(token, "w") as file:
            file.write("secret")
        os.chmod(token, 0o644)
        with self.assertRaisesRegex(execwire.CredentialError, "chmod 600"):
            execwire.connect("tls://localhost:1", token_file=token)
        os.chmod(token, 0o600)
        with self.assertRaisesRegex(execwire.CredentialError, "in plain text"):
            execwire.connect("grpc://example.org:7420", token_file=token)
        with self.assertRaisesRegex(execwire.CredentialError, "more than one token"):
            execwire.connect("grpcs://localhost:1", token="a b")
        with self.assertRaisesRegex(execwire.UsageError, "not both"):
            execwire.connect("grpcs://localhost:1", token="a", token_file=token)
        with self.assertRaisesRegex(execwire.CredentialError, "cannot be opened"):
            execwire.connect("grpcs://localhost:1", token_file=self.path("missing"))

    def test_a_token_is_read_again_when_it_changes(self) -> None:
        from execwire._token import TokenFile

        path = self.path("token")

        def put(text: str, mode: int) -> None:
            with open(path + ".new", "w") as file:
                file.write(text)
            os.chmod(path + ".new", mode)
            os.replace(path + ".new", path)

        put("one", 0o600)
        token = TokenFile(path)
        self.assertEqual(token(), "one")
        put("two", 0o600)
        self.assertEqual(token(), "two")
        put("three", 0o666)  # unusable, so the previous one stays
        self.assertEqual(token(), "two")


if __name__ == "__main__":
    unittest.main()
