"""The example: a build on an executor behind a hub, with repeated cuts."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import unittest

import execwire

from .support import HUB, LONG, PROGRAM, ROOT, SDK, Program, TestCase, Wire
from .test_connect import Executor, connect_when_there


class RemoteBuild(TestCase):
    def test_a_project_is_built_while_the_connection_is_cut(self) -> None:
        os.environ["EXECWIRE_BIN"] = str(PROGRAM)
        with Program(str(HUB), "--listen", "http://127.0.0.1:0") as hub, Wire(hub.url) as wire:
            with Executor(hub.url, "build-1"):
                connect_when_there(execwire.relay_url(hub.url, "build-1")).close()
                built, cuts = self._build(wire)
        self.assertGreater(cuts, 1)
        size = os.path.getsize(self.path("result"))
        self.assertEqual(built.stdout.decode(), f"built {self.path('result')}, {size} bytes\n")
        version = subprocess.run([self.path("result"), "version"], capture_output=True, timeout=LONG)
        self.assertEqual((version.returncode, version.stderr), (0, b""))
        with open(self.path("result"), "rb") as result:
            digest = hashlib.sha256(result.read()).hexdigest()
        digest_by_hand, listed_by_hand = self._by_hand()
        self.assertEqual(digest, digest_by_hand)
        with open(self.path("result.json"), "rb") as listed:
            self.assertEqual(listed.read(), listed_by_hand)
        self.assertGreater(len(listed_by_hand), 500_000)

    def _build(self, wire: Wire) -> "tuple[subprocess.CompletedProcess[bytes], int]":
        with wire.cutting(1):
            built = subprocess.run(
                [sys.executable, str(SDK / "examples" / "remote_build.py"),
                 execwire.relay_url(wire.url.replace("grpc://", "http://"), "build-1"),
                 self._project(), "./cmd/execwire", self.path("result")],
                env={**os.environ, "PYTHONPATH": str(SDK)}, capture_output=True, timeout=2 * LONG,
            )  # fmt: skip
        self.assertEqual(built.returncode, 0, built.stderr.decode())
        return built, wire.cuts

    def _project(self) -> str:
        """The part of this repository that the build needs."""
        project = self.path("project")
        os.mkdir(project)
        files = subprocess.run(
            ["git", "ls-files", "-z", "--", "*.go", "*.s", "*.gz", "internal/audit/schema.json", "go.mod", "go.sum", ":(exclude)*_test.go"],
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        for name in files.stdout.decode().split("\0"):
            if name and os.path.exists(ROOT / name):
                os.makedirs(os.path.dirname(os.path.join(project, name)), exist_ok=True)
                with open(ROOT / name, "rb") as source:
                    with open(os.path.join(project, name), "wb") as to:
                        to.write(source.read())
        return project

    def _by_hand(self) -> "tuple[str, bytes]":
        """The result of the same commands on this machine: the program's digest, and the
        list."""
        output = []
        for command in (
            ["build", "-trimpath", "-buildvcs=false", "-o", self.path("by-hand"), "./cmd/execwire"],
            ["list", "-deps", "-json=ImportPath,GoFiles,Imports,Deps", "./cmd/execwire"],
        ):
            completed = subprocess.run(
                ["go", *command], cwd=self.path("project"), env={**os.environ, "CGO_ENABLED": "0"},
                stdout=subprocess.PIPE, check=True, timeout=2 * LONG,
            )  # fmt: skip
            output.append(completed.stdout)
        with open(self.path("by-hand"), "rb") as result:
            return hashlib.sha256(result.read()).hexdigest(), output[1]


if __name__ == "__main__":
    unittest.main()
