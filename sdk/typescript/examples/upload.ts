// Makes a directory of another machine a copy of a local one, and shows the progress.
//
//   node upload.js tcp://127.0.0.1:7420 ~/src/project /srv/project --ignore node_modules
//
// Files that are up to date are skipped, so that an upload that was ended can be run again. A lost connection does
// not end it: it continues where the server has received everything.
import { parseArgs } from "node:util";
import { connect } from "execwire";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ignore: { type: "string", multiple: true, default: [] },
    delete: { type: "boolean", default: false },
  },
});
const [url, directory, path] = positionals;
if (url === undefined || directory === undefined || path === undefined) {
  console.error("usage: upload [--ignore PATTERN]... [--delete] URL DIRECTORY PATH");
  process.exit(2);
}
// A terminal shows one line, which changes.
const end = process.stderr.isTTY ? "\x1b[K\r" : "\n";

await using client = await connect(url);
try {
  const { files, bytes, skipped, deleted } = await client.files.sync(directory, path, {
    delete: values.delete,
    ignore: values.ignore,
    onProgress: (done, total, current) => process.stderr.write(`${done} of ${total} bytes: ${current}${end}`),
  });
  console.log(`${files} files copied, ${bytes} bytes; ${skipped} up to date, ${deleted} deleted`);
} catch (error) {
  console.error(`failed to upload ${directory}: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
