import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text as textOf } from "node:stream/consumers";
import { test } from "node:test";
import { ClosedError, type ProcessEvent, StdinClosedError, UsageError } from "execwire";
import { client, directory, pattern, text } from "./fixture.js";

test("events are complete and in order", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", "echo one; read x; echo got $x >&2"]);
  const events: ProcessEvent[] = [];
  for await (const event of p) {
    events.push(event);
    if (event.type === "output" && event.stream === "stdout") {
      await p.write("two\n");
    }
  }
  assert.deepEqual(events.map((e) => e.type), ["output", "output", "exited", "closed"]);
  assert.deepEqual(events.map((e) => ("seq" in e ? e.seq : 0)), [1, 2, 3, 4]);
  assert.equal(events[1]?.type === "output" && text(events[1].data), "got two\n");
  const times = events.map((e) => (e.type === "output" ? e.readTime?.getTime() : undefined));
  assert.ok((times[0] ?? 0) > 0 && (times[0] ?? 0) <= (times[1] ?? 0));
  assert.equal((await p.wait()).code, 0);
  assert.equal(p.exit?.stderrBytes, 8);
});

test("a later loop continues after the last consumed event", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", "echo one; read x; echo two"]);
  for await (const { data } of p.output()) {
    assert.equal(text(data), "one\n");
    break;
  }
  await p.write("\n");
  let rest = "";
  for await (const { data } of p.output()) {
    rest += text(data);
  }
  assert.equal(rest, "two\n");
});

test("output has one consumer", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sleep", "1000"]);
  const first = p.events().next();
  await assert.rejects(p.events().next(), UsageError);
  await p.terminate({ force: true });
  assert.equal((await first).done, false);
});

test("wait discards output only without a consumer", async (t) => {
  const c = await client(t);
  await using flood = await c.start(["head", "-c", "20000000", "/dev/zero"]);
  assert.equal((await flood.wait()).stdoutBytes, 20_000_000);
  await using p = await c.start(["head", "-c", "3000000", "/dev/zero"]);
  const waited = p.wait();
  let bytes = 0;
  for await (const { data } of p.output()) {
    bytes += data.length;
  }
  assert.equal(bytes, 3_000_000);
  assert.equal((await waited).code, 0);
});

test("an unread process blocks and loses nothing", async (t) => {
  const c = await client(t);
  const done = join(directory(t), "done");
  const bytes = 32 << 20;
  await using p = await c.start(["sh", "-c", `head -c ${bytes} /dev/zero; touch ${done}`]);
  // Its output is limited by the window, so its last seq stops increasing.
  let last = -1n;
  for (let still = 0; still < 20; ) {
    const { lastSeq } = await c.get(p.id);
    still = lastSeq === last && lastSeq > 0n ? still + 1 : 0;
    last = lastSeq;
  }
  assert.ok(!existsSync(done), "it wrote everything although nothing was read");
  assert.ok(Number(last) * 32_700 < bytes / 2, `${last} events were received`);
  const { exit, stdout } = await p.communicate();
  assert.deepEqual([exit.code, stdout.length, exit.droppedBytes], [0, bytes, 0]);
  assert.ok(existsSync(done));
});

test("maxBufferedBytes limits buffered output below the window", async (t) => {
  const c = await client(t, { maxBufferedBytes: 100_000 });
  const bytes = 8 << 20;
  await using p = await c.start(["head", "-c", `${bytes}`, "/dev/zero"]);
  assert.equal((await c.run(["head", "-c", "5000000", "/dev/zero"])).stdout.length, 5_000_000);
  assert.equal((await p.communicate()).stdout.length, bytes);
});

test("a slow reader does not block other processes", async (t) => {
  const c = await client(t);
  await using slow = await c.start(["cat", "/dev/zero"]);
  const reading = slow.output();
  await reading.next();
  for (let i = 0; i < 3; i++) {
    assert.equal((await c.run(["head", "-c", "5000000", "/dev/zero"])).stdout.length, 5_000_000);
  }
  await reading.return();
});

test("stdin fails with StdinClosedError", async (t) => {
  const c = await client(t);
  await using closed = await c.start(["true"], { stdin: "closed" });
  await assert.rejects(closed.write("a"), StdinClosedError);
  await using p = await c.start(["sh", "-c", "exec <&-; echo closed; sleep 1000"]);
  await p.output().next();
  await assert.rejects(async () => {
    for (;;) {
      await p.write(new Uint8Array(50_000));
    }
  }, StdinClosedError);
  await using ended = await c.start(["cat"]);
  await ended.closeStdin();
  await ended.closeStdin();
  await assert.rejects(ended.write("late"), UsageError);
});

test("signal, terminate and waitFor", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", 'trap "echo caught" USR1; echo ready; while :; do sleep 0.01; done']);
  const ready = await p.waitFor({ pattern: "ready" });
  assert.ok(ready.satisfied && ready.match);
  assert.equal(text(ready.match.data), "ready");
  await p.signal("SIGUSR1", { target: "process" });
  assert.ok((await p.waitFor({ pattern: "caught", afterSeq: ready.match.seq })).satisfied);
  assert.equal((await p.waitFor({ exit: true }, { waitMs: 0 })).satisfied, false);
  const terminated = await p.terminate({ timeoutMs: 0 });
  assert.equal(terminated.wasRunning, true);
  assert.equal((await p.wait()).cause, "terminated");
  await assert.rejects(p.signal("SIGNOTHING" as "SIGTERM"), UsageError);
});

test("a process in a terminal has its size, and is resized", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", 'stty size; trap "stty size; exit" WINCH; echo ready; while :; do sleep 0.01; done'], {
    terminal: { rows: 10, columns: 40 },
  });
  let shown = "";
  for await (const { data, stream } of p.output()) {
    assert.equal(stream, "terminal");
    const before = shown;
    shown += text(data);
    if (!before.includes("ready") && shown.includes("ready")) {
      await p.resize({ rows: 20, columns: 50 });
    }
  }
  assert.equal(shown, "10 40\r\nready\r\n20 50\r\n");
});

test("a screen has what a terminal shows", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", "printf '\\033[1mbold\\033[m\\r\\nplain'; read line"], { terminal: { rows: 4, columns: 20 } });
  const waited = await c.waitFor(p.id, { screen: "plain", screenIdleMs: 10 });
  assert.equal(waited.satisfied, true);
  const shown = await c.screen(p.id, { styles: true });
  assert.deepEqual(
    shown.lines.map((line) => line.text),
    ["bold", "plain", "", ""],
  );
  assert.equal(shown.lines[0]?.runs[0]?.sgr, "\x1b[0;1m");
  await p.terminate();
});

test("a watched screen has all lines after each change, until the process has closed", async (t) => {
  const c = await client(t);
  await using p = await c.start(["sh", "-c", "printf 'first\\r\\n'; read line; printf second"], { terminal: { rows: 3, columns: 20 } });
  let texts: string[] = [];
  let typed = false;
  for await (const screen of c.watchScreen(p.id)) {
    texts = screen.lines.map((line) => line.text);
    assert.equal(texts.length, screen.size?.rows);
    if (texts[0] === "first" && screen.size?.rows === 3) {
      await p.resize({ rows: 4, columns: 20 });
    } else if (texts[0] === "first" && !typed) {
      typed = true;
      await p.write("\n");
    }
  }
  assert.deepEqual(texts, ["first", "", "second", ""]);
  await assert.rejects(c.watchScreen("none").next(), { reason: "PROCESS_NOT_FOUND" });
});

test("the input of a terminal ends by its end-of-file character", async (t) => {
  const c = await client(t);
  await using p = await c.start(["cat"], { terminal: true });
  await p.write("half a line");
  await p.closeStdin();
  assert.equal((await p.wait()).code, 0);
});

test("interactive connects a terminal to streams", async (t) => {
  const c = await client(t);
  const [keys, screen] = [new PassThrough(), new PassThrough()];
  const shown = textOf(screen);
  const ended = c.interactive(["sh", "-c", 'stty -echo; echo "size $(stty size)"; read name; echo "hello $name"; exit 4'], {
    input: keys,
    output: screen,
    size: { rows: 7, columns: 9 },
  });
  keys.write("you\n");
  const exit = await ended;
  screen.end();
  assert.equal(exit.code, 4);
  const output = await shown;
  assert.match(output, /size 7 9/);
  assert.match(output, /hello you/);
});

test("interactive passes a size that changes while the process is started", async (t) => {
  const c = await client(t);
  const output = Object.assign(new PassThrough(), { rows: 7, columns: 9 });
  output.resume();
  const ended = c.interactive('while [ "$(stty size)" != "8 10" ]; do sleep 0.02; done', { input: new PassThrough(), output });
  Object.assign(output, { rows: 8, columns: 10 });
  assert.equal((await ended).code, 0);
});

test("the Node.js streams deliver exactly", async (t) => {
  const c = await client(t);
  const input = pattern(3_000_000);
  await using p = await c.start(["sh", "-c", "tee /dev/stderr"]);
  const [out, err] = [gather(p.stdout), gather(p.stderr)];
  p.stdin.end(input);
  assert.ok((await out).equals(input));
  assert.ok((await err).equals(input));
  assert.equal((await p.wait()).code, 0);
  await using one = await c.start(["sh", "-c", "head -c 5000000 /dev/zero >&2; echo done"]);
  assert.equal(text(await gather(one.stdout)), "done\n", "a stream that was not requested is dropped");
});

test("detach and attach", async (t) => {
  const c = await client(t);
  const p = await c.start(["sh", "-c", "echo before; read x; echo after $x"]);
  for await (const { data } of p.output()) {
    assert.equal(text(data), "before\n");
    break;
  }
  await p.detach();
  await assert.rejects(p.output().next(), ClosedError);
  const found = [];
  for await (const { processId, owned } of c.processes()) {
    found.push([processId, owned]);
  }
  assert.deepEqual(found, [[p.id, false]]);
  await using again = await c.attach(p.id, { afterSeq: 1 });
  await again.write("that\n");
  const { stdout, exit } = await again.communicate();
  assert.deepEqual([stdout, exit.code], ["after that\n", 0]);
  assert.equal((await (await c.attach(p.id)).communicate()).stdout, "before\nafter that\n", "closed, and all of it is kept");
});

test("detach delivers input and its end", async (t) => {
  const c = await client(t);
  const one = async (): Promise<string> => {
    const p = await c.start(["cat"]);
    await p.write("one");
    await p.closeStdin();
    await p.detach();
    await using again = await c.attach(p.id);
    return text(await gather(again.stdout));
  };
  assert.deepEqual(await Promise.all(Array.from({ length: 32 }, one)), Array(32).fill("one"));
});

test("closing kills a started process and detaches from an attached one", async (t) => {
  const c = await client(t);
  const started = await c.start(["sleep", "1000"]);
  await started.close();
  await started.close();
  assert.ok((await c.waitFor(started.id, { exit: true })).satisfied);
  const kept = await c.start(["sleep", "1000"]);
  await kept.detach();
  const found = await c.attach(kept.id);
  await found.close();
  const { exit, owned } = await c.get(kept.id);
  assert.deepEqual([exit, owned], [undefined, false]);
});

test("a late follower gets retained events and a gap for the rest", async (t) => {
  const c = await client(t);
  const p = await c.start(["sh", "-c", "head -c 5000000 /dev/zero; echo; echo end"]);
  await p.wait();
  const events: ProcessEvent[] = [];
  for await (const event of c.follow(p.id)) {
    events.push(event);
  }
  const [gap] = events;
  assert.ok(gap?.type === "gap" && gap.droppedBytes > 0);
  assert.equal(gap.cause, "limit");
  let kept = "";
  for (const event of events) {
    kept += event.type === "output" ? text(event.data) : "";
  }
  assert.equal(kept.length + gap.droppedBytes, 5_000_005);
  assert.ok(kept.endsWith("\nend\n"));
  assert.equal(events.at(-1)?.type, "closed");
});

async function gather(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces = [];
  for await (const piece of stream) {
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
