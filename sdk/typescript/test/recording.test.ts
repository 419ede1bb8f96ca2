import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createRouterTransport, type ServiceImpl } from "@connectrpc/connect";
import { type Client, type RecordingOptions, UnavailableError } from "execwire";
import { ExitCause, type GetProcessResponseSchema, OutputStream, type ProcessEvent, ProcessEventSchema, ProcessService } from "execwire/v1";
import type { Link } from "#dist/link.js";
import { recording } from "#dist/recording.js";
import { Rpc } from "#dist/rpc.js";
import { all, binary, dial, directory, Proxy, serve } from "./fixture.js";

type Event = [time: number, code: string, data: string];

/** The header and the events of a recording. */
function parse(lines: readonly string[]): { header: Record<string, unknown>; events: Event[] } {
  for (const line of lines) {
    assert.ok(line.endsWith("\n") && line.indexOf("\n") === line.length - 1 && line.length < 200 << 10, line.slice(0, 100));
  }
  const [header, ...events] = lines.map((line) => JSON.parse(line) as unknown);
  return { header: header as Record<string, unknown>, events: events as Event[] };
}

/** What the command and the client record of a process that has closed, which must be the same. */
async function recorded(c: Client, url: string, id: string, version: 2 | 3): Promise<{ header: Record<string, unknown>; events: Event[] }> {
  const args = ["logs", "--server", url, `--cast=v${version}`, id];
  const command = execFileSync(binary, args, { encoding: "utf8", maxBuffer: 64 << 20 }).match(/.*\n/g);
  const mine = parse(await all(c.recording(id, { version })));
  assert.deepEqual(mine, parse(command ?? []));
  return mine;
}

/** The data of the events with a code. */
function having(events: readonly Event[], code: string): string[] {
  return events.filter((event) => event[1] === code).map((event) => event[2]);
}

async function server(t: TestContext): Promise<{ c: Client; url: string }> {
  const { url } = await serve(t);
  return { c: await dial(t, url), url };
}

for (const version of [2, 3] as const) {
  test(`a recording of a terminal in version ${version} is that of the command`, async (t) => {
    const { c, url } = await server(t);
    const script = `stty -echo; printf '\\033[1;31mred\\033[m \\342\\202'; read a; printf '\\254 euro\\n'; read a; echo end; exit 3`;
    await using p = await c.start(["sh", "-c", script], { terminal: { rows: 10, columns: 40 } });
    await p.waitFor({ pattern: "red" });
    await p.write("\n");
    await p.waitFor({ pattern: "euro" });
    await p.resize({ rows: 20, columns: 50 });
    await p.write("\n");
    await p.wait();
    const { header, events } = await recorded(c, url, p.id, version);
    assert.equal(header["command"], "sh");
    assert.deepEqual(version === 3 ? header["term"] : [header["width"], header["height"]], version === 3 ? { cols: 40, rows: 10 } : [40, 10]);
    assert.equal(having(events, "o").join(""), "\x1b[1;31mred\x1b[m € euro\r\nend\r\n");
    assert.deepEqual(having(events, "r"), ["50x20"]);
    assert.deepEqual(events.at(-1)?.slice(1), version === 3 ? ["x", "3"] : ["m", "exit status 3"]);
  });

  test(`a recording of pipes in version ${version} is that of the command`, async (t) => {
    const { c, url } = await server(t);
    await using p = await c.start(["sh", "-c", "printf 'a\\342'; read a; echo err >&2; read a; printf '\\202\\254\\n\\357\\273\\277\\360\\237'"]);
    await p.waitFor({ pattern: "a" });
    await p.write("\n");
    await p.waitFor({ pattern: "err" });
    await p.write("\n");
    await p.wait();
    const { events } = await recorded(c, url, p.id, version);
    assert.deepEqual(having(events, "o"), ["a", "err\r\n", "€\r\n\uFEFF", "\uFFFD"]);
  });

  test(`a recording in version ${version} has a marker where output is missing`, async (t) => {
    const { c, url } = await server(t);
    await using p = await c.start(["sh", "-c", "head -c 5000000 /dev/zero"]);
    await p.wait();
    const { events } = await recorded(c, url, p.id, version);
    const missing = Number(/^(\d+) bytes of output are missing$/.exec(events[0]?.[2] ?? "")?.[1]);
    assert.equal(missing + having(events, "o").join("").length, 5_000_000);
    assert.ok(missing > 0);
  });

  test(`a live recording in version ${version} begins with what the terminal shows`, async (t) => {
    const { c } = await server(t);
    await using p = await c.start(["sh", "-c", "stty -echo; echo before; read a; echo after"], { terminal: { rows: 10, columns: 40 } });
    await p.waitFor({ pattern: "before" });
    const began = Math.floor(Date.now() / 1000);
    const lines = c.recording(p.id, { version, live: true, title: "a title" });
    const first = [(await lines.next()).value as string, (await lines.next()).value as string];
    await p.resize({ rows: 20, columns: 50 });
    await p.write("\n");
    const { header, events } = parse([...first, ...(await all(lines))]);
    assert.equal(header["title"], "a title");
    assert.ok((header["timestamp"] as number) >= began && (header["timestamp"] as number) <= Date.now() / 1000);
    assert.ok(events[0]?.[0] === 0 && events[0][1] === "o" && events[0][2].includes("before"));
    assert.deepEqual(events.slice(1).map(([, code, data]) => `${code} ${data}`), ["r 50x20", "o after\r\n", version === 3 ? "x 0" : "m exit status 0"]);
  });
}

test("a live recording of pipes begins with later output", async (t) => {
  const { c } = await server(t);
  await using p = await c.start(["sh", "-c", "echo before; read a; echo after"]);
  await p.waitFor({ pattern: "before" });
  const lines = c.recording(p.id, { live: true });
  const first = (await lines.next()).value as string;
  await p.write("\n");
  const file = join(directory(t), "file.cast");
  await writeFile(file, lines);
  const { events } = parse([first, ...((await readFile(file, "utf8")).match(/.*\n/g) ?? [])]);
  assert.deepEqual(events.map((event) => event[2]), ["after\r\n", "exit status 0"]);
});

test("a recording of what is retained ends while the process runs", async (t) => {
  const { c, url } = await server(t);
  await using p = await c.start(["sh", "-c", "read a; printf 'one\\342'; read a; echo two"], { terminal: { rows: 10, columns: 40 } });
  assert.deepEqual(parse(await all(c.recording(p.id, { retained: true }))).events, []);
  await p.write("\n");
  await p.waitFor({ pattern: "one" });
  const args = ["logs", "--server", url, "--cast", p.id];
  const { events } = parse(await all(c.recording(p.id, { retained: true })));
  assert.deepEqual(events, parse(execFileSync(binary, args, { encoding: "utf8" }).match(/.*\n/g) ?? []).events);
  assert.equal(having(events, "o").join(""), "\r\none\uFFFD");
  assert.equal(having(events, "m").length, 0);
  await p.write("\n");
  await p.wait();
  assert.deepEqual(parse(await all(c.recording(p.id, { retained: true }))).events.at(-1)?.[2], "exit status 0");
});

test("a recording continues over lost connections", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const [owner, c] = [await dial(t, url), await dial(t, proxy.url)];
  await using p = await owner.start(["sh", "-c", "stty -echo; echo ready; while read a; do echo $a; done"], { terminal: { rows: 10, columns: 40 } });
  const lines = all(c.recording(p.id));
  await p.waitFor({ pattern: "ready" });
  let written = "ready\r\n";
  for (let i = 0; i < 5; i++) {
    await p.resize({ rows: 10, columns: 41 + i });
    await p.write(`line ${i}\n`);
    written += `line ${i}\r\n`;
    assert.ok((await owner.waitFor(p.id, { pattern: `line ${i}` })).satisfied);
    proxy.cut();
  }
  await p.write("\x04");
  await p.wait();
  const { events } = parse(await lines);
  assert.equal(having(events, "o").join(""), written);
  assert.deepEqual(having(events, "r").at(-1), "45x10");
  assert.equal(new Set(having(events, "r")).size, having(events, "r").length);
});

type Described = NonNullable<MessageInitShape<typeof GetProcessResponseSchema>["process"]>;

/** What is recorded of the process of a fake server until it fails, if it does, and why. */
async function fake(process: Described, watch: ServiceImpl<typeof ProcessService>["watchProcess"], options: RecordingOptions = {}): Promise<{ lines: string[]; failure: unknown }> {
  let gets = 0;
  const transport = createRouterTransport(({ service }) =>
    service(ProcessService, {
      getProcess: () => {
        if (gets++ > 1) {
          throw new ConnectError("gone", Code.PermissionDenied);
        }
        return { process };
      },
      watchProcess: watch,
    }),
  );
  const lines: string[] = [];
  try {
    for await (const line of recording(new Rpc({ transport } as Link, 60_000), { sessionId: "", processId: "x" }, options)) {
      lines.push(line);
    }
  } catch (failure) {
    return { lines, failure };
  }
  return { lines, failure: undefined };
}

const sent = (...events: MessageInitShape<typeof ProcessEventSchema>[]): { events: ProcessEvent[] } => ({ events: events.map((event) => create(ProcessEventSchema, event)) });
const at = (seconds?: number) => (seconds === undefined ? {} : { readTime: timestampFromMs(seconds * 1000) });
const output = (seq: number, offset: number, data: string, seconds?: number): MessageInitShape<typeof ProcessEventSchema> =>
  ({ seq: BigInt(seq), event: { case: "output", value: { stream: OutputStream.TERMINAL, offset: BigInt(offset), data: Buffer.from(data, "latin1"), ...at(seconds) } } });

test("times never decrease, and an unknown exit status is a marker", async () => {
  const exit = { cause: ExitCause.SERVER_RESTARTED, exitTime: timestampFromMs(1_005_000) };
  const { lines } = await fake({ processId: "x", argv: ["top", "secret"], lastSeq: 4n }, async function* () {
    yield sent(output(1, 0, "a", 1000), output(2, 1, "b", 1002.5), output(3, 2, "c", 1001));
    yield sent({ seq: 4n, event: { case: "exited", value: { exit } } }, { seq: 5n, event: { case: "closed", value: {} } });
  });
  assert.deepEqual(lines, [
    '{"version":2,"width":80,"height":24,"timestamp":1000,"command":"top"}\n',
    '[0.000000, "o", "a"]\n',
    '[2.500000, "o", "b"]\n',
    '[2.500000, "o", "c"]\n',
    '[5.000000, "m", "the exit status is not known"]\n',
  ]);
});

test("a server without times has none in its recordings", async () => {
  const { lines } = await fake({ processId: "x", lastSeq: 1n, terminalSize: { columns: 30, rows: 20 } }, async function* () {
    yield sent(output(1, 0, "a"), { seq: 2n, event: { case: "exited", value: { exit: { status: { case: "signal", value: 9 } } } } });
    yield sent({ seq: 3n, event: { case: "closed", value: {} } });
  }, { version: 3 });
  assert.deepEqual(lines, ['{"version":3,"term":{"cols":30,"rows":20}}\n', '[0.000000, "o", "a"]\n', '[0.000000, "x", "137"]\n']);
});

test("what was recorded before an error is a recording", async () => {
  const { lines, failure } = await fake({ processId: "x", lastSeq: 1n }, async function* () {
    yield sent(output(1, 0, "a\xe2\x82", 1000), { event: { case: "gap", value: { firstAvailableSeq: 4n, droppedBytes: 7n, upperBound: true } } });
    throw new ConnectError("cut", Code.Unavailable);
  });
  assert.ok(failure instanceof Error && !(failure instanceof UnavailableError), String(failure));
  assert.deepEqual(lines.slice(1), ['[0.000000, "o", "a"]\n', '[0.000000, "m", "up to 7 bytes of output are missing"]\n', '[0.000000, "o", "\uFFFD"]\n']);
});
