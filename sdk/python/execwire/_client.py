"""The client of a server."""

from __future__ import annotations

import os
import threading
import time
import weakref
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Tuple,
    cast,
    overload,
)

import grpc

from . import _terminal, errors
from ._backoff import START_RETRY_TIMEOUT
from ._collect import MAX_OUTPUT_BYTES
from ._command import Command, CommandLine, ResourceLimit, Terminal, TerminalSize, duration, start_request
from ._connect import open_transport
from ._events import Event, EventLog
from ._exit import Exit
from ._follow import Follow
from ._forward import Forward, Local
from ._loop import refuse_in_loop
from ._owner import OnLost, OnResumed, Owner
from ._ports import Ports, PortWatch, list_ports
from ._process import Input, Process, Terminated, graceful, terminate
from ._recording import Recording
from ._screen import ScreenWatch
from ._tls import TLSFiles
from ._transport import Transport
from ._wait import Wait, Waiting, check_port
from .errors import Completed
from .files import Files
from .sandbox import SandboxLike
from .v1 import (
    environment_pb2,
    port_pb2,
    process_command_pb2,
    process_pb2,
    process_run_pb2,
    process_service_pb2,
)

if TYPE_CHECKING:
    from ._io import Writer


class Client:
    """A server, over any transport.

    All methods may be called by several threads. With ``with``, it is closed at the end
    of the block, and processes that it started end with it.
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
        """The URL of the server."""
        return self._transport.url

    @property
    def channel(self) -> grpc.Channel:
        """The channel, for generated stubs of execwire.v1. The client closes it."""
        return self._transport.channel

    def __repr__(self) -> str:
        return f"<execwire.Client {self.url}>"

    def with_sandbox(self, sandbox: SandboxLike) -> "Client":
        """Returns a client of the same server that confines processes and file calls
        without a sandbox of their own. Closing it closes this one too."""
        return Client(self._transport, sandbox, self._shared)

    def describe(self) -> environment_pb2.GetEnvironmentResponse:
        """Describes the server and its machine. The answer is cached."""
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
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = True,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Process:
        """Starts a process and owns it. Returns when it runs.

        - ``command``: a list is a program and its arguments; a string is a line for the
          shell, ``sh -c``.
        - ``cwd``: a directory of the server, by default the home of its user, or of
          ``user``, where a relative one begins.
        - ``user``: whom to run as, by name or number on the server's machine, with
          ``:GROUP`` for another group than the user's own; by default the server's user.
          It needs a server that runs as root.
        - ``env``: added to the variables of the server selected by ``inherit_env``:
          ``none``, ``core`` (PATH, HOME, LANG and the like) or ``all``.
        - ``stdin``: whether it can be written to; else the process reads end of file.
        - ``terminal``: gives it one, of 24 rows and 80 columns or of ``(rows,
          columns)``.
        - ``timeout``, ``no_output_timeout``: seconds after which the server kills it.
        - ``nice``: added to the nice value of the server, 1 to 39.
        - ``resource_limits``: limits of setrlimit(2) by name: ``cpu_seconds``,
          ``file_bytes``, ``data_bytes``, ``stack_bytes``, ``core_bytes``,
          ``user_processes``, ``open_files``, ``locked_bytes``, ``address_space_bytes``.
        - ``grace``: how long the server keeps it after a lost connection, in seconds;
          None is the default of the server (30 s), 0 ends it at once.
        - ``on_lost``, ``on_resumed``: called when its connection is lost, with the error,
          and when it was resumed. The thread that calls them serves all processes: they
          must not block, nor call the client or its processes; such calls raise
          UsageError instead of waiting for ever.
        - ``id``: an id chosen by the caller, with which the same start finds the
          existing process. Input must then be that of the first start, from its
          beginning.

        An unanswered start is repeated for 25 seconds.
        """
        return self._own(self.starting(Command.of(locals()), grace, on_lost, on_resumed))

    @overload
    def run(
        self,
        command: CommandLine,
        *,
        text: Literal[True] = True,
        input: Optional[Input] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Completed[str]: ...

    @overload
    def run(
        self,
        command: CommandLine,
        *,
        text: Literal[False],
        input: Optional[Input] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[bytes], object]] = None,
        on_stderr: Optional[Callable[[bytes], object]] = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Completed[bytes]: ...

    def run(
        self,
        command: CommandLine,
        *,
        text: bool = True,
        input: Optional[Input] = None,
        stdout: "Optional[Writer]" = None,
        stderr: "Optional[Writer]" = None,
        on_stdout: Optional[Callable[[Any], object]] = None,
        on_stderr: Optional[Callable[[Any], object]] = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        id: str = "",
        session_id: str = "",
    ) -> Completed[Any]:
        """Runs a command to its end, and returns its output and how it ended.

        - ``command``: a list is a program and its arguments; a string is a line for the
          shell, ``sh -c``.
        - ``text``: output is str, decoded as UTF-8 with U+FFFD for what is invalid; False
          returns bytes.
        - ``input``: str, bytes, a binary file or an iterable of bytes.
        - ``on_stdout``, ``on_stderr``: called with each piece of output as it arrives, in
          this thread. It is also returned.
        - ``stdout``, ``stderr``: binary files, or objects with such a ``write``, for output
          of any size, which is not returned.
        - ``max_output_bytes``: more returned output than that kills the process and raises
          OutputLimitError.
        - ``timeout``, ``no_output_timeout``: seconds after which the server kills the
          process, which raises ProcessTimeoutError with the output until then.
        - ``check``: raises ExitError unless it exits with code 0.

        The other arguments are those of ``start``. Any exception, including
        KeyboardInterrupt and those of callbacks, kills the process.
        """
        started = Command.of({**locals(), "stdin": input is not None})
        with self._own(self.starting(started, grace, on_lost, on_resumed)) as process:
            completed = process.communicate(
                input,
                text=cast("Literal[True]", text),
                stdout=stdout,
                stderr=stderr,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                max_output_bytes=max_output_bytes,
            )
        return completed.finish(check)

    def interactive(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        sandbox: Optional[SandboxLike] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
    ) -> Exit:
        """Runs a program at this terminal, as ssh does: input, output and size changes are
        forwarded, and the program has a terminal of its own. Ctrl-C is sent to the
        program.

        stdin and stdout must be a terminal.
        """
        process, size = self.starting_here(command, cwd, env, inherit_env, sandbox, on_lost, on_resumed)
        with process:
            return _terminal.connect_terminal(process, size)

    def starting_here(
        self,
        command: CommandLine,
        cwd: Optional[str],
        env: Optional[Mapping[str, str]],
        inherit_env: str,
        sandbox: Optional[SandboxLike],
        on_lost: OnLost,
        on_resumed: OnResumed,
    ) -> Tuple[Process, TerminalSize]:
        """For execwire.aio: starts a process with a terminal of the size of this one."""
        if not _terminal.is_terminal():
            raise errors.UsageError("stdin and stdout are not a terminal: use run() or start()")
        _terminal.flush()
        known = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
        size = _terminal.size()
        process = self.start(
            command,
            cwd=cwd,
            env={**known, **(env or {})},
            inherit_env=inherit_env,
            terminal=size,
            sandbox=sandbox,
            on_lost=on_lost,
            on_resumed=on_resumed,
        )
        return process, size

    def start_detached(
        self,
        command: CommandLine,
        *,
        cwd: Optional[str] = None,
        user: str = "",
        env: Optional[Mapping[str, str]] = None,
        inherit_env: str = "core",
        stdin: bool = False,
        terminal: Terminal = False,
        timeout: Optional[float] = None,
        no_output_timeout: Optional[float] = None,
        nice: int = 0,
        resource_limits: Optional[Mapping[str, ResourceLimit]] = None,
        sandbox: Optional[SandboxLike] = None,
        labels: Optional[Mapping[str, str]] = None,
        leave_descendants: bool = False,
        keep: Optional[float] = None,
        id: str = "",
        session_id: str = "",
    ) -> process_pb2.Process:
        """Starts a process without an owner, which never blocks on a reader.

        The server retains its latest output for ``attach``, ``follow`` and ``read``. An
        unanswered start is repeated for 25 seconds; then it raises LostError.

        - ``keep``: how long the server keeps the result and output of the process from its
          end, in seconds, whether they were requested or not; it has a maximum. By default
          an hour, and 30 s once the result was requested. It is for the default session only.

        The other arguments are those of ``start``.
        """
        request = self._start_request(Command.of(locals()))
        if keep is not None:
            request.keep.CopyFrom(duration(keep))
        began = time.monotonic()
        first_sent: Optional[float] = None

        def start() -> process_service_pb2.StartProcessResponse:
            nonlocal first_sent
            now = time.monotonic()
            if first_sent is not None:  # maybe at another run of the server
                request.first_sent_ago.FromNanoseconds(int((now - first_sent) * 1e9))
            try:
                return self._transport.processes.StartProcess(request)
            except grpc.RpcError as error:
                if first_sent is None and not errors.is_unsent(errors.from_rpc(error)):
                    first_sent = now
                raise

        try:
            # The server recognizes a repetition by the id, as long as it has the record.
            answer = self._transport.repeat(start, START_RETRY_TIMEOUT)
        except (errors.UnavailableError, errors.NotFoundError) as error:
            restarted = error.reason == "PROCESS_NOT_FOUND"
            if error.from_server and not restarted:
                raise
            kind = errors.RestartedError if restarted else errors.LostError
            lost = time.monotonic() - began
            raise kind(request.process_id, False, None, 0, lost, error) from error
        return answer.process

    def attach(
        self,
        id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        grace: Optional[float] = None,
        on_lost: OnLost = None,
        on_resumed: OnResumed = None,
    ) -> Process:
        """Takes over an existing process from its owner, if any.

        ``after_seq`` is the last event already received; 0 requests everything retained.
        """
        return self._own(self.attaching(id, session_id, after_seq, grace, on_lost, on_resumed))

    def follow(
        self, id: str, *, session_id: str = "", after_seq: int = 0
    ) -> Follow:
        """Iterates over the events of a process, without owning or blocking it.

        Evicted output is a Gap.
        """
        return Follow(self._transport, session_id, id, after_seq)

    def recording(
        self,
        id: str,
        *,
        session_id: str = "",
        version: int = 2,
        live: bool = False,
        title: str = "",
    ) -> Recording:
        """Iterates over the lines of a recording of a process in the format of asciinema, each
        with its newline, until the process has closed: ``file.writelines(client.recording(id))``.

        It neither owns nor blocks the process. Where output is missing, a marker says how much.

        - ``version``: of the format, 2, which every player reads, or 3.
        - ``live``: begins now, with what the terminal shows if there is one. Otherwise it
          begins with the retained output, and its times with the first of that.
        - ``title``: of the recording.
        """
        return Recording(self._transport, session_id, id, version, live, title)

    def read(
        self,
        id: str,
        *,
        session_id: str = "",
        after_seq: int = 0,
        wait: float = 0.0,
        max_bytes: int = 1 << 20,
    ) -> List[Event]:
        """Returns retained events after a cursor that fit into ``max_bytes``.

        If there is none, it waits for one, up to ``wait`` seconds or the longest wait of
        the server.
        """
        request = process_service_pb2.ReadOutputRequest(
            session_id=session_id,
            process_id=id,
            after_seq=after_seq,
            max_bytes=max_bytes,
            wait=duration(wait),
        )
        answer = self._transport.repeat(lambda: self._transport.processes.ReadOutput(request))
        log = EventLog(id)
        log.start_after(after_seq)
        if answer.HasField("exit"):
            log.record = answer.exit
        return log.take(answer.events)

    def screen(
        self, id: str, *, session_id: str = "", styles: bool = False
    ) -> process_service_pb2.Screen:
        """Returns what the terminal of a process shows, also after its exit.

        With ``styles`` its lines have their styles.
        """
        request = process_service_pb2.GetScreenRequest(
            session_id=session_id, process_id=id, styles=styles
        )
        answer = self._transport.repeat(lambda: self._transport.processes.GetScreen(request))
        return answer.screen

    def watch_screen(
        self, id: str, *, session_id: str = "", styles: bool = False
    ) -> ScreenWatch:
        """Iterates over what the terminal of a process shows; see ScreenWatch.

        With ``styles`` lines have their styles.
        """
        return ScreenWatch(self._transport, session_id, id, styles)

    def wait_for(self, id: str, condition: Wait, *, session_id: str = "") -> bytes:
        """Waits until a condition holds; see Wait. Raises TimeoutError if it does not in
        time, and ProcessEndedError if it no longer can.

        Returns the match, if the condition is a pattern.
        """
        return self.waiting(id, condition, session_id).run()

    def waiting(self, id: str, condition: Wait, session_id: str) -> Waiting:
        """For execwire.aio: prepares ``wait_for``."""
        return Waiting(self._transport, session_id, id, condition)

    def get(self, id: str, *, session_id: str = "") -> process_pb2.Process:
        """Describes a process."""
        request = process_service_pb2.GetProcessRequest(
            session_id=session_id, process_id=id
        )
        answer = self._transport.repeat(lambda: self._transport.processes.GetProcess(request))
        return answer.process

    def processes(
        self, *, session_id: str = "", last_output_bytes: int = 0
    ) -> Iterator[process_pb2.Process]:
        """Iterates over the processes of a session, including retained closed ones.

        ``last_output_bytes`` is how much of the end of each stream they have in
        ``last_output``, at most 4096.
        """
        request = process_service_pb2.ListProcessesRequest(
            session_id=session_id, last_output_bytes=last_output_bytes
        )
        while True:
            answer = self._transport.repeat(
                lambda: self._transport.processes.ListProcesses(request)
            )
            yield from answer.processes
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def terminate(
        self, id: str, *, session_id: str = "", grace: float = 5.0
    ) -> Terminated:
        """Ends a process and all its descendants: SIGTERM, and SIGKILL after ``grace``
        seconds."""
        return terminate(self._transport, session_id, id, graceful(grace))

    # --- ports

    def ports(self, *, session_id: str = "", process_id: str = "") -> Ports:
        """Returns the TCP ports on which the processes of a session listen now, or one of
        them and its descendants."""
        return list_ports(self._transport, session_id, process_id)

    def watch_ports(self, *, session_id: str = "", process_id: str = "") -> PortWatch:
        """Iterates over changes of such ports; see PortWatch."""
        return PortWatch(self._transport, session_id, process_id)

    def forward(
        self,
        port: int,
        *,
        host: str = "",
        local: Local = 0,
        session_id: str = "",
        max_connections: int = 256,
        on_error: Optional[Callable[[errors.Error], object]] = None,
    ) -> Forward:
        """Forwards connections to a port of this machine to a port of the server; see
        Forward.

        - ``port``, ``host``: by default, the server connects to its own loopback, and
          only to ports on which processes of the session listen.
        - ``local``: the port of 127.0.0.1 to listen on, 0 for any free one, or an address
          and a port. Anyone who can connect to it reaches the port.
        - ``max_connections``: how many are forwarded at once; further ones are reset. The
          calls of a client have a limit together (1,000 by default).
        - ``on_error``: called with the error of each connection that fails.
        """
        target = port_pb2.PortConnect(
            session_id=session_id, host=host, port=check_port(port)
        )
        return Forward(self._transport, target, local, max_connections, on_error)

    def _start_request(self, command: Command) -> process_command_pb2.StartProcessRequest:
        if command.sandbox is None:
            command = replace(command, sandbox=self._sandbox)
        return start_request(command)

    def starting(
        self, command: Command, grace: Optional[float], on_lost: OnLost, on_resumed: OnResumed
    ) -> Owner:
        """For execwire.aio: prepares ``start``."""
        start = process_run_pb2.RunStart(process=self._start_request(command))
        if grace is not None:
            start.grace.CopyFrom(duration(grace))
        return self._remember(
            Owner(self._transport, start=start, on_lost=on_lost, on_resumed=on_resumed)
        )

    def attaching(
        self,
        id: str,
        session_id: str,
        after_seq: int,
        grace: Optional[float],
        on_lost: OnLost,
        on_resumed: OnResumed,
    ) -> Owner:
        """For execwire.aio: prepares ``attach``."""
        resume = process_run_pb2.RunResume(
            session_id=session_id, process_id=id, after_seq=after_seq
        )
        if grace is not None:
            resume.grace.CopyFrom(duration(grace))
        return self._remember(
            Owner(self._transport, resume=resume, on_lost=on_lost, on_resumed=on_resumed)
        )

    def _remember(self, owner: Owner) -> Owner:
        with self._shared.lock:
            if self._shared.closing:
                raise errors.ClosedError("the client was closed")
            self._shared.owners.add(owner)
        return owner

    def owned(self, owner: Owner, info: process_pb2.Process) -> Process:
        """For execwire.aio: returns a process that runs."""
        return Process(self._transport, owner, info)

    def _own(self, owner: Owner) -> Process:
        try:
            info = owner.begin()
        except BaseException as error:
            # An interrupt must not leave an unknown process behind.
            if not isinstance(error, errors.Error) and not owner.existing:
                owner.kill()
            owner.release()
            raise
        return self.owned(owner, info)

    # --- the end

    def close(self) -> None:
        """Closes the connection. Pending and later calls fail with ClosedError.

        Processes started by this client and not detached are killed within a few
        seconds, or, if the server cannot be reached, end with their grace period.
        Uploads are aborted. A server started by ``launch`` ends too. Closing twice is
        not an error.
        """
        refuse_in_loop()
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

    def __exit__(self, *_: object) -> None:
        self.close()


class _Shared:
    """What a client and its derived clients share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Guarded by lock.
        self.owners: "weakref.WeakSet[Owner]" = weakref.WeakSet()
        self.closing = False
        # Held during the call to the server, for which nothing else waits.
        self.describing = threading.Lock()
        self.environment: Optional[environment_pb2.GetEnvironmentResponse] = None


def _end(owner: Owner) -> None:
    if not owner.existing and not owner.ended:
        owner.kill()
    owner.release(errors.ClosedError("the client was closed"))


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

    - ``tcp://HOST:PORT``, ``tls://HOST:PORT`` with TLS, ``unix:///PATH``;
    - ``relay+wss://HOST/executor/ID?role=harness``, an executor behind a hub, see
      ``relay_url``: reached by ``execwire forward``, with the program of ``program``,
      EXECWIRE_BIN or PATH;
    - ``local:`` or empty, a private server: see ``launch``.

    A token is sent with every call, or to the hub of a relay when connecting. A token
    file must be readable by the user only, and is read again when it changes. Tokens are
    not sent in plain text to other hosts. ``ca_file`` has the CAs to use instead of
    those of this machine, ``cert_file`` and ``key_file`` the client certificate and its
    key, all as PEM.

    A connection lost later is re-established when needed. Raises ConnectError after
    ``timeout`` seconds, UsageError and CredentialError. A refused connection, a
    rejection and an answer that is not gRPC raise at once; a connection lost before the
    server has answered is retried.
    """
    tls = TLSFiles(ca_file, cert_file, key_file)
    transport = open_transport(
        url, token=token, token_file=token_file, tls=tls, timeout=timeout, program=program
    )
    return Client(transport)


def launch(*, program: Optional[str] = None) -> Client:
    """Starts a private server for this program, and connects to it.

    The program is that of ``program``, EXECWIRE_BIN or PATH. It runs in the current
    directory, and ends with the client, or with this interpreter in any case.
    """
    return connect("local:", program=program)


def relay_url(hub: str, executor_id: str) -> str:
    """Returns the URL for ``connect`` of an executor of the hub at ``hub``, which is
    https://HOST or, on loopback, http://HOST:PORT."""
    scheme, separator, rest = hub.strip().partition("://")
    if scheme not in ("http", "https") or not separator or "@" in rest or "?" in rest:
        raise errors.UsageError(
            f"write the address of a hub as https://HOST, or http://HOST:PORT on this host, not {hub!r}"
        )
    if not executor_id or not all(c.isascii() and (c.isalnum() or c in "-_.~") for c in executor_id):
        raise errors.UsageError(f"{executor_id!r} is not an executor id: it has letters, digits, - and _")
    relay = {"http": "relay+ws", "https": "relay+wss"}[scheme]
    return f"{relay}://{rest.rstrip('/')}/executor/{executor_id}?role=harness"
