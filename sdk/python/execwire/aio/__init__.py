"""Execwire for asyncio: the same words as in ``execwire``, to be awaited.

    from execwire import aio

    async with await aio.connect("grpc://127.0.0.1:7420") as server:
        print((await server.run(["uname", "-a"], check=True)).text)

Processes need no thread while they are waited for; other calls have one each.
"""

from ._client import Client, Files, connect, launch
from ._process import Process

__all__ = ["Client", "Files", "Process", "connect", "launch"]
