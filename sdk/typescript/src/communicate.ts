import { ClosedError, OutputLimitError } from "./errors.js";
import type { Completed, Exit } from "./exit.js";
import type { Process } from "./process.js";
import type { Run } from "./run.js";
import { abortable } from "./time.js";

/** How much output `run` and `communicate` gather, and as much stderr, in bytes. */
const defaultMaxOutputBytes = 64 << 20;

/** What a process is given, and what is gathered of it. */
export interface CommunicateOptions {
  /** The most bytes of stdout, and of stderr, that are gathered: 64 MiB unless it says otherwise. */
  readonly maxOutputBytes?: number;
  /** Ends the wait, and the process. */
  readonly signal?: AbortSignal;
}

/** Input for a process: all of it, or piece by piece. */
export type Input = string | Uint8Array | AsyncIterable<Uint8Array | string> | Iterable<Uint8Array>;

/** Gives a process input, which ends, and gathers all of its output until it has closed. */
export async function communicate(process: Process, run: Run, input: Input | undefined, options: CommunicateOptions): Promise<Completed> {
  const limit = options.maxOutputBytes ?? defaultMaxOutputBytes;
  const gathered = { stdout: new Gathered(limit), stderr: new Gathered(limit) };
  const stop = new AbortController();
  const feeding = feed(process, input, stop.signal);
  // A process may end without having read its input; what fails the input otherwise ends it.
  let inputFailure: { error: unknown } | undefined;
  const watched = feeding.catch(async (error: unknown) => {
    if (!stop.signal.aborted && !run.stdin.refuses(error)) {
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
        gathered[event.stream === "stderr" ? "stderr" : "stdout"].add(event.data);
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
  return completed(run.exit as Exit, gathered.stdout.whole(), gathered.stderr.whole());
}

async function feed(process: Process, input: Input | undefined, signal: AbortSignal): Promise<void> {
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
      void Promise.resolve(pieces.return?.()).catch(() => undefined); // it may still be in the middle of a piece
      throw error;
    }
  }
  await process.closeStdin();
}

/** What is gathered of a stream, up to a limit. */
class Gathered {
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
    return Buffer.concat(this.pieces);
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
