"""Owns a process across lost connections; used by Process.

A task of the event loop follows the process over one stream after the other. Events are
queued until they are consumed and acknowledged only then, so that at most a window of
output is buffered here, and the process blocks as on a pipe.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Tuple

import grpc

from . import errors
from ._backoff import ASSUMED_GRACE, GRACE_MARGIN, START_RETRY_TIMEOUT, Backoff, RetryLimit
from ._events import Event, EventLog, Gap, GapCause, Output
from ._exit import Exit
from ._loop import event_loop, in_loop, refuse_in_loop
from ._stdin import BLOCK_BYTES, StdinBuffer
from ._transport import Transport
from .v1 import (
    error_pb2,
    process_command_pb2,
    process_pb2,
    process_run_pb2,
    process_service_pb2,
)

#: Output kept when only wait() consumes it, in bytes.
KEPT_BYTES = 1 << 20
#: Called when the connection is lost, with the error.
OnLost = Optional[Callable[[errors.Error], object]]
#: Called when the process was resumed after a lost connection.
OnResumed = Optional[Callable[[], object]]
# How long a few consumed events may stay unacknowledged, in seconds.
_ACKNOWLEDGE_IDLE = 0.05
# How many events are acknowledged together if the server does not announce its window.
_ACKNOWLEDGE_EVENTS = 1024
# How long a detached process may take to accept its input, in seconds.
_DETACH_TIMEOUT = 10.0
# Limits the cleanup for a process that is no longer followed, in seconds.
_END_TIMEOUT = 5.0
_SHORT = "the input ended before what the process has consumed of an earlier start"
# The reasons of a process that accepts no input.
_NO_INPUT = (error_pb2.ERROR_REASON_STDIN_CLOSED, error_pb2.ERROR_REASON_STDIN_NOT_PIPED)
# How late a signal may be handled, in seconds.
_SIGNAL_DELAY = 0.5
_EVENT_BYTES = 128  # memory of an event besides its output

_log = logging.getLogger("execwire")


class _Condition(threading.Condition):
    """A condition whose wait can be interrupted by signals in the main thread.

    The interpreter handles a signal on the main thread, between two instructions. One
    that arrives right before that thread blocks, or that the kernel delivers to another
    thread, is handled when it wakes, which without a timeout may be never.
    """

    def wait(self, timeout: Optional[float] = None) -> bool:
        """May return early, as any wait for a condition."""
        refuse_in_loop()
        if threading.current_thread() is threading.main_thread():
            timeout = _SIGNAL_DELAY if timeout is None else min(timeout, _SIGNAL_DELAY)
        return super().wait(timeout)


class _Stream:
    """One call of RunProcess."""

    def __init__(self) -> None:
        self.over = False
        self.started = False
        self.detached = False
        # The seq after which it was opened: later events are sent again.
        self.after = 0


class Owner:
    """See the module. All methods may be called by several threads."""

    def __init__(
        self,
        transport: Transport,
        *,
        start: Optional[process_run_pb2.RunStart] = None,
        resume: Optional[process_run_pb2.RunResume] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
    ) -> None:
        named = start.process if start else resume
        assert named is not None
        # The instance id of the server that has the process, once known.
        self._instance_id = ""
        self.session_id, self.process_id = named.session_id, named.process_id
        #: Whether the process existed before.
        self.existing = start is None
        self._transport = transport
        self._on_lost, self._on_resumed = on_lost, on_resumed
        self._start, self._resume = start, resume
        holder = start or resume
        assert holder is not None
        self._grace: Optional[float] = None
        if holder.HasField("grace"):
            self._grace = holder.grace.ToNanoseconds() / 1e9

        # Entered as itself: entering and leaving a Condition is Python code, in which a signal
        # handler that raises would leave it locked, and the event loop blocked for ever.
        self._lock = threading.RLock()
        self._cond = _Condition(self._lock)
        self._log = EventLog(self.process_id)
        self._queue: Deque[Event] = deque()
        self._queued = 0
        # Output that was discarded before the queue without a consumer.
        self._dropped_bytes = 0
        # The seq up to which events were consumed, and the amount since the last
        # acknowledgement.
        self._taken = 0
        self._taken_bytes = self._taken_events = 0
        self._byte_limit = self._event_limit = 0
        self._due = False
        self._soon: Optional[float] = None

        self.stdin = StdinBuffer()
        if start is not None:
            self.stdin.terminal = start.process.io.HasField("terminal")
            piped = start.process.io.pipes.stdin == process_command_pb2.STDIN_MODE_PIPE
            self.stdin.discarded = not piped and not self.stdin.terminal
        elif resume is not None:
            self._log.start_after(resume.after_seq)
            self._taken = resume.after_seq
        #: The process when it was last resumed.
        self.info: Optional[process_pb2.Process] = None
        self._iterating = 0
        # Called after every change, with the lock held.
        self._listeners: List[Callable[[], None]] = []

        self._loop = event_loop()
        self._call: Optional[grpc.aio.StreamStreamCall[Any, Any]] = None
        # Of the event loop: set after a change. None before the task has begun.
        self._wake: Optional[asyncio.Event] = None
        self._sent_at: Optional[float] = None
        # When the start was first sent on a connection; None as long as there was none.
        self._first_sent: Optional[float] = None
        self._lost_at: Optional[float] = None
        self._lost: Optional[errors.Error] = None
        self._backoff, self._retry_limit = Backoff(), RetryLimit()
        self._detaching: Optional[float] = None
        self._closing = False
        # Whether the task has ended, and the error if it failed.
        self._begun = self._over = False
        self._failure: Optional[errors.Error] = None

    # --- for callers

    def begin(self) -> process_pb2.Process:
        """Starts or takes over the process, and blocks until it is known whether it runs."""
        self.begin_soon()
        with self._lock:
            self._cond.wait_for(lambda: self.info is not None or self._over)
            info = self.try_begin()
            assert info is not None
            return info

    def write(self, data: "bytes | memoryview", timeout: Optional[float] = None) -> int:
        """Adds input. Returns how much was accepted before the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        at = 0
        with self._lock:
            while at < len(data):
                self._check_input()
                free = self.stdin.free_space
                if free == 0:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._cond.wait(left)
                    continue
                piece = bytes(data[at : at + min(free, BLOCK_BYTES)])
                self.stdin.add(piece)
                at += len(piece)
                self._changed()
            return at

    def _check_input(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing or self._detaching is not None:
            raise errors.ClosedError("the process was closed")
        if self.stdin.ended:
            raise errors.UsageError("stdin was closed before")
        if self.stdin.discarded or self._log.closed:
            self.stdin.refused = True
            raise errors.StdinClosedError(
                "FAILED_PRECONDITION", f"process {self.process_id} takes no more input"
            )

    def close_stdin(self) -> None:
        """Ends the input. It does not block."""
        with self._lock:
            self.stdin.end()
            self._changed()
            short = self.stdin.short
        if short:
            # The process is valid, and this input wrong: the process continues.
            self.release(errors.UsageError(_SHORT))
            raise errors.UsageError(_SHORT)

    def add_iterator(self) -> None:
        """Registers an iterator over events."""
        with self._lock:
            self._iterating += 1

    def remove_iterator(self) -> None:
        """Unregisters an iterator over events."""
        with self._lock:
            self._iterating -= 1
            self._changed()

    def next(self, timeout: Optional[float] = None) -> Optional[Event]:
        """Returns the next event, without consuming it; None at the end.

        Raises TimeoutError, or why events end before the process does.
        """
        with self._lock:
            if not self._cond.wait_for(lambda: self._queue or self._over, timeout):
                raise TimeoutError(f"process {self.process_id} wrote nothing for {timeout} s")
            if self._queue:
                if self._dropped_bytes:
                    return self._drop_gap()
                event = self._queue.popleft()
                self._queued -= _size(event)
                return event
            if self._failure is not None:
                raise self._failure
            return None

    def take(self, event: Event) -> None:
        """Consumes an event."""
        with self._lock:
            self._take(event)

    def wait(self, timeout: Optional[float] = None) -> Exit:
        """Blocks until the process has closed. Consumes events without an iterator."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while True:
                if not self._iterating:
                    self._discard_queued()
                exit = self._log.exit()
                if self._log.closed and exit is not None:
                    return exit
                if self._failure is not None:
                    raise self._failure
                if self._over:
                    raise errors.ClosedError("the process was closed")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"process {self.process_id} has not ended after {timeout} s")
                self._cond.wait(left)

    def detach(self) -> None:
        """Detaches: the process continues without an owner."""
        with self._lock:
            if self._detaching is None:
                self._detaching = time.monotonic() + _DETACH_TIMEOUT
            self._changed()
            self._cond.wait_for(lambda: self._over)
            if self._failure is not None:
                raise self._failure

    def release(self, failure: Optional[errors.Error] = None) -> None:
        """Ends the local state of the process, and waits for it, without a message to the
        server."""
        with self._lock:
            self._closing = True
            call = self._call
            if failure is not None and not self._over:
                self._failure = failure
            self._changed()
            if self._begun and not self._over:
                if call is not None:
                    self._loop.call_soon_threadsafe(call.cancel)
                self._cond.wait_for(lambda: self._over)

    def kill(self) -> None:
        """Kills the process, as far as possible within a few seconds.

        If the start is not yet answered, it waits for the answer: an unknown process
        cannot be killed.
        """
        with self._lock:
            if not self._cond.wait_for(lambda: self.info is not None or self._over, _END_TIMEOUT):
                return
            if self._log.closed or self.info is None and self._sent_at is None:
                return
        in_loop(
            self._terminate(
                process_command_pb2.Termination(force=process_command_pb2.ForcedTermination())
            )
        )

    @property
    def ended(self) -> bool:
        """Whether nothing more can be learned about the process."""
        with self._lock:
            return self._over or self._log.closed

    @property
    def over(self) -> bool:
        """Whether nothing is left to release."""
        with self._lock:
            return self._over

    @property
    def exit(self) -> Optional[Exit]:
        """How the process ended, if known."""
        with self._lock:
            return self._log.exit()

    @property
    def last_seq(self) -> int:
        """The seq up to which events were consumed."""
        with self._lock:
            return self._taken

    @property
    def resumed(self) -> int:
        """How often the process was resumed."""
        with self._lock:
            return self._log.resumed

    # --- non-blocking variants, to be called again after a change

    def listen(self, listener: Callable[[], None]) -> None:
        """Registers a function that is called after every change. It must not block."""
        with self._lock:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Unregisters a listener."""
        with self._lock:
            self._listeners.remove(listener)

    def begin_soon(self) -> None:
        """Starts or takes over the process; see try_begin."""
        with self._lock:
            self._begun = True
        asyncio.run_coroutine_threadsafe(self._follow(), self._loop)

    def try_begin(self) -> Optional[process_pb2.Process]:
        """Returns the process once it is known whether it runs."""
        with self._lock:
            if self.info is None and self._over:
                raise self._failure or errors.ClosedError("the process was closed")
            return self.info

    def try_next(self) -> Tuple[bool, Optional[Event]]:
        """Like next, if that would not block."""
        with self._lock:
            if not self._queue and not self._over:
                return False, None
            return True, self.next()

    def try_wait(self) -> Optional[Exit]:
        """Like wait, if that would not block."""
        with self._lock:
            try:
                return self.wait(0)
            except TimeoutError:
                return None

    # --- consuming, with the lock held

    def _changed(self) -> None:
        self._cond.notify_all()
        for listener in self._listeners:
            listener()
        if self._wake is not None and not self._wake.is_set():
            try:
                self._loop.call_soon_threadsafe(self._wake.set)
            except RuntimeError:
                pass  # the loop has ended, at the end of the interpreter

    def _take(self, event: Event) -> None:
        if isinstance(event, Gap):
            self._taken = max(self._taken, event.first_available_seq - 1)
            return
        if event.seq <= self._taken:
            return
        self._taken = event.seq
        self._taken_events += 1
        if isinstance(event, Output):
            self._taken_bytes += len(event.data)
        if self._taken_bytes > self._byte_limit or self._taken_events >= self._event_limit:
            self._due = True
            self._changed()
        elif self._soon is None:
            self._soon = time.monotonic() + _ACKNOWLEDGE_IDLE
            self._changed()

    def _discard_queued(self) -> None:
        """Consumes all queued events, and keeps the last output for later readers."""
        for event in self._queue:
            self._take(event)
        while self._queued > KEPT_BYTES:
            event = self._queue.popleft()
            self._queued -= _size(event)
            if isinstance(event, Output):
                self._dropped_bytes += len(event.data)
            elif isinstance(event, Gap):
                self._dropped_bytes += event.dropped_bytes

    def _drop_gap(self) -> Gap:
        first = self._queue[0]
        following = first.first_available_seq if isinstance(first, Gap) else first.seq
        gap = Gap(following, self._dropped_bytes, GapCause.LIMIT)
        self._dropped_bytes = 0
        return gap

    # --- the task

    async def _follow(self) -> None:
        self._wake = asyncio.Event()
        try:
            failure = await self._streams()
        except errors.Error as error:
            failure = error
        except BaseException as error:  # a bug of this package must not block callers
            failure = errors.Error(f"failed to follow process {self.process_id}: {error!r}")
            failure.__cause__ = error
        with self._lock:
            if failure is not None and self._failure is None:
                self._failure = failure
            if self._closing and self._failure is None and not self._log.closed:
                self._failure = errors.ClosedError("the process was closed")
            self._over, self._call = True, None
            self.stdin.discard()
            self._changed()

    async def _streams(self) -> Optional[errors.Error]:
        """Runs streams one after the other. Returns the final error."""
        while True:
            began = time.monotonic()
            failure = await self._attempt()
            if failure is None or self._closing:
                return None
            if self._first_sent is None and not errors.is_unsent(failure):
                self._first_sent = began
            final = self._final_error(failure)
            if final is not None:
                if isinstance(final, errors.ProtocolError) and not self.existing:
                    await self._terminate(process_command_pb2.Termination())
                return final
            with self._lock:
                self._lost = failure
                newly = self._lost_at is None
                if self._lost_at is None:
                    self._lost_at = time.monotonic()
                after = failure.retry_after if isinstance(failure, errors.ExecwireError) else 0
                until = time.monotonic() + self._backoff.next(after)
            if newly:
                self._call_back(self._on_lost, failure)
            self._transport.reconnect()
            while not self._closing and time.monotonic() < until:
                await self._woken(until - time.monotonic())

    async def _attempt(self) -> Optional[errors.Error]:
        """Follows the process over one stream. Returns None when it has closed."""
        if self._start_retry_expired():
            return self._lost_error(self._lost)
        stream = _Stream()
        with self._lock:
            if self._closing:
                return None
            if self._sent_at is None:
                self._sent_at = time.monotonic()
        call, sender = None, None
        try:
            call = self._transport.run_process()
            with self._lock:
                self._call = call
                if self._closing:
                    return None
            sender = asyncio.ensure_future(self._send(stream, call))
            while True:
                response = await call.read()
                if response is grpc.aio.EOF:
                    return self._ended(stream)
                self._receive(stream, response)
        except errors.Error as error:
            return error
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.CancelledError) as error:
            if self._log.closed or self._closing:
                return None
            return self._transport.failure(error)
        finally:
            # Cancelled before the requests end, because their end would be a half-close.
            if call is not None:
                call.cancel()
            stream.over = True
            if sender is not None:
                sender.cancel()
                await asyncio.wait((sender,))

    async def _woken(self, timeout: Optional[float] = None) -> None:
        """Waits for a change since the last call, for some seconds at most."""
        assert self._wake is not None
        timer = None if timeout is None else self._loop.call_later(timeout, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _call_back(self, callback: Optional[Callable[..., object]], *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception:
            _log.exception("on_lost or on_resumed failed")

    def _ended(self, stream: _Stream) -> Optional[errors.Error]:
        if self._log.closed or stream.detached:
            return None
        if not stream.started:
            return errors.ProtocolError("the stream ended before the start was reported")
        return errors.ProtocolError(
            f"the stream ended after seq {self._log.last} without the closed event"
        )

    def _receive(self, stream: _Stream, response: process_run_pb2.RunProcessResponse) -> None:
        kind = response.WhichOneof("message")
        with self._lock:
            if not stream.started:
                if kind != "started":
                    raise errors.ProtocolError("the first message does not report the start")
                self._set_connected(stream, response.started)
            elif kind == "events":
                self._receive_events(response.events)
            elif kind == "stdin_accepted":
                accepted = response.stdin_accepted
                self.stdin.accept(accepted.offset, accepted.end_of_file)
                self._check_short()
                self._changed()
            elif kind == "rejected":
                if response.rejected.reason in _NO_INPUT:
                    self.stdin.discard()
                    self._changed()
            elif kind == "started":
                raise errors.ProtocolError("it reported the start twice on one stream")

    def _receive_events(self, message: process_run_pb2.RunEvents) -> None:
        before = self._log.last
        new = self._log.take(message.events)
        for event in new:
            self._queue.append(event)
            self._queued += _size(event)
        if self._log.last > before:
            self._retry_limit.unexpected = 0
            self._backoff.reset()
        if self._log.closed:
            # The last event: the server need not retain the process.
            self._due = True
        if new:
            self._changed()

    def _set_connected(self, stream: _Stream, started: process_run_pb2.RunStarted) -> None:
        stream.started = True
        first = self.info is None
        self._instance_id = started.instance_id
        if first and self.existing:
            self.stdin.start_at(started.stdin_offset, started.process.has_terminal)
        elif first and started.resumed:
            self.stdin.set_repeated()
        self.stdin.resume(started.stdin_offset, started.stdin_window_bytes)
        self._check_short()
        self._byte_limit = started.output_window_bytes // 4
        self._event_limit = started.output_window_events // 4 or _ACKNOWLEDGE_EVENTS
        self._taken_bytes = self._taken_events = 0
        # Events consumed meanwhile are not consumed again.
        self._due, self._soon = self._taken > stream.after, None
        if self.existing:
            self._log.set_initial_state(started.process)
        self.info = started.process
        if self._lost_at is not None:
            self._lost_at, self._lost = None, None
            self._log.resumed += 1
            self._loop.call_soon(self._call_back, self._on_resumed)
        self._changed()

    def _check_short(self) -> None:
        if self.stdin.short:
            raise errors.UsageError(_SHORT)

    # --- requests

    async def _send(self, stream: _Stream, call: "grpc.aio.StreamStreamCall[Any, Any]") -> None:
        try:
            await call.write(self._opening(stream))
            while not stream.over:
                with self._lock:
                    request = self._next_request(stream) if stream.started else None
                    idle = self._idle(stream) if stream.started else None
                if request is not None:
                    await call.write(request)
                else:
                    await self._woken(idle)
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            pass  # the call has ended, which reading reports

    def _opening(self, stream: _Stream) -> process_run_pb2.RunProcessRequest:
        """The same start until it was answered, then a resume after the last consumed
        event."""
        with self._lock:
            stream.after = self._taken
            if self.info is None and self._start is not None:
                if self._first_sent is not None:  # maybe at another run of the server
                    ago = time.monotonic() - self._first_sent
                    self._start.process.first_sent_ago.FromNanoseconds(int(ago * 1e9))
                return process_run_pb2.RunProcessRequest(start=self._start)
            resume = process_run_pb2.RunResume(
                session_id=self.session_id,
                process_id=self.process_id,
                after_seq=stream.after,
                instance_id=self._instance_id,
            )
            holder = self._start or self._resume
            if holder is not None and holder.HasField("grace"):
                resume.grace.CopyFrom(holder.grace)
            return process_run_pb2.RunProcessRequest(resume=resume)

    def _next_request(self, stream: _Stream) -> Optional[process_run_pb2.RunProcessRequest]:
        now = time.monotonic()
        if self._due or self._soon is not None and now >= self._soon:
            return self._acknowledgement()
        stdin = self.stdin.next()
        if stdin is not None:
            return process_run_pb2.RunProcessRequest(stdin=stdin)
        if self._detaching is not None and not stream.detached:
            if self.stdin.drained or now >= self._detaching:
                stream.detached = True
                return process_run_pb2.RunProcessRequest(detach=process_run_pb2.RunDetach())
        return None

    def _acknowledgement(self) -> process_run_pb2.RunProcessRequest:
        self._due, self._soon = False, None
        self._taken_bytes = self._taken_events = 0
        seq = self._log.last if self._log.closed else self._taken
        return process_run_pb2.RunProcessRequest(
            acknowledge=process_run_pb2.RunAcknowledge(seq=seq)
        )

    def _idle(self, stream: _Stream) -> Optional[float]:
        """How long there is nothing to send without a change."""
        detaching = None if stream.detached else self._detaching
        times = [t for t in (self._soon, detaching) if t is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    # --- lost connections

    def _final_error(self, failure: errors.Error) -> Optional[errors.Error]:
        """Returns the final error if another stream is useless, or None."""
        if not isinstance(failure, errors.ExecwireError):
            return failure
        started = self.info is not None
        if failure.reason in ("PROCESS_NOT_FOUND", "SESSION_NOT_FOUND"):
            if started or self._lost_at is not None:
                return self._lost_error(failure)
        if not started and self._lost_at is None:
            if failure.reason in ("DRAINING", "SANDBOX_NOT_STARTED"):
                return failure
        if not self._retry_limit.transient(failure):
            return failure
        if self._grace_expired() or self._start_retry_expired():
            return self._lost_error(failure)
        return None

    def _grace_expired(self) -> bool:
        if self._grace is not None and self._grace <= 0:
            return True
        grace = ASSUMED_GRACE if self._grace is None else self._grace
        return self._lost_at is not None and time.monotonic() - self._lost_at > grace + GRACE_MARGIN

    def _start_retry_expired(self) -> bool:
        return (
            self.info is None
            and not self.existing
            and self._sent_at is not None
            and time.monotonic() - self._sent_at > START_RETRY_TIMEOUT
        )

    def _lost_error(self, cause: Optional[errors.Error]) -> errors.LostError:
        lost = 0.0 if self._lost_at is None else time.monotonic() - self._lost_at
        kind = errors.LostError
        started = self.info is not None or self.existing
        # Only a server that began after the start was first sent does not know its process.
        unknown = isinstance(cause, errors.ExecwireError) and cause.reason == "PROCESS_NOT_FOUND"
        if errors.is_restarted(self._instance_id, cause) or unknown and not started:
            kind = errors.RestartedError
        return kind(
            self.process_id,
            started,
            self._log.exit(),
            self._log.last,
            lost,
            cause,
        )

    async def _terminate(self, termination: process_command_pb2.Termination) -> None:
        """Ends the process by a separate call. If it fails, the grace period ends the
        process."""
        request = process_service_pb2.TerminateProcessRequest(
            session_id=self.session_id, process_id=self.process_id, termination=termination
        )
        until = time.monotonic() + _END_TIMEOUT
        backoff, patience = Backoff(), RetryLimit()
        while not self._transport.closed.is_set():
            try:
                await self._transport.terminate_process(
                    request, max(0.1, until - time.monotonic())
                )
                return
            except (grpc.RpcError, grpc.aio.UsageError, asyncio.CancelledError) as error:
                failure = self._transport.failure(error)
            if not isinstance(failure, errors.ExecwireError) or not patience.transient(failure):
                return
            pause = backoff.next(failure.retry_after)
            if time.monotonic() + pause > until:
                return
            self._transport.reconnect()
            await asyncio.sleep(pause)


def _size(event: Event) -> int:
    return _EVENT_BYTES + (len(event.data) if isinstance(event, Output) else 0)
