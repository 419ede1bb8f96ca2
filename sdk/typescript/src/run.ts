import { create } from "@bufbuild/protobuf";
import { Acknowledger } from "./acknowledger.js";
import { ClosedError, ConnectionError, ExecwireError, LostError, ProtocolError, RestartedError } from "./errors.js";
import { EventTracker } from "./events.js";
import type { Exit } from "./exit.js";
import type { Termination } from "./gen/execwire/v1/process_command_pb.js";
import type { Process } from "./gen/execwire/v1/process_pb.js";
import type { RunStart, RunStarted } from "./gen/execwire/v1/process_run_pb.js";
import { type OwnProcessRequest, OwnProcessRequestSchema, type OwnProcessResponse, ProcessService } from "./gen/execwire/v1/process_service_pb.js";
import { Inbox } from "./inbox.js";
import { isRestarted, ConnectionState } from "./connection-state.js";
import type { Rpc } from "./rpc.js";
import { fromRpc } from "./status.js";
import { StdinBuffer, stdinClosed } from "./stdin.js";
import { abortable, durationOf, LinkedSignal, onAbort, pause } from "./time.js";

/** Limits the cleanup for a process that is no longer followed. */
const endTimeoutMs = 5_000;
/** How long a detached process may take to accept its input. */
const detachTimeoutMs = 10_000;

/** One for all: the stack of an error costs more than the rest of a short stream. */
const streamOver = new ClosedError("the stream is over");

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
  /** Resolve what waits for something to send. */
  private sleepers: (() => void)[] = [];

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
    onAbort(this.stopping.signal, () => this.inbox.wakeReceivers());
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
    let timer: ReturnType<typeof setTimeout> | undefined;
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
    const stream = new LinkedSignal(this.stopping.signal);
    // While it waits for space it does not read, and would not notice.
    const forget = this.rpc.onLost(() => {
      this.lossSeen = true;
      this.inbox.wakeReceivers();
    });
    let calls: Promise<unknown> | undefined;
    this.streamStarted = false;
    try {
      const { message } = await this.rpc.transport.stream(ProcessService.method.ownProcess, stream.signal, undefined, undefined, this.opening());
      for await (const response of message) {
        await this.receive(response);
        calls ??= this.callAsOwner(stream);
      }
    } finally {
      forget();
      stream.abort(streamOver);
      this.wake();
      await calls;
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

  /**
   * Makes the calls of an owner until its stream is over, those of one kind one at a time: none waits for
   * another, and a write may wait until the process reads.
   */
  private async callAsOwner(stream: LinkedSignal): Promise<void> {
    const owner = { sessionId: this.sessionId, processId: this.processId, ownerId: this.ownerId };
    const { processes } = this.rpc.stubs;
    let detachBy: number | undefined;
    let asked = false;
    await Promise.all([
      this.whileOwned(stream, async (signal) => {
        const seq = this.acknowledger.next();
        if (seq === undefined) {
          return false;
        }
        await this.rpc.repeat((call) => processes.acknowledgeOutput({ ...owner, seq: BigInt(seq) }, call), signal);
        return true;
      }),
      this.whileOwned(stream, async (signal) => {
        const piece = this.stdin.next();
        if (!piece) {
          return false;
        }
        const accepted = await this.rpc.repeat((call) => processes.writeStdin({ ...owner, ...piece, offset: BigInt(piece.offset) }, call), signal);
        this.stdin.accept(Number(accepted.acceptedOffset), piece.endOfFile);
        return true;
      }),
      this.whileOwned(stream, async (signal) => {
        if (!this.detaching || asked) {
          return false;
        }
        detachBy ??= performance.now() + detachTimeoutMs;
        const left = detachBy - performance.now();
        if (!this.stdin.drained && left > 0) {
          await Promise.race([this.sleep(), pause(left, signal)]);
          return true;
        }
        asked = true; // the stream ends
        await this.rpc.repeat((call) => processes.detachProcess(owner, call), signal);
        return true;
      }),
    ]);
  }

  /**
   * Calls a function, which returns whether there was something to do, until the stream is over or the function
   * fails.
   */
  private async whileOwned(stream: LinkedSignal, act: (signal: AbortSignal) => Promise<boolean>): Promise<void> {
    try {
      while (!stream.signal.aborted) {
        const woken = this.sleep(); // before act, which may miss what comes meanwhile
        if (!(await act(stream.signal))) {
          await woken;
        }
      }
    } catch (error) {
      if (!stream.signal.aborted) {
        this.handleCallError(error, stream);
      }
    }
  }

  /** Handles the error of a call that cannot be repeated. The stream reports what it knows itself. */
  private handleCallError(error: unknown, stream: LinkedSignal): void {
    switch (error instanceof ExecwireError ? error.reason : "") {
      case "PROCESS_TAKEN_OVER":
      case "PROCESS_NOT_FOUND":
      case "SESSION_NOT_FOUND":
        return;
      case "PROCESS_OWNER_LOST": // the server has noticed it first
        stream.abort(error);
        return;
      case "STDIN_CLOSED":
      case "STDIN_NOT_PIPED":
        this.stdin.fail(stdinClosed(error instanceof Error ? error.message : ""));
        return;
    }
    this.fail(error);
  }

  /** Waits until wake is called. */
  private async sleep(): Promise<void> {
    await new Promise<void>((resolve) => this.sleepers.push(resolve));
  }

  private streamStarted = false;
  /**
   * Whether a connection was lost since the stream began, possibly its own: everything received over it is
   * processed then, at most a window.
   */
  private lossSeen = false;
  /** The instance id of the server that has the process, empty if unknown. */
  private instanceId = "";

  private ownerId = "";

  /**
   * The request of a stream: the same start until it was answered, then a resume after the last consumed event. It
   * is taken when there is a connection.
   */
  private async *opening(): AsyncGenerator<OwnProcessRequest> {
    const sentAt = (this.state.sentAt ??= performance.now());
    const { start, existing } = this.options;
    if (!this.state.started && !existing) {
      if (this.state.attempts.lostAt !== undefined && start.process) {
        // Maybe at another run of the server.
        start.process.firstSentAgo = durationOf("firstSentAgo", performance.now() - sentAt);
      }
      yield create(OwnProcessRequestSchema, { message: { case: "start", value: start } });
      return;
    }
    this.resumedAt = this.tracker.last;
    yield create(OwnProcessRequestSchema, {
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

  private wake(): void {
    for (const resolve of this.sleepers.splice(0)) {
      resolve();
    }
  }

  private async receive({ message }: OwnProcessResponse): Promise<void> {
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
    this.ownerId = started.ownerId;
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
    const started = this.state.started || this.options.existing;
    // Only a server that began after the start was first sent does not know its process.
    const unknown = !started && cause instanceof ExecwireError && cause.reason === "PROCESS_NOT_FOUND";
    const kind = unknown || isRestarted(this.instanceId, cause) ? RestartedError : LostError;
    return new kind(
      {
        processId: this.processId,
        started,
        exit: this.tracker.exit ?? this.inbox.exit,
        lastSeq: this.inbox.lastSeq,
        lostForMs: this.state.attempts.lostForMs(),
      },
      cause,
    );
  }
}
