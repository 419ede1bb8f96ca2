// Builds the package, its tests and its examples, and runs the tests against the server in
// EXECWIRE_BIN, by default bin/execwire of the repository. Arguments are names of test files
// without suffix; by default all run but package, which make test-packages runs.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const bin = join(root, "../../bin");
const env = {
  ...process.env,
  EXECWIRE_BIN: process.env.EXECWIRE_BIN ?? join(bin, "execwire"),
  EXECWIRE_HUB_BIN: process.env.EXECWIRE_HUB_BIN ?? join(bin, "execwire-hub"),
};
for (const program of [env.EXECWIRE_BIN, env.EXECWIRE_HUB_BIN]) {
  if (!existsSync(program)) {
    console.error(`${program} is missing: run 'make test-typescript' at the root of the repository`);
    process.exit(1);
  }
}

/** Runs node, and exits if it fails. */
function node(...args) {
  const { status } = spawnSync(process.execPath, args, { cwd: root, env, stdio: "inherit" });
  if (status !== 0) {
    process.exit(status ?? 1);
  }
}

node("scripts/build.mjs");
rmSync(join(root, "build"), { recursive: true, force: true });
node("node_modules/.bin/tsc", "--project", "tsconfig.test.json");

const wanted = process.argv.slice(2);
const files = readdirSync(join(root, "build/test"))
  .filter((name) => name.endsWith(".test.js"))
  .filter((name) => (wanted.length === 0 ? name !== "package.test.js" : wanted.includes(name.replace(/\.test\.js$/, ""))))
  .map((name) => join("build/test", name));
// The timeout only guards against hanging.
node("--test", "--test-timeout=240000", "--test-concurrency=2", ...files);
