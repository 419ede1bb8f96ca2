// Edge cases of callers: reused memory, cancelled waits, unread streams, and programs that exit with an open
// process.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import { ClosedError, connect, ConnectionError, launch, LostError, ReadError } from "execwire";
import { FileSystemService } from "execwire/v1";
import { FileSystem } from "#dist/files.js";
import type { Link } from "#dist/link.js";
import { Rpc } from "#dist/rpc.js";
import { after, binary, client, dial, directory, Program, Proxy, serve } from "./fixture.js";

test("written memory can be reused", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  const blocks = 60;
  await using p = await c.start(["sha256sum"]);
  const block = Buffer.alloc(40_000);
  const hash = createHash("sha256");
  for (let i = 0; i < blocks; i++) {
    block.fill(i);
    hash.update(block);
    await p.write(block);
  }
  await p.closeStdin();
  const digest = hash.digest("hex");
  assert.equal((await p.communicate()).stdout, `${digest}  -\n`);

  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < blocks; i++) {
      block.fill(i);
      if (i === blocks - 1) {
        proxy.cut(); // what was sent is sent again
      }
      yield block;
    }
  }
  const file = join(directory(t), "file");
  await c.files.write(file, pieces());
  assert.equal(createHash("sha256").update(readFileSync(file)).digest("hex"), digest);
});

test("an aborted wait consumes nothing", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", "read x; echo said"]);
  for (let i = 0; i < 3; i++) {
    const stop = new AbortController();
    const waited = assert.rejects(p.wait({ signal: stop.signal }), /enough/);
    await tick();
    stop.abort(new Error("enough"));
    await waited;
    const events = p.events({ signal: AbortSignal.abort(new Error("not now")) });
    await assert.rejects(events.next(), /not now/);
  }
  await p.write("\n");
  assert.equal((await p.communicate()).stdout, "said\n");
});

test("closing ends a wait for a process with an abandoned reader", async (t) => {
  const c = await client(t);
  const p = await c.start(["cat", "/dev/zero"]);
  await p.output().next();
  const waited = assert.rejects(p.wait(), ClosedError);
  const { url } = await serve(t);
  const other = await connect(url);
  const q = await other.start(["cat", "/dev/zero"]);
  await q.output().next();
  const alsoWaited = assert.rejects(q.wait(), ClosedError);
  await Promise.all([p.close(), other.close()]);
  await Promise.all([waited, alsoWaited]);
});

test("closing ends streams without an unhandled error", async (t) => {
  const c = await client(t);
  const p = await c.start(["sh", "-c", "echo output; exec sleep 1000"]);
  await new Promise((resolve) => p.stdout.once("data", resolve));
  const closed = [p.stdout, p.stdin].map((stream) => new Promise((resolve) => stream.once("close", resolve)));
  p.stdin.write(new Uint8Array(3_000_000)); // more than is consumed
  await c.close();
  await Promise.all(closed);
});

test("a lost connection is resumed while buffered events are unconsumed", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  let resume: () => void = () => undefined;
  const resumed = new Promise<void>((resolve) => (resume = resolve));
  const c = await dial(t, proxy.url, { maxBufferedBytes: 100_000 });
  const bytes = 3_000_000;
  await using p = await c.start(["head", "-c", `${bytes}`, "/dev/zero"], { onResumed: () => resume() });
  while ((await c.get(p.id)).lastSeq < 10n) {
    await tick(); // until it has written more than the limit
  }
  proxy.cut();
  await resumed;
  assert.equal((await p.communicate()).stdout.length, bytes);
});

test("an already aborted start starts nothing", async (t) => {
  const c = await client(t);
  const reason = new Error("not wanted");
  await assert.rejects(c.start(["sleep", "1000"], { signal: AbortSignal.abort(reason) }), reason);
  for await (const { processId } of c.processes()) {
    assert.fail(`${processId} was started`);
  }
});

test("an unreadable file fails its upload, even late", async () => {
  const transport = createRouterTransport(({ service }) =>
    service(FileSystemService, {
      uploadFile: async (requests) => {
        const iterator = requests[Symbol.asyncIterator]();
        await iterator.next();
        await stat("/").then(() => tick()); // the file would have been opened meanwhile
        await iterator.next();
        return {};
      },
    }),
  );
  const files = new FileSystem(new Rpc({ transport } as Link, 0), undefined);
  await assert.rejects(files.upload("/to", { file: "/no/such/file" }), ReadError);
});

test("an upload that starts over forgets what its lost attempt reads", async (t) => {
  const file = join(directory(t), "file");
  const content = Buffer.alloc(100_000, "0123456789");
  writeFileSync(file, content);
  let attempts = 0;
  const transport = createRouterTransport(({ service }) =>
    service(FileSystemService, {
      getUpload: async () => {
        if (attempts === 1) {
          return { receivedBytes: 40_000n };
        }
        for (let i = 0; i < 20; i++) {
          await stat("/").then(() => tick()); // the lost attempt would have read the file meanwhile
        }
        throw notFound();
      },
      uploadFile: async (requests) => {
        if (++attempts === 2) {
          const iterator = requests[Symbol.asyncIterator]();
          await iterator.next();
          iterator.next().catch(() => undefined); // begins to read the file
          throw notFound();
        }
        const received: Uint8Array[] = [];
        for await (const { message } of requests) {
          if (message.case === "data") {
            received.push(message.value);
          }
          if (attempts === 1 && received.length === 2) {
            throw new ConnectError("the connection was cut", Code.Unavailable);
          }
        }
        const all = Buffer.concat(received);
        assert.ok(all.equals(content));
        return { size: BigInt(all.length), sha256: createHash("sha256").update(all).digest() };
      },
    }),
  );
  const files = new FileSystem(new Rpc({ transport } as Link, 60_000), undefined);
  assert.equal((await files.upload("/to", { file })).size, content.length);
  assert.equal(attempts, 3);
});

/** The error for an upload whose data the server has dropped. */
function notFound(): ConnectError {
  const error = new ConnectError("there is no such upload", Code.NotFound);
  const info = new BinaryWriter().tag(1, WireType.LengthDelimited).string("UPLOAD_NOT_FOUND").tag(2, WireType.LengthDelimited).string("execwire.v1");
  error.details.push({ type: "google.rpc.ErrorInfo", value: info.finish() });
  return error;
}

test("a failing local file ends its download", async (t) => {
  const c = await client(t);
  const dir = directory(t);
  const large = join(dir, "large");
  const { stdout } = await c.run(["sh", "-c", `head -c 4000000 /dev/zero >${large}; echo $PPID`]);
  for (let i = 0; i < 5; i++) {
    await assert.rejects(c.files.downloadFile(large, join(dir, "none/to")), { code: "ENOENT" });
  }
  await until(() => !openFiles(Number(stdout)).includes(large));
});

test("the end of a helper fails pending and later calls", async (t) => {
  const c = await launch({ binary, resumeForMs: 1e9 });
  after(t, () => c.close());
  await using p = await c.start(["sh", "-c", "echo $PPID; cat"], { graceMs: 3_600_000 });
  let server = 0;
  for await (const { data } of p.output()) {
    server = Number(Buffer.from(data).toString());
    break;
  }
  const waited = assert.rejects(p.wait(), (error: unknown) => error instanceof LostError && error.cause instanceof ConnectionError);
  const looked = assert.rejects(c.waitFor(p.id, { exit: true }), ConnectionError);
  process.kill(server, "SIGKILL");
  await Promise.all([waited, looked]);
  await assert.rejects(c.run(["true"]), ConnectionError);
  await assert.rejects(c.files.stat("/"), ConnectionError);
});

test("closing a launched client ends its processes at once", async (t) => {
  const script = `
    import { launch } from "execwire";
    const c = await launch({ binary: ${JSON.stringify(binary)} });
    const p = await c.start(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1000; done"]);
    for await (const { data } of p.output()) { process.stdout.write(data); break; }
    await c.close();
    console.log("closed");`;
  const { program, output } = await Program.start(t, process.execPath, ["--input-type=module", "--eval", script], 2);
  assert.equal(output[1], "closed");
  assert.equal(await program.exited(), 0);
  assert.ok(!runs(Number(output[0])));
});

test("a killed program leaves neither its server nor processes", async (t) => {
  const script = `
    import { launch } from "execwire";
    const c = await launch({ binary: ${JSON.stringify(binary)} });
    const p = await c.start(["sh", "-c", "echo $PPID $$; exec sleep 1000"]);
    for await (const { data } of p.output()) process.stdout.write(data);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], { stdio: ["ignore", "pipe", "inherit"] });
  after(t, () => child.kill("SIGKILL"));
  const line = await new Promise<string>((resolve) => createInterface({ input: child.stdout }).once("line", resolve));
  const [server, started] = line.split(" ").map(Number) as [number, number];
  assert.notEqual(groupOf(server), groupOf(child.pid as number), "Ctrl-C would end the server with the program");
  child.kill("SIGKILL");
  await until(() => !runs(server) && !runs(started));
});

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) {
    await tick();
  }
}

function runs(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

function groupOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/stat`, "utf8").replace(/.*\) /s, "").split(" ")[2]);
}

function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return []; // closed meanwhile
    }
  });
}
