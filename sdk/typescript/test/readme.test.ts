// The programs of the READMEs, with the package of the checkout.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { App, root } from "./app.js";
import { unusedPort } from "./fixture.js";

const app = new App();
let port = 0;
after(() => app.remove());

/** The text between two marks of the README, without the fences, with a directory and a port of this run. */
function quoted(mark: string): string {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const [, block] = new RegExp(`<!-- ${mark}: begin -->\n\`\`\`\\w+\n([^]*?)\`\`\`\n<!-- ${mark}: end -->`).exec(readme) ?? [];
  assert.ok(block, `README.md has no ${mark}`);
  return block.replaceAll("/tmp/", `${app.folder}/`).replaceAll("8123", String(port));
}

// The compiler takes much longer to start than to compile one more program.
before(async () => {
  port = await unusedPort();
  mkdirSync(join(app.folder, "node_modules"));
  symlinkSync(root, join(app.folder, "node_modules/execwire"));
  app.write("quick-start.ts", quoted("quick start"));
  app.write("ports.ts", quoted("ports"));
  app.write("sync.ts", quoted("sync"));
  mkdirSync(join(app.folder, "project"));
  writeFileSync(join(app.folder, "project/hello.sh"), "echo hello\n");
  app.write("recording.ts", quoted("recording"));
  app.write("browser.ts", quoted("browser"));
  const [, program] = /```ts\n([^]*?)```/.exec(readFileSync(join(root, "../../README.md"), "utf8")) ?? [];
  assert.ok(program, "README.md of the project has no program in TypeScript");
  const there = program.replace("tcp://127.0.0.1:7420", "local:").replaceAll("/tmp", app.folder);
  assert.notEqual(there, program);
  app.write("hello.ts", there);
  const compiled = app.compile(["quick-start.ts", "ports.ts", "sync.ts", "recording.ts", "browser.ts", "hello.ts"]);
  assert.equal(compiled.status, 0, compiled.stdout);
});

for (const [name, output] of [
  ["quick-start", () => quoted("quick start output")],
  ["ports", () => quoted("ports output")],
  ["sync", () => quoted("sync output")],
  ["hello", () => "hello\nexit code 3\n"],
] as [string, () => string][]) {
  test(`the program ${name} prints the documented output`, () => {
    const ran = app.run(`${name}.js`);
    assert.equal(ran.status, 0, ran.stderr);
    assert.equal(ran.stdout, output());
  });
}

test("the program recording writes a recording", () => {
  const ran = app.run("recording.js");
  assert.equal(ran.status, 0, ran.stderr);
  assert.match(readFileSync(join(app.folder, "list.cast"), "utf8"), /^\{"version":2,[^]*\betc\b[^]*"m", "exit status 3"\]\n$/);
});

test("the program browser bundles, without modules of Node.js", () => {
  const bundler = join(root, "node_modules/.bin/esbuild");
  const bundle = execFileSync(bundler, ["--bundle", "--format=esm", "--platform=browser", "browser.js"], { cwd: app.folder, encoding: "utf8" });
  assert.match(bundle, /use execwire port-forward/);
  assert.doesNotMatch(bundle, /["']node:/);
});
