import type { CommandLine } from "execwire";
import { useState } from "preact/hooks";
import { messageOf } from "./format.js";
import { useClient } from "./hooks.js";
import { processPlace } from "./processes.js";

/** The size of a terminal before its page is shown. */
const firstSize = { rows: 24, columns: 80 };

/** A form that starts a process. */
export function Start() {
  const client = useClient();
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const start = async (form: HTMLFormElement) => {
    const field = (name: string) => String(new FormData(form).get(name) ?? "");
    const line = field("command").trim();
    const inTerminal = field("terminal") !== "";
    const shell = (await client.describe()).shell || "sh";
    const command: CommandLine = line !== "" ? line : [shell];
    const process = await client.startDetached(command, {
      ...(field("id") === "" ? {} : { id: field("id") }),
      ...(field("cwd") === "" ? {} : { cwd: field("cwd") }),
      ...(inTerminal ? { terminal: firstSize, env: { TERM: "xterm-256color", COLORTERM: "truecolor" } } : {}),
      stdin: "pipe",
      inheritEnv: "core",
    });
    location.hash = processPlace(process);
  };
  return (
    <section class="page">
      <div class="bar"><h1>Start a process</h1></div>
      <form class="form" onSubmit={(e) => {
        e.preventDefault();
        setBusy(true);
        start(e.currentTarget).catch((error: unknown) => setProblem(messageOf(error))).finally(() => setBusy(false));
      }}>
        <label>Command, for the shell<input name="command" placeholder="empty: a shell" autofocus spellcheck={false} autocomplete="off" /></label>
        <label>Directory<input name="cwd" placeholder="the home directory" spellcheck={false} autocomplete="off" /></label>
        <label>ID<input name="id" placeholder="chosen by the server" spellcheck={false} autocomplete="off" /></label>
        <label class="check"><input type="checkbox" name="terminal" defaultChecked /> in a terminal</label>
        <button class="button main" disabled={busy}>Start</button>
      </form>
      {problem === "" ? null : <p class="problem" role="alert">{problem}</p>}
      <p class="note">The process has no owner: it continues when this page is closed.</p>
    </section>
  );
}
