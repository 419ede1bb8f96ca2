import { ProtocolError } from "./errors.js";
import { type Exit, makeExit } from "./exit.js";
import { type ExitRecord, OutputStream, type ProcessEvent as Message } from "./gen/execwire/v1/process_event_pb.js";
import { type Process, ProcessState } from "./gen/execwire/v1/process_pb.js";

/** Where bytes came from: one of the pipes, or the terminal that is all of them. */
export type StreamName = "stdout" | "stderr" | "terminal";

/** Bytes that a process wrote. Where they are cut means nothing. */
export interface OutputEvent {
  readonly type: "output";
  readonly seq: number;
  readonly stream: StreamName;
  /** How many bytes of the stream came before these. */
  readonly offset: number;
  readonly data: Uint8Array;
}

/** Output is missing here: it was dropped before it could be received. */
export interface GapEvent {
  readonly type: "gap";
  /** The seq of the event that follows. */
  readonly firstAvailableSeq: number;
  /** The output bytes in the gap over all streams, or an upper bound of them. */
  readonly droppedBytes: number;
  readonly upperBound: boolean;
}

/** The process exited. Descendants that hold a stream open may still write. */
export interface ExitedEvent {
  readonly type: "exited";
  readonly seq: number;
  readonly exit: Exit;
}

/** All streams have ended and the exit is known. Always last. */
export interface ClosedEvent {
  readonly type: "closed";
  readonly seq: number;
}

/** One thing that a process did, in the order in which it did it. */
export type ProcessEvent = OutputEvent | GapEvent | ExitedEvent | ClosedEvent;

const names: Readonly<Record<number, StreamName>> = {
  [OutputStream.STDOUT]: "stdout",
  [OutputStream.STDERR]: "stderr",
  [OutputStream.TERMINAL]: "terminal",
};

interface StreamState {
  /** The bytes so far, dropped ones included. */
  offset: number;
  /** Whether it may go on at a higher offset than its last. */
  gap: boolean;
  /** Whether what was before its first output is not known: it began to be read somewhere. */
  joined: boolean;
}

/** Checks the events of a process: every event once, in order, and nothing missing that is not declared. */
export class EventTracker {
  /** The seq of the last event that was taken. */
  last = 0;
  closed = false;
  /** How often the connection was lost and the process taken up again. */
  resumed = 0;
  private record: ExitRecord | undefined;
  private dropped = 0;
  /** Up to where a stream tells again what was taken; undefined while none does. */
  private again: number | undefined;
  private readonly streams: Record<StreamName, StreamState> = {
    stdout: { offset: 0, gap: false, joined: false },
    stderr: { offset: 0, gap: false, joined: false },
    terminal: { offset: 0, gap: false, joined: false },
  };

  constructor(private readonly processId: string, afterSeq: number) {
    this.last = afterSeq;
    if (afterSeq > 0) {
      for (const stream of Object.values(this.streams)) {
        stream.joined = true;
      }
    }
  }

  /** How the process ended, as far as that is known. */
  get exit(): Exit | undefined {
    return (
      this.record &&
      makeExit(this.processId, this.record, {
        stdoutBytes: this.streams.stdout.offset,
        stderrBytes: this.streams.stderr.offset,
        terminalBytes: this.streams.terminal.offset,
        droppedBytes: this.dropped,
        resumed: this.resumed,
      })
    );
  }

  /** Takes what a server says of a process whose events before a join were not seen. */
  meet(process: Process): void {
    this.record ??= process.exit;
    if (process.state === ProcessState.CLOSED && Number(process.lastSeq) === this.last && this.record) {
      this.closed = true;
    }
  }

  /** Says that a stream begins that tells all behind a seq, which may have been taken meanwhile. */
  resume(afterSeq: number): void {
    this.again = afterSeq < this.last ? this.last : undefined;
  }

  /** Takes one event; undefined of one that was taken before, or whose kind is not known. */
  take(message: Message): ProcessEvent | undefined {
    const seq = Number(message.seq);
    if (message.event.case === "gap") {
      const { firstAvailableSeq, droppedBytes, upperBound } = message.event.value;
      return this.skip(seq, { type: "gap", firstAvailableSeq: Number(firstAvailableSeq), droppedBytes: Number(droppedBytes), upperBound });
    }
    if (seq <= this.last && seq !== 0) {
      return undefined;
    }
    if (seq !== this.last + 1) {
      throw new ProtocolError(`seq ${seq} follows seq ${this.last} without a gap`);
    }
    if (this.closed) {
      throw new ProtocolError(`seq ${seq} follows the closed event`);
    }
    const event = this.apply(seq, message);
    this.last = seq;
    return event;
  }

  private apply(seq: number, message: Message): ProcessEvent | undefined {
    switch (message.event.case) {
      case "output": {
        const { stream, offset, data } = message.event.value;
        const name = names[stream];
        if (name === undefined) {
          throw new ProtocolError(`output of an unknown stream, number ${stream}`);
        }
        this.advance(name, Number(offset), data.length);
        return { type: "output", seq, stream: name, offset: Number(offset), data };
      }
      case "exited": {
        if (!message.event.value.exit) {
          throw new ProtocolError("the exited event has no exit record");
        }
        this.record = message.event.value.exit;
        return { type: "exited", seq, exit: this.exit as Exit };
      }
      case "closed":
        if (!this.record) {
          throw new ProtocolError("the process closed without an exit record");
        }
        for (const total of message.event.value.totals) {
          const name = names[total.stream];
          if (name !== undefined) {
            this.complete(name, Number(total.bytes));
          }
        }
        this.closed = true;
        return { type: "closed", seq };
    }
    return undefined;
  }

  private advance(name: StreamName, offset: number, length: number): void {
    const stream = this.streams[name];
    if (stream.joined) {
      stream.joined = false;
      stream.offset = offset;
    }
    if (offset !== stream.offset && (!stream.gap || offset < stream.offset)) {
      throw new ProtocolError(`${name} goes on at offset ${offset} instead of ${stream.offset}`);
    }
    this.dropped += offset - stream.offset;
    stream.offset = offset + length;
    stream.gap = false;
  }

  private complete(name: StreamName, total: number): void {
    const stream = this.streams[name];
    if (stream.joined) {
      stream.offset = total;
    }
    if (total !== stream.offset && (!stream.gap || total < stream.offset)) {
      throw new ProtocolError(`${stream.offset} bytes of ${name} were sent and ${total} were announced`);
    }
    this.dropped += total - stream.offset;
    stream.offset = total;
  }

  private skip(seq: number, gap: GapEvent): GapEvent | undefined {
    if (this.again === this.last && seq === 0) {
      if (gap.firstAvailableSeq <= this.last + 1) {
        return undefined;
      }
      gap = { ...gap, upperBound: true }; // it counts what was taken too
    }
    if (seq !== 0 || gap.firstAvailableSeq <= this.last + 1 || this.closed) {
      throw new ProtocolError(`a gap up to seq ${gap.firstAvailableSeq} after seq ${this.last}`);
    }
    this.last = gap.firstAvailableSeq - 1;
    for (const stream of Object.values(this.streams)) {
      stream.gap = true;
    }
    return gap;
  }
}
