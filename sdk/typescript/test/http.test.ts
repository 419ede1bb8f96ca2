import assert from "node:assert/strict";
import * as net from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { connect, ConnectionError, ExecwireError, PathNotFoundError, UnauthenticatedError } from "execwire";
import { after, certificate, dial, directory, pattern, Proxy, secret, serve, text } from "./fixture.js";

/** Starts a server and returns its HTTP URL. */
async function serveHttp(t: TestContext): Promise<string> {
  const { url } = await serve(t, { listen: "tcp://127.0.0.1:0" });
  return url.replace(/^tcp:/, "http:");
}

test("http: calls and streams in one direction", async (t) => {
  const c = await dial(t, await serveHttp(t));
  assert.match((await c.describe()).serverVersion, /./);
  const path = join(directory(t), "file");
  const content = pattern(5 << 20);
  await c.files.upload(path, content);
  assert.deepEqual(Buffer.from(await c.files.read(path)), content);
  await assert.rejects(c.files.read(`${path}.none`), PathNotFoundError);
  const direct = { argv: ["sh", "-c", "echo hello; exit 3"], workingDirectory: "/", env: { PATH: "/bin:/usr/bin" } };
  await c.stubs.processes.startProcess({ processId: "p", command: { command: { case: "direct", value: direct } } });
  const seen: string[] = [];
  for await (const event of c.follow("p")) {
    seen.push(event.type === "output" ? text(event.data) : event.type);
  }
  assert.deepEqual(seen, ["hello\n", "exited", "closed"]);
  assert.equal((await c.get("p")).exit?.status.value, 3);
});

test("http: an owned process gets its input and delivers its output exactly once, across lost connections", async (t) => {
  const proxy = await Proxy.start(t, await serveHttp(t));
  const c = await dial(t, proxy.url);
  const { stdout, exit } = await c.run(["sh", "-c", "cat; exit 3"], { input: "hello" });
  assert.deepEqual([stdout, exit.code], ["hello", 3]);

  const input = pattern(2 << 20);
  const cat = await c.start(["cat"]);
  after(t, () => cat.close());
  const writing = (async () => {
    for (let at = 0; at < input.length; at += 100_000) {
      await cat.write(input.subarray(at, at + 100_000));
    }
    await cat.closeStdin();
  })();
  const got: Uint8Array[] = [];
  let bytes = 0;
  for await (const event of cat) {
    if (event.type === "output") {
      got.push(event.data);
      bytes += event.data.length;
      if (bytes > (proxy.cuts + 1) * 300_000) {
        proxy.cut();
      }
    }
  }
  await writing;
  assert.deepEqual(Buffer.concat(got), Buffer.from(input));
  const end = await cat.wait();
  assert.equal(end.code, 0);
  assert.ok(end.resumed > 0, "no stream was lost");
});

test("http: stubs of streams in both directions are refused with the reason", async (t) => {
  const c = await dial(t, await serveHttp(t));
  const start = async function* (): AsyncGenerator<{ message: { case: "detach"; value: object } }> {
    yield { message: { case: "detach", value: {} } };
  };
  await assert.rejects(
    async () => {
      for await (const _ of c.stubs.processes.runProcess(start())) {
        // never
      }
    },
    /call it by gRPC/,
  );
});

test("http: a lost connection is replaced", async (t) => {
  const proxy = await Proxy.start(t, await serveHttp(t));
  const c = await dial(t, proxy.url);
  proxy.cut();
  await c.describe();
  proxy.refuse();
  const described = c.describe();
  setTimeout(() => proxy.admit(), 50);
  await described;
  assert.ok(proxy.cuts > 0);
});

test("http: servers that cannot be reached, or refuse the caller, are reported", async (t) => {
  await assert.rejects(connect("http://127.0.0.1:1"), (error: unknown) => error instanceof ConnectionError && /ECONNREFUSED/.test(error.message));
  const other = net.createServer((socket) => socket.on("data", () => socket.end("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")).on("error", () => undefined));
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  after(t, () => other.close());
  const { port } = other.address() as net.AddressInfo;
  await assert.rejects(connect(`http://127.0.0.1:${port}`), (error: unknown) => error instanceof ConnectionError && /does not speak Connect/.test(error.message));
  const dir = directory(t);
  const token = secret(join(dir, "token"), "a-token-that-is-long-enough-to-be-one");
  const files = certificate(t);
  const settings = {
    EXECWIRE_PRINCIPALS_FILE: secret(join(dir, "principals.toml"), `[[principal]]\nname = "ci"\ntoken_file = "${token}"\nallow = ["environment"]\n`),
    EXECWIRE_TLS_CERT: files.certificate,
    EXECWIRE_TLS_KEY: files.key,
  };
  Object.assign(process.env, settings);
  after(t, () => Object.keys(settings).forEach((name) => delete process.env[name]));
  const { url } = await serve(t, { listen: "tls://127.0.0.1:0" });
  const https = url.replace(/^tls:/, "https:");
  const tls = { ca: files.certificate };
  await assert.rejects(connect(https, { tls }), UnauthenticatedError);
  await assert.rejects(connect(https, { tokenFile: token }), (error: unknown) => error instanceof ConnectionError && /tls\.ca/.test(error.message));
  const c = await dial(t, https, { tls, tokenFile: token });
  await assert.rejects(c.files.read("/etc/passwd"), (error: unknown) => error instanceof ExecwireError && error.reason === "CALL_NOT_ALLOWED");
});
