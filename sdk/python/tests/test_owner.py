"""Owning a process, against a fake server."""

from __future__ import annotations

import concurrent.futures
import signal
import threading
import unittest
import unittest.mock
from typing import Any, Iterator, List

import grpc

from execwire._owner import Owner
from execwire._stdin import StdinBuffer
from execwire._transport import Transport
from execwire.v1 import process_event_pb2, process_run_pb2, process_service_pb2_grpc

from .support import LONG

Request = process_run_pb2.RunProcessRequest
Response = process_run_pb2.RunProcessResponse
Event = process_event_pb2.ProcessEvent

DATA = b"x" * 100
OUTPUT = [
    Event(seq=seq, output={"stream": "OUTPUT_STREAM_STDOUT", "offset": 100 * (seq - 1), "data": DATA})
    for seq in (1, 2)
]
END = [
    Event(seq=3, exited={"exit": {"exit_code": 0}}),
    Event(seq=4, closed={"totals": [{"stream": "OUTPUT_STREAM_STDOUT", "bytes": 200}]}),
]


def started() -> Response:
    return Response(
        started={"process": {"process_id": "p"}, "output_window_bytes": 200, "output_window_events": 64}
    )


class Full(process_service_pb2_grpc.ProcessServiceServicer):
    """Has a window of two events, cuts the first stream, and continues when both are
    acknowledged."""

    def __init__(self) -> None:
        self.cut, self.resuming, self.taken = (threading.Event() for _ in range(3))
        self.first: List[Request] = []
        self.acknowledged: List[int] = []

    def RunProcess(self, requests: Iterator[Request], context: Any) -> Iterator[Response]:
        self.first.append(next(requests))
        if len(self.first) == 1:
            yield started()
            yield Response(events={"events": OUTPUT})
            self.cut.wait(LONG)
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")
        self.resuming.set()
        self.taken.wait(LONG)
        yield started()
        yield Response(events={"events": OUTPUT})
        self.acknowledged.append(next(requests).acknowledge.seq)
        yield Response(events={"events": END})
        self.acknowledged.append(next(requests).acknowledge.seq)


class Input(unittest.TestCase):
    def test_drained_includes_end(self) -> None:
        stdin = StdinBuffer()
        stdin.resume(0, 100)
        stdin.add(b"one")
        stdin.end()
        stdin.next()
        stdin.accept(3, False)
        self.assertFalse(stdin.drained)
        stdin.accept(3, True)
        self.assertTrue(stdin.drained)


class Interrupt(BaseException):
    """What the handler of a signal raises."""


class Lock(unittest.TestCase):
    def test_an_interrupt_at_any_instruction_releases_it(self) -> None:
        def interrupt(number: int, frame: object) -> None:
            raise Interrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        owner = Owner(unittest.mock.Mock(), start=process_run_pb2.RunStart())
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                while True:
                    owner.ended
            except Interrupt:
                pass
            self.assertFalse(owner._lock._is_owned())  # type: ignore[attr-defined]


class Resume(unittest.TestCase):
    def test_consumed_while_resuming_is_acknowledged(self) -> None:
        model = Full()
        pool = concurrent.futures.ThreadPoolExecutor(4)
        server = grpc.server(pool)
        process_service_pb2_grpc.add_ProcessServiceServicer_to_server(model, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        target = f"127.0.0.1:{port}"
        transport = Transport(
            grpc.insecure_channel(target), lambda: grpc.aio.insecure_channel(target), "", []
        )
        self.addCleanup(transport.close)
        start = process_run_pb2.RunStart(process={"process_id": "p", "io": {"pipes": {}}})
        owner = Owner(transport, start=start)
        owner.begin()
        events = [owner.next(LONG), owner.next(LONG)]
        model.cut.set()
        self.assertTrue(model.resuming.wait(LONG))
        for event in events:
            assert event is not None
            owner.take(event)
        model.taken.set()
        for _ in END:
            event = owner.next(LONG)
            assert event is not None
            owner.take(event)
        self.assertIsNone(owner.next(LONG))
        self.assertEqual(model.first[1].resume.after_seq, 0)
        self.assertEqual(model.acknowledged, [2, 4])
