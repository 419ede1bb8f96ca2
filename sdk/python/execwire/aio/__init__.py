"""Execwire for asyncio: the API of ``execwire``, to be awaited.

    from execwire import aio

    async with await aio.connect("tcp://127.0.0.1:7420") as server:
        print((await server.run("uname -a", check=True)).stdout)

Processes need no thread; other calls use one each.
"""

from .._client import relay_url
from ._client import Client, Files, Forward, connect, launch
from ._process import Process

__all__ = ["Client", "Files", "Forward", "Process", "connect", "launch", "relay_url"]
