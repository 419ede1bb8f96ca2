#!/usr/bin/python3
"""Runs a command by the gRPC contract alone, without an SDK.

    PYTHONPATH=gen/python run.py ADDRESS COMMAND [ARG...]

Standard input goes to the command, and its output and exit code come back. The command starts in
/ and gets this program's PATH. A lost connection is an error here; resume is left out.
"""

import os, queue, sys, threading
import grpc
from execwire.v1 import process_command_pb2 as command, process_event_pb2 as event
from execwire.v1 import process_run_pb2 as run, process_service_pb2_grpc as service

address, *argv = sys.argv[1:]
requests = queue.SimpleQueue()  # messages to send
moved, end_of_window = threading.Condition(), 0  # the offset up to which input may be sent


def send_stdin():
    offset, data = 0, b"-"
    while data:
        with moved:
            moved.wait_for(lambda: offset < end_of_window)
        data = sys.stdin.buffer.read1(min(end_of_window - offset, 64 << 10))
        requests.put(run.RunProcessRequest(stdin=run.RunStdin(offset=offset, data=data, end_of_file=not data)))
        offset += len(data)


process = command.StartProcessRequest(
    command=command.ProcessCommand(direct=command.DirectCommand(argv=argv, working_directory="/", env={"PATH": os.environ["PATH"]})),
    io=command.ProcessIo(pipes=command.PipeIo(stdin=command.STDIN_MODE_PIPE)))
requests.put(run.RunProcessRequest(start=run.RunStart(process=process)))
threading.Thread(target=send_stdin, daemon=True).start()
with grpc.insecure_channel(address) as channel:
    for answer in service.ProcessServiceStub(channel).RunProcess(iter(requests.get, None)):
        if answer.HasField("started") or answer.HasField("stdin_accepted"):
            with moved:
                window = answer.started.stdin_window_bytes or window
                end_of_window = answer.stdin_accepted.offset + window
                moved.notify()
        for e in answer.events.events:
            if e.HasField("output"):
                out = sys.stderr if e.output.stream == event.OUTPUT_STREAM_STDERR else sys.stdout
                out.buffer.write(e.output.data)
                out.buffer.flush()
            elif e.HasField("exited"):
                code = e.exited.exit.exit_code if e.exited.exit.HasField("exit_code") else 128 + e.exited.exit.signal
        if answer.events.events:  # now that all of it is written
            requests.put(run.RunProcessRequest(acknowledge=run.RunAcknowledge(seq=answer.events.events[-1].seq)))
requests.put(None)
sys.exit(code)
