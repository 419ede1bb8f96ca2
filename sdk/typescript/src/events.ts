import { ProtocolError } from "./errors.js";
import type { Exit, ExitCause } from "./exit.js";
import { ExitCause as ProtoExitCause, GapCause as ProtoGapCause, type ExitRecord, OutputStream, type ProcessEvent as Message } from "./gen/execwire/v1/process_event_pb.js";
import { type Process, ProcessState } from "./gen/execwire/v1/process_pb.js";
import { dateOf, durationMs } from "./time.js";

/** The source of output: a pipe, or the terminal for all output. */
export type StreamName = "stdout" | "stderr" | "terminal";

/** Output of a process. Boundaries between events have no meaning. */
export interface OutputEvent {
  /** The kind of event. */
  readonly type: "output";
  /** The number of the event, from 1, consecutive over all kinds. */
  readonly seq: number;
  /** Where it was written. */
  readonly stream: StreamName;
  /** How many bytes of the stream precede the data. */
  readonly offset: number;
  /** The output, never empty. */
  readonly data: Uint8Array;
  /** When the server read it from the process; it never decreases. Undefined: the server has no times. */
  readonly readTime: Date | undefined;
}

/** Why output is missing. */
export type GapCause =
  /** It was beyond the limits of the process, or its owner had acknowledged it. */
  | "limit"
  /** The files of all processes of the server had reached their limit, in bytes or in number. */
  | "files_full"
  /** The file system of the server's output files had too little free space. */
  | "disk_full"
  /** The server could not write it to the file of the process. */
  | "write_failed"
  /** The server could not read it from the file of the process. It may be possible later. */
  | "read_failed"
  /** The server is older than this member, or the cause is one that this package does not know. */
  | "unknown";

/** Output is missing: it was evicted before it was received. */
export interface GapEvent {
  /** The kind of event. */
  readonly type: "gap";
  /** The seq of the next event. */
  readonly firstAvailableSeq: number;
  /** The number of missing bytes over all streams, or an upper bound. */
  readonly droppedBytes: number;
  /** Whether `droppedBytes` is an upper bound. */
  readonly upperBound: boolean;
  /** Why it is missing; of several causes, the last. */
  readonly cause: GapCause;
}

/** The process exited. Descendants with its streams open may still write. */
export interface ExitedEvent {
  /** The kind of event. */
  readonly type: "exited";
  /** The number of the event. */
  readonly seq: number;
  /** How it ended. */
  readonly exit: Exit;
}

/** All streams have ended and the exit is known. The last event. */
export interface ClosedEvent {
  /** The kind of event. */
  readonly type: "closed";
  /** The number of the event, the highest. */
  readonly seq: number;
}

/** An event of a process, in order. */
export type ProcessEvent = OutputEvent | GapEvent | ExitedEvent | ClosedEvent;

const names: Readonly<Record<number, StreamName>> = {
  [OutputStream.STDOUT]: "stdout",
  [OutputStream.STDERR]: "stderr",
  [OutputStream.TERMINAL]: "terminal",
};

interface StreamState {
  /** The next offset, including dropped bytes. */
  offset: number;
  /** Whether the next output may have a higher offset. */
  gap: boolean;
  /** Whether the offset of the first output is unknown, because reading began in the middle. */
  unknownStart: boolean;
}

/** Checks the events of a process: every event once, in order, and nothing missing without a gap. */
export class EventTracker {
  /** The seq of the last event. */
  last = 0;
  closed = false;
  /** How often the process was resumed after a lost connection. */
  resumed = 0;
  private record: ExitRecord | undefined;
  private dropped = 0;
  /** The seq up to which the stream repeats events, or undefined. */
  private again: number | undefined;
  private readonly streams: Record<StreamName, StreamState> = {
    stdout: { offset: 0, gap: false, unknownStart: false },
    stderr: { offset: 0, gap: false, unknownStart: false },
    terminal: { offset: 0, gap: false, unknownStart: false },
  };

  constructor(private readonly processId: string, afterSeq: number) {
    this.last = afterSeq;
    if (afterSeq > 0) {
      for (const stream of Object.values(this.streams)) {
        stream.unknownStart = true;
      }
    }
  }

  /** How the process ended, if known. */
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

  /** Records how a process ended, when the event may have been skipped. */
  setExit(record: ExitRecord | undefined): void {
    this.record ??= record;
  }

  /** Records the state of a process before the first event, when earlier events were skipped. */
  setInitialState(process: Process): void {
    this.setExit(process.exit);
    if (process.state === ProcessState.CLOSED && Number(process.lastSeq) === this.last && this.record) {
      this.closed = true;
    }
  }

  /** Begins a stream after a seq; later events may have been consumed meanwhile. */
  resume(afterSeq: number): void {
    this.again = afterSeq < this.last ? this.last : undefined;
  }

  /** Processes one event; undefined if it was processed before or its kind is unknown. */
  take(message: Message): ProcessEvent | undefined {
    const seq = Number(message.seq);
    if (message.event.case === "gap") {
      const { firstAvailableSeq, droppedBytes, upperBound, cause } = message.event.value;
      return this.skip(seq, {
        type: "gap", firstAvailableSeq: Number(firstAvailableSeq), droppedBytes: Number(droppedBytes), upperBound, cause: gapCauses[cause] ?? "unknown",
      });
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
        const { stream, offset, data, readTime } = message.event.value;
        const name = names[stream];
        if (name === undefined) {
          throw new ProtocolError(`output of an unknown stream, number ${stream}`);
        }
        this.advance(name, Number(offset), data.length);
        return { type: "output", seq, stream: name, offset: Number(offset), data, readTime: dateOf(readTime) };
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
    if (stream.unknownStart) {
      stream.unknownStart = false;
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
    if (stream.unknownStart) {
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
      gap = { ...gap, upperBound: true }; // it includes processed events
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

const causes: Readonly<Record<number, ExitCause>> = {
  [ProtoExitCause.EXITED]: "exited",
  [ProtoExitCause.TERMINATED]: "terminated",
  [ProtoExitCause.TIMEOUT]: "timeout",
  [ProtoExitCause.LIMIT]: "limit",
  [ProtoExitCause.SERVER_SHUTDOWN]: "server_shutdown",
  [ProtoExitCause.LOST]: "lost",
  [ProtoExitCause.NO_OUTPUT]: "no_output",
  [ProtoExitCause.SERVER_RESTARTED]: "server_restarted",
};

const gapCauses: Readonly<Record<number, GapCause>> = {
  [ProtoGapCause.LIMIT]: "limit",
  [ProtoGapCause.FILES_FULL]: "files_full",
  [ProtoGapCause.DISK_FULL]: "disk_full",
  [ProtoGapCause.WRITE_FAILED]: "write_failed",
  [ProtoGapCause.READ_FAILED]: "read_failed",
};

/** What is counted while a process is followed. */
interface Received {
  stdoutBytes: number;
  stderrBytes: number;
  terminalBytes: number;
  droppedBytes: number;
  resumed: number;
}

/** Combines an exit record with what was received. */
function makeExit(processId: string, record: ExitRecord, received: Received): Exit {
  const code = record.status.case === "exitCode" ? record.status.value : undefined;
  const signal = record.status.case === "signal" ? Number(record.status.value) : undefined;
  const cause = causes[record.cause] ?? "unknown";
  return {
    processId,
    code,
    signal,
    cause,
    ok: code === 0 && cause === "exited",
    shellCode: signal !== undefined ? 128 + signal : (code ?? 255),
    wallTimeMs: durationMs(record.wallTime),
    userTimeMs: durationMs(record.usage?.userTime),
    systemTimeMs: durationMs(record.usage?.systemTime),
    maxResidentBytes: Number(record.usage?.maxResidentBytes ?? 0n),
    sandboxDenied: record.sandboxDenied,
    ...received,
  };
}
