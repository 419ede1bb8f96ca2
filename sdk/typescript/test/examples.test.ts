import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { Interpreter } from "../examples/interpreter.js";
import { CommandExitError, Sandbox } from "../examples/sandbox.js";
import { dial, Proxy, serve } from "./fixture.js";

test("agents use a workspace and an interpreter while the connection is cut", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const client = await dial(t, proxy.url);

  const box = await Sandbox.create(client);
  await box.files.write("src/a.txt", "content\n");
  let seen = "";
  const { exitCode, stdout } = await box.commands.run("cat src/a.txt; echo made >b", {
    onStdout: (text) => {
      seen += text;
      proxy.cut();
    },
  });
  assert.deepEqual([exitCode, stdout, seen, await box.files.read("b")], [0, "content\n", "content\n", "made\n"]);
  const shown = (await box.files.list(".")).filter(({ name }) => !name.startsWith(".")); // a sandbox makes those that it protects
  assert.deepEqual(shown.sort((a, b) => a.name.localeCompare(b.name)), [{ name: "b", type: "file" }, { name: "src", type: "dir" }]);
  await assert.rejects(box.commands.run(`echo no >&2; echo x >${box.workspace}-outside`), (error: unknown) => {
    assert.ok(error instanceof CommandExitError);
    assert.match(error.stderr, /^no\n/);
    return true;
  });
  const id = await box.commands.start("exec sleep 1000");
  await box.kill();
  assert.ok((await client.waitFor(id, { exit: true })).satisfied);
  assert.deepEqual([existsSync(box.workspace), existsSync(`${box.workspace}-outside`)], [false, false]);

  await using interpreter = await Interpreter.start(client);
  assert.deepEqual(await interpreter.run("x = 20\nprint('set')"), { value: undefined, stdout: "set\n", stderr: "", error: undefined });
  proxy.cut();
  assert.equal((await interpreter.run("x + 1")).value, "21");
  assert.match((await interpreter.run("1 / 0")).error ?? "", /ZeroDivisionError/);
  const failure = new Error("seen enough");
  const fail = (): never => {
    throw failure;
  };
  await assert.rejects(interpreter.run("print('seen'); 1", { onStdout: fail }), failure);
  assert.match((await interpreter.run("input()")).error ?? "", /EOFError/);
  const endless = await interpreter.run("print('on')\nwhile True: pass", { onStdout: (text) => text === "on" && interpreter.interrupt() });
  assert.match(endless.error ?? "", /KeyboardInterrupt/);
  assert.equal((await interpreter.run("import os; os.system('echo from a child'); x")).value, "20");
});
