import type { Client, StartOptions } from "./client.js";
import type { TerminalSize } from "./command.js";
import type { Exit } from "./exit.js";

/** A source of keys: process.stdin, or something like it. */
export type KeySource = NodeJS.ReadableStream & { readonly isTTY?: boolean; setRawMode?(raw: boolean): unknown };

/** Where a terminal is shown: process.stdout, or something like it. */
export type Screen = NodeJS.WritableStream & { readonly columns?: number; readonly rows?: number };

/** How a command is run in a terminal that is joined with another one. */
export interface InteractiveOptions extends Omit<StartOptions, "terminal" | "stdin"> {
  /** The size it starts with; absent is that of the screen. */
  readonly size?: TerminalSize;
  /** Absent is process.stdin. */
  readonly input?: KeySource;
  /** Absent is process.stdout. */
  readonly output?: Screen;
}

/** Runs a command in a terminal, until it has closed. */
export async function interactive(client: Client, argv: readonly string[], options: InteractiveOptions): Promise<Exit> {
  const { input = process.stdin, output = process.stdout, size, ...start } = options;
  const sizeNow = (): TerminalSize => ({ rows: output.rows ?? 24, columns: output.columns ?? 80 });
  const env = { ...(process.env["TERM"] !== undefined && { TERM: process.env["TERM"] }), ...start.env };
  await using child = await client.start(argv, { ...start, env, terminal: size ?? sizeNow() });
  const resized = (): void => void child.resize(sizeNow()).catch(() => undefined); // it may have ended
  const raw = input.isTTY === true && input.setRawMode !== undefined;
  let joined = true;
  // A process that has ended takes no keys.
  const pressed = (keys: string | Uint8Array): void => {
    input.pause();
    child.write(keys).then(() => joined && input.resume(), () => undefined);
  };
  const ended = (): void => void child.closeStdin().catch(() => undefined);
  if (raw) {
    input.setRawMode?.(true);
  }
  output.on("resize", resized);
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
    joined = false;
    output.off("resize", resized);
    input.off("data", pressed);
    input.off("end", ended);
    input.pause();
    if (raw) {
      input.setRawMode?.(false);
    }
  }
}
