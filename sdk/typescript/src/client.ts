import { create } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { platform } from "#platform";
import { type CommandLine, type CommandOptions, type StartOptions, startRequest } from "./command.js";
import type { CommunicateOptions, Input } from "./communicate.js";
import { ExecwireError, ExitError, ProcessTimeoutError, RestartedError, UsageError } from "./errors.js";
import type { ProcessEvent } from "./events.js";
import type { Completed, Exit } from "./exit.js";
import { FileSystem } from "./files.js";
import { follow, read } from "./follow.js";
import type { GetEnvironmentResponse } from "./gen/execwire/v1/environment_pb.js";
import { TerminationSchema } from "./gen/execwire/v1/process_command_pb.js";
import type { Process as Description } from "./gen/execwire/v1/process_pb.js";
import { RunStartSchema } from "./gen/execwire/v1/process_run_pb.js";
import type { Screen, StartProcessResponse } from "./gen/execwire/v1/process_service_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import type { Forward, ForwardOptions } from "./forward.js";
import type { InteractiveOptions } from "./interactive.js";
import { type ListeningPort, type PortChange, ports, watchPorts } from "./ports.js";
import { Process, type Terminated, terminate, type TerminateOptions } from "./process.js";
import { wasUnsent } from "./link.js";
import { recording, type RecordingOptions } from "./recording.js";
import type { Rpc, Stubs } from "./rpc.js";
import { startRetryTimeoutMs } from "./retry.js";
import { Run } from "./run.js";
import { watchScreen } from "./screen.js";
import { fromRpc } from "./status.js";
import { stdinClosed } from "./stdin.js";
import { durationOf, onAbort } from "./time.js";
import { type Condition, type Waited, waitFor } from "./wait.js";

/** Options of {@link Client.run}. */
export interface RunCommandOptions<Text extends boolean = boolean> extends Omit<StartOptions, "stdin">, CommunicateOptions<Text> {
  /** The stdin of the process; absent closes it. */
  readonly input?: Input;
  /** Throws an {@link ExitError} unless the process exits with code 0. */
  readonly check?: boolean;
}

/** Options of {@link Client.startDetached}. */
export interface StartDetachedOptions extends CommandOptions {
  /** Whether the process has stdin, "closed" by default: a later owner writes to it. A terminal always has. */
  readonly stdin?: "pipe" | "closed";
  /**
   * How long the server keeps the result and output of the process from its end, in milliseconds, whether they were
   * requested or not; it has a maximum. Absent is an hour, and 30 s once the result was requested, unless the server
   * has other settings. It is for the default session only.
   */
  readonly keepMs?: number;
  /** Ends the call, not the process. */
  readonly signal?: AbortSignal;
}

/** Options of {@link Client.attach}. */
export interface AttachOptions extends Pick<StartOptions, "graceMs" | "onLost" | "onResumed"> {
  /** The session of the process; absent is the default session. */
  readonly sessionId?: string;
  /** Detaches; the process continues. */
  readonly signal?: AbortSignal;
  /** The seq of the last event that the caller has. Absent begins with everything retained. */
  readonly afterSeq?: number;
}

/** The session of a call: absent is the default session. @inline */
interface InSession {
  /** The session; absent is the default session. */
  readonly sessionId?: string;
  /** Cancels the call. */
  readonly signal?: AbortSignal;
}

function named(id: string, { sessionId = "" }: InSession): { processId: string; sessionId: string } {
  return { processId: id, sessionId };
}

const force = create(TerminationSchema, { mode: { case: "force", value: {} } });

/** What the clients of one connection share. */
export interface Shared {
  readonly rpc: Rpc;
  readonly maxBufferedBytes: number;
  close(): Promise<void>;
}

/**
 * A connection to a server, made by {@link connect} or {@link launch}. Its methods may be called
 * concurrently. Close it when it is no longer needed, or declare it with `await using`.
 */
export class Client implements AsyncDisposable {
  /** The files of the server's machine. */
  readonly files: FileSystem;

  /** @internal */
  constructor(private readonly shared: Shared, private readonly sandbox: SandboxPolicy | undefined) {
    this.files = new FileSystem(shared.rpc, sandbox);
  }

  /** The generated clients, for everything else. Their errors are those of @connectrpc/connect. */
  get stubs(): Stubs {
    return this.shared.rpc.stubs;
  }

  /**
   * Returns a client of the same connection that adds a policy to processes and file calls without a policy
   * of their own.
   */
  withSandbox(policy: SandboxPolicy): Client {
    return new Client(this.shared, policy);
  }

  /**
   * Describes the server and its machine. The answer does not change during the lifetime of the server, and
   * is not cached.
   */
  async describe(options: { signal?: AbortSignal } = {}): Promise<GetEnvironmentResponse> {
    const { rpc } = this.shared;
    return rpc.repeat((call) => rpc.stubs.environment.getEnvironment({}, call), options.signal);
  }

  /**
   * Runs a command to its end and returns its output: a string is a line for the shell, an array a program and its
   * arguments. A process that is killed because of its timeoutMs or noOutputTimeoutMs throws {@link
   * ProcessTimeoutError}; any other end is not an error unless `check` is set. Output beyond maxOutputBytes terminates
   * the process and throws {@link OutputLimitError}.
   */
  async run<Text extends boolean = true>(command: CommandLine, options: RunCommandOptions<Text> = {}): Promise<Completed<Text>> {
    const { input, check } = options;
    const process = await this.start(command, { ...options, stdin: input === undefined ? "closed" : "pipe" });
    try {
      const completed = await process.communicate(input, options);
      if (completed.exit.cause === "timeout" || completed.exit.cause === "no_output") {
        throw new ProcessTimeoutError(completed);
      }
      if (check && !completed.exit.ok) {
        throw new ExitError(completed);
      }
      return completed;
    } finally {
      await process.close();
    }
  }

  /**
   * Starts a process and owns it. Resolves when it runs, and rejects if it cannot be started. An unanswered
   * start is repeated for 25 seconds, while the server certainly knows the process by its id.
   */
  async start(command: CommandLine, options: StartOptions = {}): Promise<Process> {
    options.signal?.throwIfAborted();
    const piped = (options.stdin ?? "pipe") === "pipe";
    const request = startRequest(command, options, piped, this.sandbox);
    const run = this.own(create(RunStartSchema, { process: request }), false, 0, options);
    if (!piped && !options.terminal) {
      run.stdin.fail(stdinClosed('the process was started with stdin: "closed", and takes no input'));
    }
    return this.owned(run, false, options.signal);
  }

  /**
   * Starts a process without an owner: it never blocks on a reader, and the server retains its latest output for
   * `attach`, `follow` and `read`. An unanswered start is repeated for 25 seconds.
   */
  async startDetached(command: CommandLine, options: StartDetachedOptions = {}): Promise<Description> {
    const { rpc } = this.shared;
    const request = startRequest(command, options, options.stdin === "pipe", this.sandbox);
    if (options.keepMs !== undefined) {
      request.keep = durationOf("keepMs", options.keepMs);
    }
    const began = performance.now();
    let sentAt: number | undefined;
    const start = async (call: CallOptions): Promise<StartProcessResponse> => {
      const now = performance.now();
      if (sentAt !== undefined) {
        request.firstSentAgo = durationOf("firstSentAgo", now - sentAt); // maybe at another run of the server
      }
      try {
        return await rpc.stubs.processes.startProcess(request, call);
      } catch (error) {
        const failure = fromRpc(error);
        sentAt ??= failure instanceof Error && wasUnsent(failure) ? undefined : now;
        throw error;
      }
    };
    try {
      const response = await rpc.repeat(start, options.signal, startRetryTimeoutMs);
      return response.process as Description;
    } catch (error) {
      if (!(error instanceof ExecwireError) || error.reason !== "PROCESS_NOT_FOUND") {
        throw error;
      }
      throw new RestartedError(
        { processId: request.processId, started: false, exit: undefined, lastSeq: 0, lostForMs: performance.now() - began },
        error,
      );
    }
  }

  /** Takes over an existing process from its owner, if any. */
  async attach(id: string, options: AttachOptions = {}): Promise<Process> {
    if (id === "") {
      throw new UsageError("the id of the process is empty");
    }
    options.signal?.throwIfAborted();
    const start = create(RunStartSchema, { process: { processId: id, sessionId: options.sessionId ?? "" } });
    return this.owned(this.own(start, true, options.afterSeq ?? 0, options), true, options.signal);
  }

  /**
   * Runs a command in a terminal connected to that of this program: input, output and changes of the window
   * size are forwarded. Returns how it ended.
   */
  async interactive(command: CommandLine, options: InteractiveOptions = {}): Promise<Exit> {
    return platform.interactive((start) => this.start(command, start), options);
  }

  /**
   * Observes the output of a process, from the first retained event until it has closed. It neither owns nor
   * blocks the process.
   */
  follow(id: string, options: InSession & { readonly afterSeq?: number } = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    return follow(this.shared.rpc, named(id, options), options.afterSeq ?? 0, options.signal);
  }

  /**
   * Records a process to its end, across lost connections, without owning or blocking it. Returns the lines of a
   * recording in the format of asciinema, each with its newline: `await writeFile("build.cast", client.recording("build"))`.
   * Where output is missing, a marker says how much. What was returned before an error is a recording that ends there.
   */
  recording(id: string, options: RecordingOptions = {}): AsyncGenerator<string, void, undefined> {
    return recording(this.shared.rpc, named(id, options), options);
  }

  /**
   * Returns retained events after a cursor, at most maxBytes of output (1 MiB by default and at most). If there is
   * none, it waits for one, up to waitMs or the longest wait of the server. It neither owns nor blocks the process.
   */
  read(id: string, options: InSession & { readonly afterSeq?: number; readonly waitMs?: number; readonly maxBytes?: number } = {}): Promise<ProcessEvent[]> {
    return read(this.shared.rpc, named(id, options), options);
  }

  /** Ends a process and its descendants, and waits until none is left. */
  terminate(id: string, options: TerminateOptions & { readonly sessionId?: string } = {}): Promise<Terminated> {
    return terminate(this.shared.rpc, named(id, options), options);
  }

  /** Describes a process. */
  async get(id: string, options: InSession = {}): Promise<Description> {
    const { rpc } = this.shared;
    const request = named(id, options);
    const response = await rpc.repeat((call) => rpc.stubs.processes.getProcess(request, call), options.signal);
    return response.process as Description;
  }

  /**
   * Iterates over the processes of a session by id, including closed ones that the server retains.
   * `lastOutputBytes` is how much of the end of each stream they have in `lastOutput`, at most 4096.
   */
  async *processes(
    options: InSession & { readonly lastOutputBytes?: number } = {},
  ): AsyncGenerator<Description, void, undefined> {
    const { rpc } = this.shared;
    for (let pageToken = ""; ; ) {
      const lastOutputBytes = options.lastOutputBytes ?? 0;
      const request = { sessionId: options.sessionId ?? "", pageToken, lastOutputBytes };
      const page = await rpc.repeat((call) => rpc.stubs.processes.listProcesses(request, call), options.signal);
      yield* page.processes;
      pageToken = page.nextPageToken;
      if (pageToken === "") {
        return;
      }
    }
  }

  /** What the terminal of a process shows, also after its exit; with `styles` its lines have their styles. */
  async screen(id: string, options: InSession & { readonly styles?: boolean } = {}): Promise<Screen> {
    const { rpc } = this.shared;
    const request = { ...named(id, options), styles: options.styles ?? false };
    const response = await rpc.repeat((call) => rpc.stubs.processes.getScreen(request, call), options.signal);
    return response.screen as Screen;
  }

  /**
   * Iterates over what the terminal of a process shows: at first and after changes, at most 20 times a second,
   * until the process has closed. Each screen has all lines, with `styles` and their styles. A lost connection is
   * resumed. Break off the iteration, or abort the signal, to end it.
   */
  watchScreen(id: string, options: InSession & { readonly styles?: boolean } = {}): AsyncGenerator<Screen, void, undefined> {
    return watchScreen(this.shared.rpc, { ...named(id, options), styles: options.styles ?? false }, options.signal);
  }

  /** Waits until a process exits, writes or shows what matches, listens on a port or is idle. */
  waitFor(id: string, condition: Condition, options: InSession & { readonly waitMs?: number } = {}): Promise<Waited> {
    return waitFor(this.shared.rpc, named(id, options), condition, options);
  }

  /** Returns the TCP ports on which the processes of a session listen. */
  ports(options: InSession = {}): Promise<ListeningPort[]> {
    return ports(this.shared.rpc, named("", options), options.signal);
  }

  /**
   * Iterates over changes of the open ports of a session, beginning with those that are open. It throws when the
   * connection is lost: watch again then.
   */
  watchPorts(options: InSession = {}): AsyncGenerator<PortChange, void, undefined> {
    return watchPorts(this.shared.rpc, named("", options), options.signal);
  }

  /**
   * Listens on this machine, and forwards each connection to a port of the server's machine, by default one on
   * which a process of the session listens. Resolves when it listens; close it, or declare it with `await using`.
   * A connection that is refused, or broken off, is reset, and reported to `onError`. It does not survive the loss
   * of the connection to the server; later ones use the next.
   */
  forward(port: number, options: ForwardOptions = {}): Promise<Forward> {
    return platform.forward(this.shared.rpc, port, options);
  }

  /**
   * Closes the connection, and a server launched for it. Pending calls throw {@link ClosedError}. The server
   * drops uploads in progress, for which this waits at most one second. The server keeps processes of this
   * client for their grace period: close or terminate them first. Closing twice is not an error.
   */
  async close(): Promise<void> {
    await this.shared.close();
  }

  /** Closes it, at the end of an `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private own(start: ReturnType<typeof create<typeof RunStartSchema>>, existing: boolean, afterSeq: number, options: AttachOptions): Run {
    const { graceMs } = options;
    if (graceMs !== undefined) {
      start.grace = durationOf("graceMs", graceMs);
    }
    return new Run(this.shared.rpc, {
      start,
      existing,
      afterSeq,
      maxBufferedBytes: this.shared.maxBufferedBytes,
      onLost: options.onLost,
      onResumed: options.onResumed,
    });
  }

  private async owned(run: Run, existing: boolean, signal: AbortSignal | undefined): Promise<Process> {
    const end = (): void => void (existing ? run.detachAndEnd(signal?.reason) : run.kill(force, signal?.reason));
    if (signal?.aborted) {
      end();
    }
    void run.over.then(onAbort(signal, end));
    return new Process(this.shared.rpc, run, await run.started, existing);
  }
}
