// Builds dist/ from src/ and gen/ts of the repository. npm runs it when the package is installed
// from its folder or packed; a package from a tarball is already built.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const run = (program, ...args) => execFileSync(program, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });

const generated = join(root, "../../gen/ts/execwire");
if (existsSync(generated)) {
  rmSync(join(root, "src/gen"), { recursive: true, force: true });
  cpSync(generated, join(root, "src/gen/execwire"), { recursive: true });
  cpSync(join(root, "../../LICENSE"), join(root, "LICENSE"));
} else if (!existsSync(join(root, "src/gen/execwire"))) {
  throw new Error(`${generated} is missing: build the package in a checkout of the repository`);
}
const modules = readdirSync(join(root, "src/gen/execwire/v1")).filter((name) => name.endsWith("_pb.ts")).sort();
const exported = modules.map((name) => `export * from "./execwire/v1/${name.replace(/ts$/, "js")}";\n`);
writeFileSync(join(root, "src/gen/v1.ts"), `// The generated messages and services of the contract.\n${exported.join("")}`);

const compiler = join(root, "node_modules/.bin/tsc");
if (!existsSync(compiler)) {
  // npm links a folder without installing its dependencies.
  run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error");
}
rmSync(join(root, "dist"), { recursive: true, force: true });
run(process.execPath, compiler, "--project", "tsconfig.json");
// The same as CommonJS, for require. The package.json there selects the platform for it.
run(process.execPath, compiler, "--project", "tsconfig.cjs.json");
const { imports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const platform = JSON.stringify(imports["#platform"]).replaceAll("./dist/", "./");
writeFileSync(join(root, "dist/cjs/package.json"), `{"type":"commonjs","imports":{"#platform":${platform}}}\n`);
