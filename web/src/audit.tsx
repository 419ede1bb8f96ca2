import { useMemo, useState } from "preact/hooks";
import { commandLine, messageOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";

/** How many records are read, and shown. */
const maxRecords = 2000;

/** A record of the audit log, as docs/audit.md describes it: the members that the table shows. */
interface AuditRecord {
  readonly time?: string;
  readonly type?: string;
  readonly action?: string;
  readonly principal?: string;
  readonly peer?: string;
  readonly decision?: string;
  readonly rule?: string;
  readonly session?: string;
  readonly process?: string;
  readonly argv?: readonly string[];
  readonly path?: string;
  readonly to?: string;
  readonly address?: string;
  readonly url?: string;
  readonly status?: string;
  readonly exit?: { readonly code?: number; readonly signal?: number; readonly cause?: string };
}

/** What a record is about. */
function subjectOf(r: AuditRecord): string {
  const parts = [r.process, r.argv && commandLine(r.argv), r.path, r.to && `→ ${r.to}`, r.address, r.url];
  return parts.filter((part) => part !== undefined && part !== "").join("  ") || (r.session ?? "");
}

/** How what a record is about has ended, and whether well. */
function resultOf(r: AuditRecord): { text: string; tone: string } {
  if (r.decision === "denied") {
    return { text: `denied: ${r.rule ?? ""}`, tone: "bad" };
  }
  if (r.exit) {
    const { code, signal, cause } = r.exit;
    return { text: code === undefined ? (signal ? `signal ${signal}` : (cause ?? "")) : `exit ${code}`, tone: code === 0 ? "ok" : "bad" };
  }
  return r.type === "intent" ? { text: "begins", tone: "run" } : { text: r.status ?? "", tone: r.status === "OK" ? "ok" : "bad" };
}

/** The end of the server's audit log, the newest record first. It is read when asked for: reading is recorded, too. */
export function AuditPage() {
  const client = useClient();
  const [search, setSearch] = useState("");
  const [selected, setSelected] = useState<string | undefined>();
  const { value, error, again } = usePoll(async (signal) => {
    const records: { readonly text: string; readonly record: AuditRecord }[] = [];
    for await (const part of client.stubs.admin.readAudit({ maxRecords }, { signal })) {
      if (part.off) {
        return { records, off: true };
      }
      for (const text of part.records) {
        records.push({ text, record: JSON.parse(text) as AuditRecord });
      }
    }
    return { records: records.reverse(), off: false };
  }, undefined, [client]);
  const records = useMemo(() => value?.records ?? [], [value]);
  const shown = useMemo(() => {
    const wanted = search.toLowerCase().split(/\s+/);
    return records.filter(({ text }) => wanted.every((w) => text.toLowerCase().includes(w)));
  }, [records, search]);
  return (
    <section class="page">
      <div class="bar">
        <h1>Audit log</h1>
        <input type="search" placeholder="Search" aria-label="Search records" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        <span class="count" role="status">{value ? `${shown.length} of the last ${records.length}` : ""}</span>
        <button class="button" onClick={again}>Read again</button>
      </div>
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      {value?.off ? <p class="note">The server keeps no audit log: its setting audit_file is empty.</p> : null}
      <div class="scroll" tabIndex={0} role="region" aria-label="Records">
        <table class="grid" id="audit">
          <thead><tr><th>Time</th><th>Action</th><th>Result</th><th>Principal</th><th>Subject</th><th>Peer</th></tr></thead>
          <tbody>
            {shown.map(({ text, record: r }, i) => {
              const result = resultOf(r);
              return (
                <tr key={i} class={selected === text ? "selected" : ""}>
                  <td class="number">{r.time ? new Date(r.time).toLocaleString() : ""}</td>
                  <td><button class="name" aria-expanded={selected === text} onClick={() => setSelected(selected === text ? undefined : text)}>{r.action}</button></td>
                  <td><span class={`state ${result.tone}`}>{result.text}</span></td>
                  <td>{r.principal}</td>
                  <td class="wide"><code title={subjectOf(r)}>{subjectOf(r)}</code></td>
                  <td class="dim">{r.peer}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {selected === undefined ? null : <pre class="record" tabIndex={0} aria-label="The record">{JSON.stringify(JSON.parse(selected), null, 2)}</pre>}
    </section>
  );
}
