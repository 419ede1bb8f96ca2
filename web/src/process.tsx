import { ExecwireError } from "execwire";
import { ExitCause, ProcessState } from "execwire/v1";
import { useState } from "preact/hooks";
import { commandLine, duration, messageOf, shownTime, size, timeOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";
import { Output } from "./output.js";
import { age, stateOf } from "./processes.js";
import { Terminal } from "./terminal.js";

const signals = ["INT", "HUP", "TERM", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL"] as const;
const numbers: Readonly<Record<(typeof signals)[number], number>> = { HUP: 1, INT: 2, QUIT: 3, KILL: 9, USR1: 10, USR2: 12, TERM: 15, CONT: 18, STOP: 19 };

/** The page of one process. */
export function ProcessPage({ id, sessionId }: { id: string; sessionId: string }) {
  const client = useClient();
  const [tab, setTab] = useState<"output" | "details">("output");
  const [answer, setAnswer] = useState("");
  const { value: process, error } = usePoll((signal) => client.get(id, { sessionId, signal }), 1000, [client, id, sessionId]);
  const ended = process?.exit !== undefined;
  const { value: ports } = usePoll(async (signal) => (process?.state === ProcessState.RUNNING
    ? (await client.stubs.ports.listPorts({ sessionId, processId: id }, { signal })).ports : []), 2000, [client, id, sessionId, process?.state]);
  const act = (what: Promise<string>) => void what.then(setAnswer, (e: unknown) => setAnswer(messageOf(e)));
  const terminate = async (force: boolean): Promise<string> => {
    setAnswer("Terminating…");
    const { wasRunning, method, verifiedEmpty } = await client.terminate(id, { sessionId, force });
    return `${wasRunning ? "Terminated" : "It had exited"}, by ${method.replaceAll("_", " ")}; ${verifiedEmpty ? "no descendant is left" : "whether a descendant is left is not known"}.`;
  };
  if (error && !process) {
    return <section class="page"><p class="problem" role="alert">{error instanceof ExecwireError ? error.message : messageOf(error)}</p></section>;
  }
  if (!process) {
    return <p class="note">Loading…</p>;
  }
  const state = stateOf(process);
  return (
    <section class="page process">
      <div class="bar">
        <h1>{id}</h1>
        <span class={`state ${state.tone}`}>{state.text}</span>
        <span class="count">{duration(age(process, Date.now()))}</span>
        <code class="command" title={commandLine(process.argv)}>{commandLine(process.argv)}</code>
      </div>
      <div class="bar small">
        <div role="tablist" class="tabs">
          <button role="tab" aria-selected={tab === "output"} onClick={() => setTab("output")}>{process.hasTerminal ? "Terminal" : "Output"}</button>
          <button role="tab" aria-selected={tab === "details"} onClick={() => setTab("details")}>Details</button>
        </div>
        {(ports ?? []).map((p) => <span key={`${p.address}:${p.port}`} class="port" title="It listens on this port: execwire port-forward reaches it">{`${p.address}:${p.port}`}</span>)}
        <span class="space" />
        {ended ? null : (
          <>
            <select aria-label="Send a signal" value="" onChange={(e) => {
              const name = e.currentTarget.value as (typeof signals)[number];
              e.currentTarget.value = "";
              act(client.stubs.processes.signalProcess({ sessionId, processId: id, signal: numbers[name] }).then(() => `SIG${name} was sent.`));
            }}>
              <option value="" disabled>Signal…</option>
              {signals.map((s) => <option key={s} value={s}>{`SIG${s}`}</option>)}
            </select>
            <button class="button" onClick={() => act(terminate(false))}>Terminate</button>
            <button class="button danger" onClick={() => act(terminate(true))}>Kill</button>
          </>
        )}
      </div>
      {answer === "" ? null : <p class="answer" role="status">{answer}</p>}
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      {tab === "details" ? <Details process={process} /> : process.hasTerminal
        ? <Terminal id={id} sessionId={sessionId} ended={ended} /> : <Output id={id} sessionId={sessionId} />}
    </section>
  );
}

/** What is known about a process. */
function Details({ process }: { process: NonNullable<Awaited<ReturnType<ReturnType<typeof useClient>["get"]>>> }) {
  const { exit, sandbox } = process;
  const usage = exit?.usage;
  const rows: [string, string | undefined][] = [
    ["Session", process.sessionId],
    ["PID", process.pid ? String(process.pid) : undefined],
    ["User", process.user],
    ["Directory", process.workingDirectory],
    ["Arguments", commandLine(process.argv)],
    ["Started", shownTime(process.startTime)],
    ["Owner", process.owned ? "a client owns it and paces its output" : "none"],
    ["Terminal", process.terminalSize && `${process.terminalSize.rows} rows of ${process.terminalSize.columns}`],
    ["Labels", Object.entries(process.labels).map(([k, v]) => `${k}=${v}`).join(" ") || undefined],
    ["Sandbox", sandbox && "confined"],
    ["Events", `${process.lastSeq}, available from ${process.firstAvailableSeq}`],
    ["Ended", shownTime(exit?.exitTime)],
    ["Cause", exit && ExitCause[exit.cause].toLowerCase().replaceAll("_", " ")],
    ["Wall time", exit && duration(timeOf(exit.wallTime))],
    ["Processor time", usage && `${duration(timeOf(usage.userTime))} user, ${duration(timeOf(usage.systemTime))} system`],
    ["Most memory", usage && usage.maxResidentBytes > 0n ? size(usage.maxResidentBytes) : undefined],
  ];
  return <dl class="details">{rows.map(([name, value]) => value ? [<dt key={name}>{name}</dt>, <dd key={`${name}-value`}>{value}</dd>] : null)}</dl>;
}

