import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { ExecwireError, ExitError, InvalidRequestError, OutputLimitError, ProgramNotFoundError, sandbox, StartError, UsageError } from "execwire";
import { client, directory } from "./fixture.js";

test("run returns output and exit", async (t) => {
  const c = await client(t);
  const { exit, stdoutText, stderrText } = await c.run(["sh", "-c", "echo out; echo err >&2; exit 3"]);
  assert.deepEqual([stdoutText, stderrText, exit.code, exit.signal, exit.cause, exit.ok], ["out\n", "err\n", 3, undefined, "exited", false]);
  assert.deepEqual([exit.stdoutBytes, exit.stderrBytes, exit.droppedBytes], [4, 4, 0]);
  const killed = await c.run(["sh", "-c", "kill -9 $$"]);
  assert.deepEqual([killed.exit.code, killed.exit.signal, killed.exit.shellCode], [undefined, 9, 137]);
});

test("run passes input, directory and environment", async (t) => {
  const c = await client(t);
  const dir = directory(t);
  const told = await c.run(["sh", "-c", 'pwd; echo "$GREETING"; cat'], { cwd: dir, env: { GREETING: "hello" }, input: "from here\n" });
  assert.equal(told.stdoutText, `${dir}\nhello\nfrom here\n`);
  async function* pieces(): AsyncGenerator<string> {
    yield "one ";
    yield "two";
  }
  assert.equal((await c.run(["cat"], { input: pieces() })).stdoutText, "one two");
  assert.equal((await c.run(["cat"])).stdoutText, "", "stdin is closed without input");
  const bare = await c.run(["/usr/bin/env"], { inherit: "none", env: { A: "1" } });
  assert.equal(bare.stdoutText, "A=1\n");
});

test("unread input is not an error", async (t) => {
  const c = await client(t);
  async function* endless(): AsyncGenerator<Uint8Array> {
    for (;;) {
      yield new Uint8Array(100_000);
    }
  }
  const { exit, stdoutText } = await c.run(["sh", "-c", "exec <&-; echo enough"], { input: endless() });
  assert.deepEqual([exit.code, stdoutText], [0, "enough\n"]);
  async function* silent(): AsyncGenerator<Uint8Array> {
    await new Promise(() => undefined);
  }
  assert.equal((await c.run(["true"], { input: silent() })).exit.code, 0);
});

test("a failing input kills the process", async (t) => {
  const c = await client(t);
  const broken = new Error("the disk is gone");
  async function* failing(): AsyncGenerator<string> {
    yield "a";
    throw broken;
  }
  await assert.rejects(c.run(["cat"], { input: failing() }), broken);
});

test("check throws ExitError with the output", async (t) => {
  const c = await client(t);
  await assert.rejects(c.run(["sh", "-c", "echo reason >&2; exit 7"], { check: true }), (error: unknown) => {
    assert.ok(error instanceof ExitError);
    assert.equal(error.completed.exit.code, 7);
    assert.match(error.message, /exited with code 7: reason/);
    return true;
  });
  assert.ok((await c.run(["true"], { check: true })).exit.ok);
});

test("errors are typed by their reason", async (t) => {
  const c = await client(t);
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
  await assert.rejects(c.run(["true"], { cwd: "relative" }), (error: unknown) => {
    assert.ok(error instanceof InvalidRequestError);
    assert.match(error.fields.map((f) => f.field).join(), /working_directory/);
    return true;
  });
  await assert.rejects(c.run([]), UsageError);
  await assert.rejects(c.run("ls -l" as unknown as string[]), /as an array/);
});

test("exceeded limits are the exit cause", async (t) => {
  const c = await client(t);
  assert.equal((await c.run(["sleep", "1000"], { timeoutMs: 100 })).exit.cause, "timeout");
  assert.equal((await c.run(["sleep", "1000"], { noOutputTimeoutMs: 100 })).exit.cause, "no_output");
});

test("output beyond the limit kills the process", async (t) => {
  const c = await client(t);
  const id = "too-much";
  await assert.rejects(c.run(["cat", "/dev/zero"], { maxOutputBytes: 100_000, id }), (error: unknown) => {
    assert.ok(error instanceof OutputLimitError);
    assert.equal(error.limitBytes, 100_000);
    return true;
  });
  const { process } = await c.waitFor(id, { exit: true });
  assert.equal(process?.exit?.status.case, "signal");
});

test("an aborted run kills its process and throws the reason", async (t) => {
  const c = await client(t);
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
  const c = await client(t);
  const [open, closed] = [directory(t), directory(t)];
  const confined = c.withSandbox(sandbox({ writable: [open] }));
  const script = `echo a > ${open}/a && ! echo b > ${closed}/b`;
  assert.equal((await confined.run(["sh", "-c", script])).exit.code, 0);
  await confined.files.write(join(open, "c"), "c");
  await assert.rejects(confined.files.write(join(closed, "c"), "c"), ExecwireError);
  assert.deepEqual((await c.files.list(closed)).length, 0);
});

test("describe returns the machine", async (t) => {
  const c = await client(t);
  const environment = await c.describe();
  assert.equal(environment.operatingSystem, "linux");
  assert.ok(environment.temporaryDirectory.startsWith("/"));
});
