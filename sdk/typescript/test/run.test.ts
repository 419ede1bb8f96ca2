import assert from "node:assert/strict";
import { existsSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ExecwireError, ExitError, InvalidRequestError, OutputLimitError, ProcessTimeoutError, ProgramNotFoundError, sandbox, StartError, UsageError } from "execwire";
import { after, all, directory, shared, text } from "./fixture.js";

const server = shared();

test("run returns output and exit", async () => {
  const c = server();
  const { exit, stdout, stderr } = await c.run(["sh", "-c", "echo out; echo err >&2; exit 3"]);
  assert.deepEqual([stdout, stderr, exit.code, exit.signal, exit.cause, exit.ok], ["out\n", "err\n", 3, undefined, "exited", false]);
  assert.deepEqual([exit.stdoutBytes, exit.stderrBytes, exit.droppedBytes], [4, 4, 0]);
  const killed = await c.run(["sh", "-c", "kill -9 $$"]);
  assert.deepEqual([killed.exit.code, killed.exit.signal, killed.exit.shellCode], [undefined, 9, 137]);
});

test("run passes input, directory and environment", async (t) => {
  const c = server();
  const dir = directory(t);
  const told = await c.run(["sh", "-c", 'pwd; echo "$GREETING"; cat'], { cwd: dir, env: { GREETING: "hello" }, input: "from here\n" });
  assert.equal(told.stdout, `${dir}\nhello\nfrom here\n`);
  const { homeDirectory } = await c.describe();
  const home = existsSync(homeDirectory) ? realpathSync(homeDirectory) : "/";
  assert.equal((await c.run("pwd -P")).stdout, `${home}\n`, "without one it is the home directory of the server's user");
  async function* pieces(): AsyncGenerator<string> {
    yield "one ";
    yield "two";
  }
  assert.equal((await c.run(["cat"], { input: pieces() })).stdout, "one two");
  assert.equal((await c.run(["cat"])).stdout, "", "stdin is closed without input");
  const bare = await c.run(["/usr/bin/env"], { inheritEnv: "none", env: { A: "1" } });
  assert.equal(bare.stdout, "A=1\n");
});

test("unread input is not an error", async () => {
  const c = server();
  async function* endless(): AsyncGenerator<Uint8Array> {
    for (;;) {
      yield new Uint8Array(100_000);
    }
  }
  const { exit, stdout } = await c.run(["sh", "-c", "exec <&-; echo enough"], { input: endless() });
  assert.deepEqual([exit.code, stdout], [0, "enough\n"]);
  async function* silent(): AsyncGenerator<Uint8Array> {
    await new Promise(() => undefined);
  }
  assert.equal((await c.run(["true"], { input: silent() })).exit.code, 0);
});

test("a failing input kills the process", async () => {
  const c = server();
  const broken = new Error("the disk is gone");
  async function* failing(): AsyncGenerator<string> {
    yield "a";
    throw broken;
  }
  await assert.rejects(c.run(["cat"], { input: failing() }), broken);
});

test("check throws ExitError with the output", async () => {
  const c = server();
  await assert.rejects(c.run(["sh", "-c", "echo reason >&2; exit 7"], { check: true }), (error: unknown) => {
    assert.ok(error instanceof ExitError);
    assert.equal(error.completed.exit.code, 7);
    assert.match(error.message, /exited with code 7: reason/);
    return true;
  });
  assert.ok((await c.run(["true"], { check: true })).exit.ok);
});

test("errors are typed by their reason", async () => {
  const c = server();
  await assert.rejects(c.run(["no-such-program"]), (error: unknown) => {
    assert.ok(error instanceof ProgramNotFoundError);
    assert.deepEqual([error.reason, error.code, error.fromServer], ["PROGRAM_NOT_FOUND", "NOT_FOUND", true]);
    return true;
  });
  await assert.rejects(c.run(["true"], { cwd: "/no/such" }), (error: unknown) => {
    assert.ok(error instanceof StartError);
    assert.equal(error.reason, "BAD_WORKING_DIRECTORY");
    return true;
  });
  assert.equal((await c.run("pwd", { cwd: "." })).stdout, (await c.run("pwd")).stdout);
  await assert.rejects(c.run(["true"], { cwd: "relative\0" }), (error: unknown) => {
    assert.ok(error instanceof InvalidRequestError);
    assert.match(error.fields.map((f) => f.field).join(), /working_directory/);
    return true;
  });
  await assert.rejects(c.run([]), UsageError);
  await assert.rejects(c.run(""), UsageError);
});

test("a timeout throws, without check", async () => {
  const c = server();
  for (const [options, cause] of [[{ timeoutMs: 100 }, "timeout"], [{ noOutputTimeoutMs: 100 }, "no_output"]] as const) {
    await assert.rejects(c.run("sleep 1000", options), (error: unknown) => {
      assert.ok(error instanceof ProcessTimeoutError && error instanceof ExitError);
      assert.equal(error.completed.exit.cause, cause);
      return true;
    });
  }
});

test("a string is a line for the shell, an array is not", async () => {
  const c = server();
  assert.equal((await c.run("echo one two | tr a-z A-Z; exit 0")).stdout, "ONE TWO\n");
  assert.equal((await c.run(["echo", "$HOME | cat"])).stdout, "$HOME | cat\n");
});

test("output is text, or bytes on request", async () => {
  const c = server();
  const script = "printf '\\377\\303\\251'";
  const asText: string = (await c.run(script)).stdout;
  const asBytes: Uint8Array = (await c.run(script, { text: false })).stdout;
  assert.deepEqual([asText, Buffer.from(asBytes)], ["\ufffdé", Buffer.from([0xff, 0xc3, 0xa9])]);
});

test("callbacks get output as it arrives, one at a time and in whole characters", async () => {
  const c = server();
  const pieces: string[] = [];
  let go!: () => void;
  const half = new Promise<void>((resolve) => (go = resolve));
  async function* input(): AsyncGenerator<string> {
    await half; // the process waits for what the callback starts
    yield "\n";
  }
  let active = 0;
  const { stdout, stderr } = await c.run("printf 'a\\303'; printf half >&2; read x; printf '\\251'; printf end >&2", {
    input: input(),
    onStdout: async (piece) => {
      assert.equal(++active, 1);
      pieces.push(piece);
      await new Promise((resolve) => setImmediate(resolve));
      active--;
    },
    onStderr: go,
  });
  assert.deepEqual([pieces.join(""), stdout, stderr], ["aé", "aé", "halfend"]);
  assert.doesNotMatch(pieces.join("|"), /\ufffd/);
  const bytes: Uint8Array[] = [];
  await c.run("echo raw", { text: false, onStdout: (piece) => bytes.push(piece) });
  assert.equal(text(Buffer.concat(bytes)), "raw\n");
});

test("a failing callback kills the process", async () => {
  const c = server();
  const failure = new Error("seen enough");
  const fail = (): never => {
    throw failure;
  };
  await assert.rejects(c.run("echo x; exec sleep 1000", { id: "callback", onStdout: fail }), failure);
  assert.equal((await c.waitFor("callback", { exit: true })).process?.exit?.status.case, "signal");
});

test("an aborted run does not wait for its callback", async () => {
  const c = server();
  const abort = new AbortController();
  const reason = new Error("not needed any more");
  const onStdout = (): Promise<never> => {
    abort.abort(reason);
    return new Promise(() => undefined);
  };
  await assert.rejects(c.run("echo x; exec sleep 1000", { id: "stuck", onStdout, signal: abort.signal }), reason);
  assert.equal((await c.waitFor("stuck", { exit: true })).process?.exit?.status.case, "signal");
});

test("a process has another user", async () => {
  const c = server();
  assert.equal((await c.run("id -un; pwd; echo $USER", { user: "nobody" })).stdout, "nobody\n/\nnobody\n");
  assert.equal((await c.startDetached(["true"], { user: "4321:1" })).user, "4321:1");
  await assert.rejects(c.run("id", { user: "no such" }), InvalidRequestError);
});

test("limits and nice apply", async () => {
  const c = server();
  const { stdout } = await c.run("ulimit -Sn; ulimit -Hn; ulimit -c", { resourceLimits: { openFiles: [32, 64], coreBytes: 0 } });
  assert.equal(stdout, "32\n64\n0\n");
  const own = Number((await c.run(["nice"])).stdout);
  assert.equal(Number((await c.run(["nice"], { nice: 3 })).stdout), Math.min(own + 3, 19));
  await assert.rejects(c.run("true", { resourceLimits: { openFiles: -1 } }), /-1 for openFiles/);
  await assert.rejects(c.run("true", { resourceLimits: { files: 1 } as object }), /"files".*openFiles/);
});

test("a detached process has a time to keep its record, and its last output is listed", async () => {
  const c = server();
  const { processId } = await c.startDetached("echo said", { keepMs: 3_600_000 });
  await c.waitFor(processId, { closed: true });
  const listed = (await all(c.processes({ lastOutputBytes: 3 }))).find((one) => one.processId === processId);
  assert.deepEqual(listed?.lastOutput.map((tail) => text(tail.data)), ["id\n"]);
  await assert.rejects(c.startDetached("true", { keepMs: 1e13 }), /keep/);
});

test("a detached process is read, described, listed and terminated by its id", async () => {
  const c = server();
  const { processId } = await c.startDetached("echo one; exec sleep 1000", { id: "detached" });
  assert.equal(processId, "detached");
  const [event] = await c.read(processId, { waitMs: 60_000 });
  assert.ok(event?.type === "output");
  assert.equal(text(event.data), "one\n");
  assert.deepEqual(await c.read(processId, { afterSeq: event.seq }), []);
  assert.ok((await c.waitFor(processId, { pattern: "on." })).satisfied);
  assert.equal((await c.get(processId)).processId, processId);
  assert.ok((await all(c.processes())).some((one) => one.processId === processId));
  const { wasRunning, verifiedEmpty } = await c.terminate(processId);
  assert.deepEqual([wasRunning, verifiedEmpty], [true, true]);
  await c.waitFor(processId, { closed: true });
  const rest = await c.read(processId, { afterSeq: event.seq });
  assert.deepEqual(rest.map(({ type }) => type), ["exited", "closed"]);
  assert.deepEqual((await c.read(processId, { afterSeq: event.seq + 1 })).map(({ type }) => type), ["closed"]);
  const followed = await all(c.follow(processId));
  assert.deepEqual(followed.map(({ type }) => type), ["output", "exited", "closed"]);
});

test("many runs may have one signal", async (t) => {
  const c = server();
  const warnings: string[] = [];
  const warn = ({ name, message }: Error): void => void (name === "MaxListenersExceededWarning" && warnings.push(message));
  process.on("warning", warn);
  after(t, () => process.off("warning", warn));
  const { signal } = new AbortController();
  await Promise.all(Array.from({ length: 12 }, () => c.run(["true"], { signal })));
  await new Promise((resolve) => setImmediate(resolve)); // warnings come later
  assert.deepEqual(warnings, []);
});

test("output beyond the limit kills the process", async () => {
  const c = server();
  const id = "too-much";
  await assert.rejects(c.run(["cat", "/dev/zero"], { maxOutputBytes: 100_000, id }), (error: unknown) => {
    assert.ok(error instanceof OutputLimitError);
    assert.equal(error.limitBytes, 100_000);
    return true;
  });
  const { process } = await c.waitFor(id, { exit: true });
  assert.equal(process?.exit?.status.case, "signal");
});

test("an aborted run kills its process and throws the reason", async () => {
  const c = server();
  const abort = new AbortController();
  const reason = new Error("not needed any more");
  const running = c.run(["sh", "-c", "echo started; sleep 1000"], { signal: abort.signal, id: "aborted" });
  for (let found = false; !found; ) {
    try {
      found = (await c.waitFor("aborted", { pattern: "started" })).satisfied;
    } catch (error) {
      assert.ok(error instanceof ExecwireError && error.reason === "PROCESS_NOT_FOUND", String(error));
    }
  }
  abort.abort(reason);
  await assert.rejects(running, reason);
  await assert.rejects(c.run(["true"], { signal: abort.signal }), reason);
  let cause: string | undefined;
  for await (const event of c.follow("aborted")) {
    cause = event.type === "exited" ? event.exit.cause : cause;
  }
  assert.equal(cause, "terminated");
});

test("a sandbox confines processes and file calls", async (t) => {
  const c = server();
  const [open, closed] = [directory(t), directory(t)];
  const confined = c.withSandbox(sandbox({ writable: [open] }));
  const script = `echo a > ${open}/a && ! echo b > ${closed}/b`;
  assert.equal((await confined.run(["sh", "-c", script])).exit.code, 0);
  await confined.files.write(join(open, "c"), "c");
  await assert.rejects(confined.files.write(join(closed, "c"), "c"), ExecwireError);
  assert.deepEqual((await c.files.list(closed)).length, 0);
});

test("describe returns the machine", async () => {
  const c = server();
  const environment = await c.describe();
  assert.equal(environment.operatingSystem, "linux");
  assert.ok(environment.temporaryDirectory.startsWith("/"));
});
