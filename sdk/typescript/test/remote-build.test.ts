import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { binary, directory, hubBinary, Program, Proxy, registered } from "./fixture.js";

const repository = join(import.meta.dirname, "../../../..");
const example = join(import.meta.dirname, "../examples/remote-build.js");
const goEnvironment = ["GOFLAGS", "GOPROXY", "GOCACHE", "GOMODCACHE", "GOTOOLCHAIN", "GONOSUMDB", "GOSUMDB"];

test("a project is built on an executor behind a hub while the connections are cut", async (t) => {
  // The sources of the hub of this repository.
  const project = directory(t);
  const ownPackages = '{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}';
  const run = (program: string, ...args: string[]): string[] =>
    execFileSync(program, args, { cwd: repository, encoding: "utf8" }).split("\n").filter((line) => line !== "");
  const packages = new Set(run("go", "list", "-deps", "-f", ownPackages, "./cmd/execwire-hub").map((path) => relative(repository, path)));
  const sources = run("git", "ls-files")
    .filter((name) => name === "go.mod" || name === "go.sum" || packages.has(dirname(name)))
    .filter((name) => !name.endsWith("_test.go"))
    .sort();
  for (const name of sources) {
    mkdirSync(join(project, dirname(name)), { recursive: true });
    cpSync(join(repository, name), join(project, name));
  }
  const build = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", "hub", "./cmd/execwire-hub"];
  const here = join(directory(t), "hub");
  execFileSync("go", [...build.slice(1, -2), here, "./cmd/execwire-hub"], { cwd: project, env: { ...process.env, CGO_ENABLED: "0" } });

  // Client, proxy, forward, proxy, hub, executor: both connections are cut.
  const { output } = await Program.start(t, hubBinary, ["--listen", "http://127.0.0.1:0"], 1);
  const hub = output[0] as string;
  await Program.start(t, binary, ["serve", "--until-stdin-closes", "--remote", hub, "--executor-id", "build-1"], 0);
  await registered(hub, "build-1");
  const toHub = await Proxy.start(t, hub);
  const listen = `unix://${join(directory(t), "socket")}`;
  await Program.start(t, binary, ["forward", "--hub", toHub.url, "--executor", "build-1", "--listen", listen, "--until-stdin-closes"], 1);
  const toForward = await Proxy.start(t, listen);

  const result = directory(t);
  // Prints its input, builds, and prints the digest of the result.
  const script = `xargs cat <list && ${build.join(" ")} && sha256sum hub`;
  const env = goEnvironment.flatMap((name) => (process.env[name] === undefined ? [] : ["--env", `${name}=${process.env[name]}`]));
  writeFileSync(join(project, "list"), `${sources.join("\n")}\n`);
  const child = spawn(
    process.execPath,
    [example, "--server", toForward.url, "--result", "hub", "--to", result, "--env", "CGO_ENABLED=0", ...env, project, "--", "sh", "-c", script],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const out: Buffer[] = [];
  let log = "";
  child.stdout.on("data", (data: Buffer) => out.push(data));
  child.stderr.on("data", (data: Buffer) => (log += data.toString()));
  // Not for as long as it runs: on a busy machine nothing may get through.
  const cutting = setInterval(() => toForward.cuts + toHub.cuts < 40 && (toForward.cuts <= toHub.cuts ? toForward : toHub).cut(), 1000);
  // The output is also cut. More than a message is delivered each time.
  let cuts = 0;
  toForward.cutEvery(() => (cuts++ < 8 ? 400_000 : cuts < 20 ? 6_000_000 : Infinity));
  const code = await ended;
  clearInterval(cutting);

  assert.equal(code, 0, log);
  const made = readFileSync(here);
  const digest = createHash("sha256").update(made).digest("hex");
  const expected = Buffer.concat([...sources.map((name) => readFileSync(join(project, name))), Buffer.from(`${digest}  hub\n`)]);
  assert.ok(Buffer.concat(out).equals(expected), `${Buffer.concat(out).length} bytes of output, and not the ${expected.length} that it says`);
  assert.ok(readFileSync(join(result, "hub")).equals(made), "the result differs");
  assert.ok(toForward.cuts >= 3 && toHub.cuts >= 1, `${toForward.cuts} and ${toHub.cuts} cuts: ${log}`);
  assert.match(log, /resumed [1-9]\d* times/);
});
