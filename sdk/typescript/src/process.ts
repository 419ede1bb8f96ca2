import { create } from "@bufbuild/protobuf";
import type { Readable, Writable } from "node:stream";
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
import { ProcessStreams } from "./streams.js";
import { abortable, durationOf } from "./time.js";
import { type Condition, type Waited, waitFor } from "./wait.js";

/** How a process is ended. */
export interface TerminateOptions {
  /** Kills at once, in place of asking first. */
  readonly force?: boolean;
  /** How long it has to end by itself after it was asked, in milliseconds; absent is 5 s. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** What ending a process came to. */
export interface Terminated {
  /** Whether the process had not exited when the call came. */
  readonly wasRunning: boolean;
  /** The strongest means that was used. */
  readonly method: "none" | "process_group" | "descendants" | "cgroup";
  /** Whether the server made sure that no descendant is left. */
  readonly verifiedEmpty: boolean;
}

/**
 * A process that this client owns: its output is delivered exactly once and in order, across
 * lost connections, and its input as well.
 *
 * Output is taken in one of four ways: `events` (or iterating over the process), `output`,
 * the Node.js streams `stdout` and `stderr`, or `communicate`. Whoever takes it paces the
 * process, as with a pipe. Until somebody does, it waits; `wait` drops what nobody takes.
 */
export class Process implements AsyncIterable<ProcessEvent>, AsyncDisposable {
  /** The id of the process in its session: what to attach to it by. */
  readonly id: string;
  /** The session; empty is the default session. */
  readonly sessionId: string;
  private readonly streams: ProcessStreams;
  private taking = false;
  private waiting = 0;
  /** Ends dropping what nobody takes; undefined while that is not done. */
  private discarding: { readonly stop: AbortController; readonly over: Promise<void> } | undefined;
  private closing: Promise<void> | undefined;

  /** @internal */
  constructor(private readonly rpc: Rpc, private readonly run: Run, readonly description: Description, private readonly found: boolean) {
    this.id = run.processId;
    this.sessionId = run.sessionId;
    this.streams = new ProcessStreams(this);
  }

  /** Its id in the operating system, for people to look at. */
  get pid(): number {
    return this.description.pid;
  }

  /** How it ended, once its `exited` event was taken; else undefined. */
  get exit(): Exit | undefined {
    return this.run.exit;
  }

  /**
   * Iterates over all that the process does, from the first event that was not taken. An event
   * is acknowledged when the next one is asked for. Leaving the loop takes the event it was
   * left at; a later iteration goes on behind it. It throws {@link LostError} when what became
   * of the process cannot be learned, after all that was received.
   */
  async *events(options: { signal?: AbortSignal } = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    if (this.taking) {
      throw new UsageError("somebody takes the output of the process already: take it in one way, once");
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

  [Symbol.asyncIterator](): AsyncIterator<ProcessEvent> {
    return this.events();
  }

  /** Iterates over what the process writes, of all its streams in their order. Throws on a gap, which only an attached process has. */
  async *output(options: { signal?: AbortSignal } = {}): AsyncGenerator<OutputEvent, void, undefined> {
    for await (const event of this.events(options)) {
      if (event.type === "output") {
        yield event;
      } else if (event.type === "gap") {
        throw new ClosedError(`${event.droppedBytes} bytes of output are not kept any more: iterate over events to go on behind a gap`);
      }
    }
  }

  /** What it writes to stdout, or to its terminal, as a stream of Node.js. The other stream is dropped unless it is read too. */
  get stdout(): Readable {
    return this.streams.output("stdout");
  }

  /** What it writes to stderr, as a stream of Node.js. */
  get stderr(): Readable {
    return this.streams.output("stderr");
  }

  /** Its input as a stream of Node.js. */
  get stdin(): Writable {
    return this.streams.input();
  }

  /**
   * Writes to its input, and waits while a window of input is on the way. What was written is
   * sent again after a lost connection, and reaches the process once. Fails with
   * {@link StdinClosedError} when the process takes no more.
   */
  write(data: string | Uint8Array, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.run.stdin.write(typeof data === "string" ? Buffer.from(data) : data, options.signal);
  }

  /** Ends its input after what was written; of a terminal by its end-of-file character. Does not wait until the process has read it. */
  closeStdin(): Promise<void> {
    return this.run.stdin.end();
  }

  /**
   * Sends a signal to its process group, to the process alone, or to the foreground group of its
   * terminal. A signal is not repeated: one whose call was cut may have arrived or not.
   */
  async signal(
    signal: SignalName | number,
    options: { target?: "group" | "process" | "foreground"; signal?: AbortSignal } = {},
  ): Promise<void> {
    const targets = { group: SignalTarget.GROUP, process: SignalTarget.PROCESS, foreground: SignalTarget.FOREGROUND };
    await this.rpc.call(
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

  /** Ends the process and all that it started, and waits until none is left that can be found. Its last output can still be taken. */
  async terminate(options: TerminateOptions = {}): Promise<Terminated> {
    const response = await this.rpc.repeat(
      (call) => this.rpc.stubs.processes.terminateProcess({ ...this.named, termination: termination(options) }, call),
      options.signal,
    );
    return {
      wasRunning: response.wasRunning,
      method: (KillMethod[response.method] ?? "").toLowerCase().replace(/^$|unspecified/, "none") as Terminated["method"],
      verifiedEmpty: response.verifiedEmpty,
    };
  }

  /**
   * Waits until it has closed: it has exited, and all of its output was taken. Output that
   * nobody takes is dropped. The signal ends the wait, not the process.
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
        await this.discarding.over; // whoever takes the output next may do so at once
      }
    }
    return this.run.exit as Exit;
  }

  /** Waits for something else than its end: that it says something, listens on a port, or falls silent. */
  waitFor(condition: Condition, options: { waitMs?: number; signal?: AbortSignal } = {}): Promise<Waited> {
    return waitFor(this.rpc, this.named, condition, options);
  }

  /** Gives it input, which ends, and gathers all of its output until it has closed. */
  communicate(input?: Input, options: CommunicateOptions = {}): Promise<Completed> {
    return communicate(this, this.run, input, options);
  }

  /** Gives the process up: it goes on without an owner, and keeps its last output for whoever attaches. */
  async detach(options: { signal?: AbortSignal } = {}): Promise<void> {
    await abortable(this.run.detach(), options.signal);
  }

  /**
   * Ends what belongs to the handle: a process that this client started and that still runs is
   * killed; one that it attached to is given up, and goes on. Closing twice is no error.
   */
  close(): Promise<void> {
    this.closing ??= this.letGo();
    return this.closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async letGo(): Promise<void> {
    const reason = new ClosedError("the process was let go of");
    if (this.run.closed) {
      await this.run.settled();
    } else if (this.found) {
      await this.run.letGo(reason);
    } else {
      await this.kill(reason);
    }
    this.run.fail(reason);
    await this.run.over;
  }

  /** @internal Kills the process, and fails whoever takes its output. */
  async kill(reason: unknown): Promise<void> {
    await this.run.kill(termination({ force: true }), reason);
  }

  private get named(): { sessionId: string; processId: string } {
    return { sessionId: this.sessionId, processId: this.id };
  }

  /** Drops what nobody takes, if somebody waits. Whoever is about to take it comes first. */
  private discardSoon(): void {
    if (this.waiting === 0 || this.discarding) {
      return;
    }
    const stop = new AbortController();
    this.discarding = { stop, over: this.discard(stop.signal) };
  }

  private async discard(signal: AbortSignal): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    try {
      while (!this.taking && !this.run.closed && !signal.aborted) {
        for await (const _ of this.events({ signal })) {
          // Nobody wants it.
        }
      }
    } catch {
      return; // whoever waits is told, or has given up
    } finally {
      this.discarding = undefined;
      if (this.waiting > 0 && !this.run.closed && signal.aborted) {
        this.discardSoon(); // somebody has begun to wait meanwhile
      }
    }
  }
}

function termination({ force, timeoutMs }: TerminateOptions): Termination {
  if (force) {
    return create(TerminationSchema, { mode: { case: "force", value: {} } });
  }
  return create(TerminationSchema, {
    mode: { case: "graceful", value: timeoutMs === undefined ? {} : { timeout: durationOf("timeoutMs", timeoutMs) } },
  });
}
