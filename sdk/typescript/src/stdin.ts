import { makeError, ProtocolError, UsageError, type ClientError } from "./errors.js";
import { abortable } from "./time.js";

/** A full block and its framing fit the buffers that a server has of 32 KiB. */
const blockBytes = 32_700;
/** How much may be written before the server has said what it takes. */
const firstWindowBytes = 64 << 10;
/** The character by which a terminal ends its input. */
const endOfTransmission = 0x04;

/** A piece of input to be sent. */
export interface InputPiece {
  readonly offset: number;
  readonly data: Uint8Array;
  readonly endOfFile: boolean;
}

/**
 * Input for a process, kept until the server has accepted it so that it can be sent again after
 * a cut: at most one window of it.
 */
export class StdinBuffer {
  /** What was written and not accepted, oldest first. */
  private blocks: { offset: number; data: Uint8Array }[] = [];
  // accepted ≤ sent, and sent ≤ written unless repeated.
  private accepted = 0;
  private sent = 0;
  private written = 0;
  private window = firstWindowBytes;
  /** Whether the process got input before: what is written up to accepted is that once more, and dropped. */
  private repeated = false;
  private ended = false;
  private endSent = false;
  private endAccepted = false;
  /** Why input is refused; undefined while it is not. */
  private failure: unknown;
  private last = 0x0a;
  private waiting: (() => void)[] = [];
  private queue: Promise<unknown> = Promise.resolve();

  /** wake is called when there may be something to send. */
  constructor(private terminal: boolean, private readonly wake: () => void) {}

  /** Says that the process got input before that the caller will write once more from its beginning. */
  repeat(): void {
    this.repeated = true;
  }

  /** Says that the process, which may have a terminal, got so much input before, which is not written again. */
  join(offset: number, terminal: boolean): void {
    this.accepted = this.sent = this.written = offset;
    this.terminal = terminal;
  }

  /** Begins a stream: offset is what the server has accepted so far. */
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

  /** Takes what the server has accepted, which can be more than this stream has sent; endOfFile is whether the end was, too. */
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

  /** Writes, and waits while a window is full. Writes are applied in the order of their calls. */
  write(data: Uint8Array, signal?: AbortSignal): Promise<void> {
    const turn = this.queue.then(() => this.append(data, signal));
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  /** Ends the input after what was written. Ending it twice is no error. */
  end(): Promise<void> {
    const turn = this.queue.then(() => {
      if (this.ended || this.failure !== undefined) {
        return;
      }
      if (this.terminal) {
        // In the middle of a line the character only sends the line; a second one ends the input.
        this.push(Uint8Array.from(this.last === 0x0a ? [endOfTransmission] : [endOfTransmission, endOfTransmission]));
      }
      this.ended = true;
      this.wake();
      this.checkShort(this.accepted);
    });
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  /** Refuses input from now on, and lets go of what was written. The first reason stays. */
  fail(reason: unknown): void {
    this.failure ??= reason;
    this.blocks = [];
    this.notify();
    this.wake();
  }

  /** Whether the error is the reason for which input is refused. */
  refuses(error: unknown): boolean {
    return this.failure !== undefined && this.failure === error;
  }

  /** Whether everything that was written was accepted, and its end with it, as far as the process takes input at all. */
  get drained(): boolean {
    const told = !this.ended || this.terminal || this.endAccepted;
    return this.failure !== undefined || (told && this.accepted >= this.written);
  }

  /** The next piece to send, or undefined when there is none or no window for it. */
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
    for (const { offset, data } of this.blocks) {
      const end = offset + data.length;
      if (this.sent < end) {
        const from = this.sent - offset;
        return data.subarray(from, Math.min(data.length, from + Math.max(0, this.accepted + this.window - this.sent)));
      }
    }
    return new Uint8Array();
  }

  private async append(data: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    for (let from = 0; ; ) {
      signal?.throwIfAborted();
      if (this.failure !== undefined) {
        throw this.failure;
      }
      if (this.ended) {
        throw new UsageError("the input of the process was closed: nothing can be written behind its end");
      }
      if (from === data.length) {
        return;
      }
      const room = this.window - Math.max(0, this.written - this.accepted);
      if (room <= 0) {
        await abortable(new Promise<void>((resolve) => this.waiting.push(resolve)), signal);
        continue;
      }
      const length = Math.min(room, blockBytes, data.length - from);
      // The caller may use its memory again; slice of a Buffer would not copy.
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
        `the input ended after ${this.written} bytes, before the ${offset} that the process has taken from an earlier run`,
      );
    }
  }
}

/** What a write fails with when the process takes no input any more. */
export function stdinClosed(message: string): ClientError {
  return makeError("FAILED_PRECONDITION", message, {
    reason: "STDIN_CLOSED",
    metadata: {},
    fields: [],
    resource: "",
    retryAfterMs: 0,
  });
}
