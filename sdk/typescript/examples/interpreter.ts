// A code interpreter for an agent: cells of Python that run one after another in one process, and share its variables.
// It survives lost connections.
//
//   echo '[1 + 1]' | node interpreter.js tcp://127.0.0.1:7420
import { createInterface } from "node:readline";
import { type Client, connect, type OutputEvent, type Process, type StartOptions } from "execwire";

/** The result of a cell. */
export interface CellResult {
  /** The value of an expression at its end, as by repr; undefined without one. */
  readonly value: string | undefined;
  readonly stdout: string;
  readonly stderr: string;
  /** The traceback of an exception. */
  readonly error: string | undefined;
}

/** The program: a line of JSON for each cell in, and for each piece of output and each result out. */
const program = `
import ast, contextlib, io, json, os, signal, sys, traceback
channel = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what programs write that a cell starts
cells = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() and these programs get none
class Stream(io.TextIOBase):
    def __init__(self, name): self.name = name
    def writable(self): return True
    def write(self, text):
        channel.write(json.dumps({self.name: text}) + "\\n")
        return len(text)
names = {"__name__": "__main__"}
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in cells:
    result = {"value": None, "error": None}
    try:
        with contextlib.redirect_stdout(Stream("stdout")), contextlib.redirect_stderr(Stream("stderr")):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            tree = ast.parse(json.loads(line), "<cell>")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<cell>", "exec"), names)
            if last:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
                result["value"] = None if value is None else repr(value)
    except BaseException:
        result["error"] = traceback.format_exc()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel.write(json.dumps({"result": result}) + "\\n")
`;

/** Runs cells of Python in one process. */
export class Interpreter implements AsyncDisposable {
  private readonly output: AsyncGenerator<OutputEvent, void, undefined>;
  private readonly decoder = new TextDecoder();
  private rest = "";
  private last: Promise<unknown> = Promise.resolve();

  private constructor(private readonly process: Process) {
    this.output = process.output();
  }

  static async start(client: Client, options: StartOptions = {}): Promise<Interpreter> {
    return new Interpreter(await client.start(["python3", "-c", program], options));
  }

  /** Runs a cell, after those before it, to its end. An error of a callback is thrown then. */
  run(code: string, options: { onStdout?: (text: string) => unknown; onStderr?: (text: string) => unknown } = {}): Promise<CellResult> {
    const cell = this.last.then(async () => {
      await this.process.write(`${JSON.stringify(code)}\n`);
      const said = { stdout: "", stderr: "" };
      let told: Promise<unknown> = Promise.resolve();
      for (;;) {
        const { result, stdout, stderr } = await this.next();
        if (result) {
          await told;
          return { ...said, value: result.value ?? undefined, error: result.error ?? undefined };
        }
        said.stdout += stdout ?? "";
        said.stderr += stderr ?? "";
        told = told.then(() => (stdout !== undefined ? options.onStdout?.(stdout) : options.onStderr?.(stderr ?? "")));
        await told.catch(() => undefined); // the next cell begins after the result of this one
      }
    });
    this.last = cell.catch(() => undefined);
    return cell;
  }

  /** Raises KeyboardInterrupt in the running cell. Variables stay. */
  interrupt(): Promise<void> {
    return this.process.signal("SIGINT");
  }

  async close(): Promise<void> {
    await this.process.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async next(): Promise<Message> {
    for (;;) {
      const end = this.rest.indexOf("\n");
      if (end >= 0) {
        const line = this.rest.slice(0, end);
        this.rest = this.rest.slice(end + 1);
        return JSON.parse(line) as Message;
      }
      const { done, value } = await this.output.next();
      if (done) {
        throw new Error("the interpreter has ended");
      }
      if (value.stream === "stderr") {
        return { stderr: new TextDecoder().decode(value.data) };
      }
      this.rest += this.decoder.decode(value.data, { stream: true });
    }
  }
}

interface Message {
  readonly stdout?: string;
  readonly stderr?: string;
  readonly result?: { readonly value: string | null; readonly error: string | null };
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  await using client = await connect(process.argv[2] ?? "local:");
  await using interpreter = await Interpreter.start(client);
  for await (const line of createInterface({ input: process.stdin })) {
    const { value, error } = await interpreter.run(line, { onStdout: (text) => process.stdout.write(text) });
    console.log(error ?? value ?? "");
  }
}
