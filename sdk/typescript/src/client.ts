import { create } from "@bufbuild/protobuf";
import { type CommandOptions, startRequest } from "./command.js";
import type { CommunicateOptions, Input } from "./communicate.js";
import { UsageError } from "./errors.js";
import type { ProcessEvent } from "./events.js";
import { type Completed, ExitError } from "./exit.js";
import { FileSystem } from "./files.js";
import { follow } from "./follow.js";
import type { GetEnvironmentResponse } from "./gen/execwire/v1/environment_pb.js";
import { TerminationSchema } from "./gen/execwire/v1/process_command_pb.js";
import type { Process as Description } from "./gen/execwire/v1/process_pb.js";
import { RunStartSchema } from "./gen/execwire/v1/process_run_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { type InteractiveOptions, interactive } from "./interactive.js";
import { Process } from "./process.js";
import type { Rpc, Stubs } from "./rpc.js";
import { Run } from "./run.js";
import { stdinClosed } from "./stdin.js";
import { durationOf } from "./time.js";
import { type Condition, type Waited, waitFor } from "./wait.js";

/** How a process is started to be owned. */
export interface StartOptions extends CommandOptions {
  /** Whether it has input: "pipe", unless it says "closed". A terminal always has. */
  readonly stdin?: "pipe" | "closed";
  /** How long the server keeps the process when the connection is lost, in milliseconds; 0 ends it at once. Absent is the server's, 30 s. */
  readonly graceMs?: number;
  /** Kills the process. */
  readonly signal?: AbortSignal;
  /** Called when the connection is lost, and when the process was taken up again. */
  readonly onLost?: (error: unknown) => void;
  readonly onResumed?: () => void;
}

/** How a command is run to its end. */
export interface RunCommandOptions extends Omit<StartOptions, "stdin">, CommunicateOptions {
  /** What the process reads; absent closes its stdin. */
  readonly input?: Input;
  /** Throws an {@link ExitError} unless the process exits with code 0. */
  readonly check?: boolean;
}

/** How a process is taken up. */
export interface AttachOptions extends Pick<StartOptions, "graceMs" | "onLost" | "onResumed"> {
  readonly sessionId?: string;
  /** Gives the process up, which goes on. */
  readonly signal?: AbortSignal;
  /** The seq of the last event that the caller has already. Absent begins with all that is kept. */
  readonly afterSeq?: number;
}

const force = create(TerminationSchema, { mode: { case: "force", value: {} } });

/** What the views of one connection share. */
export interface Shared {
  readonly rpc: Rpc;
  readonly maxBufferedBytes: number;
  close(): Promise<void>;
}

/**
 * A connection to a server. {@link connect} and {@link launch} make it; its methods may be called
 * at the same time. Close it when it is not needed any more, or declare it by `await using`.
 */
export class Client implements AsyncDisposable {
  /** The files of the server's machine. */
  readonly files: FileSystem;

  /** @internal */
  constructor(private readonly shared: Shared, private readonly sandbox: SandboxPolicy | undefined) {
    this.files = new FileSystem(shared.rpc, sandbox);
  }

  /** The generated clients, for what this one does not have. Their errors are those of @connectrpc/connect. */
  get stubs(): Stubs {
    return this.shared.rpc.stubs;
  }

  /** A view of the same connection whose processes and calls about files are confined by a policy, unless they have their own. */
  withSandbox(policy: SandboxPolicy): Client {
    return new Client(this.shared, policy);
  }

  /** Describes the server and its machine. The answer is the same for the life of the server, and asked for anew. */
  async describe(options: { signal?: AbortSignal } = {}): Promise<GetEnvironmentResponse> {
    const { rpc } = this.shared;
    return rpc.repeat((call) => rpc.stubs.environment.getEnvironment({}, call), options.signal);
  }

  /**
   * Runs a command to its end and returns all that it wrote. However the process ends is no
   * error, unless `check` asks for one. Output beyond maxOutputBytes ends the process and throws
   * OutputLimitError.
   */
  async run(argv: readonly string[], options: RunCommandOptions = {}): Promise<Completed> {
    const { input, check, signal, maxOutputBytes, ...start } = options;
    signal?.throwIfAborted();
    await using process = await this.start(argv, { ...start, stdin: input === undefined ? "closed" : "pipe", ...(signal && { signal }) });
    const completed = await process.communicate(input, {
      ...(maxOutputBytes !== undefined && { maxOutputBytes }),
      ...(signal && { signal }),
    });
    if (check && !completed.exit.ok) {
      throw new ExitError(completed);
    }
    return completed;
  }

  /**
   * Starts a process and owns it. Resolves when it runs, and rejects when it cannot. A start
   * whose answer was lost is repeated for 25 seconds, in which the server knows the process by
   * its id.
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

  /** Takes up a process that is there, and owns it. Whoever owned it is replaced. */
  async attach(processId: string, options: AttachOptions = {}): Promise<Process> {
    if (processId === "") {
      throw new UsageError("the id of the process is empty");
    }
    options.signal?.throwIfAborted();
    const start = create(RunStartSchema, { process: { processId, sessionId: options.sessionId ?? "" } });
    return this.owned(this.own(start, true, options.afterSeq ?? 0, options), true, options.signal);
  }

  /**
   * Runs a command in a terminal that is joined with that of this program: keys go to it, what it
   * writes is shown, and it follows the size of the window. Returns how it ended.
   */
  async interactive(argv: readonly string[], options: InteractiveOptions = {}): ReturnType<typeof interactive> {
    return interactive(this, argv, options);
  }

  /**
   * Looks on as a process writes, from its first event that is kept, until it has closed: beside
   * its owner, and without holding it up.
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

  /** Iterates over the processes of a session, by id, closed ones included while the server remembers them. */
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

  /** Waits until a process exits, says something, listens on a port or falls silent. */
  waitFor(processId: string, condition: Condition, options: { sessionId?: string; waitMs?: number; signal?: AbortSignal } = {}): Promise<Waited> {
    return waitFor(this.shared.rpc, { processId, sessionId: options.sessionId ?? "" }, condition, options);
  }

  /**
   * Ends the connection with all calls that go on, which throw {@link ClosedError}, and a server
   * that was launched for it. The server drops uploads that go on, which is waited for, a second
   * at most. Processes that this client owns are kept by their server for their grace: close or
   * terminate them first. Closing twice is no error.
   */
  async close(): Promise<void> {
    await this.shared.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private own(start: ReturnType<typeof create<typeof RunStartSchema>>, found: boolean, afterSeq: number, options: AttachOptions): Run {
    const { graceMs } = options;
    if (graceMs !== undefined) {
      start.grace = durationOf("graceMs", graceMs);
    }
    return new Run(this.shared.rpc, {
      start,
      found,
      afterSeq,
      maxBufferedBytes: this.shared.maxBufferedBytes,
      onLost: options.onLost,
      onResumed: options.onResumed,
    });
  }

  private async owned(run: Run, found: boolean, signal: AbortSignal | undefined): Promise<Process> {
    const end = (): void => void (found ? run.letGo(signal?.reason) : run.kill(force, signal?.reason));
    if (signal?.aborted) {
      end();
    }
    signal?.addEventListener("abort", end, { once: true });
    void run.over.then(() => signal?.removeEventListener("abort", end));
    return new Process(this.shared.rpc, run, await run.started, found);
  }
}
