import type { Client } from "execwire";
import { type ExitRecord, type Process, ProcessState } from "execwire/v1";
import { useMemo, useState } from "preact/hooks";
import { commandLine, duration, messageOf, timeOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";

/** The most processes that the table shows. */
const maxRows = 2000;

/** Returns the address of the page of a process. */
export function processPlace(p: { readonly sessionId: string; readonly processId: string }): string {
  return `#/process/${encodeURIComponent(p.sessionId)}/${encodeURIComponent(p.processId)}`;
}

/** Returns the processes of all sessions that the user may see, the newest first. */
async function list(client: Client, signal: AbortSignal): Promise<{ processes: Process[]; more: boolean }> {
  const { sessions } = await client.stubs.sessions.listSessions({}, { signal });
  const ids = sessions.length > 0 ? sessions.map((s) => s.sessionId) : [""];
  const processes: Process[] = [];
  for (const sessionId of ids) {
    for (let pageToken = ""; processes.length <= maxRows; ) {
      const page = await client.stubs.processes.listProcesses({ sessionId, pageSize: 1000, pageToken }, { signal });
      processes.push(...page.processes);
      pageToken = page.nextPageToken;
      if (pageToken === "") {
        break;
      }
    }
  }
  processes.sort((a, b) => began(b) - began(a) || (a.processId < b.processId ? -1 : 1));
  return { processes: processes.slice(0, maxRows), more: processes.length > maxRows };
}

function began(p: Process): number {
  return timeOf(p.startTime);
}

/** How long a process has run. */
export function age(p: Process, now: number): number {
  const wall = p.exit?.wallTime;
  return wall ? timeOf(wall) : now - began(p);
}

/** The state of a process in words, and whether it is good. */
export function stateOf(p: Process): { text: string; tone: "run" | "ok" | "bad" } {
  const { exit } = p;
  if (!exit) {
    return { text: p.state === ProcessState.STARTING ? "starting" : "running", tone: "run" };
  }
  const text = exitText(exit);
  return { text: p.state === ProcessState.CLOSED ? text : `${text}, still open`, tone: text === "exit 0" ? "ok" : "bad" };
}

function exitText(exit: ExitRecord): string {
  switch (exit.status.case) {
    case "exitCode":
      return `exit ${exit.status.value}`;
    case "signal":
      return `signal ${exit.status.value}`;
    default:
      return "lost";
  }
}

/** The table of processes. */
export function Processes() {
  const client = useClient();
  const [search, setSearch] = useState("");
  const [all, setAll] = useState(true);
  const { value, error } = usePoll((signal) => list(client, signal), 1000, [client]);
  const shown = useMemo(() => {
    const wanted = search.toLowerCase().split(/\s+/);
    return (value?.processes ?? []).filter((p) => {
      const text = `${p.processId} ${p.argv.join(" ")} ${p.user} ${p.pid} ${Object.entries(p.labels).map(([k, v]) => `${k}=${v}`).join(" ")}`.toLowerCase();
      return (all || !p.exit) && wanted.every((w) => text.includes(w));
    });
  }, [value, search, all]);
  const now = Date.now();
  return (
    <section class="page">
      <div class="bar">
        <h1>Processes</h1>
        <input type="search" placeholder="Search" aria-label="Search processes" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        <label><input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} /> with ended ones</label>
        <span class="count" role="status">{value ? `${shown.length} of ${value.processes.length}${value.more ? "+" : ""}` : ""}</span>
        <a class="button" href="#/start">Start…</a>
      </div>
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of processes">
        <table class="grid" id="processes">
          <thead><tr><th>ID</th><th>State</th><th>Time</th><th>Command</th><th>User</th><th>PID</th><th>Owner</th></tr></thead>
          <tbody>
            {shown.map((p) => {
              const state = stateOf(p);
              return (
                <tr key={`${p.sessionId}/${p.processId}`}>
                  <td><a href={processPlace(p)}>{p.processId}</a></td>
                  <td><span class={`state ${state.tone}`}>{state.text}</span></td>
                  <td class="number">{duration(age(p, now))}</td>
                  <td class="wide"><code title={commandLine(p.argv)}>{commandLine(p.argv)}</code></td>
                  <td>{p.user}</td>
                  <td class="number">{p.pid || ""}</td>
                  <td>{p.owned ? "yes" : ""}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
        {value && shown.length === 0 ? <p class="note">{value.processes.length === 0 ? "No process yet. Start one." : "No process matches."}</p> : null}
      </div>
    </section>
  );
}
