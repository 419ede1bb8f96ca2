"""Measures concurrent runs of one client: python3 bench/concurrency.py [URL].

Each line has a number of runs of ``echo`` at once, how long they all took, and the processor
time of this interpreter: of the blocking client, with a thread for each run, and of aio.
Without a URL it starts a private server, whose processor time is not counted.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
import threading
import time
from typing import List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import execwire
from execwire import aio

COUNTS = (1, 10, 100, 1000)


def blocking(client: execwire.Client, count: int) -> None:
    good: List[bool] = []
    threads = [
        threading.Thread(
            target=lambda i=i: good.append(client.run(["echo", str(i)]).stdout == f"{i}\n")
        )
        for i in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(good) == count and all(good)


async def tasks(client: aio.Client, count: int) -> None:
    done = await asyncio.gather(*(client.run(["echo", str(i)]) for i in range(count)))
    assert [d.stdout for d in done] == [f"{i}\n" for i in range(count)]


def report(name: str, count: int, began: float, used: float) -> None:
    wall, cpu = time.monotonic() - began, time.process_time() - used
    print(f"{name:9} {count:5} runs {wall:7.2f} s {cpu:7.2f} s of CPU", flush=True)


async def measure_tasks(url: str) -> None:
    async with await aio.connect(url) as client:
        for count in COUNTS:
            began, used = time.monotonic(), time.process_time()
            await tasks(client, count)
            report("aio", count, began, used)


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "local:"
    with execwire.connect(url) as client:
        for count in COUNTS:
            began, used = time.monotonic(), time.process_time()
            blocking(client, count)
            report("blocking", count, began, used)
    asyncio.run(measure_tasks(url))


if __name__ == "__main__":
    main()
