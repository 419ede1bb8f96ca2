// Builds a project on another machine: uploads it, runs a command in it, prints the output, and downloads the
// result. The connection may be cut meanwhile.
//
//   node remote-build.js --server tcp://127.0.0.1:7420 --result bin/program PROJECT -- make
//   node remote-build.js --server https://hub.example.org --executor build-1 --token-file token …
import { join } from "node:path";
import { parseArgs } from "node:util";
import { connect } from "execwire";

/** Entries of a project that are not uploaded. */
const ignore = [".git", ".cache", "node_modules", "bin"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    server: { type: "string", default: "local:" },
    executor: { type: "string" },
    "token-file": { type: "string" },
    env: { type: "string", multiple: true, default: [] },
    result: { type: "string" },
    to: { type: "string", default: "." },
  },
});
const [project, ...command] = positionals;
if (project === undefined || command.length === 0) {
  console.error("usage: remote-build [--server URL] [--executor ID] [--token-file FILE] [--env NAME=VALUE]... [--result FILE [--to DIRECTORY]] PROJECT -- COMMAND [ARGUMENT]...");
  process.exit(2);
}

await using client = await connect(values.server, {
  ...(values.executor !== undefined && { executor: values.executor }),
  ...(values["token-file"] !== undefined && { tokenFile: values["token-file"] }),
});
const { temporaryDirectory } = await client.describe();
const directory = join(temporaryDirectory, `remote-build-${crypto.randomUUID()}`);
try {
  const { files } = await client.files.push(project, directory, { ignore });
  console.error(`uploaded ${files} files to ${directory}`);

  const env = Object.fromEntries(values.env.map((pair) => pair.split(/=(.*)/s, 2) as [string, string]));
  await using build = await client.start(command, {
    cwd: directory,
    env,
    stdin: "closed",
    onLost: () => console.error("the connection was lost"),
    onResumed: () => console.error("the connection was restored"),
  });
  build.stdout.pipe(process.stdout, { end: false });
  build.stderr.pipe(process.stderr, { end: false });
  const exit = await build.wait();
  console.error(`exit code ${exit.shellCode} after ${(exit.wallTimeMs / 1000).toFixed(1)} s; resumed ${exit.resumed} times`);
  process.exitCode = exit.shellCode;

  if (exit.ok && values.result !== undefined) {
    const { size } = await client.files.downloadFile(join(directory, values.result), join(values.to, values.result));
    console.error(`downloaded ${values.result}, ${size} bytes`);
  }
} finally {
  await client.files.remove(directory, { recursive: true, ignoreMissing: true });
}
