// The package as npm packs and installs it. Not one of the tests that run by default, because
// it takes long: make test-packages runs it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { after, before, test } from "node:test";
import { App, root, withNode } from "./app.js";

const dependencies = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node", "@connectrpc/connect-web", "@noble/hashes"];

/** Has the package and its dependencies installed from tarballs. */
const app = new App();
const installed = join(app.folder, "node_modules/execwire");
after(() => app.remove());

before(() => {
  const pack = (folder: string): string => {
    const args = ["pack", "--ignore-scripts", "--json", "--loglevel=error", "--pack-destination", app.folder];
    const told = execFileSync("npm", args, { cwd: folder, encoding: "utf8" });
    return join(app.folder, (JSON.parse(told) as { filename: string }[])[0]?.filename as string);
  };
  // Uses the packages installed from the lock file, without a registry.
  const tarballs = [root, ...dependencies.map((name) => join(root, "node_modules", name))].map(pack);
  execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", ...tarballs], { cwd: app.folder, stdio: "pipe" });
});

/** The names of the files below a folder of the installed package. */
function filesOf(folder: string): string[] {
  return readdirSync(join(installed, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(join(installed, folder), join(entry.parentPath, entry.name)))
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
      if (error instanceof ExitError) console.log(error.completed.stdout, Signal.KILL);
      await client.close();
    }
    void main();`;
  app.write("required.cts", program);
  const compiled = app.compile(["required.cts"], ["--module", "node16", ...withNode]);
  assert.equal(compiled.status, 0, compiled.stdout);
  assert.match(readFileSync(join(app.folder, "required.cjs"), "utf8"), /require\("execwire"\)/);
  const ran = app.run("required.cjs");
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, "required\n 9\n");

  const print = (load: string): string => `${load}.then((loaded) => console.log(Object.keys(loaded).filter((name) => !["default", "module.exports", "__esModule"].includes(name)).sort().join()))`;
  for (const name of ["execwire", "execwire/v1"]) {
    const exported = [`import("${name}")`, `Promise.resolve(require("${name}"))`].map((load) => execFileSync(process.execPath, ["--eval", print(load)], { cwd: app.folder, encoding: "utf8" }));
    assert.equal(exported[0], exported[1]);
    assert.match(exported[0] as string, name === "execwire" ? /ExecwireError/ : /ProcessService/);
  }

  const bundle = execFileSync(join(root, "node_modules/.bin/esbuild"), ["--bundle", "--platform=browser", "required.cjs"], { cwd: app.folder, encoding: "utf8" });
  assert.match(bundle, /use execwire port-forward/);
  assert.doesNotMatch(bundle, /["']node:/);
});

test("the package has types and generated code, and no tests", () => {
  const own = readdirSync(installed);
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
  app.write("consumer.ts", consumer);
  app.write("consumer.cts", consumer);
  // Without @types/node; the programs of the README are compiled with them.
  for (const [file, ...options] of [
    ["consumer.ts", "--module", "node16", "--moduleResolution", "node16"],
    ["consumer.cts", "--module", "node16", "--moduleResolution", "node16"],
    ["consumer.ts", "--module", "esnext", "--moduleResolution", "bundler", "--customConditions", "browser"],
  ] as [string, ...string[]][]) {
    const good = app.compile([file], options);
    assert.equal(good.status, 0, `${file} ${options.join(" ")}: ${good.stdout}`);
  }
  app.write("wrong.ts", consumer.replace('start(["true"]', 'start(7').replace("describe()", "describes()"));
  const wrong = app.compile(["wrong.ts"]);
  assert.notEqual(wrong.status, 0);
  assert.match(wrong.stdout, /describes/);
  assert.match(wrong.stdout, /number/);
});
