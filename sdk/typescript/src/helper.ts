import { type ChildProcess, spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { ConnectionError, messageOf } from "./errors.js";
import { onAbort } from "./time.js";

/** How long a helper may take to end. */
const endTimeoutMs = 10_000;
/** How long to wait for the output of a helper after it has ended. */
const outputTimeoutMs = 1_000;
/** How much stderr of a helper is kept for the error when it ends early. */
const keptBytes = 4096;

/** The directories of all running helpers, removed when a program exits without closing them. */
const directories = new Set<string>();

function cleanUp(): void {
  for (const directory of directories) {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** An execwire process that serves a client: a local server, or a forward through a relay. */
export class Helper {
  /** The unix socket on which it listens. */
  readonly socket: string;
  private stderrText = "";
  /** Resolves when it has ended, with a description. */
  readonly ended: Promise<string>;

  private constructor(private readonly child: ChildProcess, private readonly directory: string) {
    this.socket = join(directory, "socket");
    if (directories.size === 0) {
      process.on("exit", cleanUp);
    }
    directories.add(directory);
    child.stderr?.on("data", (text: Buffer) => (this.stderrText = (this.stderrText + text.toString()).slice(-keptBytes)));
    this.ended = new Promise((resolve) => {
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) => {
        const how = signal ? `it was ended by ${signal}` : `it exited with code ${code}`;
        // Its message has arrived by now; its children may keep its stderr open.
        const timer = setTimeout(() => resolve(how), outputTimeoutMs);
        child.once("close", () => {
          clearTimeout(timer);
          resolve(how);
        });
      });
    });
  }

  /**
   * Starts execwire with arguments that make it listen on the socket and end with its stdin, and waits until
   * it listens. Errors name the URL.
   */
  static async start(
    what: string,
    binary: string | undefined,
    args: (listen: string) => string[],
    signal: AbortSignal | undefined,
  ): Promise<Helper> {
    signal?.throwIfAborted();
    const program = binary ?? process.env["EXECWIRE_BIN"] ?? "execwire";
    // mkdtemp permits only the user.
    const directory = await mkdtemp(join(tmpdir(), "execwire-"));
    // In a process group of its own: Ctrl-C is for this program only, which may have to end processes first.
    const child = spawn(program, args(`unix://${join(directory, "socket")}`), {
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, EXECWIRE_SHUTDOWN_GRACE_PERIOD: "0s" }, // its processes end with it without a grace period
    });
    child.stdin?.on("error", () => undefined);
    const helper = new Helper(child, directory);
    try {
      await helper.ready(signal);
    } catch (error) {
      await helper.close();
      throw signal?.aborted ? signal.reason : new ConnectionError(what, new Error(`${program}: ${messageOf(error)}`, { cause: error }));
    }
    return helper;
  }

  /** Resolves when it listens; rejects when it ends before that, or the signal aborts. */
  private async ready(signal: AbortSignal | undefined): Promise<void> {
    const lines = createInterface({ input: this.child.stdout as NodeJS.ReadableStream });
    const listening = new Promise<undefined>((resolve) => lines.once("line", () => resolve(undefined)));
    let abort: () => void = () => undefined;
    const aborted = new Promise<string>((resolve) => (abort = () => resolve("aborted")));
    const forget = onAbort(signal, abort);
    const failed = await Promise.race([listening, this.ended, aborted]);
    forget();
    if (failed !== undefined) {
      const why = this.stderrText.trim();
      throw new Error(why ? `${failed}: ${why}` : failed);
    }
    // It must neither keep this process alive nor block on unread output.
    this.child.stdout?.resume();
    for (const stream of [this.child.stdin, this.child.stdout, this.child.stderr]) {
      (stream as unknown as { unref?: () => void } | null)?.unref?.();
    }
    this.child.unref();
  }

  /** Ends it, and waits until it has ended. */
  async close(): Promise<void> {
    this.child.ref();
    this.child.stdin?.end();
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), endTimeoutMs);
    await this.ended;
    clearTimeout(timer);
    await rm(this.directory, { recursive: true, force: true });
    directories.delete(this.directory);
    if (directories.size === 0) {
      process.off("exit", cleanUp);
    }
  }
}
