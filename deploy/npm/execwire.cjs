#!/usr/bin/env node
// The command of the package execwire: runs the program in the optional dependency for this
// machine.
"use strict";
const { spawn } = require("node:child_process");
const os = require("node:os");

const name = `execwire-${process.platform}-${process.arch}`;
const program = process.platform === "win32" ? "execwire.exe" : "execwire";
let path;
try {
  path = require.resolve(`${name}/bin/${program}`);
} catch {
  console.error(
    `execwire: the package ${name} is not installed: there is none for this machine, or npm left optional dependencies out (--omit=optional)`,
  );
  process.exit(125);
}
const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
// Signals of a terminal reach the program too: this process only stays until its end.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`execwire: ${error.message}`);
  process.exit(125);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + os.constants.signals[signal] : code));
