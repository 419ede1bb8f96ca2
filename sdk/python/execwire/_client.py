"""The client of a server."""

from __future__ import annotations

import os
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

import grpc

from . import _terminal, errors
from ._backoff import REPEAT_WITHIN
from ._command import TerminalSize, duration, start_request
from ._connect import open_transport
from ._events import Event, EventLog
from ._exit import Completed, Exit
from ._follow import follow
from ._owner import Owner
from ._process import Input, Process, Terminated, graceful, terminate
from ._tls import TLSFiles
from ._transport import Transport
from ._wait import Wait, wait
from .files import Files
from .sandbox import SandboxLike
from .v1 import (
    environment_pb2,
    process_command_pb2,
    process_pb2,
    process_run_pb2,
    process_service_pb2,
)

if TYPE_CHECKING:
    from ._process import Writer

Terminal = Union[bool, Tuple[int, int]]


class Client:
    """A server, whichever way it is reached.

    All methods may be called by several threads. Used by ``with``, it is closed at the
    end of the block, and processes that were started from here end with it.
    """

    def __init__(
        self,
        transport: Transport,
        sandbox: Optional[SandboxLike] = None,
        shared: "Optional[_Shared]" = None,
    ) -> None:
        self._transport, self._sandbox = transport, sandbox
        self._shared = shared or _Shared()
        #: Files of the server.
        self.files = Files(transport, sandbox)

    @property
    def url(self) -> str:
        """What the client was connected by."""
        return self._transport.url

    @property
    def channel(self) -> grpc.Channel:
        """The channel, for generated stubs of execwire.v1. The client closes it."""
        return self._transport.channel

    def __repr__(self) -> str:
        return f"<execwire.Client {self.url}>"

    def with_sandbox(self, sandbox: SandboxLike) -> "Client":
        """Returns a client of the same server that confines processes and calls about
        files, unless a call names a sandbox itself. Closing it closes this one too."""
        return Client(self._transport, sandbox, self._shared)

    def describe(self) -> environment_pb2.GetEnvironmentResponse:
        """Describes the server and its machine. It is asked once."""
        shared = self._shared
        with shared.describing:
            if shared.environment is None:
                request = environment_pb2.GetEnvironmentRequest()
                stub = self._transport.environment
                shared.environment = self._transport.repeat(lambda: stub.GetEnvironment(request))
            return shared.environment

    # --- processes

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = True,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        grace: Optional[float] = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        process_id: str = "",
        session_id: str = "",
    ) -> Process:
        """Starts a process and owns it. Returns when it runs.

        - ``cwd``: an absolute directory of the server, by default the server's own.
        - ``env``: laid over what ``inherit_env`` takes of the server's environment:
          ``none``, ``core`` (PATH, HOME, LANG and the like) or ``all``.
        - ``stdin``: whether it can be written to; else the process reads end of file.
        - ``terminal``: gives it one, of 24 rows and 80 columns or of ``(rows, columns)``.
        - ``timeout``, ``no_output_timeout``: seconds after which the server kills it.
        - ``grace``: for how long the server keeps it when the connection is lost, in
          seconds; None is the server's default (30 s), 0 ends it at once.
        - ``process_id``: an id of one's own, by which the same start finds the process
          that is there. Input is then that of the first start, from its beginning.

        A start that was not answered is repeated for 25 seconds.
        """
        return self.own(
            self.starting(
                argv,
                cwd=cwd,
                env=env,
                inherit_env=inherit_env,
                stdin=stdin,
                terminal=terminal,
                timeout=timeout,
                no_output_timeout=no_output_timeout,
                grace=grace,
                sandbox=sandbox,
                labels=labels,
                leave_descendants=leave_descendants,
                process_id=process_id,
                session_id=session_id,
            )
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        input: Optional[Input] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        check: bool = False,
        max_output_bytes: int = 256 << 20,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        grace: Optional[float] = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        process_id: str = "",
        session_id: str = "",
    ) -> Completed:
        """Runs a process to its end, and returns what it wrote and how it ended.

        How it ends is no error, unless ``check`` is given: then anything but code 0 is
        an ExitError. ``input`` is bytes, a binary file or an iterable of bytes. ``stdout``
        and ``stderr`` are binary files, or whatever has such a ``write``; what goes there
        is not returned. More than ``max_output_bytes`` to be returned ends the process
        and raises OutputLimitError. The other arguments are those of ``start``.

        Whatever is raised meanwhile, KeyboardInterrupt too, ends the process.
        """
        process = self.start(
            argv,
            cwd=cwd,
            env=env,
            inherit_env=inherit_env,
            stdin=input is not None,
            terminal=terminal,
            timeout=timeout,
            no_output_timeout=no_output_timeout,
            grace=grace,
            sandbox=sandbox,
            labels=labels,
            leave_descendants=leave_descendants,
            process_id=process_id,
            session_id=session_id,
        )
        with process:
            completed = process.communicate(
                input, stdout=stdout, stderr=stderr, max_output_bytes=max_output_bytes
            )
        return completed.check() if check else completed

    def interactive(
        self,
        argv: Sequence[str],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        sandbox: Optional[SandboxLike] = None,
    ) -> Exit:
        """Runs a program at this terminal, as ssh does: keys, colours and sizes are passed
        on, and the program has a terminal of its own. Ctrl-C is for the program.

        stdin and stdout have to be a terminal. Call it from the main thread, to have
        changes of its size noticed.
        """
        if not _terminal.is_terminal():
            raise errors.UsageError("stdin and stdout are no terminal: use run() or start()")
        _terminal.flush()
        known = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
        size = _terminal.size()
        process = self.start(
            argv,
            cwd=cwd,
            env={**known, **(env or {})},
            inherit_env=inherit_env,
            terminal=size,
            sandbox=sandbox,
        )
        with process:
            return _terminal.attend(process, size)

    def start_detached(
        self,
        argv: Sequence[str],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = False,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        process_id: str = "",
        session_id: str = "",
    ) -> process_pb2.Process:
        """Starts a process that nobody owns, which never waits for a reader.

        The server keeps the last of its output, for ``attach``, ``follow`` and ``read``.
        A start that was not answered is repeated for 25 seconds; raises LostError then.
        """
        request = self._start_request(
            argv,
            cwd=cwd,
            env=env,
            inherit_env=inherit_env,
            stdin=stdin,
            terminal=terminal,
            timeout=timeout,
            no_output_timeout=no_output_timeout,
            sandbox=sandbox,
            labels=labels,
            leave_descendants=leave_descendants,
            process_id=process_id,
            session_id=session_id,
        )
        sent_at = time.monotonic()
        try:
            # The server knows a repetition by the id, as long as it has the record.
            answer = self._transport.repeat(
                lambda: self._transport.processes.StartProcess(request), REPEAT_WITHIN
            )
        except errors.UnavailableError as error:
            if error.from_server:
                raise
            lost = time.monotonic() - sent_at
            raise errors.LostError(request.process_id, False, None, 0, lost, error) from error
        return answer.process

    def attach(
        self,
        process_id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        grace: Optional[float] = None,
    ) -> Process:
        """Takes up a process that is there and owns it from now on.

        Whoever owned it before is told that it was taken over. ``after_seq`` is the last
        event that is known already; 0 asks for all that is kept.
        """
        return self.own(self.attaching(process_id, session_id, after_seq, grace))

    def follow(
        self, process_id: str, *, session_id: str = "", after_seq: int = 0
    ) -> Iterator[Event]:
        """Iterates over what a process did and does, without owning it or holding it up.

        Where it falls behind what the server keeps, there is a Gap.
        """
        return follow(self._transport, session_id, process_id, after_seq)

    def read(
        self,
        process_id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        wait: float = 0.0,
        max_bytes: int = 1 << 20,
    ) -> List[Event]:
        """Returns events after a cursor, as far as they are kept and fit into ``max_bytes``.

        With none it waits for one, up to ``wait`` seconds or the server's longest wait.
        """
        request = process_service_pb2.ReadOutputRequest(
            session_id=session_id,
            process_id=process_id,
            after_seq=after_seq,
            max_bytes=max_bytes,
            wait=duration(wait),
        )
        answer = self._transport.repeat(lambda: self._transport.processes.ReadOutput(request))
        log = EventLog(process_id)
        log.join(after_seq)
        if answer.HasField("exit"):
            log.record = answer.exit
        return log.take(answer.events)

    def wait_for(self, process_id: str, condition: Wait, *, session_id: str = "") -> bytes:
        """Waits until a condition holds; see Wait. Raises TimeoutError when it does not
        in time, and ProcessEndedError when it cannot any more.

        Returns what matched, if the condition is a pattern.
        """
        return wait(self._transport, session_id, process_id, condition)

    def get(self, process_id: str, *, session_id: str = "") -> process_pb2.Process:
        """Describes a process."""
        request = process_service_pb2.GetProcessRequest(
            session_id=session_id, process_id=process_id
        )
        answer = self._transport.repeat(lambda: self._transport.processes.GetProcess(request))
        return answer.process

    def processes(self, *, session_id: str = "") -> Iterator[process_pb2.Process]:
        """Iterates over the processes of a session, closed ones included that are kept."""
        request = process_service_pb2.ListProcessesRequest(session_id=session_id)
        while True:
            answer = self._transport.repeat(
                lambda: self._transport.processes.ListProcesses(request)
            )
            yield from answer.processes
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def terminate(
        self, process_id: str, *, session_id: str = "", grace: float = 5.0
    ) -> Terminated:
        """Ends a process and all its descendants: SIGTERM, and SIGKILL after ``grace``
        seconds."""
        return terminate(self._transport, session_id, process_id, graceful(grace))

    def _start_request(
        self,
        argv: Sequence[str],
        *,
        cwd: Optional[str],
        env: Optional[Mapping[str, str]],
        inherit_env: str,
        stdin: bool,
        terminal: Terminal,
        timeout: Optional[float],
        no_output_timeout: Optional[float],
        sandbox: Optional[SandboxLike],
        labels: Optional[Mapping[str, str]],
        leave_descendants: bool,
        process_id: str,
        session_id: str,
    ) -> process_command_pb2.StartProcessRequest:
        size = None
        if terminal is not False:
            size = TerminalSize(24, 80) if terminal is True else TerminalSize(*terminal)
        return start_request(
            argv,
            cwd=self.describe().working_directory if cwd is None else cwd,
            env=env,
            inherit_env=inherit_env,
            stdin=stdin,
            terminal=size,
            timeout=timeout,
            no_output_timeout=no_output_timeout,
            sandbox=self._sandbox if sandbox is None else sandbox,
            labels=labels,
            leave_descendants=leave_descendants,
            process_id=process_id,
            session_id=session_id,
        )

    def starting(
        self,
        argv: Sequence[str],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = True,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        grace: Optional[float] = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        process_id: str = "",
        session_id: str = "",
    ) -> Owner:
        """Is for execwire.aio: what ``start`` begins."""
        request = self._start_request(
            argv,
            cwd=cwd,
            env=env,
            inherit_env=inherit_env,
            stdin=stdin,
            terminal=terminal,
            timeout=timeout,
            no_output_timeout=no_output_timeout,
            sandbox=sandbox,
            labels=labels,
            leave_descendants=leave_descendants,
            process_id=process_id,
            session_id=session_id,
        )
        start = process_run_pb2.RunStart(process=request)
        if grace is not None:
            start.grace.CopyFrom(duration(grace))
        return self._remember(Owner(self._transport, start=start))

    def attaching(
        self, process_id: str, session_id: str, after_seq: int, grace: Optional[float]
    ) -> Owner:
        """Is for execwire.aio: what ``attach`` begins."""
        resume = process_run_pb2.RunResume(
            session_id=session_id, process_id=process_id, after_seq=after_seq
        )
        if grace is not None:
            resume.grace.CopyFrom(duration(grace))
        return self._remember(Owner(self._transport, resume=resume))

    def _remember(self, owner: Owner) -> Owner:
        with self._shared.lock:
            if self._shared.closing:
                raise errors.ClosedError("the client was closed")
            self._shared.owners.add(owner)
        return owner

    def own(self, owner: Owner) -> Process:
        """Is for execwire.aio: blocks until it is known whether a process runs."""
        try:
            info = owner.begin()
        except BaseException as error:
            # An interrupt must not leave a process behind that nobody knows of.
            if not isinstance(error, errors.Error) and not owner.found:
                owner.kill()
            owner.let_go()
            raise
        return Process(self._transport, owner, info)

    # --- the end

    def close(self) -> None:
        """Ends all calls, which fail with ClosedError, and the connection.

        Processes that were started from here and not detached are ended, for which the
        server has a few seconds; where it cannot be reached, their grace ends them.
        Uploads are aborted. A server that ``launch`` started ends too. Closing twice is
        no error.
        """
        with self._shared.lock:
            self._shared.closing = True
            owners = list(self._shared.owners)
        threads = [threading.Thread(target=_end, args=(owner,), daemon=True) for owner in owners]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


class _Shared:
    """What a client and those that were made of it for a sandbox have in common."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Guarded by lock.
        self.owners: "weakref.WeakSet[Owner]" = weakref.WeakSet()
        self.closing = False
        # Held while the server is asked, for which nothing else waits.
        self.describing = threading.Lock()
        self.environment: Optional[environment_pb2.GetEnvironmentResponse] = None


def _end(owner: Owner) -> None:
    if not owner.found and not owner.ended:
        owner.kill()
    owner.let_go(errors.ClosedError("the client was closed"))


def connect(
    url: str,
    *,
    token: Optional[str] = None,
    token_file: Optional[str] = None,
    ca_file: Optional[str] = None,
    cert_file: Optional[str] = None,
    key_file: Optional[str] = None,
    timeout: float = 30.0,
    program: Optional[str] = None,
) -> Client:
    """Connects to a server, and blocks until it has answered.

    ``url`` is one of

    - ``grpc://HOST:PORT``, ``grpcs://HOST:PORT`` with TLS, ``unix:///PATH``;
    - ``relay+wss://HOST/executor/ID?role=harness``, an executor behind a hub, which
      ``relay_url`` writes: reached by ``execwire forward``, started from the program that
      ``program``, EXECWIRE_BIN or PATH names;
    - ``local:`` or nothing, a server of one's own: see ``launch``.

    A token, or the one in a file that nobody else may read and that is read again when
    it changes, is shown with every call, but to a relay in connecting. It is not sent in
    plain text to other hosts. ``ca_file`` has the authorities to trust in place of this
    machine's, ``cert_file`` and ``key_file`` what to show, all as PEM.

    A connection that is lost later is made again when it is needed. Raises ConnectError
    after ``timeout`` seconds, UsageError and CredentialError. Nothing that listens, a
    refusal and an answer that is not gRPC raise at once; a connection that is lost before
    the server has answered is made again.
    """
    tls = TLSFiles(ca_file, cert_file, key_file)
    transport = open_transport(
        url, token=token, token_file=token_file, tls=tls, timeout=timeout, program=program
    )
    return Client(transport)


def launch(*, program: Optional[str] = None) -> Client:
    """Starts a server for this program alone, and connects to it.

    It is the program that ``program``, EXECWIRE_BIN or PATH names, works in the current
    directory, and ends with the client, or with this interpreter however that ends.
    """
    return connect("local:", program=program)


def relay_url(hub: str, executor_id: str) -> str:
    """Returns what ``connect`` takes to reach an executor of the hub at ``hub``, which is
    https://HOST or, on loopback, http://HOST:PORT."""
    scheme, separator, rest = hub.strip().partition("://")
    if scheme not in ("http", "https") or not separator or "@" in rest or "?" in rest:
        raise errors.UsageError(
            f"write the address of a hub as https://HOST, or http://HOST:PORT on this host, not {hub!r}"
        )
    if not executor_id or not all(c.isascii() and (c.isalnum() or c in "-_.~") for c in executor_id):
        raise errors.UsageError(f"{executor_id!r} is no id of an executor: it has letters, digits, - and _")
    relay = {"http": "relay+ws", "https": "relay+wss"}[scheme]
    return f"{relay}://{rest.rstrip('/')}/executor/{executor_id}?role=harness"
