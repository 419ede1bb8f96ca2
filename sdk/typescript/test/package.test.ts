import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, test } from "node:test";
import { binary } from "./fixture.js";

const root = join(import.meta.dirname, "../..");
const compiler = join(root, "node_modules/.bin/tsc");
const dependencies = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node", "@connectrpc/connect-web", "@noble/hashes"];

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

const withNode = ["--types", "node", "--typeRoots", join(root, "node_modules/@types")];

/** Compiles a program of the app, without skipLibCheck: so the declarations of the package are checked too. */
function compile(file: string, options: readonly string[] = ["--module", "nodenext", ...withNode]): ReturnType<typeof spawnSync> {
  return spawnSync(compiler, ["--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable,esnext.disposable", ...options, file], { cwd: app, encoding: "utf8" });
}

/** The text between two marks of the README, without the fences, with a directory of this run in place of /tmp. */
function quoted(mark: string): string {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const [, block] = new RegExp(`<!-- ${mark}: begin -->\n\`\`\`\\w+\n([^]*?)\`\`\`\n<!-- ${mark}: end -->`).exec(readme) ?? [];
  assert.ok(block, `README.md has no ${mark}`);
  return block.replaceAll("/tmp/", `${directory}/`);
}

test("the quick start of the README prints the documented output with the packed package", () => {
  const ran = spawnSync(process.execPath, [compiledFrom("quick start")], { cwd: app, encoding: "utf8", env: { ...process.env, EXECWIRE_BIN: binary, EXECWIRE_SERVER: "local:" } });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, quoted("quick start output"));
});

/** Compiles a program of the README in the app, and returns the name of its JavaScript. */
function compiledFrom(mark: string, change: (program: string) => string = (program) => program): string {
  const name = mark.replaceAll(" ", "-");
  writeFileSync(join(app, `${name}.ts`), change(quoted(mark)));
  const compiled = compile(`${name}.ts`);
  assert.equal(compiled.status, 0, String(compiled.stdout));
  return `${name}.js`;
}

/** Returns a port that the system gives to no other socket by itself. */
async function unusedPort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_768);
    const server = net.createServer();
    if (await new Promise<boolean>((resolve) => server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)))) {
      await new Promise((resolve) => server.close(resolve));
      return port;
    }
  }
}

test("the ports program of the README prints the documented output", async () => {
  const port = await unusedPort();
  const script = compiledFrom("ports", (program) => program.replaceAll("8123", String(port)));
  const ran = spawnSync(process.execPath, [script], { cwd: app, encoding: "utf8", env: { ...process.env, EXECWIRE_BIN: binary, EXECWIRE_SERVER: "local:" } });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, quoted("ports output").replaceAll("8123", String(port)));
});

test("the browser program of the README bundles, without modules of Node.js", () => {
  const bundler = join(root, "node_modules/.bin/esbuild");
  const bundle = execFileSync(bundler, ["--bundle", "--format=esm", "--platform=browser", compiledFrom("browser")], { cwd: app, encoding: "utf8" });
  assert.match(bundle, /use execwire port-forward/);
  assert.doesNotMatch(bundle, /["']node:/);
});

test("the program in the README of the project prints the documented output", () => {
  const readme = readFileSync(join(root, "../../README.md"), "utf8");
  const [, program] = /```ts\n([^]*?)```/.exec(readme) ?? [];
  assert.ok(program, "README.md has no program in TypeScript");
  const there = program.replace("tcp://127.0.0.1:7420", "local:").replaceAll("/tmp", directory);
  assert.notEqual(there, program);
  writeFileSync(join(app, "hello.ts"), there);
  const compiled = compile("hello.ts");
  assert.equal(compiled.status, 0, String(compiled.stdout));
  const ran = spawnSync(process.execPath, ["hello.js"], { cwd: app, encoding: "utf8", env: { ...process.env, EXECWIRE_BIN: binary } });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, "hello\nexit code 3\n");
});

/** The names of the files below a folder of the installed package. */
function filesOf(folder: string): string[] {
  return readdirSync(join(app, "node_modules/execwire", folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(join(app, "node_modules/execwire", folder), join(entry.parentPath, entry.name)))
    .sort();
}

test("a program can require the package, and gets what import gets", async () => {
  // As CommonJS has neither await nor await using at the top.
  const program = `
    import { connect, ExitError } from "execwire";
    import { Signal } from "execwire/v1";
    async function main(): Promise<void> {
      const client = await connect("local:");
      const error: unknown = await client.run(["sh", "-c", "echo required; exit 3"], { check: true }).catch((error: unknown) => error);
      if (error instanceof ExitError) console.log(error.completed.stdoutText, Signal.KILL);
      await client.close();
    }
    void main();`;
  writeFileSync(join(app, "required.cts"), program);
  const compiled = compile("required.cts", ["--module", "node16", ...withNode]);
  assert.equal(compiled.status, 0, String(compiled.stdout));
  assert.match(readFileSync(join(app, "required.cjs"), "utf8"), /require\("execwire"\)/);
  const ran = spawnSync(process.execPath, ["required.cjs"], { cwd: app, encoding: "utf8", env: { ...process.env, EXECWIRE_BIN: binary } });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, "required\n 9\n");

  const print = (load: string): string => `${load}.then((loaded) => console.log(Object.keys(loaded).filter((name) => !["default", "module.exports", "__esModule"].includes(name)).sort().join()))`;
  for (const name of ["execwire", "execwire/v1"]) {
    const exported = [`import("${name}")`, `Promise.resolve(require("${name}"))`].map((load) => execFileSync(process.execPath, ["--eval", print(load)], { cwd: app, encoding: "utf8" }));
    assert.equal(exported[0], exported[1]);
    assert.match(exported[0] as string, name === "execwire" ? /ExecwireError/ : /ProcessService/);
  }

  const bundle = execFileSync(join(root, "node_modules/.bin/esbuild"), ["--bundle", "--platform=browser", "required.cjs"], { cwd: app, encoding: "utf8" });
  assert.match(bundle, /use execwire port-forward/);
  assert.doesNotMatch(bundle, /["']node:/);
});

test("the package has types and generated code, and no tests", () => {
  const own = readdirSync(join(app, "node_modules/execwire"));
  assert.deepEqual(own.sort(), ["LICENSE", "README.md", "dist", "package.json", "src"]);
  // Every source, compiled twice.
  const sources = filesOf("src").map((name) => name.replace(/\.ts$/, ""));
  assert.ok(sources.includes("index") && sources.includes("gen/execwire/v1/process_pb"), sources.join());
  const compiled = (prefix: string, suffixes: string[]): string[] => sources.flatMap((name) => suffixes.map((suffix) => `${prefix}${name}${suffix}`));
  assert.deepEqual(filesOf("dist"), [...compiled("", [".js", ".js.map", ".d.ts"]), ...compiled("cjs/", [".js", ".d.ts"]), "cjs/package.json"].sort());
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
  writeFileSync(join(app, "consumer.cts"), consumer);
  // Without @types/node; the programs of the README are compiled with them.
  for (const [file, ...options] of [
    ["consumer.ts", "--module", "node16", "--moduleResolution", "node16"],
    ["consumer.cts", "--module", "node16", "--moduleResolution", "node16"],
    ["consumer.ts", "--module", "esnext", "--moduleResolution", "bundler", "--customConditions", "browser"],
  ] as [string, ...string[]][]) {
    const good = compile(file, options);
    assert.equal(good.status, 0, `${file} ${options.join(" ")}: ${good.stdout}`);
  }
  writeFileSync(join(app, "wrong.ts"), consumer.replace('start(["true"]', 'start("true"').replace("describe()", "describes()"));
  const wrong = compile("wrong.ts");
  assert.notEqual(wrong.status, 0);
  assert.match(String(wrong.stdout), /describes/);
  assert.match(String(wrong.stdout), /string/);
});
