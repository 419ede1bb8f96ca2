import { create } from "@bufbuild/protobuf";
import { platform } from "#platform";
import { bytesOf } from "./bytes.js";
import { type CommunicateOptions, communicate, type Input } from "./communicate.js";
import { ClosedError, UsageError } from "./errors.js";
import type { OutputEvent, ProcessEvent } from "./events.js";
import type { Completed, Exit } from "./exit.js";
import { type SignalName, signalNumber } from "./signals.js";
import { SignalTarget, type Termination, TerminationSchema, type TerminalSize as SizeMessage } from "./gen/execwire/v1/process_command_pb.js";
import type { Process as Description } from "./gen/execwire/v1/process_pb.js";
import { KillMethod } from "./gen/execwire/v1/process_service_pb.js";
import type { TerminalSize } from "./command.js";
import type { Rpc } from "./rpc.js";
import type { Run } from "./run.js";
import type { Readable, Writable } from "./node-types.js";
import { type ListeningPort, type PortChange, ports, watchPorts } from "./ports.js";
import { abortable, durationOf } from "./time.js";
import { type Condition, type Waited, waitFor } from "./wait.js";

/** Options of {@link Process.terminate}. */
export interface TerminateOptions {
  /** Kills at once instead of asking first. */
  readonly force?: boolean;
  /** How long it may take to end by itself, in milliseconds; absent is 5 s. */
  readonly timeoutMs?: number;
  /** Cancels the call; the process may end all the same. */
  readonly signal?: AbortSignal;
}

/** The result of {@link Process.terminate}. */
export interface Terminated {
  /** Whether the process had not exited before. */
  readonly wasRunning: boolean;
  /** The strongest method that was used. */
  readonly method: "none" | "process_group" | "descendants" | "cgroup";
  /** Whether the server verified that no descendant is left. */
  readonly verifiedEmpty: boolean;
}

/**
 * A process that this client owns: its output is delivered exactly once and in order, across lost
 * connections, and so is its input.
 *
 * Output is consumed in one of four ways: `events` (or iterating over the process), `output`, the Node.js
 * streams `stdout` and `stderr`, or `communicate`. A slow consumer blocks the process, as with a pipe, and so
 * does none; `wait` discards output without a consumer.
 */
export class Process implements AsyncIterable<ProcessEvent>, AsyncDisposable {
  /** The id of the process in its session, for {@link Client.attach}. */
  readonly id: string;
  /** The session; empty is the default session. */
  readonly sessionId: string;
  /** The process as the server described it when it was started or attached. */
  readonly description: Description;
  private readonly streams: ReturnType<typeof platform.streams>;
  private taking = false;
  private waiting = 0;
  /** Stops discarding output; undefined while output is not discarded. */
  private discarding: { readonly stop: AbortController; readonly over: Promise<void> } | undefined;
  private closing: Promise<void> | undefined;

  /** @internal */
  constructor(private readonly rpc: Rpc, private readonly run: Run, description: Description, private readonly existing: boolean) {
    this.description = description;
    this.id = run.processId;
    this.sessionId = run.sessionId;
    this.streams = platform.streams(this);
  }

  /** Its pid on the server, for information. */
  get pid(): number {
    return this.description.pid;
  }

  /** How it ended, once its `exited` event was consumed; else undefined. */
  get exit(): Exit | undefined {
    return this.run.exit;
  }

  /**
   * Iterates over the events of the process, from the first unconsumed one. An event is acknowledged when the
   * next one is requested. Leaving the loop consumes its last event; a later iteration continues after it. It
   * throws {@link LostError} when the state of the process is unknown, after all received events.
   */
  async *events(options: { signal?: AbortSignal } = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    if (this.taking) {
      throw new UsageError("the output of the process already has a consumer: consume it in one way, once");
    }
    this.taking = true;
    try {
      for (;;) {
        const event = await this.run.take(options.signal);
        if (!event) {
          return;
        }
        yield event;
      }
    } finally {
      this.taking = false;
      this.discardSoon();
    }
  }

  /** Iterates as `events` does. */
  [Symbol.asyncIterator](): AsyncIterator<ProcessEvent> {
    return this.events();
  }

  /**
   * Iterates over the output of all streams in order. Throws on a gap, which only an attached process can
   * have.
   */
  async *output(options: { signal?: AbortSignal } = {}): AsyncGenerator<OutputEvent, void, undefined> {
    for await (const event of this.events(options)) {
      if (event.type === "output") {
        yield event;
      } else if (event.type === "gap") {
        throw new ClosedError(`${event.droppedBytes} bytes of output were evicted: iterate over events to continue after a gap`);
      }
    }
  }

  /**
   * Its stdout or terminal output as a Node.js stream. The other stream is discarded unless it is read too.
   */
  get stdout(): Readable {
    return this.streams.output("stdout");
  }

  /** Its stderr as a Node.js stream. */
  get stderr(): Readable {
    return this.streams.output("stderr");
  }

  /** Its stdin as a Node.js stream. */
  get stdin(): Writable {
    return this.streams.input();
  }

  /**
   * Writes input, and waits while a window of input is unaccepted. It is sent again after a lost connection,
   * and reaches the process once. Fails with {@link StdinClosedError} when the process accepts no more.
   */
  write(data: string | Uint8Array, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.run.stdin.write(bytesOf(data), options.signal);
  }

  /**
   * Ends the input after everything written; for a terminal with its end-of-file character. Does not wait
   * until the process has read it.
   */
  closeStdin(): Promise<void> {
    return this.run.stdin.end();
  }

  /**
   * Sends a signal to its process group, to the process only, or to the foreground group of its terminal. If the
   * connection is lost, it throws {@link NotDoneError} or {@link UnknownError}.
   */
  async signal(
    signal: SignalName | number,
    options: { target?: "group" | "process" | "foreground"; signal?: AbortSignal } = {},
  ): Promise<void> {
    const targets = { group: SignalTarget.GROUP, process: SignalTarget.PROCESS, foreground: SignalTarget.FOREGROUND };
    await this.rpc.once(
      (call) =>
        this.rpc.stubs.processes.signalProcess(
          { ...this.named, signal: signalNumber(signal), target: targets[options.target ?? "group"] },
          call,
        ),
      options.signal,
    );
  }

  /** Sets the size of its terminal. */
  async resize(size: TerminalSize, options: { signal?: AbortSignal } = {}): Promise<void> {
    const { rows, columns } = size;
    const message: Partial<SizeMessage> = { rows, columns };
    await this.rpc.repeat((call) => this.rpc.stubs.processes.resizeTerminal({ ...this.named, size: message as SizeMessage }, call), options.signal);
  }

  /**
   * Ends the process and its descendants, and waits until none is left. Its remaining output can still be
   * consumed.
   */
  terminate(options: TerminateOptions = {}): Promise<Terminated> {
    return terminate(this.rpc, this.named, options);
  }

  /**
   * Waits until it has closed: it has exited, and all output was consumed. Output without a consumer is
   * discarded. The signal ends the wait, not the process.
   */
  async wait(options: { signal?: AbortSignal } = {}): Promise<Exit> {
    this.waiting++;
    this.discardSoon();
    try {
      await abortable(this.run.finished, options.signal);
    } finally {
      this.waiting--;
      if (this.waiting === 0 && this.discarding) {
        this.discarding.stop.abort();
        await this.discarding.over; // the next consumer may begin at once
      }
    }
    return this.run.exit as Exit;
  }

  /** Waits for a condition other than its end: matching output, a listening port, or no output for a time. */
  waitFor(condition: Condition, options: { waitMs?: number; signal?: AbortSignal } = {}): Promise<Waited> {
    return waitFor(this.rpc, this.named, condition, options);
  }

  /** Returns the TCP ports on which it and its descendants listen. */
  ports(options: { signal?: AbortSignal } = {}): Promise<ListeningPort[]> {
    return ports(this.rpc, this.named, options.signal);
  }

  /**
   * Iterates over changes of its open ports, beginning with those that are open, until it has closed. It throws
   * when the connection is lost: watch again then.
   */
  watchPorts(options: { signal?: AbortSignal } = {}): AsyncGenerator<PortChange, void, undefined> {
    return watchPorts(this.rpc, this.named, options.signal);
  }

  /** Writes input and closes stdin, and collects all output until it has closed. */
  communicate<Text extends boolean = true>(input?: Input, options: CommunicateOptions<Text> = {}): Promise<Completed<Text>> {
    return communicate(this, this.run, input, options);
  }

  /** Gives up ownership: the process continues without an owner, and the server retains its latest output. */
  async detach(options: { signal?: AbortSignal } = {}): Promise<void> {
    await abortable(this.run.detach(), options.signal);
  }

  /**
   * Releases the handle: a process started by this client that still runs is killed; one that it attached to
   * continues without an owner. Closing twice is not an error.
   */
  close(): Promise<void> {
    this.closing ??= this.release();
    return this.closing;
  }

  /** Closes it, at the end of an `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async release(): Promise<void> {
    const reason = new ClosedError("the process was closed");
    if (this.run.closed) {
      await this.run.settled();
    } else if (this.existing) {
      await this.run.detachAndEnd(reason);
    } else {
      await this.kill(reason);
    }
    this.run.fail(reason);
    await this.run.over;
  }

  /** @internal Kills the process, and fails its consumer. */
  async kill(reason: unknown): Promise<void> {
    await this.run.kill(termination({ force: true }), reason);
  }

  private get named(): { sessionId: string; processId: string } {
    return { sessionId: this.sessionId, processId: this.id };
  }

  /** Discards output if there is a waiter and no consumer. A consumer that begins now comes first. */
  private discardSoon(): void {
    if (this.waiting === 0 || this.discarding) {
      return;
    }
    const stop = new AbortController();
    this.discarding = { stop, over: this.discard(stop.signal) };
  }

  private async discard(signal: AbortSignal): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve));
    try {
      while (!this.taking && !this.run.closed && !signal.aborted) {
        for await (const _ of this.events({ signal })) {
          // Discarded.
        }
      }
    } catch {
      return; // the waiter gets the error, or has given up
    } finally {
      this.discarding = undefined;
      if (this.waiting > 0 && !this.run.closed && signal.aborted) {
        this.discardSoon(); // there is a new waiter
      }
    }
  }
}

/** Ends a process and its descendants, and waits until none is left. */
export async function terminate(rpc: Rpc, named: { sessionId: string; processId: string }, options: TerminateOptions): Promise<Terminated> {
  const request = { ...named, termination: termination(options) };
  const response = await rpc.repeat((call) => rpc.stubs.processes.terminateProcess(request, call), options.signal);
  return {
    wasRunning: response.wasRunning,
    method: (KillMethod[response.method] ?? "").toLowerCase().replace(/^$|unspecified/, "none") as Terminated["method"],
    verifiedEmpty: response.verifiedEmpty,
  };
}

function termination({ force, timeoutMs }: TerminateOptions): Termination {
  if (force) {
    return create(TerminationSchema, { mode: { case: "force", value: {} } });
  }
  return create(TerminationSchema, {
    mode: { case: "graceful", value: timeoutMs === undefined ? {} : { timeout: durationOf("timeoutMs", timeoutMs) } },
  });
}
