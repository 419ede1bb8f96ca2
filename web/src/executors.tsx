import { useState } from "preact/hooks";
import { messageOf } from "./format.js";
import { usePoll } from "./hooks.js";
import { executorPage, executors, leaveForProvider, login, type Session } from "./session.js";

/** The table of the executors of a hub. */
export function Executors() {
  const [search, setSearch] = useState("");
  const { value, error } = usePoll(executors, 2_000, []);
  const wanted = search.toLowerCase().split(/\s+/);
  const shown = (value ?? []).filter((e) => {
    const text = `${e.id} ${e.name} ${e.version} ${Object.entries(e.labels).map(([k, v]) => `${k}=${v}`).join(" ")}`.toLowerCase();
    return wanted.every((w) => text.includes(w));
  });
  return (
    <section class="page">
      <div class="bar">
        <h1>Executors</h1>
        <input type="search" placeholder="Search" aria-label="Search executors" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        <span class="count" role="status">{value ? `${shown.length} of ${value.length}` : ""}</span>
      </div>
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of executors">
        <table class="grid" id="executors">
          <thead><tr><th>ID</th><th>State</th><th>Labels</th><th>Name</th><th>Version</th><th>Streams</th><th>Last seen</th></tr></thead>
          <tbody>
            {shown.map((e) => (
              <tr key={e.id}>
                <td>{e.connected ? <a href={executorPage(e.id)}>{e.id}</a> : e.id}</td>
                <td><span class={`state ${e.connected ? "ok" : "bad"}`}>{e.connected ? "connected" : "away"}</span></td>
                <td class="wide">{Object.entries(e.labels).map(([k, v]) => <code key={k}>{`${k}=${v} `}</code>)}</td>
                <td>{e.name}</td>
                <td>{e.version}</td>
                <td class="number">{e.streams}</td>
                <td class="number">{e.last_seen ? new Date(e.last_seen).toLocaleString() : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {value && shown.length === 0 ? <p class="note">{value.length === 0 ? "No executor that you may use has registered." : "No executor matches."}</p> : null}
      </div>
    </section>
  );
}

/** A form to sign in at a hub. The token is sent to the hub once, and not kept in the page. */
export function Login({ problem, provider, opened }: { problem: string; provider: string; opened: (session: Session) => void }) {
  const [shown, setShown] = useState(problem);
  const [busy, setBusy] = useState(false);
  return (
    <main>
      <section class="page">
        <div class="bar"><h1>Sign in</h1></div>
        <form class="form" onSubmit={(e) => {
          e.preventDefault();
          const form = e.currentTarget;
          setBusy(true);
          login(String(new FormData(form).get("token") ?? ""), provider).then((session) => {
            form.reset();
            setShown(session.kind === "login" ? session.problem : "");
            if (session.kind !== "login") {
              opened(session);
            }
          }, (error: unknown) => setShown(messageOf(error))).finally(() => setBusy(false));
        }}>
          <label>Token of your principal at the hub<input name="token" type="password" autocomplete="off" spellcheck={false} autofocus placeholder="empty: your client certificate" /></label>
          <button class="button main" disabled={busy}>Sign in</button>
          {provider === "" ? null : <button type="button" id="provider" onClick={() => leaveForProvider().catch((error: unknown) => setShown(messageOf(error)))}>Sign in with {provider}</button>}
        </form>
        {shown === "" ? null : <p class="problem" role="alert">{shown}</p>}
      </section>
    </main>
  );
}
