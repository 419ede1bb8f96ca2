#!/usr/bin/python3
"""Lists the tools of an MCP server on another machine, and calls one.

    mcp_client.py tcp://127.0.0.1:7420 TOOL JSON -- node mcp-server-filesystem /srv/project
"""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Any, Optional, Sequence, Type

import execwire


class McpSession:
    """A session with an MCP server over its stdin and stdout."""

    def __init__(self, server: execwire.Client, argv: Sequence[str]) -> None:
        self._process = server.start(argv, inherit_env="all")
        self._lines = self._process.lines(stderr=sys.stderr.buffer)
        self._last = 0

    def __enter__(self) -> "McpSession":
        about = {"name": "execwire-example", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
        self._send({"method": "notifications/initialized"})
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._process.close()

    def ask(self, method: str, **params: Any) -> Any:
        """Sends a request and returns its result."""
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        for line in self._lines:
            message = json.loads(line)
            if message.get("id") == self._last and "method" not in message:
                if "error" in message:
                    raise RuntimeError(message["error"]["message"])
                return message["result"]
        raise RuntimeError(f"the server ended: {self._process.wait()}")

    def _send(self, message: "dict[str, Any]") -> None:
        self._process.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def main() -> None:
    url, tool, arguments, _, *argv = sys.argv[1:]
    with execwire.connect(url) as server, McpSession(server, argv) as mcp:
        for offered in mcp.ask("tools/list")["tools"]:
            print(offered["name"])
        called = mcp.ask("tools/call", name=tool, arguments=json.loads(arguments))
        for part in called["content"]:
            print(part["text"])


if __name__ == "__main__":
    main()
