import type { Client } from "execwire";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { AuditPage } from "./audit.js";
import { Executors, Login } from "./executors.js";
import { Files } from "./files.js";
import { messageOf } from "./format.js";
import { ClientContext, usePlace } from "./hooks.js";
import { ProcessPage } from "./process.js";
import { Processes } from "./processes.js";
import { Recordings } from "./recordings.js";
import { ServerPage } from "./server.js";
import { connectServer, logout, NoSession, newLink, open, type Session } from "./session.js";
import { Start } from "./start.js";
import "./console.css";

const places = [
  ["/processes", "Processes"],
  ["/start", "Start"],
  ["/files/", "Files"],
  ["/server", "Server"],
  ["/audit", "Audit"],
] as const;

/** Reports whether a place is in a view: recordings are files, and a process is one of the processes. */
function isPartOf(view: string, place: string): boolean {
  return place.startsWith(view === "/processes" ? "/process" : view) || (view === "/files/" && place.startsWith("/recordings/"));
}

/** The executor of a hub that a page shows, and to whom. */
interface Hub {
  readonly principal: string;
  readonly executor: string;
}

/** The page of one server, which may be an executor of a hub. */
function App({ client, host, hub }: { client: Client; host: string; hub: Hub | undefined }) {
  const place = usePlace() || "/processes";
  return (
    <ClientContext.Provider value={client}>
      <header class="top">
        <a class="brand" href={hub ? "./" : "#/processes"}>execwire</a>
        <nav aria-label="Views">
          {hub ? <a href="./">Executors</a> : null}
          {places.map(([to, name]) => (
            <a key={to} href={`#${to}`} aria-current={isPartOf(to, place) ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <span class="host" title={hub ? "The executor, and the host of its server" : "The host of the server"}>{hub ? `${hub.executor} (${host})` : host}</span>
        {hub ? <Account principal={hub.principal} /> : <Share />}
      </header>
      <main>{page(place)}</main>
    </ClientContext.Provider>
  );
}

/** The page of a hub. */
function HubApp({ principal }: { principal: string }) {
  return (
    <>
      <header class="top">
        <a class="brand" href="./">execwire</a>
        <nav aria-label="Views"><a href="./" aria-current="page">Executors</a></nav>
        <span class="host" />
        <Account principal={principal} />
      </header>
      <main><Executors /></main>
    </>
  );
}

/** Who is signed in at the hub. */
function Account({ principal }: { principal: string }) {
  return (
    <span class="dim">
      {principal} <button class="quiet" onClick={() => void logout()}>Sign out</button>
    </span>
  );
}

function page(place: string) {
  const [, view = "", first = "", second = "", third = ""] = place.split("/");
  switch (view) {
    case "process":
      return <ProcessPage key={place} sessionId={decodeURIComponent(first)} id={decodeURIComponent(second)} tab={third} />;
    case "files":
      return <Files path={place.slice("/files".length).split("/").map(decodeURIComponent).join("/") || "/"} />;
    case "recordings":
      return <Recordings paths={second === "" ? [decodeURIComponent(first)] : [decodeURIComponent(first), decodeURIComponent(second)]} />;
    case "start":
      return <Start />;
    case "server":
      return <ServerPage />;
    case "audit":
      return <AuditPage />;
    default:
      return <Processes />;
  }
}

/** Shows a link for another browser. */
function Share() {
  const [link, setLink] = useState("");
  return link === "" ? (
    <button class="quiet" onClick={() => void newLink().then(setLink, (error: unknown) => setLink(messageOf(error)))}>Link for another browser</button>
  ) : (
    <input class="link" aria-label="A link that opens the console once" readOnly value={link} onFocus={(e) => e.currentTarget.select()} onBlur={() => setLink("")} ref={(e) => e?.focus()} />
  );
}

/** Connects, and says why if that is not possible. */
function Page() {
  const [state, setState] = useState<{ session: Session; server?: { client: Client; host: string } } | { problem: string } | undefined>();
  const show = async (session: Session) => {
    if (session.kind === "login" || (session.kind === "hub" && session.executor === undefined)) {
      setState({ session });
      return;
    }
    const client = await connectServer();
    const { hostName: host } = await client.describe();
    document.title = `${session.kind === "hub" ? session.executor : host} – Execwire`;
    setState({ session, server: { client, host } });
  };
  const failed = (error: unknown) => setState({ problem: error instanceof NoSession ? error.message : `The server cannot be reached: ${messageOf(error)}` });
  useEffect(() => void open().then(show).catch(failed), []);
  if (!state) {
    return <p class="note">Connecting…</p>;
  }
  if ("problem" in state) {
    return <p class="note" role="alert">{state.problem}</p>;
  }
  const { session, server } = state;
  if (session.kind === "login") {
    return <Login problem={session.problem} provider={session.provider} opened={(opened) => void show(opened).catch(failed)} />;
  }
  if (session.kind === "hub" && (session.executor === undefined || !server)) {
    return <HubApp principal={session.principal} />;
  }
  const hub = session.kind === "hub" && session.executor !== undefined ? { principal: session.principal, executor: session.executor } : undefined;
  return server ? <App {...server} hub={hub} /> : null;
}

render(<Page />, document.getElementById("root") as HTMLElement);
