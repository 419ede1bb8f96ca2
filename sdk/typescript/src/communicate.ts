import { concat } from "./bytes.js";
import { ClosedError, OutputLimitError } from "./errors.js";
import type { Completed, Exit, Output } from "./exit.js";
import type { Run } from "./run.js";
import type { ProcessIO } from "./streams.js";
import { abortable, onAbort } from "./time.js";

/** How much output, and as much stderr, `run` and `communicate` collect, in bytes. */
const defaultMaxOutputBytes = 64 << 20;

/** Options of {@link Process.communicate}. */
export interface CommunicateOptions<Text extends boolean = boolean> {
  /** Whether output is text, as by default, or bytes. */
  readonly text?: Text;
  /**
   * Called with each piece of output as it arrives, one at a time; the result has it too. A promise that it returns is
   * awaited, and the process blocks meanwhile. An error that it throws kills the process.
   */
  readonly onStdout?: (piece: Output<Text>) => unknown;
  /** The same as `onStdout`, for stderr. */
  readonly onStderr?: (piece: Output<Text>) => unknown;
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
export async function communicate<Text extends boolean>(
  process: Communicable,
  run: Run,
  input: Input | undefined,
  options: CommunicateOptions<Text>,
): Promise<Completed<Text>> {
  const { maxOutputBytes = defaultMaxOutputBytes, text = true } = options;
  const stdout = new Collector<Text>(maxOutputBytes, text, options.onStdout);
  const stderr = new Collector<Text>(maxOutputBytes, text, options.onStderr);
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
  const forget = onAbort(options.signal, () => void process.kill(options.signal?.reason));
  try {
    options.signal?.throwIfAborted();
    for await (const event of process.events()) {
      if (event.type === "output") {
        // A callback may wait for ever.
        await abortable((event.stream === "stderr" ? stderr : stdout).add(event.data), options.signal);
      }
    }
    await abortable(stdout.end(), options.signal);
    await abortable(stderr.end(), options.signal);
  } catch (error) {
    const reason = options.signal?.aborted ? options.signal.reason : error;
    await process.kill(reason);
    throw inputFailure ? inputFailure.error : reason;
  } finally {
    forget();
    stop.abort(new ClosedError("the process has ended"));
    await watched;
  }
  options.signal?.throwIfAborted();
  if (inputFailure) {
    throw inputFailure.error;
  }
  return { exit: run.exit as Exit, stdout: stdout.whole(), stderr: stderr.whole() };
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
class Collector<Text extends boolean> {
  private readonly pieces: Uint8Array[] = [];
  private bytes = 0;
  /** Of the pieces for the callback: a character may be in two of them. */
  private readonly decoder: ReturnType<typeof newDecoder> | undefined;

  constructor(private readonly limit: number, private readonly text: boolean, private readonly callback: ((piece: Output<Text>) => unknown) | undefined) {
    this.decoder = text && callback ? newDecoder() : undefined;
  }

  async add(data: Uint8Array): Promise<void> {
    this.bytes += data.length;
    if (this.bytes > this.limit) {
      throw new OutputLimitError(this.limit);
    }
    this.pieces.push(data);
    if (this.callback) {
      await this.pass(this.decoder ? this.decoder.decode(data, { stream: true }) : data);
    }
  }

  /** Passes the beginning of a character at the end of the output. */
  async end(): Promise<void> {
    await this.pass(this.decoder?.decode() ?? "");
  }

  whole(): Output<Text> {
    const bytes = concat(this.pieces);
    return (this.text ? newDecoder().decode(bytes) : bytes) as Output<Text>;
  }

  private async pass(piece: string | Uint8Array): Promise<void> {
    if (piece.length > 0) {
      await this.callback?.(piece as Output<Text>);
    }
  }
}

function newDecoder() {
  return new TextDecoder("utf-8", { ignoreBOM: true }); // it is output too
}
