import { Readable, Writable } from "node:stream";
import { ClosedError } from "./errors.js";
import type { Process } from "./process.js";

/** The streams of a process as those of Node.js, made when they are first asked for. */
export class ProcessStreams {
  private stdout: Readable | undefined;
  private stderr: Readable | undefined;
  private stdin: Writable | undefined;
  /** Who is full, and how to go on when it is not any more. */
  private full: { name: "stdout" | "stderr"; resume: () => void } | undefined;
  private pumping = false;

  constructor(private readonly process: Process) {}

  output(name: "stdout" | "stderr"): Readable {
    const existing = this[name];
    if (existing) {
      return existing;
    }
    const stream = new Readable({
      read: () => this.drained(name),
      destroy: (error, done) => {
        this.drained(name);
        done(error);
      },
    });
    this[name] = stream;
    if (!this.pumping) {
      this.pumping = true;
      // Whoever reads both asks for both before the first byte.
      setImmediate(() => void this.pump());
    }
    return stream;
  }

  input(): Writable {
    if (this.stdin) {
      return this.stdin;
    }
    const stream = new Writable({
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

/** Ends a stream that cannot go on. That its process was closed by this side is an error for those alone who listen for errors: it would end the program otherwise. */
function end(stream: Readable | Writable, error: unknown): void {
  stream.destroy(error instanceof ClosedError && stream.listenerCount("error") === 0 ? undefined : (error as Error));
}
