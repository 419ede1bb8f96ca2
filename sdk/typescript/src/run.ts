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
import { isRestarted, Link } from "./link.js";
import type { Rpc } from "./rpc.js";
import { fromRpc } from "./status.js";
import { StdinBuffer, stdinClosed } from "./stdin.js";
import { abortable, LinkedSignal } from "./time.js";

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
  private readonly inbox: Inbox;
  private readonly link: Link;
  private readonly stopping: LinkedSignal;
  private settle!: { resolve: (process: Process) => void; reject: (error: unknown) => void };
  private finish!: { resolve: () => void; reject: (error: unknown) => void };
  private ended = false;

  /** Behind which seq the stream tells what happened. */
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
    this.link = new Link(options.start, options.found, rpc.resumeForMs);
    this.resumedAt = options.afterSeq;
    this.acknowledger = new Acknowledger(() => this.wake());
    this.stdin = new StdinBuffer(process?.io?.io.case === "terminal", () => this.wake());
    this.stopping = new LinkedSignal(rpc.lifetime);
    this.stopping.signal.addEventListener("abort", () => this.inbox.wakeReceivers(), { once: true });
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
        await this.inbox.news(signal);
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
        this.acknowledger.done(true); // the server ends the stream by it
        this.finish.resolve();
      }
      if (event) {
        return event;
      }
    }
  }

  /** Waits for a moment until the stream of a process that has closed is over: the server ends it by the last acknowledgement. */
  async settled(): Promise<void> {
    await abortable(this.over, AbortSignal.timeout(endTimeoutMs)).catch(() => undefined);
  }

  /** Kills the process if it may run, and ends the run for the reason. */
  async kill(termination: Termination, reason: unknown): Promise<void> {
    if (!this.ended && !this.inbox.closed) {
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
    if (!this.detached && !this.inbox.closed) {
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
          if (this.inbox.closed) {
            break; // nothing more can be learned
          }
          const error = this.stopping.signal.aborted ? this.stopping.signal.reason : fromRpc(thrown);
          await this.lose(error);
        }
      }
    } catch (error) {
      // The way to the server is gone for good.
      this.failure ??= error instanceof ConnectionError && this.link.sentAt !== undefined ? this.lostError(error) : error;
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
      this.inbox.closed
        ? stdinClosed("the process has ended, and takes no input any more")
        : (this.failure ?? new ClosedError("the process is not followed any more")),
    );
    this.inbox.wakeTakers();
    this.inbox.wakeReceivers();
  }

  /** Follows the process over one stream, which returns when the process has closed or is given up. */
  private async attempt(): Promise<void> {
    if (this.link.repeatIsLate()) {
      throw this.lostError(this.failure ?? new Error("the start was not answered in time"));
    }
    const linked = new LinkedSignal(this.stopping.signal);
    const stream = { over: false };
    // Whoever waits for room does not read, and would not learn it.
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
    throw new ProtocolError(`the stream ended after seq ${this.inbox.lastSeq} without saying that the process closed`);
  }

  /** What is said on one stream. It never ends by itself: that would be a half-close. */
  private async *requests(stream: { over: boolean }): AsyncGenerator<RunProcessRequest> {
    this.streamStarted = false;
    this.link.sentAt ??= performance.now();
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
  /** Whether a connection was lost since the stream began, which may be that of the stream: all that came over it is read then, at most a window. */
  private lossSeen = false;
  /** The run of the server that has the process, empty while it has not told. */
  private instanceId = "";

  /** The same start until it was answered, then a resume from what was taken. */
  private opening(): RunProcessRequest {
    const { start, found } = this.options;
    if (!this.link.started && !found) {
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
        this.inbox.add(message.value.events);
        this.link.attempts.progress();
        while (this.inbox.full && !this.lossSeen && !this.stopping.signal.aborted) {
          await this.inbox.room();
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

  /** Begins a stream that is answered: what was received over the last one and not taken comes again. */
  private begin(started: RunStarted): void {
    const { process } = started;
    if (!process) {
      throw new ProtocolError("it did not say which process runs");
    }
    if (!this.link.started) {
      if (this.options.found) {
        this.stdin.join(Number(started.stdinOffset), process.hasTerminal);
      } else if (started.resumed) {
        this.stdin.repeat();
      }
    }
    this.stdin.resume(Number(started.stdinOffset), Number(started.stdinWindowBytes));
    this.inbox.restart(this.tracker.last);
    this.tracker.resume(this.resumedAt);
    this.acknowledger.resume(Number(started.outputWindowBytes), Number(started.outputWindowEvents));
    if (this.options.found) {
      this.tracker.meet(process);
      this.inbox.closed ||= this.tracker.closed;
    }
    this.streamStarted = true;
    this.lossSeen = false;
    this.instanceId = started.instanceId;
    const first = !this.link.started;
    if (this.link.regain()) {
      this.tracker.resumed++;
      this.options.onResumed?.();
    }
    if (first) {
      this.settle.resolve(process);
    }
    this.inbox.wakeTakers();
    this.wake();
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
    switch (this.link.judge(error)) {
      case "failed":
        throw error;
      case "lost":
        throw this.lostError(error);
    }
    if (this.link.lose()) {
      this.options.onLost?.(error);
    }
    await this.link.attempts.backoff.wait(error.retryAfterMs, this.stopping.signal);
  }

  private lostError(cause: unknown): LostError {
    const kind = isRestarted(this.instanceId, cause) ? RestartedError : LostError;
    return new kind(
      {
        processId: this.processId,
        started: this.link.started || this.options.found,
        exit: this.tracker.exit ?? this.inbox.exit,
        lastSeq: this.inbox.lastSeq,
        lostForMs: this.link.attempts.lostForMs(),
      },
      cause,
    );
  }
}
