import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ClosedError, connect, ExecwireError, type Exit, LostError, type Process, RestartedError, UnavailableError } from "execwire";
import { dial, directory, pattern, Program, Proxy, serve, until } from "./fixture.js";

/** Reproducible output that, unlike `pattern`, the server generates. */
const flood = (bytes: number): string[] => ["sh", "-c", `yes 'all work and no play makes jack a dull boy' | head -c ${bytes}`];

function floodDigest(bytes: number): string {
  const line = Buffer.from("all work and no play makes jack a dull boy\n");
  const hash = createHash("sha256");
  const block = Buffer.alloc(line.length * 1000, line);
  for (let left = bytes; left > 0; left -= block.length) {
    hash.update(block.subarray(0, Math.min(left, block.length)));
  }
  return hash.digest("hex");
}

test("32 MiB of output arrive exactly once while the connection is cut", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  let n = 0;
  proxy.cutEvery(() => 1_500_000 + ((n++ * 7_654_321) % 2_000_000));
  const bytes = 32 << 20;
  await using p = await c.start(flood(bytes));
  const hash = createHash("sha256");
  let offset = 0;
  for await (const event of p) {
    assert.notEqual(event.type, "gap");
    if (event.type === "output") {
      assert.equal(event.offset, offset);
      offset += event.data.length;
      hash.update(event.data);
    }
  }
  assert.equal(offset, bytes);
  assert.equal(hash.digest("hex"), floodDigest(bytes));
  assert.ok(proxy.cuts >= 10, `${proxy.cuts} cuts`);
  assert.ok((p.exit?.resumed ?? 0) >= 10, `${p.exit?.resumed} resumes`);
  assert.equal(p.exit?.code, 0);
});

test("input reaches the process exactly once while the connection is cut", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  const input = pattern(8 << 20);
  const file = join(directory(t), "received");
  let lost = 0;
  let resumed = 0;
  await using p = await c.start(["sh", "-c", `tee ${file}`], { onLost: () => lost++, onResumed: () => resumed++ });
  let n = 0;
  proxy.cutEvery(() => 300_000 + ((n++ * 123_457) % 500_000));
  const writing = (async () => {
    for (let at = 0; at < input.length; at += 70_001) {
      await p.write(input.subarray(at, at + 70_001));
    }
    await p.closeStdin();
  })();
  const { stdout, exit } = await gather(p);
  await writing;
  assert.ok(stdout.equals(input));
  assert.ok(readFileSync(file).equals(input));
  assert.ok(lost >= 5 && resumed === lost, `${lost} lost, ${resumed} resumed`);
  assert.equal(exit?.resumed, resumed);
});

test("an idle process survives repeated cuts", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  let resumed: () => void = () => undefined;
  await using p = await c.start(["sh", "-c", "read x; echo got $x"], { onResumed: () => resumed() });
  // More often than errors of intermediaries are retried.
  for (let i = 0; i < 7; i++) {
    const again = new Promise<void>((resolve) => (resumed = resolve));
    proxy.cut();
    await again;
  }
  await p.write("it\n");
  assert.equal((await gather(p)).stdout.toString(), "got it\n");
});

test("a start whose answer is lost starts one process", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  const file = join(directory(t), "started");
  for (let i = 0; i < 5; i++) {
    proxy.cutEvery(() => Infinity);
    let cuts = 0;
    // The first bytes of the server after this are cut, and those after.
    proxy.cutEvery(() => (cuts++ < 2 ? 10 : Infinity));
    assert.equal((await c.run(["sh", "-c", `echo ${i} >> ${file}; echo said`])).stdout, "said\n");
  }
  assert.equal(readFileSync(file, "utf8"), "0\n1\n2\n3\n4\n");
});

test("a lost process throws LostError after the received events", async (t) => {
  const { url, program } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url, { resumeForMs: 300 });
  await using p = await c.start(["sh", "-c", "echo output; sleep 1000"]);
  assert.ok((await p.waitFor({ pattern: "output" })).satisfied);
  const events = p.events();
  assert.equal((await events.next()).value?.type, "output");
  const waited = assert.rejects(p.wait(), LostError);
  proxy.refuse();
  await program.stop();
  await assert.rejects(events.next(), (error: unknown) => {
    assert.ok(error instanceof LostError);
    assert.deepEqual([error.processId, error.started, error.exit, error.lastSeq], [p.id, true, undefined, 1]);
    return true;
  });
  await waited;
  await assert.rejects(async () => {
    for (;;) {
      await p.write("a");
    }
  }, LostError);
  await assert.rejects(c.files.stat("/"), UnavailableError);
});

test("a restarted server is reported, whatever the grace", async (t) => {
  const { url, program } = await serve(t);
  const c = await dial(t, url);
  await using p = await c.start(["sleep", "1000"], { graceMs: 3_600_000 });
  const waited = assert.rejects(p.wait(), (error: unknown) => {
    assert.ok(error instanceof RestartedError && error instanceof LostError);
    assert.equal(error.message, `the server was restarted; the process ${p.id} ended with it`);
    return true;
  });
  await program.killServer();
  await serve(t, { listen: url });
  await waited;
});

test("a start is not repeated at a restarted server", async (t) => {
  for (const method of ["start", "startDetached"] as const) {
    const listen = `unix://${join(directory(t), "socket")}`;
    const { program } = await serve(t, { listen });
    const proxy = await Proxy.start(t, listen);
    const c = await dial(t, proxy.url);
    const mark = join(directory(t), "mark");
    proxy.deaf = true;
    const started = assert.rejects(c[method](["sh", "-c", `echo ran >>${mark}`]), (error: unknown) => {
      assert.ok(error instanceof RestartedError && !error.started, String(error));
      assert.match(error.message, /unknown whether/);
      return true;
    });
    await until(() => existsSync(mark));
    await program.killServer();
    proxy.deaf = false;
    await serve(t, { listen });
    await started;
    assert.equal(readFileSync(mark, "utf8"), "ran\n");
  }
});

test("without a grace period a cut is final", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  await using p = await c.start(["sleep", "1000"], { graceMs: 0 });
  const waited = assert.rejects(p.wait(), LostError);
  proxy.cut();
  await waited;
});

test("a restarted server does not know the process", async (t) => {
  const path = join(directory(t), "socket");
  const listen = `unix://${path}`;
  const first = await serve(t, { listen });
  const proxy = await Proxy.start(t, listen);
  const c = await dial(t, proxy.url);
  await using p = await c.start(["sleep", "1000"]);
  await using other = await c.start(["sleep", "1000"]);
  const follower = c.follow(other.id);
  const ended = assert.rejects(async () => {
    for await (const _ of follower) {
      // No output.
    }
  }, (error: unknown) => error instanceof LostError || error instanceof ExecwireError);
  const waited = assert.rejects(p.wait(), LostError);
  proxy.refuse(); // otherwise it would report its shutdown
  await first.program.stop();
  await serve(t, { listen });
  proxy.admit();
  await waited;
  await ended;
});

test("a replaced owner gets TakenOverError", async (t) => {
  const { url } = await serve(t);
  const [a, b] = [await dial(t, url), await dial(t, url)];
  await using first = await a.start(["cat"]);
  const replaced = assert.rejects(first.wait(), (error: unknown) => error instanceof ExecwireError && error.reason === "PROCESS_TAKEN_OVER");
  await using second = await b.attach(first.id);
  await replaced;
  await second.write("still there");
  assert.equal((await second.communicate()).stdout, "still there");
});

test("followers and waits resume after cuts without duplicates", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const [owner, c] = [await dial(t, url), await dial(t, proxy.url)];
  await using p = await owner.start(["cat"], { id: "followed" });
  const owned = gather(p);
  const lines = (async () => {
    let output = "";
    for await (const event of c.follow("followed")) {
      if (event.type === "output") {
        output += Buffer.from(event.data).toString();
      }
    }
    return output;
  })();
  const exited = c.waitFor("followed", { exit: true });
  let written = "";
  for (let i = 0; i < 5; i++) {
    await p.write(`line ${i}\n`);
    written += `line ${i}\n`;
    assert.ok((await owner.waitFor("followed", { pattern: `line ${i}` })).satisfied);
    proxy.cut();
  }
  await p.closeStdin();
  assert.equal(await lines, written);
  assert.ok((await exited).satisfied);
  await owned;
});

test("closing the client fails pending calls", async (t) => {
  const { url } = await serve(t);
  const c = await connect(url);
  const p = await c.start(["sleep", "1000"]);
  const calls = [
    assert.rejects(p.wait(), ClosedError),
    assert.rejects(c.waitFor(p.id, { exit: true }), ClosedError),
    assert.rejects(c.files.watch("/tmp").next().then(() => c.files.watch("/tmp").next()), ClosedError),
  ];
  await c.describe();
  await c.close();
  await c.close();
  await Promise.all(calls);
  await assert.rejects(p.write("a"), ClosedError);
  await assert.rejects(c.run(["true"]), ClosedError);
  await assert.rejects(c.files.stat("/"), ClosedError);
});

test("a program exits when its client is closed or idle", async (t) => {
  const { url } = await serve(t);
  const script = (last: string): string => `
    import { connect } from "execwire";
    const c = await connect(${JSON.stringify(url)});
    const { stdout } = await c.run(["echo", "hello"]);
    process.stdout.write(stdout);
    ${last}`;
  for (const last of ["await c.close();", ""]) {
    const { program, output } = await Program.start(t, process.execPath, ["--input-type=module", "--eval", script(last)], 1);
    assert.deepEqual(output, ["hello"]);
    assert.equal(await program.exited(), 0);
  }
});

async function gather(p: Process): Promise<{ stdout: Buffer; exit: Exit | undefined }> {
  const pieces: Uint8Array[] = [];
  for await (const { data } of p.output()) {
    pieces.push(data);
  }
  return { stdout: Buffer.concat(pieces), exit: p.exit };
}
