import { create } from "@bufbuild/protobuf";
import { Acknowledger } from "./acknowledger.js";
import { ClosedError, ConnectionError, ExecwireError, LostError, ProtocolError } from "./errors.js";
import { EventTracker } from "./events.js";
import type { Exit } from "./exit.js";
import { ErrorReason } from "./gen/execwire/v1/error_pb.js";
import type { Termination } from "./gen/execwire/v1/process_command_pb.js";
import type { ProcessEvent as EventMessage } from "./gen/execwire/v1/process_event_pb.js";
import type { Process } from "./gen/execwire/v1/process_pb.js";
import {
  type RunProcessRequest,
  RunProcessRequestSchema,
  type RunProcessResponse,
  type RunRejected,
  type RunStart,
  type RunStarted,
} from "./gen/execwire/v1/process_run_pb.js";
import { assumedGraceMs, Attempts, graceMarginMs } from "./retry.js";
import { Queue } from "./queue.js";
import type { Rpc } from "./rpc.js";
import { fromRpc } from "./status.js";
import { StdinBuffer, stdinClosed } from "./stdin.js";
import { abortable, durationMs, LinkedSignal } from "./time.js";

/**
 * For how long after its first sending a start that was not answered may be repeated: while the
 * server still has the record by which it knows a repetition, 30 seconds by its documented
 * default, less the way there. Later the command could run twice.
 */
const repeatWithinMs = 25_000;
/** What is done for a process that nobody follows any more may take so long. */
const endTimeoutMs = 5_000;
/** How long a process that is given up may take to accept its input. */
const detachTimeoutMs = 1_000;

/** What a run is of. */
export interface RunOptions {
  /** What to start, or, of a process that is found, what names it; and the grace. */
  readonly start: RunStart;
  /** Whether the process was there before. */
  readonly found: boolean;
  readonly afterSeq: number;
  /** How much of the output may wait in memory for whoever takes it, in bytes. */
  readonly maxBufferedBytes: number;
  readonly onLost?: ((error: unknown) => void) | undefined;
  readonly onResumed?: (() => void) | undefined;
}

/**
 * Run owns a process: it follows it over one stream after the other until it has closed. Events
 * wait in it until they are taken, and are acknowledged then, so that whoever takes them paces
 * the process.
 */
export class Run {
  readonly processId: string;
  readonly sessionId: string;
  readonly stdin: StdinBuffer;
  /** The process, once the server has said that it runs; rejects if it never does. */
  readonly started: Promise<Process>;
  /** Settles when no more events will come: it never rejects. */
  readonly over: Promise<void>;
  /** Resolves when the closed event was taken; rejects when whoever takes events is told that it will not come, or the run is ended by this side. */
  readonly finished: Promise<void>;
  /** Why events end before the closed one; undefined while they have not, or need not. */
  failure: unknown;
  detached = false;

  private readonly tracker: EventTracker;
  private readonly attempts = new Attempts();
  private readonly stopping: LinkedSignal;
  private settle!: { resolve: (process: Process) => void; reject: (error: unknown) => void };
  private finish!: { resolve: () => void; reject: (error: unknown) => void };
  private sentAt: number | undefined;
  private isStarted = false;
  private ended = false;

  /** What was received and not taken. */
  private pending = new Queue<EventMessage>();
  private pendingBytes = 0;
  private receivedSeq: number;
  /** Behind which seq the stream tells what happened. */
  private resumedAt: number;
  private receivedClosed = false;
  private receivedExit: EventMessage | undefined;
  private readonly takers = new Set<() => void>();
  private readers: (() => void)[] = [];

  private readonly acknowledger: Acknowledger;
  private detaching = false;
  private wakeSender: (() => void) | undefined;

  constructor(private readonly rpc: Rpc, private readonly options: RunOptions) {
    const { process } = options.start;
    this.processId = process?.processId ?? "";
    this.sessionId = process?.sessionId ?? "";
    this.tracker = new EventTracker(this.processId, options.afterSeq);
    this.receivedSeq = this.resumedAt = options.afterSeq;
    this.acknowledger = new Acknowledger(() => this.wake());
    this.stdin = new StdinBuffer(process?.io?.io.case === "terminal", () => this.wake());
    this.stopping = new LinkedSignal(rpc.lifetime);
    this.stopping.signal.addEventListener("abort", () => this.releaseReaders(), { once: true });
    this.started = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    this.finished = new Promise((resolve, reject) => (this.finish = { resolve, reject }));
    // Both are told by other calls too.
    this.started.catch(() => undefined);
    this.finished.catch(() => undefined);
    this.over = this.follow();
  }

  /** How the process ended, as far as events were taken. */
  get exit(): Exit | undefined {
    return this.tracker.exit;
  }

  /** Whether the closed event was taken. */
  get closed(): boolean {
    return this.tracker.closed;
  }

  /** The seq of the last event that was taken. */
  get lastSeq(): number {
    return this.tracker.last;
  }

  /**
   * Takes the next event and acknowledges those before it; undefined behind the last. What the
   * caller got before, it is done with. Throws why events end before the closed one, once all
   * that were received are taken.
   */
  async take(signal?: AbortSignal): Promise<ReturnType<EventTracker["take"]>> {
    for (;;) {
      signal?.throwIfAborted();
      this.acknowledger.done(this.tracker.last, false);
      const message = this.pending.shift();
      if (!message) {
        if (this.tracker.closed) {
          this.finish.resolve();
          return undefined;
        }
        if (this.ended) {
          this.finish.reject(this.failure);
          throw this.failure;
        }
        await this.news(signal);
        continue;
      }
      const bytes = bytesOf(message);
      this.pendingBytes -= bytes;
      this.releaseReaders();
      let event;
      try {
        event = this.tracker.take(message);
      } catch (error) {
        this.fail(error);
        throw error;
      }
      this.acknowledger.took(bytes);
      if (this.tracker.closed) {
        this.stdin.fail(stdinClosed("the process has ended, and takes no input any more"));
        this.acknowledger.done(this.tracker.last, true); // the server ends the stream by it
        this.finish.resolve();
      }
      if (event) {
        return event;
      }
    }
  }

  /** Waits until there is more to take. */
  private news(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal?.removeEventListener("abort", done);
        this.takers.delete(done);
        resolve();
      };
      signal?.addEventListener("abort", done, { once: true });
      this.takers.add(done);
    });
  }

  /** Waits for a moment until the stream of a process that has closed is over: the server ends it by the last acknowledgement. */
  async settled(): Promise<void> {
    await abortable(this.over, AbortSignal.timeout(endTimeoutMs)).catch(() => undefined);
  }

  /** Kills the process if it may run, and ends the run for the reason. */
  async kill(termination: Termination, reason: unknown): Promise<void> {
    if (!this.ended && !this.receivedClosed) {
      await this.whenStarted(endTimeoutMs);
      await this.terminate(termination);
    }
    this.fail(reason);
    await this.over;
  }

  /** Terminates the process by a call of its own; it is best effort: when it fails, the grace ends the process. */
  async terminate(termination: Termination): Promise<void> {
    const { sessionId, processId } = this;
    await this.rpc
      .call((call) => this.rpc.stubs.processes.terminateProcess({ sessionId, processId, termination }, call), AbortSignal.timeout(endTimeoutMs))
      .catch(() => undefined);
  }

  /** Gives the process up once it has accepted its input, or after a moment. It goes on without an owner. */
  async detach(): Promise<void> {
    await this.started;
    if (!this.ended) {
      this.detaching = true;
      this.wake();
    }
    await this.over;
    if (!this.detached && !this.receivedClosed) {
      throw this.failure;
    }
  }

  /** Gives the process up if that can be done within a while, and ends the run for the reason. */
  async letGo(reason: unknown): Promise<void> {
    await abortable(this.detach(), AbortSignal.timeout(endTimeoutMs)).catch(() => undefined);
    this.fail(reason);
    await this.over;
  }

  /** Ends the run for the reason. The process is kept by its server for the grace. */
  fail(reason: unknown): void {
    if (!this.ended) {
      this.failure ??= reason;
      this.stopping.abort(reason);
    }
  }

  private async whenStarted(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
    await Promise.race([this.started.catch(() => undefined), late]);
    clearTimeout(timer);
  }

  private async follow(): Promise<void> {
    try {
      while (!this.detached) {
        try {
          await this.attempt();
          break;
        } catch (thrown) {
          if (this.receivedClosed) {
            break; // nothing more can be learned
          }
          const error = this.stopping.signal.aborted ? this.stopping.signal.reason : fromRpc(thrown);
          await this.lose(error);
        }
      }
    } catch (error) {
      // The way to the server is gone for good.
      this.failure ??= error instanceof ConnectionError && this.sentAt !== undefined ? this.lostError(error) : error;
    }
    this.end();
  }

  private end(): void {
    this.ended = true;
    this.stopping.dispose();
    this.acknowledger.stop();
    if (this.detached) {
      this.failure ??= new ClosedError("the process was detached from");
    }
    if (this.detached || this.stopping.signal.aborted) {
      // Whoever took events may never ask for the next one.
      this.finish.reject(this.failure ?? this.stopping.signal.reason);
    }
    this.settle.reject(this.failure ?? new ProtocolError("the run ended before the process was started"));
    this.stdin.fail(
      this.receivedClosed
        ? stdinClosed("the process has ended, and takes no input any more")
        : (this.failure ?? new ClosedError("the process is not followed any more")),
    );
    this.wakeTakers();
    this.releaseReaders();
  }

  /** Follows the process over one stream, which returns when the process has closed or is given up. */
  private async attempt(): Promise<void> {
    if (this.repeatIsLate()) {
      throw this.lostError(this.failure ?? new Error("the start was not answered in time"));
    }
    const linked = new LinkedSignal(this.stopping.signal);
    const stream = { over: false };
    try {
      const responses = this.rpc.stubs.processes.runProcess(this.requests(stream), { signal: linked.signal });
      for await (const response of responses) {
        await this.receive(response);
      }
    } finally {
      linked.abort(new ClosedError("the stream is over"));
      stream.over = true;
      this.wake();
    }
    if (this.receivedClosed) {
      return;
    }
    if (this.detaching) {
      this.detached = true;
      return;
    }
    throw new ProtocolError(`the stream ended after seq ${this.receivedSeq} without saying that the process closed`);
  }

  /** What is said on one stream. It never ends by itself: that would be a half-close. */
  private async *requests(stream: { over: boolean }): AsyncGenerator<RunProcessRequest> {
    this.streamStarted = false;
    this.sentAt ??= performance.now();
    yield this.opening();
    let detachBy: number | undefined;
    while (!stream.over) {
      const request = this.streamStarted ? this.next() : undefined;
      if (request) {
        yield request;
        continue;
      }
      let timer: NodeJS.Timeout | undefined;
      if (this.streamStarted && this.detaching) {
        detachBy ??= performance.now() + detachTimeoutMs;
        if (this.stdin.drained || performance.now() >= detachBy) {
          yield create(RunProcessRequestSchema, { message: { case: "detach", value: {} } });
          detachBy = Infinity;
        } else if (detachBy !== Infinity) {
          timer = setTimeout(() => this.wake(), detachBy - performance.now());
        }
      }
      await new Promise<void>((resolve) => (this.wakeSender = resolve));
      clearTimeout(timer);
    }
  }

  private streamStarted = false;

  /** The same start until it was answered, then a resume from what was taken. */
  private opening(): RunProcessRequest {
    const { start, found } = this.options;
    if (!this.isStarted && !found) {
      return create(RunProcessRequestSchema, { message: { case: "start", value: start } });
    }
    this.resumedAt = this.tracker.last;
    return create(RunProcessRequestSchema, {
      message: {
        case: "resume",
        value: {
          sessionId: this.sessionId,
          processId: this.processId,
          afterSeq: BigInt(this.resumedAt),
          ...(start.grace && { grace: start.grace }),
        },
      },
    });
  }

  /** What is to be said next. An acknowledgement goes first: the server waits for it, and input may be endless. */
  private next(): RunProcessRequest | undefined {
    const seq = this.acknowledger.next();
    if (seq !== undefined) {
      return create(RunProcessRequestSchema, { message: { case: "acknowledge", value: { seq: BigInt(seq) } } });
    }
    const piece = this.stdin.next();
    return piece && create(RunProcessRequestSchema, { message: { case: "stdin", value: { ...piece, offset: BigInt(piece.offset) } } });
  }

  private wake(): void {
    const wake = this.wakeSender;
    this.wakeSender = undefined;
    wake?.();
  }

  private async receive({ message }: RunProcessResponse): Promise<void> {
    if (!this.streamStarted && message.case !== "started") {
      throw new ProtocolError("the first answer was not that the process runs");
    }
    switch (message.case) {
      case "started":
        if (this.streamStarted) {
          throw new ProtocolError("it said twice on one stream that the process runs");
        }
        this.begin(message.value);
        break;
      case "events":
        this.queue(message.value.events);
        while (this.pendingBytes > this.options.maxBufferedBytes && !this.stopping.signal.aborted) {
          await new Promise<void>((resolve) => this.readers.push(resolve));
        }
        break;
      case "stdinAccepted":
        this.stdin.accept(Number(message.value.offset));
        break;
      case "rejected":
        this.reject(message.value);
        break;
    }
  }

  /** Begins a stream that is answered: what was received over the last one and not taken comes again. */
  private begin(started: RunStarted): void {
    const { process } = started;
    if (!process) {
      throw new ProtocolError("it did not say which process runs");
    }
    if (!this.isStarted) {
      if (this.options.found) {
        this.stdin.join(Number(started.stdinOffset), process.hasTerminal);
      } else if (started.resumed) {
        this.stdin.repeat();
      }
    }
    this.stdin.resume(Number(started.stdinOffset), Number(started.stdinWindowBytes));
    this.pending = new Queue();
    this.pendingBytes = 0;
    this.receivedSeq = this.tracker.last;
    this.tracker.resume(this.resumedAt);
    this.acknowledger.resume(Number(started.outputWindowBytes), Number(started.outputWindowEvents));
    if (this.options.found) {
      this.tracker.meet(process);
      this.receivedClosed ||= this.tracker.closed;
    }
    this.streamStarted = true;
    const first = !this.isStarted;
    this.isStarted = true;
    if (this.attempts.lostAt !== undefined) {
      this.attempts.lostAt = undefined;
      this.tracker.resumed++;
      this.options.onResumed?.();
    }
    if (first) {
      this.settle.resolve(process);
    }
    this.wakeTakers();
    this.wake();
  }

  private queue(events: EventMessage[]): void {
    for (const event of events) {
      this.pending.push(event);
      this.pendingBytes += bytesOf(event);
      if (event.seq !== 0n) {
        this.receivedSeq = Number(event.seq);
      }
      if (event.event.case === "exited") {
        this.receivedExit = event;
      }
      this.receivedClosed ||= event.event.case === "closed";
    }
    this.attempts.progress();
    this.wakeTakers();
  }

  private reject(rejected: RunRejected): void {
    if (rejected.reason === ErrorReason.STDIN_CLOSED || rejected.reason === ErrorReason.STDIN_NOT_PIPED) {
      this.stdin.fail(stdinClosed(rejected.message));
    }
  }

  /** Notes that the connection is lost, and waits before another attempt; throws if there is no use in one. */
  private async lose(error: unknown): Promise<void> {
    if (this.stopping.signal.aborted) {
      throw this.stopping.signal.reason;
    }
    if (!(error instanceof ExecwireError)) {
      throw error;
    }
    const wasThere = this.isStarted || (this.options.found && this.attempts.lostAt !== undefined);
    if (wasThere && (error.reason === "PROCESS_NOT_FOUND" || error.reason === "SESSION_NOT_FOUND")) {
      throw this.lostError(error);
    }
    const firstAnswer = !this.isStarted && this.attempts.lostAt === undefined;
    if (firstAnswer && (error.reason === "DRAINING" || error.reason === "SANDBOX_NOT_STARTED")) {
      throw error;
    }
    if (!this.attempts.transient(error)) {
      throw error;
    }
    if (this.sentAt === undefined) {
      if (this.attempts.lostForMs() > repeatWithinMs) {
        throw error; // it was never asked for
      }
    } else if (this.graceIsOver() || this.repeatIsLate()) {
      throw this.lostError(error);
    }
    if (this.attempts.lostAt === undefined) {
      this.attempts.lostAt = performance.now();
      this.options.onLost?.(error);
    }
    await this.attempts.backoff.wait(error.retryAfterMs, this.stopping.signal);
  }

  /** Whether the server has certainly given the process up, or the client is to. */
  private graceIsOver(): boolean {
    const { grace } = this.options.start;
    if (grace && durationMs(grace) === 0) {
      return true;
    }
    const keptMs = grace ? durationMs(grace) : assumedGraceMs;
    return this.attempts.lostForMs() > Math.min(keptMs + graceMarginMs, Math.max(this.rpc.resumeForMs, grace ? keptMs : 0));
  }

  private repeatIsLate(): boolean {
    return !this.isStarted && !this.options.found && this.sentAt !== undefined && performance.now() - this.sentAt > repeatWithinMs;
  }

  private lostError(cause: unknown): LostError {
    let exit: Exit | undefined = this.tracker.exit;
    if (!exit && this.receivedExit) {
      // Told, but not taken: all that waits before it is still taken first.
      const peek = new EventTracker(this.processId, Number(this.receivedExit.seq) - 1);
      peek.take(this.receivedExit);
      exit = peek.exit;
    }
    return new LostError(
      {
        processId: this.processId,
        started: this.isStarted || this.options.found,
        exit,
        lastSeq: this.receivedSeq,
        lostForMs: this.attempts.lostForMs(),
      },
      cause,
    );
  }

  private wakeTakers(): void {
    for (const wake of [...this.takers]) {
      wake();
    }
  }

  private releaseReaders(): void {
    for (const release of this.readers.splice(0)) {
      release();
    }
  }
}

function bytesOf({ event }: EventMessage): number {
  return event.case === "output" ? event.value.data.length : 0;
}
