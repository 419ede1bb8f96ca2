import assert from "node:assert/strict";
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import * as net from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { type Client, connect, ConnectionError, CredentialError, launch, relayUrl, UnauthenticatedError, UsageError } from "execwire";
import { after, binary, certificate, dial, directory, hubBinary, Program, registered, secret, serve } from "./fixture.js";

async function says(c: Client): Promise<string> {
  return (await c.run(["echo", "hello"])).stdout;
}

test("connect: TCP and unix sockets", async (t) => {
  const tcp = await serve(t, { listen: "tcp://127.0.0.1:0" });
  assert.match(tcp.url, /^tcp:\/\/127\.0\.0\.1:\d+$/);
  assert.equal(await says(await dial(t, tcp.url)), "hello\n");
  const unix = await serve(t);
  assert.equal(await says(await dial(t, unix.url)), "hello\n");
});

test("launch: the server ends with its client", async () => {
  for (const open of [() => launch({ binary }), () => connect("local:", { binary }), () => connect("", { binary })]) {
    const c = await open();
    const { stdout } = await c.run(["sh", "-c", "echo $PPID"]);
    await c.close();
    assert.throws(() => process.kill(Number(stdout), 0), { code: "ESRCH" });
  }
  await assert.rejects(launch({ binary: "/no/such/execwire" }), ConnectionError);
  await assert.rejects(launch({ binary, args: ["--no-such-flag"] }), /no-such-flag/);
});

test("connect: invalid URLs are rejected with a fix", async () => {
  for (const [url, fix] of [
    ["ftp://localhost:80", /write it as/],
    ["tls://localhost", /HOST:PORT/],
    ["grpc://localhost", /HOST:PORT/],
    ["grpc://localhost:1/path", /nothing may follow/],
    ["http://localhost:1/path?query", /nothing else may follow/],
    ["unix://relative", /absolute/],
    ["ws://localhost:1", /gRPC/],
    ["nonsense", /write it as/],
  ] as const) {
    await assert.rejects(connect(url), (error: unknown) => error instanceof UsageError && fix.test(error.message), url);
  }
  await assert.rejects(connect("grpc://127.0.0.1:1", { token: "a", tokenFile: "b" }), UsageError);
  assert.equal(relayUrl("https://hub.example.org:7430/", "build 1"), "relay+wss://hub.example.org:7430/executor/build%201?role=harness");
});

test("connect: unreachable servers are reported with the cause", async (t) => {
  await assert.rejects(connect("unix:///no/such/socket"), (error: unknown) => error instanceof ConnectionError && /ENOENT/.test(error.message));
  const silent = net.createServer((socket) => socket.on("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")).on("error", () => undefined));
  const path = join(directory(t), "socket");
  await new Promise<void>((resolve) => silent.listen(path, resolve));
  after(t, () => silent.close());
  await assert.rejects(connect(`unix://${path}`), (error: unknown) => error instanceof ConnectionError && /does not speak gRPC/.test(error.message));
  const mute = net.createServer(() => undefined);
  const other = join(directory(t), "socket");
  await new Promise<void>((resolve) => mute.listen(other, resolve));
  after(t, () => mute.close());
  await assert.rejects(connect(`unix://${other}`, { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
});

/** Serves connections with a function that gets their number, and resolves with the URL. */
async function raw(t: TestContext, take: (n: number, socket: net.Socket) => void): Promise<string> {
  let connections = 0;
  const server = net.createServer((socket) => {
    socket.on("error", () => undefined);
    take(connections++, socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(t, () => server.close());
  return `grpc://127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

test("connect: connections lost before the answer are retried", async (t) => {
  const { url } = await serve(t, { listen: "tcp://127.0.0.1:0" });
  const ends: Record<string, (socket: net.Socket) => void> = {
    reset: (socket) => socket.resetAndDestroy(),
    closed: (socket) => socket.destroy(),
    "closed when the client has greeted": (socket) => socket.once("data", () => socket.end()),
    "reset after the first frame": (socket) => socket.write(Buffer.from([0, 0, 6, 4, 0, 0, 0, 0, 0, 0]), () => socket.resetAndDestroy()),
  };
  for (const [name, end] of Object.entries(ends)) {
    await t.test(name, async (t) => {
      const through = await raw(t, (n, socket) => {
        if (n < 5) {
          end(socket);
          return;
        }
        const far = net.connect(Number(new URL(url).port), "127.0.0.1");
        far.on("error", () => undefined);
        socket.pipe(far).pipe(socket);
        socket.once("close", () => far.destroy());
      });
      assert.equal(await says(await dial(t, through)), "hello\n");
    });
  }
});

test("connect: an answer that is not gRPC fails at once, lost connections at the timeout", async (t) => {
  for (const answer of ["HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail.example.com ESMTP\r\n"]) {
    const url = await raw(t, (_, socket) => {
      socket.end(answer);
      socket.resume();
    });
    await assert.rejects(connect(url), (error: unknown) => error instanceof ConnectionError && /does not speak gRPC.*\(tls:\/\/\)$/.test(error.message));
  }
  const url = await raw(t, (_, socket) => socket.destroy());
  await assert.rejects(connect(url, { timeoutMs: 500 }), (error: unknown) => error instanceof ConnectionError && /after 0\.5 s$/.test(error.message));
  const mute = await raw(t, (_, socket) => after(t, () => socket.destroy()));
  await assert.rejects(connect(mute, { timeoutMs: 500 }), (error: unknown) => error instanceof ConnectionError && /no answer after 0\.5 s$/.test(error.message));
});


test("connect: TLS files and tokens", async (t) => {
  const dir = directory(t);
  const files = certificate(t);
  const tokenFile = secret(join(dir, "token"), "correct-horse-battery-staple-0123456789\n");
  const wrong = secret(join(dir, "wrong"), "wrong-horse-battery-staple-0123456789ab");
  const table = join(dir, "principals.toml");
  writeFileSync(table, `[[principal]]\nname = "ann"\ntoken_file = "${tokenFile}"\nallow = ["all"]\n`);
  process.env["EXECWIRE_TLS_CERT"] = files.certificate;
  process.env["EXECWIRE_TLS_KEY"] = files.key;
  process.env["EXECWIRE_PRINCIPALS_FILE"] = table;
  after(t, () => {
    for (const name of ["EXECWIRE_TLS_CERT", "EXECWIRE_TLS_KEY", "EXECWIRE_PRINCIPALS_FILE"]) {
      delete process.env[name];
    }
  });
  const { url } = await serve(t, { listen: "tls://127.0.0.1:0" });
  const tls = { ca: files.certificate };
  assert.equal(await says(await dial(t, url, { tls, tokenFile })), "hello\n");
  assert.equal(await says(await dial(t, url, { tls, token: "correct-horse-battery-staple-0123456789" })), "hello\n");
  await assert.rejects(connect(url, { tls, tokenFile: wrong }), UnauthenticatedError);
  await assert.rejects(connect(url, { tls }), UnauthenticatedError);
  await assert.rejects(connect(url, { tokenFile }), (error: unknown) => error instanceof ConnectionError && /authority/.test(error.message));
  await assert.rejects(connect(url.replace("tls:", "tcp:"), {}), ConnectionError);

  // A file that changes is read again; an unusable version leaves the previous token in use.
  const changing = secret(join(dir, "changing"), readFileSync(tokenFile, "utf8"));
  const c = await dial(t, url, { tls, tokenFile: changing });
  rmSync(changing);
  assert.equal(await says(c), "hello\n");
  secret(changing, readFileSync(wrong, "utf8"));
  await assert.rejects(c.run(["true"]), UnauthenticatedError);
});

test("connect: secrets are not sent in plain text, nor read from public files", async (t) => {
  const dir = directory(t);
  const open = join(dir, "open");
  writeFileSync(open, "token", { mode: 0o644 });
  chmodSync(open, 0o644);
  await assert.rejects(connect("grpc://127.0.0.1:1", { tokenFile: open }), (error: unknown) => error instanceof CredentialError && /chmod 600/.test(error.message));
  await assert.rejects(connect("grpc://127.0.0.1:1", { tokenFile: join(dir, "none") }), CredentialError);
  await assert.rejects(connect("grpc://127.0.0.1:1", { token: "two words" }), CredentialError);
  await assert.rejects(connect("grpc://192.0.2.1:1", { token: "token" }), CredentialError);
  await assert.rejects(connect("grpcs://127.0.0.1:1", { tls: { certificate: "a" } }), UsageError);
});

test("connect: an executor behind a hub", async (t) => {
  const { output } = await Program.start(t, hubBinary, ["--listen", "http://127.0.0.1:0"], 1);
  const hub = output[0] as string;
  await Program.start(t, binary, ["serve", "--until-stdin-closes", "--remote", hub, "--executor-id", "build-1"], 0);
  await registered(hub, "build-1");
  const c = await dial(t, hub, { executor: "build-1", binary });
  assert.equal(await says(c), "hello\n");
  await assert.rejects(connect(hub, { executor: "build-2", binary }), ConnectionError);
  assert.ok(existsSync(binary));
});
