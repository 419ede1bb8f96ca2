"""Upgrades of a server: whatever a client does goes on, and nothing is lost or repeated."""

from __future__ import annotations

import hashlib
import os
import pathlib
import queue
import random
import subprocess
import threading
from typing import List

import execwire

from .support import LONG, PROGRAM, Program, TestCase, serve

#: In a row; ten in `make soak`.
UPGRADES = 10 if "EXECWIRE_SOAK" in os.environ else 3
#: What moves between two upgrades. The rest is on its way, or waits for a window.
PART = 1 << 20


def upgrade(server: Program) -> None:
    subprocess.run(
        [PROGRAM, "upgrade", "--server", server.url],
        check=True,
        timeout=LONG,
        stdout=subprocess.DEVNULL,
    )


class Gated:
    """Content that cannot be read again, of which a test lets a part be read at a time."""

    def __init__(self) -> None:
        self._parts: "queue.Queue[bytes]" = queue.Queue()
        self._rest = b""
        self.digest = hashlib.sha256()

    def let(self, data: bytes) -> None:
        """Adds a part; an empty one is the end."""
        self.digest.update(data)
        self._parts.put(data)

    def read(self, size: int) -> bytes:
        self._rest = self._rest or self._parts.get(timeout=LONG)
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


class Upgrades(TestCase):
    def test_transfers_go_on(self) -> None:
        randomness = random.Random(1)
        written = hashlib.sha256()
        failures: List[execwire.Error] = []
        content, received = Gated(), self.path("received")
        with serve() as server, execwire.connect(server.url) as client:
            uploaded: List[execwire.Uploaded] = []

            def upload() -> None:
                try:
                    uploaded.append(client.files.upload(self.path("uploaded"), content))
                except execwire.Error as error:
                    failures.append(error)

            uploading = threading.Thread(target=upload)
            with client.start(["tee", received]) as process:

                def write() -> None:
                    try:
                        for _ in range((UPGRADES + 1) * PART // 65536):
                            data = bytes(randomness.getrandbits(8) for _ in range(256)) * 256
                            written.update(data)
                            process.write(data)
                        process.close_stdin()
                    except execwire.Error as error:
                        failures.append(error)

                writing = threading.Thread(target=write)
                writing.start()
                uploading.start()
                output, offset = hashlib.sha256(), 0
                events = process.events()
                for count in range(UPGRADES + 1):
                    content.let(bytes([count]) * PART)
                    while offset < (count + 1) * PART:
                        event = next(events)
                        assert isinstance(event, execwire.Output)
                        self.assertEqual(event.offset, offset)
                        output.update(event.data)
                        offset += len(event.data)
                    if count < UPGRADES:
                        upgrade(server)
                content.let(b"")
                writing.join(LONG)
                uploading.join(LONG)
                self.assertEqual(failures, [])
                self.assertEqual([type(event) for event in events], [execwire.Exited, execwire.Closed])
                self.assertEqual(process.wait().code, 0)
                self.assertGreaterEqual(process.resumed, 1)
        self.assertEqual(offset, (UPGRADES + 1) * PART)
        self.assertEqual(output.digest(), written.digest())
        self.assertEqual(hashlib.sha256(pathlib.Path(received).read_bytes()).digest(), written.digest())
        self.assertEqual(uploaded[0].sha256, content.digest.digest())
        self.assertEqual(
            hashlib.sha256(pathlib.Path(self.path("uploaded")).read_bytes()).digest(),
            content.digest.digest(),
        )
