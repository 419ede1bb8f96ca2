import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after as afterAll, before, type TestContext } from "node:test";
import { type Client, connect, type ConnectOptions, launch } from "execwire";

export const binary = process.env["EXECWIRE_BIN"] as string;
export const hubBinary = process.env["EXECWIRE_HUB_BIN"] as string;

const cleanups = new WeakMap<TestContext, (() => unknown)[]>();

/** Registers a cleanup, executed in reverse order: clients are closed before their servers. */
export function after(t: TestContext, cleanup: () => unknown): void {
  const known = cleanups.get(t);
  if (known) {
    known.push(cleanup);
    return;
  }
  const mine = [cleanup];
  cleanups.set(t, mine);
  t.after(async () => {
    for (const one of mine.reverse()) {
      await one();
    }
  });
}

/** A directory that is removed after the test. */
export function directory(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "execwire-ts-"));
  after(t, () => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A file that only the user may read. */
export function secret(path: string, content: string): string {
  writeFileSync(path, content);
  chmodSync(path, 0o600);
  return path;
}

/** A program that prints on stdout, one line each, where it listens. It is ended after the test. */
export class Program {
  private readonly ended: Promise<number | null>;
  private constructor(private readonly child: ChildProcess) {
    this.ended = new Promise((resolve) => child.once("close", (code) => resolve(code)));
  }

  /** Waits until it exits by itself, and returns its exit code. */
  exited(): Promise<number | null> {
    return this.ended;
  }

  /** Starts it and waits for its first lines. */
  static async start(t: TestContext, program: string, args: string[], lines: number): Promise<{ program: Program; output: string[] }> {
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
    const started = new Program(child);
    after(t, () => started.stop());
    let log = "";
    child.stderr.on("data", (text: Buffer) => (log += text.toString()));
    const output: string[] = [];
    await new Promise<void>((resolve, reject) => {
      createInterface({ input: child.stdout }).on("line", (line) => {
        output.push(line);
        if (output.length === lines) {
          resolve();
        }
      });
      child.once("error", reject);
      child.once("close", () => reject(new Error(`${program} ended: ${log}`)));
      if (lines === 0) {
        resolve();
      }
    });
    return { program: started, output };
  }

  /** Kills the server of this guardian, and waits for both. */
  async killServer(): Promise<void> {
    this.signalServer("SIGKILL");
    await this.ended;
  }

  /** Sends a signal to the server of this guardian. */
  signalServer(signal: NodeJS.Signals): void {
    for (const server of children(this.child.pid as number)) {
      process.kill(server, signal);
    }
  }

  /** Counts the unnamed files below a directory that the server has open: one for each upload. */
  partialFiles(dir: string): number {
    const files = new Set<string>(); // one may be open more than once
    for (const server of children(this.child.pid as number)) {
      for (const fd of readdirSync(`/proc/${server}/fd`)) {
        const target = linkTarget(`/proc/${server}/fd/${fd}`);
        if (target.startsWith(`${dir}/`) && target.endsWith(" (deleted)")) {
          files.add(target);
        }
      }
    }
    return files.size;
  }

  async stop(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    this.child.stdin?.end();
    this.child.kill(signal);
    await this.ended;
  }
}

/** The children of all threads of a process: a thread may end at any time. */
function children(parent: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => parentOf(pid) === parent);
}

/** The parent of a process; NaN if it has ended. */
function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return NaN;
  }
}

/** The target of a link; "" if it is gone. */
function linkTarget(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

/** Returns a port that the system gives to no other socket by itself. */
export async function unusedPort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_768);
    const server = net.createServer();
    if (await new Promise<boolean>((resolve) => server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)))) {
      await new Promise((resolve) => server.close(resolve));
      return port;
    }
  }
}

/** Waits until a condition holds. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Starts a server and returns its URL. */
export async function serve(t: TestContext, options: { listen?: string; args?: string[] } = {}): Promise<{ url: string; program: Program }> {
  const listen = options.listen ?? `unix://${join(directory(t), "socket")}`;
  const { program, output } = await Program.start(t, binary, ["serve", "--until-stdin-closes", "--listen", listen, ...(options.args ?? [])], 1);
  return { url: output[0] as string, program };
}

/** Returns the client of a private server that the tests of a file share. */
export function shared(...args: string[]): () => Client {
  let one: Client | undefined;
  before(async () => {
    one = await launch({ binary, args });
  });
  afterAll(() => one?.close());
  return () => one as Client;
}

/** Connects to a new server. */
export async function client(t: TestContext, options: ConnectOptions = {}): Promise<Client> {
  const { url } = await serve(t);
  return dial(t, url, options);
}

/** Connects for the duration of the test. */
export async function dial(t: TestContext, url: string, options: ConnectOptions = {}): Promise<Client> {
  const made = await connect(url, options);
  after(t, () => made.close());
  return made;
}

/** Waits until an executor is connected to a hub. */
export async function registered(hub: string, id: string): Promise<void> {
  for (;;) {
    const listed = execFileSync(binary, ["executors", "--hub", hub], { encoding: "utf8" });
    if (listed.split("\n").some((line) => line.startsWith(`${id}\tconnected`))) {
      return;
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** A proxy to a server whose connections can be cut. */
export class Proxy {
  readonly url: string;
  cuts = 0;
  private readonly open = new Set<net.Socket>();
  /** How many bytes of the server are forwarded before the next cut. */
  private budget = Infinity;
  private nextBudget: (() => number) | undefined;
  private refusing = false;
  /** Whether what the server sends is dropped. */
  deaf = false;

  private constructor(server: net.Server, url: string, private readonly target: net.NetConnectOpts) {
    this.url = url;
    server.on("connection", (socket) => this.connect(socket));
  }

  static async start(t: TestContext, url: string): Promise<Proxy> {
    const target = new URL(url);
    const to = target.protocol === "unix:" ? { path: target.pathname } : { host: target.hostname, port: Number(target.port) };
    const server = net.createServer();
    // A hub listens on TCP only.
    const listen = target.protocol === "http:" ? { port: 0, host: "127.0.0.1" } : { path: join(directory(t), "proxy") };
    await new Promise<void>((resolve) => server.listen(listen, resolve));
    const address = server.address();
    const proxy = new Proxy(server, typeof address === "string" ? `unix://${address}` : `http://127.0.0.1:${address?.port}`, to);
    after(t, () => {
      proxy.refuse();
      server.close();
    });
    return proxy;
  }

  /** Cuts whenever this many bytes were received from the server. */
  cutEvery(bytes: () => number): void {
    this.nextBudget = bytes;
    this.budget = bytes();
  }

  /** Cuts all connections. */
  cut(): void {
    if (this.open.size > 0) {
      this.cuts++;
    }
    for (const socket of this.open) {
      socket.destroy();
    }
  }

  /** Cuts all connections, and rejects new ones. */
  refuse(): void {
    this.refusing = true;
    this.cut();
  }

  /** Accepts connections again. */
  admit(): void {
    this.refusing = false;
  }

  private connect(socket: net.Socket): void {
    if (this.refusing) {
      socket.destroy();
      return;
    }
    const upstream = net.connect(this.target);
    for (const [from, to] of [[socket, upstream], [upstream, socket]] as const) {
      this.open.add(from);
      from.on("error", () => undefined);
      from.on("close", () => {
        this.open.delete(from);
        to.destroy();
      });
    }
    socket.pipe(upstream);
    upstream.on("data", (data: Buffer) => {
      if (this.deaf) {
        return;
      }
      this.budget -= data.length;
      if (this.budget < 0 && this.nextBudget) {
        // A part is delivered, possibly ending within a frame.
        socket.write(data.subarray(0, data.length / 2));
        this.budget = this.nextBudget();
        this.cut();
        return;
      }
      if (!socket.write(data)) {
        upstream.pause();
      }
    });
    socket.on("drain", () => upstream.resume());
  }
}

/** Reproducible bytes without repetition. */
export function pattern(bytes: number): Buffer {
  const data = Buffer.allocUnsafe(bytes);
  let state = 0x2545f491;
  for (let i = 0; i < bytes; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    data[i] = state;
  }
  return data;
}

/** Everything that an iteration yields. */
export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) {
    list.push(item);
  }
  return list;
}

export function text(data: Uint8Array): string {
  return Buffer.from(data).toString();
}

/** A self-signed certificate for the address of this host. */
export function certificate(t: TestContext): { certificate: string; key: string } {
  const dir = directory(t);
  const goroot = execFileSync("go", ["env", "GOROOT"], { encoding: "utf8" }).trim();
  execFileSync("go", ["run", join(goroot, "src/crypto/tls/generate_cert.go"), "--host", "127.0.0.1", "--ca", "--ecdsa-curve", "P256"], {
    cwd: dir,
    stdio: "pipe",
  });
  chmodSync(join(dir, "key.pem"), 0o600);
  return { certificate: join(dir, "cert.pem"), key: join(dir, "key.pem") };
}
