// Runs a program of another machine at this terminal, as ssh -t does.
//
//   node terminal.js tcp://127.0.0.1:7420 vim notes.txt
//
// Keys, Ctrl-C among them, are for the program, and so are changes of the window's size. While the connection is
// lost the program continues; what was typed and printed meanwhile follows.
import { connect } from "execwire";

const [url, ...command] = process.argv.slice(2);
if (url === undefined || command.length === 0) {
  console.error("usage: terminal URL PROGRAM [ARGUMENT]...");
  process.exit(2);
}
if (!process.stdin.isTTY || !process.stdout.isTTY) {
  console.error("stdin and stdout are not a terminal");
  process.exit(2);
}

/** Prints a line on a terminal in raw mode, in which a newline is no carriage return. */
const notice = (text: string): unknown => process.stderr.write(`\r\n[${text}]\r\n`);

await using client = await connect(url);
try {
  const exit = await client.interactive(command, {
    onLost: () => notice("connection lost"),
    onResumed: () => notice("connection restored"),
  });
  process.exitCode = exit.shellCode;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 255;
}
