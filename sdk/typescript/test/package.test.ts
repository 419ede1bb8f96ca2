import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary } from "./fixture.js";

const root = join(import.meta.dirname, "../..");
const compiler = join(root, "node_modules/.bin/tsc");
const dependencies = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];

/** A folder with the package and its dependencies installed from tarballs. */
let app = "";
let directory = "";

before(() => {
  directory = mkdtempSync(join(tmpdir(), "execwire-ts-"));
  const pack = (folder: string): string => {
    const args = ["pack", "--ignore-scripts", "--json", "--loglevel=error", "--pack-destination", directory];
    const told = execFileSync("npm", args, { cwd: folder, encoding: "utf8" });
    return join(directory, (JSON.parse(told) as { filename: string }[])[0]?.filename as string);
  };
  // Uses the packages installed from the lock file, without a registry.
  const tarballs = [root, ...dependencies.map((name) => join(root, "node_modules", name))].map(pack);
  app = join(directory, "app");
  mkdirSync(app);
  writeFileSync(join(app, "package.json"), '{"name": "app", "type": "module", "private": true}');
  execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", ...tarballs], { cwd: app, stdio: "pipe" });
});

after(() => rmSync(directory, { recursive: true, force: true }));

function compile(file: string): ReturnType<typeof spawnSync> {
  const types = ["--types", "node", "--typeRoots", join(root, "node_modules/@types")];
  return spawnSync(compiler, ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom,esnext.disposable", ...types, file], { cwd: app, encoding: "utf8" });
}

/** The text between two marks of the README, without the fences, with a directory of this run in place of /tmp. */
function quoted(mark: string): string {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const [, block] = new RegExp(`<!-- ${mark}: begin -->\n\`\`\`\\w+\n([^]*?)\`\`\`\n<!-- ${mark}: end -->`).exec(readme) ?? [];
  assert.ok(block, `README.md has no ${mark}`);
  return block.replaceAll("/tmp/", `${directory}/`);
}

test("the quick start of the README prints the documented output with the packed package", () => {
  writeFileSync(join(app, "quick.ts"), quoted("quick start"));
  const compiled = compile("quick.ts");
  assert.equal(compiled.status, 0, String(compiled.stdout));
  const ran = spawnSync(process.execPath, ["quick.js"], { cwd: app, encoding: "utf8", env: { ...process.env, EXECWIRE_BIN: binary, EXECWIRE_SERVER: "local:" } });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, quoted("quick start output"));
});

test("the program in the README of the project prints the documented output", () => {
  const readme = readFileSync(join(root, "../../README.md"), "utf8");
  const [, program] = /```ts\n([^]*?)```/.exec(readme) ?? [];
  assert.ok(program, "README.md has no program in TypeScript");
  const there = program.replace("grpc://127.0.0.1:7420", "local:").replaceAll("/tmp", directory);
  assert.notEqual(there, program);
  writeFileSync(join(app, "hello.ts"), there);
  const compiled = compile("hello.ts");
  assert.equal(compiled.status, 0, String(compiled.stdout));
  const ran = spawnSync(process.execPath, ["hello.js"], { cwd: app, encoding: "utf8", env: { ...process.env, EXECWIRE_BIN: binary } });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, "hello\nexit code 3\n");
});

test("the package has types and generated code, and no tests", () => {
  const own = readdirSync(join(app, "node_modules/execwire"));
  assert.deepEqual(own.sort(), ["LICENSE", "README.md", "dist", "package.json", "src"]);
  const consumer = `
    import { create } from "@bufbuild/protobuf";
    import { type Client, type Completed, type Process, LostError } from "execwire";
    import { SandboxPolicySchema, type GetEnvironmentResponse } from "execwire/v1";
    export async function use(client: Client): Promise<Completed> {
      const environment: GetEnvironmentResponse = await client.describe();
      const confined = client.withSandbox(create(SandboxPolicySchema, { policy: { case: "disabled", value: {} } }));
      const process: Process = await confined.start(["true"], { env: { A: environment.hostName } });
      for await (const event of process) {
        if (event.type === "output") { const bytes: number = event.data.length + event.offset; void bytes; }
        if (event.type === "exited") { const code: number | undefined = event.exit.code; void code; }
      }
      return process.communicate("input").catch((error: unknown) => { if (error instanceof LostError) void error.lastSeq; throw error; });
    }`;
  writeFileSync(join(app, "consumer.ts"), consumer);
  const good = compile("consumer.ts");
  assert.equal(good.status, 0, String(good.stdout));
  writeFileSync(join(app, "wrong.ts"), consumer.replace('start(["true"]', 'start("true"').replace("describe()", "describes()"));
  const wrong = compile("wrong.ts");
  assert.notEqual(wrong.status, 0);
  assert.match(String(wrong.stdout), /describes/);
  assert.match(String(wrong.stdout), /string/);
});
