"""Recordings in the format of asciinema."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import unittest
from typing import Any, Callable, Iterable, List, Tuple, cast

import execwire
from execwire import Output, aio
from execwire._recording import Recording
from execwire.v1 import process_event_pb2, process_pb2, process_service_pb2

from .support import LONG, PROGRAM, Program, TestCase, Wire, serve

server: Program


def setUpModule() -> None:
    global server
    # So little that a gap needs little output.
    server = serve("--retained-output-bytes-per-process", "64KiB", "--output-file-bytes-per-process", "0")


def tearDownModule() -> None:
    server.stop()


#: Is at a terminal, writes a rune in two pieces, and has another size after the first.
DRAW = r"""stty -echo
printf '\033[1;31mred\033[m \342\202'; read x
printf '\254 \377\n'; stty size; exit 3"""


class Recorded(TestCase):
    def test_a_terminal(self) -> None:
        with execwire.connect(server.url) as client:
            with client.start(["sh", "-c", DRAW], id="drawn", terminal=(5, 30)) as process:
                events = process.events()
                read_until(events, b"\xe2\x82")
                process.resize(6, 40)
                process.write(b"\n")
                read_until(events, b"6 40\r\n")
                process.wait(LONG)
            for version in (2, 3):
                header, recorded = self.same_as_the_command(client, "drawn", version)
                size = header["term"] if version == 3 else {"cols": header["width"], "rows": header["height"]}
                self.assertEqual((header["version"], size), (version, {"cols": 30, "rows": 5}))
                self.assertEqual(header["command"], "sh")
                self.assertLess(abs(time.time() - header["timestamp"]), LONG)
                codes = [(code, data) for _, code, data in recorded]
                self.assertEqual(texts(recorded), "\033[1;31mred\033[m € \ufffd\r\n6 40\r\n")
                resized = codes.index(("r", "40x6"))
                self.assertEqual(texts(recorded[:resized]), "\033[1;31mred\033[m ")
                self.assertEqual(codes[-1], ("x", "3") if version == 3 else ("m", "exit status 3"))
                self.assertEqual(recorded[0][0], 0)
            titled = next(client.recording("drawn", title="a ü title"))
            self.assertEqual(json.loads(titled)["title"], "a ü title")

    def test_pipes(self) -> None:
        script = r"printf 'one\n\342'; read x; printf 'two\n' >&2; read x; printf '\202\254\n'"
        with execwire.connect(server.url) as client:
            with client.start(["sh", "-c", script], id="piped") as process:
                events = process.events()
                read_until(events, b"\xe2")
                process.write(b"\n")
                read_until(events, b"two\n")
                process.write(b"\n")
                process.wait(LONG)
            for version in (2, 3):
                header, recorded = self.same_as_the_command(client, "piped", version)
                self.assertEqual(texts(recorded), "one\r\ntwo\r\n€\r\n")
                times = [at for at, _, _ in recorded]
                self.assertEqual(times, sorted(times) if version == 2 else [abs(at) for at in times])

    def test_a_gap(self) -> None:
        with execwire.connect(server.url) as client:
            with client.start(["sh", "-c", "head -c 300000 /dev/zero; echo end"], id="gap") as process:
                process.wait(LONG)
            for version in (2, 3):
                _, recorded = self.same_as_the_command(client, "gap", version)
                missing = 300_004 - len(texts(recorded)) + 1  # without the carriage return
                self.assertEqual(recorded[0], (0, "m", f"{missing} bytes of output are missing"))

    def test_live(self) -> None:
        script = r"stty -echo; printf '\033[1mbold\033[m'; read x; echo second; read x; exit 4"
        with execwire.connect(server.url) as client:
            with client.start(["sh", "-c", script], id="live", terminal=(3, 20)) as process:
                client.wait_for("live", execwire.Wait(screen="bold", timeout=LONG))
                process.resize(4, 30)
                recording = client.recording("live", live=True, version=3)
                process.write(b"\n")
                lines = [next(recording), next(recording), next(recording)]
                with client.recording("live", live=True) as late:
                    header, shown = next(late), next(late)
                    self.assertEqual(json.loads(header)["width"], 30)
                    self.assertIn("bold", json.loads(shown)[2])
                process.resize(5, 30)
                process.write(b"\n")
                lines += recording
            header, events = parse(lines)
            self.assertEqual(header["term"], {"cols": 30, "rows": 4})
            self.assertEqual((events[0][:2], "\033[0;1mbold" in events[0][2]), ((0, "o"), True))
            self.assertEqual([e[1:] for e in events[1:]], [("o", "second\r\n"), ("r", "30x5"), ("x", "4")])
            # Now it shows the end, and has ended.
            _, events = parse(client.recording("live", live=True))
            self.assertIn("second", events[0][2])
            self.assertEqual([e[1:] for e in events[1:]], [("m", "exit status 4")])

    def test_live_without_a_terminal(self) -> None:
        with execwire.connect(server.url) as client:
            with client.start("echo first; read x; echo second", id="live pipe") as process:
                read_until(process.events(), b"first\n")
                recording = client.recording("live pipe", live=True)
                process.write(b"\n")
                self.assertEqual(texts(parse(recording)[1]), "second\r\n")

    def test_it_goes_on_over_lost_connections(self) -> None:
        with execwire.connect(server.url) as client, Wire(server.url) as wire:
            with client.start("for i in 1 2 3; do read x; echo $i; done", id="cut") as process:
                with execwire.connect(wire.url) as cut:
                    recording = cut.recording("cut")
                    wire.cut()
                    lines = [next(recording)]
                    for _ in range(3):
                        process.write(b"\n")
                        lines.append(next(recording))
                        wire.cut()
                    lines += recording
            self.assertGreater(wire.cuts, 2)
            _, events = parse(lines)
            self.assertEqual([e[1:] for e in events[:-1]], [("o", f"{i}\r\n") for i in (1, 2, 3)])
            self.assertEqual(events[-1][1:], ("m", "exit status 0"))

    def test_in_a_task(self) -> None:
        async def record() -> "List[str]":
            async with await aio.connect(server.url) as client:
                await client.run(["sh", "-c", "echo out; exit 3"], id="in a task")
                return [line async for line in client.recording("in a task", version=3, title="t")]

        lines = asyncio.run(record())
        with execwire.connect(server.url) as client:
            self.assertEqual(lines, list(client.recording("in a task", version=3, title="t")))

    def test_it_can_be_closed(self) -> None:
        with execwire.connect(server.url) as client:
            with client.start("cat", id="closed early"):
                with client.recording("closed early") as recording:
                    self.assertEqual(parse([next(recording)])[1], [])
                self.assertEqual(list(recording), [])
            with self.assertRaises(execwire.NotFoundError):
                client.recording("none")
            with self.assertRaisesRegex(execwire.UsageError, "2 or 3, not 1"):
                client.recording("closed early", version=1)

    def same_as_the_command(
        self, client: execwire.Client, id: str, version: int
    ) -> "Tuple[Any, List[Tuple[float, str, str]]]":
        """Returns the recording of a process, which ``execwire logs --cast`` makes, too."""
        path = self.path("cast")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(client.recording(id, version=version))
        printed = subprocess.run(
            [str(PROGRAM), "--server", server.url, "logs", f"--cast=v{version}", id],
            stdout=subprocess.PIPE, check=True, timeout=LONG,
        )  # fmt: skip
        with open(path) as file:
            recorded = parse(file)
        self.assertEqual(recorded, parse(printed.stdout.decode().splitlines(keepends=True)))
        return recorded


class Described:
    """A transport to a server that has one process."""

    def __init__(self, *events: process_event_pb2.ProcessEvent) -> None:
        self.processes, self._events = self, list(events)

    def repeat(self, call: Callable[[], Any]) -> Any:
        return call()

    def GetProcess(self, _: object) -> process_service_pb2.GetProcessResponse:
        process = process_pb2.Process(process_id="p", last_seq=9)
        return process_service_pb2.GetProcessResponse(process=process)

    def WatchProcess(self, _: object) -> "Described":
        return self

    def __next__(self) -> process_service_pb2.WatchProcessResponse:
        if not self._events:
            raise StopIteration
        return process_service_pb2.WatchProcessResponse(events=[self._events.pop(0)])

    def cancel(self) -> None:
        pass


def event(seq: int, **kind: Any) -> process_event_pb2.ProcessEvent:
    return process_event_pb2.ProcessEvent(seq=seq, **kind)


def output(seq: int, offset: int, data: bytes, at: int) -> process_event_pb2.ProcessEvent:
    said = process_event_pb2.ProcessOutput(stream=1, offset=offset, data=data)
    said.read_time.FromSeconds(at)
    return event(seq, output=said)


def exited(exit: process_event_pb2.ExitRecord) -> process_event_pb2.ProcessExited:
    return process_event_pb2.ProcessExited(exit=exit)


def closed() -> process_event_pb2.ProcessClosed:
    return process_event_pb2.ProcessClosed()


def record(transport: Described) -> Recording:
    return Recording(cast(Any, transport), "", "p", 2, False, "")


class Edges(unittest.TestCase):
    def test_a_bound_and_an_unknown_status(self) -> None:
        gap = process_event_pb2.OutputGap(first_available_seq=4, dropped_bytes=7, upper_bound=True)
        exit = process_event_pb2.ExitRecord(cause="EXIT_CAUSE_SERVER_RESTARTED")
        exit.exit_time.FromSeconds(1007)
        lines = record(
            Described(
                output(1, 0, b"a", 1000),
                output(2, 1, b"b", 999),  # times never decrease
                event(0, gap=gap),
                output(4, 9, b"c", 1002),
                output(5, 10, b"\xe2", 1003),
                event(6, exited=exited(exit)),
                event(7, closed=closed()),
            )
        )
        header, events = parse(lines)
        self.assertEqual(header, {"version": 2, "width": 80, "height": 24, "timestamp": 1000})
        self.assertEqual(
            events,
            [
                (0, "o", "a"),
                (0, "o", "b"),
                (2, "m", "up to 7 bytes of output are missing"),
                (2, "o", "c"),
                (7, "o", "\ufffd"),
                (7, "m", "the exit status is not known"),
            ],
        )

    def test_an_error_comes_after_what_there_was(self) -> None:
        lines: List[str] = []
        with self.assertRaises(execwire.ProtocolError):
            for line in record(Described(output(1, 0, b"a\xe2", 1000), output(1, 0, b"again", 1000))):
                lines.append(line)
        self.assertEqual(parse(lines)[1], [(0, "o", "a"), (0, "o", "\ufffd")])

    def test_long_output_is_more_than_one_event(self) -> None:
        lines = list(
            record(
                Described(
                    output(1, 0, b"\n" * 32_000, 1000),
                    event(2, exited=exited(process_event_pb2.ExitRecord(exit_code=0))),
                    event(3, closed=closed()),
                )
            )
        )
        self.assertEqual(texts(parse(lines)[1]), "\r\n" * 32_000)
        self.assertLess(max(map(len, lines)), 200 << 10)


def read_until(events: "Iterable[execwire.Event]", end: bytes) -> None:
    """Reads output to one that ends so."""
    for event in events:
        if isinstance(event, Output) and event.data.endswith(end):
            return
    raise AssertionError(f"there was no {end!r}")


def parse(lines: "Iterable[str]") -> "Tuple[Any, List[Tuple[float, str, str]]]":
    """Returns the header and the events of a recording."""
    header, *events = [json.loads(line) for line in lines if line.endswith("\n")]
    return header, [tuple(event) for event in events]


def texts(events: "Iterable[Tuple[float, str, str]]") -> str:
    return "".join(data for _, code, data in events if code == "o")


if __name__ == "__main__":
    unittest.main()
