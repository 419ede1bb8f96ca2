import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { ExecwireError } from "./errors.js";
import { EventTracker } from "./events.js";
import type { Exit } from "./exit.js";
import { observe } from "./follow.js";
import { OutputStream, type ProcessEvent as Message } from "./gen/execwire/v1/process_event_pb.js";
import { type Process, ProcessState } from "./gen/execwire/v1/process_pb.js";
import type { GetScreenResponse } from "./gen/execwire/v1/process_service_pb.js";
import type { Rpc } from "./rpc.js";

/** Options of {@link Client.recording}. */
export interface RecordingOptions {
  /** The session; absent is the default session. */
  readonly sessionId?: string;
  /** The version of the format: 2, the default, which every player reads, or 3. */
  readonly version?: 2 | 3;
  /**
   * Begins now, with what the terminal shows if there is one. Otherwise it begins with the retained output, and its
   * times with the first of that.
   */
  readonly live?: boolean;
  /** Ends with the last output that the process has written by now. @internal */
  readonly retained?: boolean;
  /** The title. */
  readonly title?: string;
  /** Ends the recording. */
  readonly signal?: AbortSignal;
}

/** The most output of one event, in bytes: lines stay below 200 KiB, whatever is in them. */
const maxEventBytes = 32 << 10;

/** Records a process to its end, as recording.Write of the Go SDK does: one line at a time, each with its newline. */
export async function* recording(
  rpc: Rpc,
  named: { sessionId: string; processId: string },
  options: RecordingOptions,
): AsyncGenerator<string, void, undefined> {
  const { signal } = options;
  const { process } = await rpc.repeat((call) => rpc.stubs.processes.getProcess(named, call), signal);
  const writer = new Writer(process as Process, options);
  let afterSeq = 0;
  if (options.live) {
    const repaint = { ...named, repaint: true };
    const shown = process?.hasTerminal ? await rpc.repeat((call) => rpc.stubs.processes.getScreen(repaint, call), signal).catch(withoutScreen) : undefined;
    afterSeq = Number(shown?.screen?.seq ?? process?.lastSeq);
    writer.beginNow(shown);
  } else if (process?.lastSeq === 0n) {
    writer.beginNow();
  }
  yield* writer.taken();
  const tracker = new EventTracker(named.processId, afterSeq);
  const take = (message: Message): Message | undefined => (message.event.case === "resized" || tracker.take(message) ? message : undefined);
  const last = options.retained && process?.state !== ProcessState.CLOSED ? Number(process?.lastSeq) : Infinity;
  try {
    for await (const message of last > afterSeq ? observe(rpc, { ...named, resizes: true }, tracker, take, signal) : []) {
      writer.event(message);
      yield* writer.taken();
      if (tracker.last >= last) {
        break;
      }
    }
  } catch (error) {
    writer.end();
    yield* writer.taken(); // what there is by now is a recording, too
    throw error;
  }
  writer.end(tracker.last < last ? tracker.exit : undefined);
  yield* writer.taken();
}

/** Writes the lines. Times of the server are in nanoseconds, those of the recording in microseconds since it began. */
class Writer {
  private readonly lines: string[] = [];
  /** They keep the bytes of a rune that is not complete yet. */
  private readonly decoders = new Map<OutputStream, InstanceType<typeof TextDecoder>>();
  private size = { columns: 80, rows: 24 };
  private open = false;
  /** When it began, by the clock of the server; undefined: not known yet. */
  private began: bigint | undefined;
  /** When it began, by performance.now, if that was no event. */
  private local: number | undefined;
  private now = 0;
  /** The time of the last line. */
  private last = 0;
  private missing: string[] = [];

  constructor(private readonly process: Process, private readonly options: RecordingOptions) {
    this.resize(process.terminalSize);
  }

  /** The lines since the last call. */
  taken(): string[] {
    return this.lines.splice(0);
  }

  /** Begins without an event: what time it is at the server is known with the first output. */
  beginNow(shown?: GetScreenResponse): void {
    this.resize(shown?.screen?.size);
    this.local = performance.now();
    this.begin(BigInt(Date.now()) * 1_000_000n);
    this.began = undefined;
    this.output(OutputStream.TERMINAL, shown?.repaint ?? new Uint8Array());
  }

  event({ event }: Message): void {
    switch (event.case) {
      case "resized":
        if (this.resize(event.value) && this.open) {
          this.to(nanoseconds(event.value.time));
          this.line("r", `${this.size.columns}x${this.size.rows}`);
        }
        break;
      case "output": {
        const read = nanoseconds(event.value.readTime);
        this.begin(read);
        if (this.began === undefined && read !== undefined) { // it was read just now; sizes and exits can be older
          this.to(undefined);
          this.began = read - BigInt(this.now) * 1000n; // the clocks may differ
        }
        this.to(read);
        this.writeMissing();
        this.output(event.value.stream, event.value.data);
        break;
      }
      case "gap":
        this.missing.push(`${event.value.upperBound ? "up to " : ""}${event.value.droppedBytes} bytes of output are missing`);
        break;
      case "exited": { // output of descendants may follow
        const at = nanoseconds(event.value.exit?.exitTime);
        this.begin(at);
        this.to(at);
      }
    }
  }

  /** Ends the recording, with the exit of a process that has closed. */
  end(exit?: Exit): void {
    this.begin(BigInt(Date.now()) * 1_000_000n);
    this.writeMissing();
    for (const decoder of this.decoders.values()) {
      this.line("o", decoder.decode());
    }
    if (exit && exit.code === undefined && exit.signal === undefined) {
      this.line("m", "the exit status is not known");
    } else if (exit) {
      this.options.version === 3 ? this.line("x", `${exit.shellCode}`) : this.line("m", `exit status ${exit.shellCode}`);
    }
  }

  /** Writes the header, once. */
  private begin(at: bigint | undefined): void {
    if (this.open) {
      return;
    }
    this.open = true;
    this.began = at;
    const { columns, rows } = this.size;
    const header = {
      ...(this.options.version === 3 ? { version: 3, term: { cols: columns, rows } } : { version: 2, width: columns, height: rows }),
      timestamp: at && Number(at / 1_000_000_000n),
      command: this.process.argv[0], // the others can have secrets
      title: this.options.title || undefined,
    };
    this.lines.push(`${JSON.stringify(header)}\n`);
  }

  /** Goes on to a time of the server. If that is not known, it is now, or the time of the last event. */
  private to(at: bigint | undefined): void {
    if (at !== undefined && this.began !== undefined) {
      this.now = Math.max(this.now, Number((at - this.began) / 1000n));
    } else if (this.local !== undefined) {
      this.now = Math.max(this.now, Math.floor((performance.now() - this.local) * 1000));
    }
  }

  /** Whether a size is not the current one. */
  private resize(size: { readonly columns: number; readonly rows: number } | undefined): boolean {
    const { columns, rows } = size?.columns && size.rows ? size : this.size;
    const changed = columns !== this.size.columns || rows !== this.size.rows;
    this.size = { columns, rows };
    return changed;
  }

  private output(stream: OutputStream, data: Uint8Array): void {
    const decoder = this.decoders.get(stream) ?? new TextDecoder("utf-8", { ignoreBOM: true });
    this.decoders.set(stream, decoder);
    for (let at = 0; at < data.length; at += maxEventBytes) {
      const text = decoder.decode(data.subarray(at, at + maxEventBytes), { stream: true });
      this.line("o", stream === OutputStream.TERMINAL ? text : text.replaceAll("\n", "\r\n"));
    }
  }

  private writeMissing(): void {
    for (const label of this.missing.splice(0)) {
      this.line("m", label);
    }
  }

  private line(code: "o" | "r" | "m" | "x", data: string): void {
    if (data === "") {
      return; // the bytes of a rune that is not complete
    }
    const time = this.options.version === 3 ? this.now - this.last : this.now;
    this.last = this.now;
    this.lines.push(`[${(time / 1e6).toFixed(6)}, "${code}", ${JSON.stringify(data)}]\n`);
  }
}

function nanoseconds(time: Timestamp | undefined): bigint | undefined {
  return time && time.seconds * 1_000_000_000n + BigInt(time.nanos);
}

/** Takes a terminal whose screen the server does not keep for one that shows nothing. */
function withoutScreen(error: unknown): undefined {
  if (!(error instanceof ExecwireError && error.reason === "SCREEN_UNAVAILABLE")) {
    throw error;
  }
}
