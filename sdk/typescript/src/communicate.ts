import { concat } from "./bytes.js";
import { ClosedError, OutputLimitError } from "./errors.js";
import type { Completed, Exit } from "./exit.js";
import type { Run } from "./run.js";
import type { ProcessIO } from "./streams.js";
import { abortable } from "./time.js";

/** How much output, and as much stderr, `run` and `communicate` collect, in bytes. */
const defaultMaxOutputBytes = 64 << 20;

/** Options of {@link Process.communicate}. */
export interface CommunicateOptions {
  /** Limits stdout, and stderr, in bytes: 64 MiB by default. */
  readonly maxOutputBytes?: number;
  /** Ends the wait, and kills the process. */
  readonly signal?: AbortSignal;
}

/** Input of a process: complete or in pieces. */
export type Input = string | Uint8Array | AsyncIterable<Uint8Array | string> | Iterable<Uint8Array>;

/** What `communicate` needs of a process. */
interface Communicable extends ProcessIO {
  kill(reason: unknown): Promise<void>;
}

/** Writes input and closes stdin, and collects all output until the process has closed. */
export async function communicate(process: Communicable, run: Run, input: Input | undefined, options: CommunicateOptions): Promise<Completed> {
  const limit = options.maxOutputBytes ?? defaultMaxOutputBytes;
  const collected = { stdout: new Collector(limit), stderr: new Collector(limit) };
  const stop = new AbortController();
  const feeding = feed(process, input, stop.signal);
  // A process may end without reading its input; any other input error kills it.
  let inputFailure: { error: unknown } | undefined;
  const watched = feeding.catch(async (error: unknown) => {
    if (!stop.signal.aborted && !run.stdin.isRejection(error)) {
      inputFailure = { error };
      await process.kill(error);
    }
  });
  const abort = (): void => void process.kill(options.signal?.reason);
  options.signal?.addEventListener("abort", abort, { once: true });
  try {
    options.signal?.throwIfAborted();
    for await (const event of process.events()) {
      if (event.type === "output") {
        collected[event.stream === "stderr" ? "stderr" : "stdout"].add(event.data);
      }
    }
  } catch (error) {
    const reason = options.signal?.aborted ? options.signal.reason : error;
    await process.kill(reason);
    throw inputFailure ? inputFailure.error : reason;
  } finally {
    options.signal?.removeEventListener("abort", abort);
    stop.abort(new ClosedError("the process has ended"));
    await watched;
  }
  options.signal?.throwIfAborted();
  if (inputFailure) {
    throw inputFailure.error;
  }
  return completed(run.exit as Exit, collected.stdout.whole(), collected.stderr.whole());
}

async function feed(process: ProcessIO, input: Input | undefined, signal: AbortSignal): Promise<void> {
  if (typeof input === "string" || input instanceof Uint8Array) {
    await process.write(input, { signal });
  } else if (input !== undefined) {
    const pieces = Symbol.asyncIterator in input ? input[Symbol.asyncIterator]() : input[Symbol.iterator]();
    try {
      for (;;) {
        const piece = await abortable(Promise.resolve(pieces.next()), signal);
        if (piece.done) {
          break;
        }
        await process.write(piece.value, { signal });
      }
    } catch (error) {
      void Promise.resolve(pieces.return?.()).catch(() => undefined); // it may still be producing a piece
      throw error;
    }
  }
  await process.closeStdin();
}

/** Collects the output of a stream, up to a limit. */
class Collector {
  private readonly pieces: Uint8Array[] = [];
  private bytes = 0;

  constructor(private readonly limit: number) {}

  add(data: Uint8Array): void {
    this.bytes += data.length;
    if (this.bytes > this.limit) {
      throw new OutputLimitError(this.limit);
    }
    this.pieces.push(data);
  }

  whole(): Uint8Array {
    return concat(this.pieces);
  }
}

function completed(exit: Exit, stdout: Uint8Array, stderr: Uint8Array): Completed {
  const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
  return {
    exit,
    stdout,
    stderr,
    get stdoutText() {
      return text(stdout);
    },
    get stderrText() {
      return text(stderr);
    },
  };
}
