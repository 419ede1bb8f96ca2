import { type ChildProcess, spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { ConnectionError, messageOf } from "./errors.js";

/** How long a helper may take to end after it was asked to. */
const endTimeoutMs = 10_000;
/** For how long what a helper said is waited for once it has ended. */
const lastWordsMs = 1_000;
/** How much of what a helper says on stderr is kept, to be told when it ends early. */
const keptBytes = 4096;

/** The directories of all that run. A program need not close what it connects to. */
const directories = new Set<string>();

function cleanUp(): void {
  for (const directory of directories) {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** A program of execwire that runs for a client: a local server, or a way through a relay. */
export class Helper {
  /** The unix socket at which it listens. */
  readonly socket: string;
  private said = "";
  /** Resolves when it has ended, with how. */
  readonly ended: Promise<string>;

  private constructor(private readonly child: ChildProcess, private readonly directory: string) {
    this.socket = join(directory, "socket");
    if (directories.size === 0) {
      process.on("exit", cleanUp);
    }
    directories.add(directory);
    child.stderr?.on("data", (text: Buffer) => (this.said = (this.said + text.toString()).slice(-keptBytes)));
    this.ended = new Promise((resolve) => {
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) => {
        const how = signal ? `it was ended by ${signal}` : `it exited with code ${code}`;
        // It has said why by now; what it started may hold its stderr open.
        const timer = setTimeout(() => resolve(how), lastWordsMs);
        child.once("close", () => {
          clearTimeout(timer);
          resolve(how);
        });
      });
    });
  }

  /**
   * Starts execwire with arguments that listen at the socket, ends with its stdin, and waits
   * until it says that it listens. What for is the URL that errors name.
   */
  static async start(
    what: string,
    binary: string | undefined,
    args: (listen: string) => string[],
    signal: AbortSignal | undefined,
  ): Promise<Helper> {
    signal?.throwIfAborted();
    const program = binary ?? process.env["EXECWIRE_BIN"] ?? "execwire";
    // Nobody else may enter what mkdtemp makes.
    const directory = await mkdtemp(join(tmpdir(), "execwire-"));
    // In a group of its own: Ctrl-C is for this program alone, which may have to end processes first.
    const child = spawn(program, args(`unix://${join(directory, "socket")}`), {
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, EXECWIRE_SHUTDOWN_GRACE_PERIOD: "0s" }, // its processes end with it, and nobody waits for them
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

  /** Resolves when it listens; rejects when it ends before that, or the signal comes first. */
  private async ready(signal: AbortSignal | undefined): Promise<void> {
    const lines = createInterface({ input: this.child.stdout as NodeJS.ReadableStream });
    const listening = new Promise<undefined>((resolve) => lines.once("line", () => resolve(undefined)));
    let abort: () => void = () => undefined;
    const aborted = new Promise<string>((resolve) => (abort = () => resolve("aborted")));
    signal?.addEventListener("abort", abort, { once: true });
    const failed = await Promise.race([listening, this.ended, aborted]);
    signal?.removeEventListener("abort", abort);
    if (failed !== undefined) {
      const why = this.said.trim();
      throw new Error(why ? `${failed}: ${why}` : failed);
    }
    // It must not keep this process alive, nor stop because nobody reads what it says.
    this.child.stdout?.resume();
    for (const stream of [this.child.stdin, this.child.stdout, this.child.stderr]) {
      (stream as unknown as { unref?: () => void } | null)?.unref?.();
    }
    this.child.unref();
  }

  /** Ends it, and waits until it has. */
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
