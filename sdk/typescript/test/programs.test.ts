import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { serve } from "./fixture.js";

// sdk/python/tests/programs.py holds the programs of all SDKs against the same.
test("the agent, the upload and the terminal of examples work while connections are cut", async (t) => {
  const { url } = await serve(t, { listen: "tcp://127.0.0.1:0" });
  const examples = join(import.meta.dirname, "../examples");
  const checked = spawn("/usr/bin/python3", ["-m", "tests.programs", url, process.execPath, join(examples, "{}.js")], {
    cwd: join(import.meta.dirname, "../../../python"),
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
    stdio: ["ignore", "inherit", "pipe"],
  });
  let log = "";
  checked.stderr.on("data", (text: Buffer) => (log += text.toString()));
  const code = await new Promise((resolve) => checked.once("close", resolve));
  assert.equal(code, 0, log);
});
