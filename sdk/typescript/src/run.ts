import { create } from "@bufbuild/protobuf";
import { Acknowledger } from "./acknowledger.js";
import { ClosedError, ConnectionError, ExecwireError, LostError, ProtocolError, RestartedError } from "./errors.js";
import { EventTracker } from "./events.js";
import type { Exit } from "./exit.js";
import { ErrorReason } from "./gen/execwire/v1/error_pb.js";
import type { Termination } from "./gen/execwire/v1/process_command_pb.js";
import type { Process } from "./gen/execwire/v1/process_pb.js";
import {
  type RunProcessRequest,
  RunProcessRequestSchema,
  type RunProcessResponse,
  type RunRejected,
  type RunStart,
  type RunStarted,
} from "./gen/execwire/v1/process_run_pb.js";
import { Inbox } from "./inbox.js";
import { isRestarted, ConnectionState } from "./connection-state.js";
import type { Rpc } from "./rpc.js";
import { fromRpc } from "./status.js";
import { StdinBuffer, stdinClosed } from "./stdin.js";
import { abortable, LinkedSignal } from "./time.js";

/** Limits the cleanup for a process that is no longer followed. */
const endTimeoutMs = 5_000;
/** How long a detached process may take to accept its input. */
const detachTimeoutMs = 1_000;

/** Options of a run. */
export interface RunOptions {
  /** What to start or, for an existing process, its id; and the grace period. */
  readonly start: RunStart;
  /** Whether the process existed before. */
  readonly existing: boolean;
  readonly afterSeq: number;
  /** How much output may be buffered for its reader, in bytes. */
  readonly maxBufferedBytes: number;
  readonly onLost?: ((error: unknown) => void) | undefined;
  readonly onResumed?: (() => void) | undefined;
}

/**
 * Run owns a process: it follows it over one stream after the other until it has closed. Events are buffered
 * until they are consumed, and acknowledged then, so that a slow reader blocks the process.
 */
export class Run {
  readonly processId: string;
  readonly sessionId: string;
  readonly stdin: StdinBuffer;
  /** The process, once the server has confirmed that it runs; rejects if it never does. */
  readonly started: Promise<Process>;
  /** Resolves when no more events follow; never rejects. */
  readonly over: Promise<void>;
  /**
   * Resolves when the closed event was consumed; rejects when it will not come, after the consumer got the error,
   * or the run was ended locally.
   */
  readonly finished: Promise<void>;
  /** Why events end before the closed event; else undefined. */
  failure: unknown;
  detached = false;

  private readonly tracker: EventTracker;
  private readonly inbox: Inbox;
  private readonly state: ConnectionState;
  private readonly stopping: LinkedSignal;
  private settle!: { resolve: (process: Process) => void; reject: (error: unknown) => void };
  private finish!: { resolve: () => void; reject: (error: unknown) => void };
  private ended = false;

  /** The seq after which the stream began. */
  private resumedAt: number;
  private readonly acknowledger: Acknowledger;
  private detaching = false;
  private wakeSender: (() => void) | undefined;

  constructor(private readonly rpc: Rpc, private readonly options: RunOptions) {
    const { process } = options.start;
    this.processId = process?.processId ?? "";
    this.sessionId = process?.sessionId ?? "";
    this.tracker = new EventTracker(this.processId, options.afterSeq);
    this.inbox = new Inbox(this.processId, options.afterSeq, options.maxBufferedBytes);
    this.state = new ConnectionState(options.start, options.existing, rpc.resumeForMs);
    this.resumedAt = options.afterSeq;
    this.acknowledger = new Acknowledger(() => this.wake());
    this.stdin = new StdinBuffer(process?.io?.io.case === "terminal", () => this.wake());
    this.stopping = new LinkedSignal(rpc.lifetime);
    this.stopping.signal.addEventListener("abort", () => this.inbox.wakeReceivers(), { once: true });
    this.started = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    this.finished = new Promise((resolve, reject) => (this.finish = { resolve, reject }));
    // Other calls report both.
    this.started.catch(() => undefined);
    this.finished.catch(() => undefined);
    this.over = this.follow();
  }

  /** How the process ended, as far as events were consumed. */
  get exit(): Exit | undefined {
    return this.tracker.exit;
  }

  /** Whether the closed event was consumed. */
  get closed(): boolean {
    return this.tracker.closed;
  }

  /** The seq of the last consumed event. */
  get lastSeq(): number {
    return this.tracker.last;
  }

  /**
   * Consumes the next event and acknowledges the previous ones, which the caller has finished processing;
   * undefined after the last. Throws why events end before the closed event, after all received ones were
   * consumed.
   */
  async take(signal?: AbortSignal): Promise<ReturnType<EventTracker["take"]>> {
    for (;;) {
      signal?.throwIfAborted();
      this.acknowledger.done(false);
      const next = this.inbox.shift();
      if (!next) {
        if (this.tracker.closed) {
          this.finish.resolve();
          return undefined;
        }
        if (this.ended) {
          this.finish.reject(this.failure);
          throw this.failure;
        }
        await this.inbox.waitForEvent(signal);
        continue;
      }
      let event;
      try {
        event = this.tracker.take(next.message);
      } catch (error) {
        this.fail(error);
        throw error;
      }
      this.acknowledger.took(Number(next.message.seq) || this.tracker.last, next.bytes); // a gap has no seq of its own
      if (this.tracker.closed) {
        this.stdin.fail(stdinClosed("the process has ended, and takes no input any more"));
        this.acknowledger.done(true); // it makes the server end the stream
        this.finish.resolve();
      }
      if (event) {
        return event;
      }
    }
  }

  /**
   * Waits briefly until the stream of a closed process has ended: the server ends it after the last
   * acknowledgement.
   */
  async settled(): Promise<void> {
    await abortable(this.over, AbortSignal.timeout(endTimeoutMs)).catch(() => undefined);
  }

  /** Kills the process if it may run, and ends the run with the reason. */
  async kill(termination: Termination, reason: unknown): Promise<void> {
    if (!this.ended && !this.inbox.closed) {
      await this.whenStarted(endTimeoutMs);
      await this.terminate(termination);
    }
    this.fail(reason);
    await this.over;
  }

  /**
   * Terminates the process by a separate call. It is best effort: if it fails, the grace period ends the
   * process.
   */
  async terminate(termination: Termination): Promise<void> {
    const { sessionId, processId } = this;
    await this.rpc
      .call((call) => this.rpc.stubs.processes.terminateProcess({ sessionId, processId, termination }, call), AbortSignal.timeout(endTimeoutMs))
      .catch(() => undefined);
  }

  /** Detaches once the process has accepted its input, or after a timeout. It continues without an owner. */
  async detach(): Promise<void> {
    await this.started;
    if (!this.ended) {
      this.detaching = true;
      this.wake();
    }
    await this.over;
    if (!this.detached && !this.inbox.closed) {
      throw this.failure;
    }
  }

  /** Detaches if possible within a timeout, and ends the run with the reason. */
  async detachAndEnd(reason: unknown): Promise<void> {
    await abortable(this.detach(), AbortSignal.timeout(endTimeoutMs)).catch(() => undefined);
    this.fail(reason);
    await this.over;
  }

  /** Ends the run with the reason. The server keeps the process for its grace period. */
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
          if (this.inbox.closed) {
            break; // nothing more can be learned
          }
          const error = this.stopping.signal.aborted ? this.stopping.signal.reason : fromRpc(thrown);
          await this.handleLoss(error);
        }
      }
    } catch (error) {
      // The connection is permanently lost.
      this.failure ??= error instanceof ConnectionError && this.state.sentAt !== undefined ? this.lostError(error) : error;
    }
    this.end();
  }

  private end(): void {
    this.ended = true;
    this.stopping.dispose();
    this.acknowledger.stop();
    if (this.detached) {
      this.failure ??= new ClosedError("the process was detached");
    }
    if (this.detached || this.stopping.signal.aborted) {
      // The consumer may never request the next event.
      this.finish.reject(this.failure ?? this.stopping.signal.reason);
    }
    this.settle.reject(this.failure ?? new ProtocolError("the run ended before the process was started"));
    this.stdin.fail(
      this.inbox.closed
        ? stdinClosed("the process has ended, and takes no input any more")
        : (this.failure ?? new ClosedError("the process is no longer followed")),
    );
    this.inbox.wakeConsumers();
    this.inbox.wakeReceivers();
  }

  /** Follows the process over one stream; returns when it has closed or was detached. */
  private async attempt(): Promise<void> {
    if (this.state.startRetryExpired()) {
      throw this.lostError(this.failure ?? new Error("the start was not answered in time"));
    }
    const linked = new LinkedSignal(this.stopping.signal);
    const stream = { over: false };
    // While it waits for space it does not read, and would not notice.
    const forget = this.rpc.onLost(() => {
      this.lossSeen = true;
      this.inbox.wakeReceivers();
    });
    try {
      const responses = this.rpc.stubs.processes.runProcess(this.requests(stream), { signal: linked.signal });
      for await (const response of responses) {
        await this.receive(response);
      }
    } finally {
      forget();
      linked.abort(new ClosedError("the stream is over"));
      stream.over = true;
      this.wake();
    }
    if (this.inbox.closed) {
      return;
    }
    if (this.detaching) {
      this.detached = true;
      return;
    }
    throw new ProtocolError(`the stream ended after seq ${this.inbox.lastSeq} without the closed event`);
  }

  /** The requests of one stream. It never ends by itself: that would be a half-close. */
  private async *requests(stream: { over: boolean }): AsyncGenerator<RunProcessRequest> {
    this.streamStarted = false;
    this.state.sentAt ??= performance.now();
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
  /**
   * Whether a connection was lost since the stream began, possibly its own: everything received over it is
   * processed then, at most a window.
   */
  private lossSeen = false;
  /** The instance id of the server that has the process, empty if unknown. */
  private instanceId = "";

  /** The same start until it was answered, then a resume after the last consumed event. */
  private opening(): RunProcessRequest {
    const { start, existing } = this.options;
    if (!this.state.started && !existing) {
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
          instanceId: this.instanceId,
          ...(start.grace && { grace: start.grace }),
        },
      },
    });
  }

  /**
   * The next request. A due acknowledgement comes first: the server waits for it, and input may be endless.
   */
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
      throw new ProtocolError("the first message does not report the start");
    }
    switch (message.case) {
      case "started":
        if (this.streamStarted) {
          throw new ProtocolError("it reported the start twice on one stream");
        }
        this.begin(message.value);
        break;
      case "events":
        this.inbox.add(message.value.events);
        this.state.attempts.progress();
        while (this.inbox.full && !this.lossSeen && !this.stopping.signal.aborted) {
          await this.inbox.waitForSpace();
        }
        break;
      case "stdinAccepted":
        this.stdin.accept(Number(message.value.offset), message.value.endOfFile);
        break;
      case "rejected":
        this.reject(message.value);
        break;
    }
  }

  /** Begins an answered stream: it repeats events that were received but not consumed. */
  private begin(started: RunStarted): void {
    const { process } = started;
    if (!process) {
      throw new ProtocolError("it did not name the process");
    }
    if (!this.state.started) {
      if (this.options.existing) {
        this.stdin.startAt(Number(started.stdinOffset), process.hasTerminal);
      } else if (started.resumed) {
        this.stdin.setRepeated();
      }
    }
    this.stdin.resume(Number(started.stdinOffset), Number(started.stdinWindowBytes));
    this.inbox.restart(this.tracker.last);
    this.tracker.resume(this.resumedAt);
    this.acknowledger.resume(Number(started.outputWindowBytes), Number(started.outputWindowEvents));
    if (this.options.existing) {
      this.tracker.setInitialState(process);
      this.inbox.closed ||= this.tracker.closed;
    }
    this.streamStarted = true;
    this.lossSeen = false;
    this.instanceId = started.instanceId;
    const first = !this.state.started;
    if (this.state.setConnected()) {
      this.tracker.resumed++;
      this.options.onResumed?.();
    }
    if (first) {
      this.settle.resolve(process);
    }
    this.inbox.wakeConsumers();
    this.wake();
  }

  private reject(rejected: RunRejected): void {
    if (rejected.reason === ErrorReason.STDIN_CLOSED || rejected.reason === ErrorReason.STDIN_NOT_PIPED) {
      this.stdin.fail(stdinClosed(rejected.message));
    }
  }

  /** Records that the connection is lost, and waits before the next attempt; throws if it is useless. */
  private async handleLoss(error: unknown): Promise<void> {
    if (this.stopping.signal.aborted) {
      throw this.stopping.signal.reason;
    }
    if (!(error instanceof ExecwireError)) {
      throw error;
    }
    switch (this.state.classify(error)) {
      case "failed":
        throw error;
      case "lost":
        throw this.lostError(error);
    }
    if (this.state.setLost()) {
      this.options.onLost?.(error);
    }
    await this.state.attempts.backoff.wait(error.retryAfterMs, this.stopping.signal);
  }

  private lostError(cause: unknown): LostError {
    const kind = isRestarted(this.instanceId, cause) ? RestartedError : LostError;
    return new kind(
      {
        processId: this.processId,
        started: this.state.started || this.options.existing,
        exit: this.tracker.exit ?? this.inbox.exit,
        lastSeq: this.inbox.lastSeq,
        lostForMs: this.state.attempts.lostForMs(),
      },
      cause,
    );
  }
}
