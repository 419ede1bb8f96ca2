import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { binary } from "./fixture.js";

/** The folder of the package. */
export const root = join(import.meta.dirname, "../..");
export const withNode = ["--types", "node", "--typeRoots", join(root, "node_modules/@types")];

/** A program that uses the package, in a folder of its own. */
export class App {
  readonly folder = mkdtempSync(join(tmpdir(), "execwire-ts-"));

  constructor() {
    this.write("package.json", '{"name": "app", "type": "module", "private": true}');
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.folder, name), text);
  }

  /** Compiles files, without skipLibCheck: so the declarations of the package are checked too. */
  compile(files: readonly string[], options: readonly string[] = ["--module", "nodenext", ...withNode]): SpawnSyncReturns<string> {
    const args = ["--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable,esnext.disposable", ...options, ...files];
    return spawnSync(join(root, "node_modules/.bin/tsc"), args, { cwd: this.folder, encoding: "utf8" });
  }

  run(script: string): SpawnSyncReturns<string> {
    const env = { ...process.env, EXECWIRE_BIN: binary, EXECWIRE_SERVER: "local:" };
    return spawnSync(process.execPath, [script], { cwd: this.folder, encoding: "utf8", env });
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
