import assert from "node:assert/strict";
import * as net from "node:net";
import { test, type TestContext } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { type Client, type Forward, PermissionDeniedError, type Process, UnavailableError, UsageError } from "execwire";
import type { ConnectPortResponseSchema } from "execwire/v1";
import { Forward as DistForward } from "#dist/forward.js";
import type { Link } from "#dist/link.js";
import { Rpc } from "#dist/rpc.js";
import { pause } from "#dist/time.js";
import { after, client, dial, pattern, Proxy, serve, text, until, unusedPort } from "./fixture.js";

/** Starts a program of Python that listens on a port of its choice, and returns both. */
async function listen(t: TestContext, c: Client, script: string): Promise<{ process: Process; port: number }> {
  const begin = "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n";
  const process = await c.start(["/usr/bin/python3", "-c", begin + script]);
  after(t, () => process.close());
  let line = "";
  for await (const { data } of process.output()) {
    line += text(data);
    if (line.includes("\n")) {
      break;
    }
  }
  return { process, port: Number(line) };
}

async function forwarded(t: TestContext, c: Client, port: number, onError?: (error: unknown) => void): Promise<Forward> {
  const forward = await c.forward(port, onError && { onError });
  after(t, () => forward.close());
  return forward;
}

/** Connects to a forward. Its end does not end the other direction. */
function open(t: TestContext, { address, port }: Forward): net.Socket {
  const socket = net.connect({ host: address, port, allowHalfOpen: true });
  after(t, () => socket.destroy());
  return socket;
}

async function read(socket: net.Socket): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of socket.iterator({ destroyOnReturn: false })) {
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces);
}

test("ports: a web server is found, waited for and reached", async (t) => {
  const c = await client(t);
  const server = await c.start(["/usr/bin/python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"], { cwd: "/" });
  after(t, () => server.close());
  let port = 0;
  for await (const { opened } of server.watchPorts()) {
    if (opened[0]) {
      ({ port } = opened[0]);
      break;
    }
  }
  assert.ok((await server.waitFor({ port })).satisfied);
  const [found, ...others] = await server.ports();
  assert.deepEqual(others, []);
  assert.equal(found?.address, "127.0.0.1");
  assert.deepEqual([found?.port, found?.processId, found?.pid], [port, server.id, server.pid]);
  assert.deepEqual(await c.ports(), [found]);

  const forward = await forwarded(t, c, port);
  for (let i = 0; i < 2; i++) {
    const response = await fetch(`http://${forward.address}:${forward.port}/etc/hostname`);
    assert.equal(response.status, 200);
    assert.equal(await response.text(), await c.files.read("/etc/hostname", { text: true }));
  }
  const changes = c.watchPorts();
  assert.deepEqual((await changes.next()).value?.opened, [found]);
  await server.terminate({ force: true });
  assert.deepEqual((await changes.next()).value?.closed, [found]);
  await changes.return();
});

test("forward: each direction ends by itself, and nothing is lost", async (t) => {
  const c = await client(t);
  // It answers when its input has ended, with all of it.
  const { port } = await listen(t, c, "c, _ = s.accept()\ndata = b''.join(iter(lambda: c.recv(65536), b''))\nc.sendall(data)\n");
  const socket = open(t, await forwarded(t, c, port));
  const sent = pattern(8 << 20);
  socket.end(sent);
  assert.ok((await read(socket)).equals(sent));
});

test("forward: a connection whose end is being written is closed with its forward", async (t) => {
  const c = await client(t);
  const { port } = await listen(t, c, "c, _ = s.accept()\nc.sendall(b'all')\nc.close()\nsys.stdin.read()\n");
  const forward = await forwarded(t, c, port);
  const end = net.Socket.prototype.end as (this: net.Socket) => net.Socket;
  let closing: Promise<void> | undefined;
  t.mock.method(net.Socket.prototype, "end", function (this: net.Socket) {
    const ended = end.call(this);
    if (this.localPort === forward.port) {
      closing ??= forward.close();
    }
    return ended;
  });
  const socket = open(t, forward);
  assert.equal(text(await read(socket)), "all");
  await closing;
  socket.on("error", () => {}); // what is written to a closed socket is answered by a reset
  await until(() => socket.destroyed || (socket.write("x"), false));
});

test("forward: a client that does not read stops the sender", async (t) => {
  const c = await client(t);
  const script = "c, _ = s.accept()\nn = 0\nc.settimeout(0.3)\ntry:\n  while True: n += c.send(bytes(65536))\nexcept TimeoutError: pass\nprint(n, flush=True)\nsys.stdin.read()\n";
  const { port, process } = await listen(t, c, script);
  const socket = open(t, await forwarded(t, c, port));
  await new Promise((resolve) => socket.once("connect", resolve));
  let line = "";
  for await (const { data } of process.output()) {
    line += text(data);
    if (line.includes("\n")) {
      break;
    }
  }
  // The buffers of two sockets and of a stream.
  assert.ok(Number(line) > 0 && Number(line) < 64 << 20, `${line} bytes`);
});

test("forward: a refused connection is reset and reported", async (t) => {
  const c = await client(t);
  const other = net.createServer(); // of no process of the session
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  after(t, () => other.close());
  const errors: unknown[] = [];
  const forward = await forwarded(t, c, (other.address() as net.AddressInfo).port, (error) => errors.push(error));
  await assert.rejects(read(open(t, forward)), { code: "ECONNRESET" });
  await until(() => errors.length > 0);
  assert.ok(errors[0] instanceof PermissionDeniedError);
  assert.equal(errors[0].reason, "PORT_DENIED");
});

test("forward: a lost connection resets those that it carried, and others follow", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const c = await dial(t, proxy.url);
  const { port } = await listen(t, await dial(t, url), "open = []\nwhile True:\n  open.append(s.accept()[0])\n  open[-1].sendall(b'hello')\n");
  const errors: unknown[] = [];
  const forward = await forwarded(t, c, port, (error) => errors.push(error));
  const socket = open(t, forward);
  await new Promise((resolve) => socket.once("data", resolve));
  proxy.cut();
  await assert.rejects(read(socket), { code: "ECONNRESET" });
  await until(() => errors.length > 0);
  assert.ok(errors[0] instanceof UnavailableError);
  const next = open(t, forward);
  await new Promise((resolve) => next.once("data", resolve));
});

test("forward: close resets the connections and ends the listener", async (t) => {
  const c = await client(t);
  const { port } = await listen(t, c, "c, _ = s.accept()\nc.sendall(b'hello')\nsys.stdin.read()\n");
  const errors: unknown[] = [];
  const forward = await c.forward(port, { localPort: await unusedPort(), onError: (error) => errors.push(error) });
  const socket = open(t, forward);
  await new Promise((resolve) => socket.once("data", resolve));
  await forward.close();
  await assert.rejects(read(socket), { code: "ECONNRESET" });
  await assert.rejects(read(open(t, forward)), { code: "ECONNREFUSED" });
  const again = await c.forward(port, { localPort: forward.port });
  await c.close(); // which closes it
  await assert.rejects(read(open(t, again)), { code: "ECONNREFUSED" });
  assert.deepEqual(errors, []);
});

test("forward: close does not wait for a client that has not read the end", async (t) => {
  const server = net.createServer({ allowHalfOpen: true });
  const accepted = new Promise<net.Socket>((resolve) => server.once("connection", resolve));
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  async function* responses(): AsyncGenerator<MessageInitShape<typeof ConnectPortResponseSchema>> {
    const socket = await accepted;
    socket.resume(); // its client sends nothing
    // Until the buffers of the system are full, and some bytes are left.
    for (let full = false; !full; full = socket.writableLength > 0) {
      yield { message: { case: "data", value: new Uint8Array(10_000) } };
      if (socket.writableLength > 0) {
        await pause(50);
      }
    }
    end();
    yield { message: { case: "end", value: {} } };
  }
  const transport = { stream: async () => ({ message: responses() }) } as unknown as Transport;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const forward = new DistForward(new Rpc({ transport } as Link, 0), server, { sessionId: "", host: "", port: 80 }, undefined);
  const socket = open(t, forward);
  socket.end();
  await ended;
  await new Promise(setImmediate); // it has noticed
  await forward.close(); // it ends
});

test("forward: over HTTP it names the URL that can, and other mistakes are reported", async (t) => {
  const { url } = await serve(t, { listen: "tcp://127.0.0.1:0" });
  const c = await dial(t, url.replace(/^tcp:/, "http:"));
  await assert.rejects(c.forward(80), (error: unknown) => error instanceof UsageError && error.message.endsWith(`connect by ${url}`));
  const direct = await dial(t, url);
  await assert.rejects(direct.forward(0), UsageError);
  const { port } = new URL(url);
  await assert.rejects(direct.forward(80, { localPort: Number(port) }), (error: unknown) => error instanceof UsageError && /EADDRINUSE/.test(error.message));
});
