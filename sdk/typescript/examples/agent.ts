// Runs the commands of an agent on another machine.
//
//   node agent.js tcp://127.0.0.1:7420 /srv/project
//
// Each line of stdin is a step: {"command": "make test", "timeout": 60}. Its output is shown on stderr as it
// arrives. Its result is a line of stdout, for the model:
// {"exit_code": 2, "timed_out": false, "stdout": "...", "stderr": "..."}, or {"error": "..."} if the command was
// not started. The connection may be lost meanwhile.
import { createInterface } from "node:readline";
import { type Client, connect, ExecwireError, ProcessTimeoutError } from "execwire";

/** A step: a line for the shell, and how long it may take, in seconds. */
interface Step {
  readonly command: string;
  readonly timeout?: number;
}

/** How much output the model gets, in characters: the end, where errors are. */
const most = 20_000;

/** Runs a step. The server ends it, with all its descendants, after the timeout. */
async function run(client: Client, cwd: string, { command, timeout = 120 }: Step): Promise<object> {
  const show = (text: string): unknown => process.stderr.write(text);
  try {
    const completed = await client.run(command, { cwd, timeoutMs: timeout * 1000, onStdout: show, onStderr: show });
    return result(completed, false);
  } catch (error) {
    if (error instanceof ProcessTimeoutError) {
      return result(error.completed, true);
    }
    if (error instanceof ExecwireError) {
      return { error: error.message };
    }
    throw error;
  }
}

function result({ exit, stdout, stderr }: ProcessTimeoutError["completed"], timedOut: boolean): object {
  return { exit_code: exit.shellCode, timed_out: timedOut, stdout: stdout.slice(-most), stderr: stderr.slice(-most) };
}

const [url, directory] = process.argv.slice(2);
if (url === undefined || directory === undefined) {
  console.error("usage: agent URL DIRECTORY <STEPS");
  process.exit(2);
}
await using client = await connect(url);
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(client, directory, JSON.parse(line) as Step)));
}
