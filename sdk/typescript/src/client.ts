import { create } from "@bufbuild/protobuf";
import { platform } from "#platform";
import { type StartOptions, startRequest } from "./command.js";
import type { CommunicateOptions, Input } from "./communicate.js";
import { ExitError, UsageError } from "./errors.js";
import type { ProcessEvent } from "./events.js";
import type { Completed, Exit } from "./exit.js";
import { FileSystem } from "./files.js";
import { follow } from "./follow.js";
import type { GetEnvironmentResponse } from "./gen/execwire/v1/environment_pb.js";
import { TerminationSchema } from "./gen/execwire/v1/process_command_pb.js";
import type { Process as Description } from "./gen/execwire/v1/process_pb.js";
import { RunStartSchema } from "./gen/execwire/v1/process_run_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import type { Forward, ForwardOptions } from "./forward.js";
import type { InteractiveOptions } from "./interactive.js";
import { type ListeningPort, type PortChange, ports, watchPorts } from "./ports.js";
import { Process } from "./process.js";
import type { Rpc, Stubs } from "./rpc.js";
import { Run } from "./run.js";
import { stdinClosed } from "./stdin.js";
import { durationOf } from "./time.js";
import { type Condition, type Waited, waitFor } from "./wait.js";

/** Options of {@link Client.run}. */
export interface RunCommandOptions extends Omit<StartOptions, "stdin">, CommunicateOptions {
  /** The stdin of the process; absent closes it. */
  readonly input?: Input;
  /** Throws an {@link ExitError} unless the process exits with code 0. */
  readonly check?: boolean;
}

/** Options of {@link Client.attach}. */
export interface AttachOptions extends Pick<StartOptions, "graceMs" | "onLost" | "onResumed"> {
  readonly sessionId?: string;
  /** Detaches; the process continues. */
  readonly signal?: AbortSignal;
  /** The seq of the last event that the caller has. Absent begins with everything retained. */
  readonly afterSeq?: number;
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
   * Runs a command to its end and returns its output. The end of the process, however it ended, is not an
   * error unless `check` is set. Output beyond maxOutputBytes terminates the process and throws
   * OutputLimitError.
   */
  async run(argv: readonly string[], options: RunCommandOptions = {}): Promise<Completed> {
    const { input, check, signal, maxOutputBytes, ...start } = options;
    signal?.throwIfAborted();
    const process = await this.start(argv, { ...start, stdin: input === undefined ? "closed" : "pipe", ...(signal && { signal }) });
    try {
      const completed = await process.communicate(input, {
        ...(maxOutputBytes !== undefined && { maxOutputBytes }),
        ...(signal && { signal }),
      });
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
  async start(argv: readonly string[], options: StartOptions = {}): Promise<Process> {
    options.signal?.throwIfAborted();
    const piped = (options.stdin ?? "pipe") === "pipe";
    const request = startRequest(argv, options, piped, this.sandbox);
    const run = this.own(create(RunStartSchema, { process: request }), false, 0, options);
    if (!piped && !options.terminal) {
      run.stdin.fail(stdinClosed('the process was started with stdin: "closed", and takes no input'));
    }
    return this.owned(run, false, options.signal);
  }

  /** Takes over an existing process from its owner, if any. */
  async attach(processId: string, options: AttachOptions = {}): Promise<Process> {
    if (processId === "") {
      throw new UsageError("the id of the process is empty");
    }
    options.signal?.throwIfAborted();
    const start = create(RunStartSchema, { process: { processId, sessionId: options.sessionId ?? "" } });
    return this.owned(this.own(start, true, options.afterSeq ?? 0, options), true, options.signal);
  }

  /**
   * Runs a command in a terminal connected to that of this program: input, output and changes of the window
   * size are forwarded. Returns how it ended.
   */
  async interactive(argv: readonly string[], options: InteractiveOptions = {}): Promise<Exit> {
    return platform.interactive((start) => this.start(argv, start), options);
  }

  /**
   * Observes the output of a process, from the first retained event until it has closed. It neither owns nor
   * blocks the process.
   */
  follow(processId: string, options: { sessionId?: string; afterSeq?: number; signal?: AbortSignal } = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    return follow(this.shared.rpc, { processId, sessionId: options.sessionId ?? "" }, options.afterSeq ?? 0, options.signal);
  }

  /** Describes a process. */
  async getProcess(processId: string, options: { sessionId?: string; signal?: AbortSignal } = {}): Promise<Description> {
    const { rpc } = this.shared;
    const request = { processId, sessionId: options.sessionId ?? "" };
    const response = await rpc.repeat((call) => rpc.stubs.processes.getProcess(request, call), options.signal);
    return response.process as Description;
  }

  /** Iterates over the processes of a session by id, including closed ones that the server retains. */
  async *processes(options: { sessionId?: string; signal?: AbortSignal } = {}): AsyncGenerator<Description, void, undefined> {
    const { rpc } = this.shared;
    for (let pageToken = ""; ; ) {
      const request = { sessionId: options.sessionId ?? "", pageToken };
      const page = await rpc.repeat((call) => rpc.stubs.processes.listProcesses(request, call), options.signal);
      yield* page.processes;
      pageToken = page.nextPageToken;
      if (pageToken === "") {
        return;
      }
    }
  }

  /** Waits until a process exits, writes output that matches, listens on a port or is idle. */
  waitFor(processId: string, condition: Condition, options: { sessionId?: string; waitMs?: number; signal?: AbortSignal } = {}): Promise<Waited> {
    return waitFor(this.shared.rpc, { processId, sessionId: options.sessionId ?? "" }, condition, options);
  }

  /** Returns the TCP ports on which the processes of a session listen. */
  ports(options: { sessionId?: string; signal?: AbortSignal } = {}): Promise<ListeningPort[]> {
    return ports(this.shared.rpc, { sessionId: options.sessionId ?? "", processId: "" }, options.signal);
  }

  /**
   * Iterates over changes of the open ports of a session, beginning with those that are open. It throws when the
   * connection is lost: watch again then.
   */
  watchPorts(options: { sessionId?: string; signal?: AbortSignal } = {}): AsyncGenerator<PortChange, void, undefined> {
    return watchPorts(this.shared.rpc, { sessionId: options.sessionId ?? "", processId: "" }, options.signal);
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
    signal?.addEventListener("abort", end, { once: true });
    void run.over.then(() => signal?.removeEventListener("abort", end));
    return new Process(this.shared.rpc, run, await run.started, existing);
  }
}
