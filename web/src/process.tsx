import { ExecwireError } from "execwire";
import { ExitCause, NetworkAccess, type Port, ProcessState, SandboxBackend, Signal } from "execwire/v1";
import { useState } from "preact/hooks";
import { commandLine, duration, messageOf, shownTime, size, timeOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";
import { Output } from "./output.js";
import { age, stateOf } from "./processes.js";
import { Recording } from "./recordings.js";
import { Terminal } from "./terminal.js";
import { UsagePlots, useUsage } from "./usage.js";

/** Signals that people send, in this order, then all others of Linux by number. */
const common = ["INT", "HUP", "TERM", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL"] as const;
const others = Object.values(Signal).filter((n): n is Signal => typeof n === "number" && n > 0 && !common.some((name) => Signal[name] === n));
const firstRealTime = 34;
const lastRealTime = 64;

/** The name of a signal as in kill -l. */
function signalName(n: number): string {
  return Signal[n] !== undefined ? `SIG${Signal[n]}` : n === firstRealTime ? "SIGRTMIN" : n > firstRealTime && n <= lastRealTime ? `SIGRTMIN+${n - firstRealTime}` : `signal ${n}`;
}

const groups: readonly (readonly [string, readonly number[]])[] = [
  ["Common", common.map((name) => Signal[name])],
  ["Others", others],
  ["Real-time", Array.from({ length: lastRealTime - firstRealTime + 1 }, (_, i) => firstRealTime + i)],
];

const tabs = { output: "Output", play: "Play", usage: "Usage", details: "Details" } as const;

/** The page of one process. */
export function ProcessPage({ id, sessionId, tab: first }: { id: string; sessionId: string; tab: string }) {
  const client = useClient();
  const [tab, setTab] = useState<keyof typeof tabs>(first in tabs ? (first as keyof typeof tabs) : "output");
  const [answer, setAnswer] = useState("");
  const { value: process, error } = usePoll((signal) => client.get(id, { sessionId, signal }), 1000, [client, id, sessionId]);
  const ended = process?.exit !== undefined;
  const { value: ports } = usePoll(async (signal) => (process?.state === ProcessState.RUNNING
    ? (await client.stubs.ports.listPorts({ sessionId, processId: id }, { signal })).ports : []), 2000, [client, id, sessionId, process?.state]);
  const [port, setPort] = useState<Port | undefined>();
  const running = process !== undefined && !ended;
  const usage = useUsage(id, sessionId, running);
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
  const hasOutput = process.lastSeq > (ended ? 2n : 0n); // an end is two events
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
          {(Object.keys(tabs) as (keyof typeof tabs)[]).filter((name) => name !== "play" || hasOutput).map((name) => (
            <button key={name} role="tab" aria-selected={tab === name} onClick={() => setTab(name)}>{name === "output" && process.hasTerminal ? "Terminal" : tabs[name]}</button>
          ))}
        </div>
        {(ports ?? []).map((p) => (
          <button key={`${p.address}:${p.port}`} class="port" aria-expanded={port?.port === p.port} title={`${p.program || "A program"} listens on ${p.address}:${p.port}`}
            onClick={() => setPort(port?.port === p.port ? undefined : p)}>{`${p.address.includes(":") ? `[${p.address}]` : p.address}:${p.port}`}</button>
        ))}
        <span class="space" />
        {ended ? null : (
          <>
            <select aria-label="Send a signal" value="" onChange={(e) => {
              const signal = Number(e.currentTarget.value);
              e.currentTarget.value = "";
              act(client.stubs.processes.signalProcess({ sessionId, processId: id, signal }).then(() => `${signalName(signal)} was sent.`));
            }}>
              <option value="" disabled>Signal…</option>
              {groups.map(([name, list]) => (
                <optgroup key={name} label={name}>{list.map((n) => <option key={n} value={n}>{`${signalName(n)} (${n})`}</option>)}</optgroup>
              ))}
            </select>
            <button class="button" onClick={() => act(terminate(false))}>Terminate</button>
            <button class="button danger" onClick={() => act(terminate(true))}>Kill</button>
          </>
        )}
      </div>
      {answer === "" ? null : <p class="answer" role="status">{answer}</p>}
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      {port ? <PortHelp port={port} sessionId={sessionId} /> : null}
      {tab === "details" ? <Details process={process} /> : tab === "usage" ? <UsagePlots usage={usage} running={running} />
        : tab === "play" ? <Recording key={id} autoPlay read={(signal) => client.recording(id, { sessionId, signal, retained: true })} /> : process.hasTerminal
        ? <Terminal id={id} sessionId={sessionId} ended={ended} /> : <Output id={id} sessionId={sessionId} />}
    </section>
  );
}

/**
 * How to reach a port from the machine of the browser. The link has another host than the page has, because cookies do not
 * know ports: the one of the console must not go to the program that listens.
 */
function PortHelp({ port, sessionId }: { port: Port; sessionId: string }) {
  const command = `execwire port-forward ${port.port}${sessionId === "default" || sessionId === "" ? "" : ` --session ${commandLine([sessionId])}`}`;
  const address = `http://${location.hostname === "localhost" ? "127.0.0.1" : "localhost"}:${port.port}/`;
  return (
    <p class="answer" role="status">
      {"Type "}<code>{command}</code>{" on this machine, with the options by which it reaches the server, and then open "}
      <a href={address} target="_blank" rel="noopener noreferrer">{address}</a>.
    </p>
  );
}

/** A name of an enumeration in words. */
function words(name: string | undefined): string {
  return (name ?? "").toLowerCase().replaceAll("_", " ");
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
    ["Sandbox", sandbox && [words(SandboxBackend[sandbox.backend]), sandbox.restrictsFiles ? "files restricted" : "all files", `network ${words(NetworkAccess[sandbox.network])}`].join(", ")],
    ["Events", `${process.lastSeq}, available from ${process.firstAvailableSeq}`],
    ["Ended", shownTime(exit?.exitTime)],
    ["Status", exit && (exit.status.case === "exitCode" ? `exit code ${exit.status.value}` : exit.status.case === "signal" ? `killed by ${signalName(exit.status.value)} (${exit.status.value})` : "not known")],
    ["Cause", exit && words(ExitCause[exit.cause])],
    ["Denied by the sandbox", exit?.sandboxDenied ? "probably" : undefined],
    ["Wall time", exit && duration(timeOf(exit.wallTime))],
    ["Processor time", usage && `${duration(timeOf(usage.userTime))} user, ${duration(timeOf(usage.systemTime))} system`],
    ["Most memory", usage && usage.maxResidentBytes > 0n ? size(usage.maxResidentBytes) : undefined],
  ];
  return <dl class="details">{rows.map(([name, value]) => value ? [<dt key={name}>{name}</dt>, <dd key={`${name}-value`}>{value}</dd>] : null)}</dl>;
}

