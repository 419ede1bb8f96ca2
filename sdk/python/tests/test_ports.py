"""Ports of processes, and connections to them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest
import urllib.request
from typing import Callable, List, Optional

import execwire
from execwire import aio

from .support import HUB, LONG, PROGRAM, SDK, Program, TestCase, Wire, eventually, serve, unused_port
from .test_connect import Executor, connect_when_there

server: Program
client: execwire.Client
#: An echo server, which sends the end of what it has received after all of it.
echo: execwire.Process
echo_port: int

ECHO = """
import socket, threading
def serve(c):
    with c:
        while True:
            data = c.recv(65536)
            if not data:
                return
            c.sendall(data)
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def setUpModule() -> None:
    global server, client, echo, echo_port
    server = serve()
    client = execwire.connect(server.url)
    echo = client.start(python(ECHO))
    echo_port = first_port(echo)


def tearDownModule() -> None:
    client.close()
    server.stop()


def python(script: str) -> List[str]:
    return [sys.executable, "-c", script]


def first_port(process: execwire.Process) -> int:
    return opened(process.watch_ports())


def opened(watch: execwire.PortWatch) -> int:
    with watch:
        return next(change.opened[0].port for change in watch if change.opened)


def connect(forward: execwire.Forward) -> socket.socket:
    connection = socket.create_connection(forward.address)
    connection.settimeout(LONG)
    return connection


def receive_all(connection: socket.socket) -> bytes:
    received = bytearray()
    while True:
        data = connection.recv(1 << 20)
        if not data:
            return bytes(received)
        received += data


def in_background(run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def forward_threads() -> List[str]:
    names = ("execwire forward", "execwire connection")
    return [t.name for t in threading.enumerate() if t.name in names]


class Ports(TestCase):
    def test_ports_of_a_process_and_its_descendants(self) -> None:
        script = (
            "import socket, subprocess, sys\n"
            "one = socket.create_server(('127.0.0.1', 0))\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import socket\\n"
            "s = socket.create_server((\"127.0.0.1\", 0)); input(); s.close(); input()'])\n"
            "child.wait()\n"
        )
        with client.start(python(script)) as process, process.watch_ports() as watch:
            open_ports: "set[execwire.Port]" = set()

            def until(holds: Callable[[], bool]) -> None:
                while not holds():
                    change = next(watch)
                    self.assertLessEqual(set(change.closed), open_ports)
                    open_ports.difference_update(change.closed)
                    self.assertFalse(open_ports & set(change.opened))
                    open_ports.update(change.opened)

            until(lambda: len(open_ports) == 2)
            self.assertEqual(set(process.ports()), open_ports)
            self.assertLess(open_ports, set(client.ports()))
            self.assertFalse(process.ports().truncated)
            for port in open_ports:
                self.assertEqual((port.address, port.process_id), ("127.0.0.1", process.id))
                self.assertTrue(port.program.startswith("python"), port)
            self.assertIn(process.pid, [port.pid for port in open_ports])
            process.write(b"\n")
            until(lambda: len(open_ports) == 1)
            process.write(b"\n")
            self.assertEqual([p for change in watch for p in change.closed], list(open_ports))

    def test_a_watch_survives_a_lost_connection(self) -> None:
        with Wire(server.url) as wire, execwire.connect(wire.url) as there:
            with there.start(python("import socket; s = socket.create_server(('', 0)); input(); s.close(); input()")) as p:
                with p.watch_ports() as watch:
                    (port,) = next(c.opened for c in watch if c.opened)
                    wire.cut()
                    p.write(b"\n")
                    self.assertEqual(next(watch).closed, (port,))
                    thread = in_background(lambda: (wire.block(), watch.close()))
                    self.assertEqual(list(watch), [])
                    thread.join()
                wire.open()

    def test_wait_for(self) -> None:
        port = unused_port()
        script = f"import socket; input(); s = socket.create_server(('127.0.0.1', {port})); input()"
        with client.start(python(script)) as process:
            with self.assertRaises(TimeoutError):
                process.wait_for(port=port, timeout=0.05)
            process.write(b"\n")
            self.assertEqual(process.wait_for(port=port), b"")
            process.close_stdin()
            with self.assertRaises(execwire.ProcessEndedError):
                process.wait_for(port=unused_port(), timeout=LONG)
        with client.start(["sh", "-c", "echo ready 42; sleep 600"]) as process:
            self.assertEqual(process.wait_for("ready [0-9]+", timeout=LONG), b"ready 42")
            for wrong in ({}, {"port": 0}, {"port": 65536}, {"port": 1, "idle": 1.0}):
                with self.assertRaises(execwire.UsageError):
                    process.wait_for(**wrong)

    def test_aio(self) -> None:
        async def main() -> None:
            async with await aio.connect(server.url) as there:
                port = unused_port()
                process = await there.start(
                    python(f"import socket; input(); s = socket.create_server(('', {port})); input()")
                )
                waiting = asyncio.ensure_future(process.wait_for(port=port))
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait_for(port=1), 0.05)
                await process.write(b"\n")
                await waiting
                self.assertEqual([p.port for p in await process.ports()], [port])
                self.assertIn(port, [p.port for p in await there.ports()])
                changes = process.watch_ports()
                self.assertEqual([p.port for p in (await changes.__anext__()).opened], [port])
                await process.write(b"\n")
                closed = [p.port async for change in changes for p in change.closed]
                self.assertEqual(closed, [port])
                async with there.forward(echo_port, local=unused_port()) as forward:
                    reader, writer = await asyncio.open_connection(*forward.address)
                    writer.write(b"hello")
                    writer.write_eof()
                    self.assertEqual(await reader.read(), b"hello")
                    writer.close()
                with self.assertRaises(OSError):
                    await asyncio.open_connection(*forward.address)

        asyncio.run(main())
        self.assertEqual(forward_threads(), [])


class Forwards(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.errors: List[execwire.Error] = []

    def forward(self, port: Optional[int] = None, **more: object) -> execwire.Forward:
        """A forward, by default to the echo server."""
        there = more.pop("through", client)
        return there.forward(echo_port if port is None else port, on_error=self.errors.append, **more)  # type: ignore[attr-defined, no-any-return]

    def test_web_server(self) -> None:
        with open(self.path("page"), "wb") as file:
            file.write(os.urandom(300_000))
        port = unused_port()
        argv = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
        with client.start(argv, cwd=self.directory) as web:
            web.wait_for(port=port, timeout=LONG)
            with client.forward(port) as forward:
                with urllib.request.urlopen(f"http://127.0.0.1:{forward.port}/page") as page:
                    with open(self.path("page"), "rb") as file:
                        self.assertEqual(page.read(), file.read())

    def test_all_bytes_both_ways_with_half_close(self) -> None:
        data = os.urandom(16 << 20)
        with self.forward() as forward, connect(forward) as connection:

            def send() -> None:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)

            sending = in_background(send)
            received = receive_all(connection)
            sending.join()
        self.assertEqual(hashlib.sha256(received).digest(), hashlib.sha256(data).digest())
        self.assertEqual((self.errors, forward_threads()), ([], []))

    def test_the_port_ends_its_direction_first(self) -> None:
        script = (
            "import socket, sys\n"
            "c = socket.create_server(('127.0.0.1', 0)).accept()[0]\n"
            "c.sendall(b'greeting'); c.shutdown(socket.SHUT_WR)\n"
            "print(sum(len(d) for d in iter(lambda: c.recv(65536), b'')))\n"
        )
        with client.start(python(script)) as process:
            with self.forward(first_port(process)) as forward, connect(forward) as connection:
                self.assertEqual(receive_all(connection), b"greeting")
                connection.sendall(bytes(1 << 20))
                connection.shutdown(socket.SHUT_WR)
                self.assertEqual(next(process.lines()), b"%d\n" % (1 << 20))
        self.assertEqual(self.errors, [])

    def test_a_side_that_does_not_read_slows_down_the_other(self) -> None:
        with self.forward() as forward, connect(forward) as connection:
            connection.setblocking(False)
            sent, quiet = 0, select.poll()
            quiet.register(connection, select.POLLOUT)
            while quiet.poll(1000):  # until all buffers are full
                sent += connection.send(bytes(1 << 20))
                self.assertLess(sent, 256 << 20, "nothing slows down the sender")
            # Others are not affected.
            with connect(forward) as other:
                other.sendall(b"x")
                self.assertEqual(other.recv(1), b"x")
            connection.settimeout(LONG)
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(len(receive_all(connection)), sent)
        self.assertEqual(self.errors, [])

    def test_many_connections(self) -> None:
        with self.forward() as forward:
            connections = [connect(forward) for _ in range(50)]
            for i, connection in enumerate(connections):
                connection.sendall(b"%d" % i)
                connection.shutdown(socket.SHUT_WR)
            self.assertEqual([receive_all(c) for c in connections], [b"%d" % i for i in range(50)])
            for connection in connections:
                connection.close()
        self.assertEqual((self.errors, forward_threads()), ([], []))

    def test_max_connections(self) -> None:
        with self.forward(max_connections=1) as forward, connect(forward) as first:
            first.sendall(b"x")
            self.assertEqual(first.recv(1), b"x")
            self.expect_reset(forward)
            self.assertIsInstance(self.errors[0], execwire.LimitError)
            self.assertIn("max_connections", str(self.errors[0]))
            first.sendall(b"y")
            self.assertEqual(first.recv(1), b"y")

    def expect_reset(self, forward: execwire.Forward) -> None:
        """Checks that a connection is reset, perhaps before it is reported as established."""
        with self.assertRaises(ConnectionResetError), connect(forward) as connection:
            connection.recv(1)

    def test_errors(self) -> None:
        with self.forward(unused_port()) as forward:
            self.expect_reset(forward)
            self.assertEqual(self.errors[0].reason, "PORT_CONNECTION_REFUSED")  # type: ignore[attr-defined]
        with self.forward(echo_port, host="192.0.2.1") as forward:
            self.expect_reset(forward)
            self.assertIsInstance(self.errors[1], execwire.PermissionDeniedError)
        for wrong in ({"port": 0}, {"port": 1 << 16}, {"local": -1}, {"max_connections": 0}):
            with self.assertRaises(execwire.UsageError):
                self.forward(**{"port": 80, **wrong})  # type: ignore[arg-type]
        with socket.create_server(("127.0.0.1", 0)) as taken, self.assertRaises(OSError):
            self.forward(local=taken.getsockname()[1])
        with self.forward(local=("::1", 0)) as forward, connect(forward) as connection:
            connection.sendall(b"x")
            self.assertEqual(connection.recv(1), b"x")

    def test_resets_pass(self) -> None:
        script = (
            "import socket, struct\n"
            "listener = socket.create_server(('127.0.0.1', 0))\n"
            "c = listener.accept()[0]\n"
            "c.sendall(b'part'); c.recv(1)\n"
            "c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()\n"
            "c = listener.accept()[0]\n"
            "c.sendall(b'go')\n"
            "try:\n"
            "    while c.recv(65536): pass\n"
            "    print('end')\n"
            "except ConnectionResetError:\n"
            "    print('reset')\n"
        )
        with client.start(python(script)) as process:
            with self.forward(first_port(process)) as forward:
                with connect(forward) as connection:
                    self.assertEqual(connection.recv(4), b"part")
                    connection.sendall(b"x")
                    with self.assertRaises(ConnectionResetError):
                        connection.recv(1)
                self.assertEqual(self.errors[0].reason, "PORT_CONNECTION_RESET")  # type: ignore[attr-defined]
                connection = connect(forward)
                self.assertEqual(connection.recv(2), b"go")
                connection.sendall(b"some")
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.close()
                self.assertEqual(next(process.lines()), b"reset\n")
        self.assertEqual(len(self.errors), 1, self.errors)

    def test_a_reset_while_the_port_sends_is_no_end(self) -> None:
        # The system reports a reset to one call, which may be one that sends.
        script = (
            "import select, socket\n"
            "listener = socket.create_server(('127.0.0.1', 0))\n"
            "while True:\n"
            "    c, end = listener.accept()[0], None\n"
            "    c.setblocking(False)\n"
            "    while not end:\n"
            "        writable = select.select([c], [c], [])[1]\n"
            "        try:\n"
            "            end = writable and not c.send(bytes(10000)) or c.recv(1) == b'' and 'end'\n"
            "        except BlockingIOError:\n"
            "            pass\n"
            "        except ConnectionResetError:\n"
            "            end = 'reset'\n"
            "    print(end, flush=True)\n"
        )
        with client.start(python(script)) as process:
            ends = process.lines()
            with self.forward(first_port(process)) as forward:
                for _ in range(20):
                    with connect(forward) as connection:
                        connection.recv(1 << 20)
                        linger = struct.pack("ii", 1, 0)
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.assertEqual(next(ends), b"reset\n")
        self.assertEqual(self.errors, [])

    def test_a_lost_server_is_no_end_and_new_connections_work(self) -> None:
        with serve() as first, Wire(first.url) as wire, execwire.connect(wire.url) as there:
            there.start_detached(python(ECHO))
            with self.forward(opened(there.watch_ports()), through=there) as forward:
                with connect(forward) as connection:
                    connection.sendall(b"part")
                    self.assertEqual(connection.recv(4), b"part")
                    wire.cut()
                    with self.assertRaises(ConnectionResetError):
                        connection.recv(1)
                with connect(forward) as connection:
                    connection.sendall(b"\0")
                    self.assertEqual(connection.recv(1), b"\0")
                    first.kill_server()
                    with self.assertRaises(ConnectionResetError):
                        while connection.recv(1 << 16):
                            connection.sendall(bytes(1 << 16))
        self.assertEqual(
            [type(e) for e in self.errors], [execwire.UnavailableError] * 2, self.errors
        )

    def test_through_a_hub(self) -> None:
        os.environ["EXECWIRE_BIN"] = str(PROGRAM)
        data = os.urandom(1 << 20)
        with Program(str(HUB), "--listen", "http://127.0.0.1:0") as hub, Wire(hub.url) as wire:
            with Executor(hub.url, "ports-1"):
                connect_when_there(execwire.relay_url(hub.url, "ports-1")).close()
                url = execwire.relay_url(wire.url.replace("grpc://", "http://"), "ports-1")
                with execwire.connect(url) as there, there.start(python(ECHO)) as process:
                    port = first_port(process)
                    with self.forward(port, through=there) as forward:
                        for _ in range(2):
                            with connect(forward) as connection:
                                connection.sendall(data)
                                connection.shutdown(socket.SHUT_WR)
                                self.assertEqual(receive_all(connection), data)
                            wire.cut()
        self.assertEqual(self.errors, [])

    def test_closing_ends_everything(self) -> None:
        for close_client in (False, True):
            there = execwire.connect(server.url)
            forward = self.forward(through=there, local=unused_port())
            connections = [connect(forward) for _ in range(3)]
            for connection in connections:
                connection.sendall(b"x")
                self.assertEqual(connection.recv(1), b"x")
            # One that does not read.
            connections[0].setblocking(False)
            try:
                while True:
                    connections[0].send(bytes(1 << 20))
            except BlockingIOError:
                connections[0].settimeout(LONG)
            (there if close_client else forward).close()
            self.assertEqual(forward_threads(), [])
            for connection in connections:
                with self.assertRaises(ConnectionError):
                    while connection.recv(1 << 20):
                        pass
                connection.close()
            with self.assertRaises(ConnectionRefusedError):
                connect(forward)
            forward.close()
            there.close()
        self.assertEqual(self.errors, [])
        self.assertTrue(
            eventually(lambda: not self.server_connections()), self.server_connections()
        )

    def server_connections(self) -> List[str]:
        """Established connections with the echo server."""
        with open("/proc/net/tcp") as table:
            sockets = [line.split() for line in list(table)[1:]]
        ports = ((s[1].partition(":")[2], s[2].partition(":")[2], s[3]) for s in sockets)
        return [str(s) for s in ports if f"{echo_port:04X}" in s[:2] and s[2] == "01"]

    def test_example_ends_with_ctrl_c(self) -> None:
        port = unused_port()
        with open(self.path("page"), "wb") as file:
            file.write(b"content")
        argv = [sys.executable, str(SDK / "examples" / "forward.py"), server.url, str(port)]
        web = [sys.executable, "-m", "http.server", str(port), "-d", self.directory, "--bind", "127.0.0.1"]
        with subprocess.Popen(
            argv + web, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SDK)}
        ) as example:
            assert example.stdout is not None
            url = example.stdout.readline().decode().strip()
            with urllib.request.urlopen(url + "page") as page:
                self.assertEqual(page.read(), b"content")
            example.send_signal(signal.SIGINT)
            self.assertEqual(example.wait(LONG), 130)
        self.assertNotIn(port, [p.port for p in client.ports()])

    def test_interpreter_that_does_not_close_ends(self) -> None:
        script = (
            "import execwire, socket, sys\n"
            "client = execwire.connect(sys.argv[1])\n"
            "forward = client.forward(int(sys.argv[2]))\n"
            "s = socket.create_connection(forward.address)\n"
            "s.sendall(b'x'); print(s.recv(1))\n"
        )
        ran = self.run_python(script, server.url, str(echo_port))
        self.assertEqual((ran.returncode, ran.stdout), (0, "b'x'\n"), ran.stderr)


if __name__ == "__main__":
    unittest.main()
