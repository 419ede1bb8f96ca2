import { concat } from "./bytes.js";
import { makeError, ProtocolError, UsageError, type ClientError } from "./errors.js";
import { abortable } from "./time.js";

/** How much is written to memory of its own. */
const blockBytes = 32 << 10;
/** The most input of one call. One call at a time is in flight, so this limits the rate of input over a slow network. */
const maxPieceBytes = 1 << 20;
/** How much may be written before the server announces its window. */
const firstWindowBytes = 64 << 10;
/** The end-of-file character of a terminal. */
const endOfTransmission = 0x04;

/** A piece of input to be sent. */
export interface InputPiece {
  readonly offset: number;
  readonly data: Uint8Array;
  readonly endOfFile: boolean;
}

/**
 * Input of a process, kept until the server has accepted it, to send it again after a cut: at most one
 * window.
 */
export class StdinBuffer {
  /** Written but unaccepted input, oldest first. */
  private blocks: { offset: number; data: Uint8Array }[] = [];
  // accepted ≤ sent, and sent ≤ written unless repeated. sent is reset by a resume.
  private accepted = 0;
  private sent = 0;
  private written = 0;
  private window = firstWindowBytes;
  /** Whether the process received input before: it is written again up to accepted, and dropped. */
  private repeated = false;
  private ended = false;
  private endSent = false;
  private endAccepted = false;
  /** Why input is rejected, or undefined. */
  private failure: unknown;
  private last = 0x0a;
  private waiting: (() => void)[] = [];
  private queue: Promise<unknown> = Promise.resolve();

  /** wake is called when there may be something to send. */
  constructor(private terminal: boolean, private readonly wake: () => void) {}

  /** Records that the caller writes again, from its beginning, input that the process already received. */
  setRepeated(): void {
    this.repeated = true;
  }

  /** Sets the offset after input that the process received from others, and whether it has a terminal. */
  startAt(offset: number, terminal: boolean): void {
    this.accepted = this.sent = this.written = offset;
    this.terminal = terminal;
  }

  /** Begins a stream: offset is what the server has accepted. */
  resume(offset: number, window: number): void {
    if (offset < this.accepted || (offset > this.written && !this.repeated)) {
      throw new ProtocolError(`it has accepted ${offset} bytes of stdin, of which ${this.accepted} to ${this.written} are possible`);
    }
    this.checkShort(offset);
    this.sent = offset;
    this.window = Math.max(window, 1);
    this.endSent = false;
    this.release(offset);
  }

  /**
   * Records what the server has accepted, which can be more than this stream has sent; endOfFile includes the
   * end.
   */
  accept(offset: number, endOfFile: boolean): void {
    if (offset > this.written && !this.repeated) {
      throw new ProtocolError(`it accepted ${offset} bytes of stdin when ${this.written} were written`);
    }
    this.checkShort(offset);
    this.sent = Math.max(this.sent, offset);
    if (endOfFile && !this.endAccepted) {
      this.endAccepted = true;
      this.wake();
    }
    if (offset > this.accepted) {
      this.release(offset);
    }
  }

  /** Writes, and waits while the window is full. Writes are applied in the order of their calls. */
  write(data: Uint8Array, signal?: AbortSignal): Promise<void> {
    const turn = this.queue.then(() => this.append(data, signal));
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  /** Ends the input after everything written. Ending it twice is not an error. */
  end(): Promise<void> {
    const turn = this.queue.then(() => {
      if (this.ended || this.failure !== undefined) {
        return;
      }
      if (this.terminal) {
        // In the middle of a line the character only submits the line; a second one ends the input.
        this.push(Uint8Array.from(this.last === 0x0a ? [endOfTransmission] : [endOfTransmission, endOfTransmission]));
      }
      this.ended = true;
      this.wake();
      this.checkShort(this.accepted);
    });
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  /** Rejects input from now on, and drops what was written. The first reason is kept. */
  fail(reason: unknown): void {
    this.failure ??= reason;
    this.blocks = [];
    this.notify();
    this.wake();
  }

  /** Whether the error is the reason why input is rejected. */
  isRejection(error: unknown): boolean {
    return this.failure !== undefined && this.failure === error;
  }

  /** Whether all input was accepted, including its end, as far as the process accepts input. */
  get drained(): boolean {
    const endKnown = !this.ended || this.terminal || this.endAccepted;
    return this.failure !== undefined || (endKnown && this.accepted >= this.written);
  }

  /** The next piece to send, or undefined if there is none or no window. */
  next(): InputPiece | undefined {
    if (this.failure !== undefined) {
      return undefined;
    }
    const data = this.unsent();
    const endOfFile = this.ended && !this.terminal && this.sent + data.length === this.written;
    if (data.length === 0 && (!endOfFile || this.endSent)) {
      return undefined;
    }
    const piece = { offset: this.sent, data, endOfFile };
    this.sent += data.length;
    this.endSent = endOfFile;
    return piece;
  }

  private unsent(): Uint8Array {
    let room = Math.min(maxPieceBytes, Math.max(0, this.accepted + this.window - this.sent));
    const parts: Uint8Array[] = [];
    for (const { offset, data } of this.blocks) {
      const part = data.subarray(Math.max(0, this.sent - offset)).subarray(0, room);
      if (part.length > 0) {
        parts.push(part);
        room -= part.length;
      }
    }
    return parts.length === 1 ? parts[0]! : concat(parts);
  }

  private async append(data: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    for (let from = 0; ; ) {
      signal?.throwIfAborted();
      if (this.failure !== undefined) {
        throw this.failure;
      }
      if (this.ended) {
        throw new UsageError("the input of the process was closed: nothing can be written after its end");
      }
      if (from === data.length) {
        return;
      }
      const free = this.window - Math.max(0, this.written - this.accepted);
      if (free <= 0) {
        await abortable(new Promise<void>((resolve) => this.waiting.push(resolve)), signal);
        continue;
      }
      const length = Math.min(free, blockBytes, data.length - from);
      // The caller may reuse its memory; slice of a Buffer would not copy.
      this.push(new Uint8Array(data.subarray(from, from + length)));
      from += length;
    }
  }

  private push(data: Uint8Array): void {
    this.blocks.push({ offset: this.written, data });
    this.written += data.length;
    this.last = data[data.length - 1] ?? this.last;
    this.release(this.accepted);
    this.wake();
  }

  private release(offset: number): void {
    this.accepted = offset;
    let n = 0;
    for (const block of this.blocks) {
      if (block.offset + block.data.length > offset) {
        break;
      }
      n++;
    }
    this.blocks.splice(0, n);
    this.notify();
    this.wake();
  }

  private notify(): void {
    for (const resolve of this.waiting.splice(0)) {
      resolve();
    }
  }

  private checkShort(offset: number): void {
    if (this.ended && offset > this.written) {
      throw new UsageError(
        `the input ended after ${this.written} bytes, before the ${offset} that the process has consumed from an earlier run`,
      );
    }
  }
}

/** The error of a write when the process accepts no more input. */
export function stdinClosed(message: string): ClientError {
  return makeError("FAILED_PRECONDITION", message, {
    reason: "STDIN_CLOSED",
    metadata: {},
    fields: [],
    resource: "",
    retryAfterMs: 0,
  });
}
