import { spawnSync } from "node:child_process";
import type { Stream } from "node:stream";
import type { StartOptions, TerminalSize } from "./command.js";
import type { Exit } from "./exit.js";
import type { ReadableStream, WritableStream } from "./node-types.js";
import type { Process } from "./process.js";

/** A source of input such as process.stdin. */
export type KeySource = ReadableStream & {
  /** Whether it is a terminal, and so is put in raw mode. */
  readonly isTTY?: boolean;
  /** Switches raw mode, in which each key is input. */
  setRawMode?(raw: boolean): unknown;
};

/** An output terminal such as process.stdout. */
export type Screen = WritableStream & {
  /** The width in characters; absent is 80. */
  readonly columns?: number;
  /** The height in lines; absent is 24. */
  readonly rows?: number;
};

/** Options of {@link Client.interactive}. */
export interface InteractiveOptions extends Omit<StartOptions, "terminal" | "stdin"> {
  /** The initial size; absent is that of the output. */
  readonly size?: TerminalSize;
  /** Absent is process.stdin. */
  readonly input?: KeySource;
  /** Absent is process.stdout. */
  readonly output?: Screen;
}

/** Runs a command in a terminal until it has closed. */
export async function interactive(spawn: (options: StartOptions) => Promise<Process>, options: InteractiveOptions): Promise<Exit> {
  const { input = process.stdin, output = process.stdout, size, ...start } = options;
  const sizeNow = (): TerminalSize => ({ rows: output.rows ?? 24, columns: output.columns ?? 80 });
  const env = { ...(process.env["TERM"] !== undefined && { TERM: process.env["TERM"] }), ...start.env };
  const first = size ?? sizeNow();
  await using child = await spawn({ ...start, env, terminal: first });
  // One at a time, so that after a lost connection no earlier size is set last.
  let resizing: Promise<void> = Promise.resolve();
  const resized = (): void => {
    resizing = resizing.then(() => child.resize(sizeNow())).catch(() => undefined); // it may have ended
  };
  const raw = input.isTTY === true && input.setRawMode !== undefined;
  let active = true;
  // A process that has ended accepts no input.
  const pressed = (keys: string | Uint8Array): void => {
    input.pause();
    child.write(keys).then(() => active && input.resume(), () => undefined);
  };
  const ended = (): void => void child.closeStdin().catch(() => undefined);
  if (raw) {
    input.setRawMode?.(true);
    // The raw mode of Node.js writes "\n" as "\r\n", which breaks what full-screen programs draw. Its end undoes this, too.
    spawnSync("stty", ["-opost"], { stdio: [input as unknown as Stream, "ignore", "ignore"] });
  }
  output.on("resize", resized);
  const { rows, columns } = sizeNow();
  if (size === undefined && (rows !== first.rows || columns !== first.columns)) {
    resized(); // while it was started
  }
  input.on("data", pressed);
  input.on("end", ended);
  try {
    for await (const { data } of child.output()) {
      if (!output.write(data)) {
        await new Promise<void>((resolve) => output.once("drain", () => resolve()));
      }
    }
    return child.exit as Exit;
  } finally {
    active = false;
    output.off("resize", resized);
    input.off("data", pressed);
    input.off("end", ended);
    input.pause();
    if (raw) {
      input.setRawMode?.(false);
    }
  }
}
