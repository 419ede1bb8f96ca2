import * as node from "node:stream";
import { ClosedError } from "./errors.js";
import type { ProcessEvent } from "./events.js";
import type { Readable, Writable } from "./node-types.js";

/** The input and output of a process. */
export interface ProcessIO {
  events(): AsyncIterable<ProcessEvent>;
  write(data: string | Uint8Array, options?: { signal?: AbortSignal }): Promise<void>;
  closeStdin(): Promise<void>;
}

/** The stdio of a process as Node.js streams, created on first use. */
export class ProcessStreams {
  private stdout: Readable | undefined;
  private stderr: Readable | undefined;
  private stdin: Writable | undefined;
  /** The full stream, and how to resume it. */
  private full: { name: "stdout" | "stderr"; resume: () => void } | undefined;
  private pumping = false;

  constructor(private readonly process: ProcessIO) {}

  output(name: "stdout" | "stderr"): Readable {
    const existing = this[name];
    if (existing) {
      return existing;
    }
    const stream = new node.Readable({
      read: () => this.drained(name),
      destroy: (error, done) => {
        this.drained(name);
        done(error);
      },
    });
    this[name] = stream;
    if (!this.pumping) {
      this.pumping = true;
      // A reader of both requests both before the first byte.
      setImmediate(() => void this.pump());
    }
    return stream;
  }

  input(): Writable {
    if (this.stdin) {
      return this.stdin;
    }
    const stream = new node.Writable({
      decodeStrings: true,
      write: (chunk: Buffer, _encoding, done) => {
        this.process.write(chunk).then(() => done(), (error: unknown) => end(stream, error));
      },
      final: (done) => {
        this.process.closeStdin().then(() => done(), (error: unknown) => end(stream, error));
      },
    });
    this.stdin = stream;
    return stream;
  }

  private drained(name: "stdout" | "stderr"): void {
    if (this.full?.name === name) {
      const { resume } = this.full;
      this.full = undefined;
      resume();
    }
  }

  private async pump(): Promise<void> {
    try {
      for await (const event of this.process.events()) {
        if (event.type !== "output") {
          continue;
        }
        const name = event.stream === "stderr" ? "stderr" : "stdout";
        const stream = this[name];
        if (stream && !stream.destroyed && !stream.push(event.data)) {
          await new Promise<void>((resolve) => (this.full = { name, resume: resolve }));
        }
      }
      this.stdout?.push(null);
      this.stderr?.push(null);
    } catch (error) {
      for (const stream of [this.stdout, this.stderr]) {
        if (stream && !stream.destroyed) {
          end(stream, error);
        }
      }
    }
  }
}

/**
 * Ends a stream with an error. A local close is an error only for streams with an error listener: otherwise
 * it would end the program.
 */
function end(stream: Readable | Writable, error: unknown): void {
  stream.destroy(error instanceof ClosedError && stream.listenerCount("error") === 0 ? undefined : (error as Error));
}
