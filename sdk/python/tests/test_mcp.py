"""An MCP server from npm, run on a server."""

from __future__ import annotations

import json
import os
import sys
import unittest

from .support import ROOT, SDK, TestCase, Wire, finish, serve

#: Installed by scripts/install-node-packages examples/mcp.
MCP_SERVER = ROOT / "examples" / "mcp" / "node_modules" / ".bin" / "mcp-server-filesystem"


class Mcp(TestCase):
    def test_list_and_call_tools(self) -> None:
        with open(self.path("note"), "w") as file:
            file.write("written on the executor\n" * 20000)
        with serve() as server, Wire(server.url) as wire:
            with wire.cutting(0.2):
                asked = finish(
                    [sys.executable, "-X", "faulthandler", str(SDK / "examples" / "mcp_client.py"), wire.url,
                     "read_text_file", json.dumps({"path": self.path("note")}),
                     "--", "node", str(MCP_SERVER), self.directory],
                    env={**os.environ, "PYTHONPATH": str(SDK)},
                )  # fmt: skip
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertGreater(wire.cuts, 0)
        lines = asked.stdout.splitlines()
        self.assertIn("list_directory", lines)
        self.assertEqual(lines.count("written on the executor"), 20000)


if __name__ == "__main__":
    unittest.main()
