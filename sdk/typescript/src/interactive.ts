import type { Client, StartOptions } from "./client.js";
import type { TerminalSize } from "./command.js";
import type { Exit } from "./exit.js";

/** A source of keys: process.stdin, or something like it. */
export type KeySource = AsyncIterable<Uint8Array | string> & {
  readonly isTTY?: boolean;
  setRawMode?(raw: boolean): unknown;
  unref?(): unknown;
};

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
  const { input = process.stdin as KeySource, output = process.stdout as Screen, size, ...start } = options;
  const sizeNow = (): TerminalSize => ({ rows: output.rows ?? 24, columns: output.columns ?? 80 });
  const env = { ...(process.env["TERM"] !== undefined && { TERM: process.env["TERM"] }), ...start.env };
  await using child = await client.start(argv, { ...start, env, terminal: size ?? sizeNow() });
  const resized = (): void => void child.resize(sizeNow()).catch(() => undefined); // it may have ended
  const keys = input[Symbol.asyncIterator]();
  const raw = input.isTTY === true && input.setRawMode !== undefined;
  if (raw) {
    input.setRawMode?.(true);
  }
  output.on("resize", resized);
  const typing = (async () => {
    for (let key = await keys.next(); !key.done; key = await keys.next()) {
      await child.write(key.value);
    }
    await child.closeStdin();
  })();
  typing.catch(() => undefined); // a process that has ended takes no keys
  try {
    for await (const { data } of child.output()) {
      if (!output.write(data)) {
        await new Promise<void>((resolve) => output.once("drain", () => resolve()));
      }
    }
    return child.exit as Exit;
  } finally {
    output.off("resize", resized);
    if (raw) {
      input.setRawMode?.(false);
    }
    // A key that is being waited for must not keep this program from ending.
    void Promise.resolve(keys.return?.()).catch(() => undefined);
    input.unref?.();
  }
}
