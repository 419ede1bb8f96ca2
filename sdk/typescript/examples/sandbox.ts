// The calls of E2B's Sandbox, for agents that were written for it: commands.run and files, in a workspace on an
// Execwire server. Commands can write there only, and have no network unless it is allowed.
//
//   node sandbox.js tcp://127.0.0.1:7420 'echo hello > a; ls'
import { posix } from "node:path";
import { type Client, connect, ExitError, sandbox, type Terminated } from "execwire";

/** The result of a command. */
export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command failed. */
export class CommandExitError extends Error implements CommandResult {
  constructor(readonly exitCode: number, readonly stdout: string, readonly stderr: string) {
    super(`exit code ${exitCode}: ${stderr}`);
  }
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly envs?: Readonly<Record<string, string>>;
  /** 60 s by default, 0 for no limit. */
  readonly timeoutMs?: number;
  readonly onStdout?: (text: string) => unknown;
  readonly onStderr?: (text: string) => unknown;
}

/** A workspace, which is removed by kill. Relative paths begin there. */
export class Sandbox implements AsyncDisposable {
  readonly commands = {
    /** Runs a line of a shell to its end. */
    run: async (line: string, { cwd = "", envs, timeoutMs = 60_000, onStdout, onStderr }: CommandOptions = {}): Promise<CommandResult> => {
      const run = this.confined.run(line, {
        cwd: this.at(cwd),
        check: true,
        ...(envs && { env: envs }),
        ...(timeoutMs > 0 && { timeoutMs }),
        ...(onStdout && { onStdout }),
        ...(onStderr && { onStderr }),
      });
      const { exit, stdout, stderr } = await run.catch((error: unknown) => {
        if (!(error instanceof ExitError)) {
          throw error;
        }
        const { exit, stdout, stderr } = error.completed;
        throw new CommandExitError(exit.shellCode, String(stdout), String(stderr));
      });
      return { exitCode: exit.shellCode, stdout, stderr };
    },
    /** Starts a line of a shell and leaves it running. Returns its id. */
    start: async (line: string, { cwd = "", envs }: Pick<CommandOptions, "cwd" | "envs"> = {}): Promise<string> => {
      const { processId } = await this.confined.startDetached(line, { cwd: this.at(cwd), labels: { workspace: this.workspace }, ...(envs && { env: envs }) });
      return processId;
    },
    kill: (id: string): Promise<Terminated> => this.client.terminate(id),
  };

  readonly files = {
    read: (path: string): Promise<string> => this.confined.files.read(this.at(path), { text: true }),
    /** Makes missing directories too. */
    write: async (path: string, content: string | Uint8Array): Promise<void> => {
      await this.confined.files.mkdir(posix.dirname(this.at(path)), { parents: true });
      await this.confined.files.write(this.at(path), content);
    },
    list: async (path: string): Promise<{ name: string; type: "dir" | "file" }[]> => {
      const entries = await this.confined.files.list(this.at(path));
      return entries.map(({ name, targetType }) => ({ name, type: targetType === "directory" ? "dir" : "file" }));
    },
    exists: (path: string): Promise<boolean> => this.confined.files.exists(this.at(path)),
    makeDir: (path: string): Promise<void> => this.confined.files.mkdir(this.at(path), { parents: true }),
    rename: (from: string, to: string): Promise<void> => this.confined.files.rename(this.at(from), this.at(to)),
    remove: (path: string): Promise<void> => this.confined.files.remove(this.at(path), { recursive: true }),
  };

  private readonly confined: Client;

  private constructor(private readonly client: Client, readonly workspace: string, network: boolean) {
    this.confined = client.withSandbox(sandbox({ writable: [workspace], network }));
  }

  /** Makes a workspace on a server. The client must stay open. */
  static async create(client: Client, { allowInternetAccess = false } = {}): Promise<Sandbox> {
    const { temporaryDirectory } = await client.describe();
    const workspace = posix.join(temporaryDirectory, `sandbox-${crypto.randomUUID()}`);
    await client.files.mkdir(workspace, { mode: 0o700 });
    return new Sandbox(client, workspace, allowInternetAccess);
  }

  /** Ends what was started, and removes the workspace. */
  async kill(): Promise<void> {
    for await (const { processId, labels } of this.client.processes()) {
      if (labels["workspace"] === this.workspace) {
        await this.client.terminate(processId, { force: true });
      }
    }
    await this.client.files.remove(this.workspace, { recursive: true, ignoreMissing: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }

  private at(path: string): string {
    return posix.resolve(this.workspace, path);
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [server, line] = process.argv.slice(2);
  if (server === undefined || line === undefined) {
    console.error("usage: sandbox SERVER COMMAND");
    process.exit(2);
  }
  await using client = await connect(server);
  await using box = await Sandbox.create(client);
  const { exitCode } = await box.commands.run(line, {
    onStdout: (text) => process.stdout.write(text),
    onStderr: (text) => process.stderr.write(text),
  });
  process.exitCode = exitCode;
}
