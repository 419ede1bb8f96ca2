import type { Client } from "execwire";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Files } from "./files.js";
import { messageOf } from "./format.js";
import { ClientContext, usePlace } from "./hooks.js";
import { ProcessPage } from "./process.js";
import { Processes } from "./processes.js";
import { ServerPage } from "./server.js";
import { NoSession, newLink, open } from "./session.js";
import { Start } from "./start.js";
import "./console.css";

const places = [
  ["/processes", "Processes"],
  ["/start", "Start"],
  ["/files/", "Files"],
  ["/server", "Server"],
] as const;

function App({ client, host }: { client: Client; host: string }) {
  const place = usePlace() || "/processes";
  return (
    <ClientContext.Provider value={client}>
      <header class="top">
        <a class="brand" href="#/processes">execwire</a>
        <nav aria-label="Views">
          {places.map(([to, name]) => (
            <a key={to} href={`#${to}`} aria-current={place.startsWith(to === "/processes" ? "/process" : to) ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <span class="host" title="The host of the server">{host}</span>
        <Share />
      </header>
      <main>{page(place)}</main>
    </ClientContext.Provider>
  );
}

function page(place: string) {
  const [, view = "", first = "", second = ""] = place.split("/");
  switch (view) {
    case "process":
      return <ProcessPage key={place} sessionId={decodeURIComponent(first)} id={decodeURIComponent(second)} />;
    case "files":
      return <Files path={place.slice("/files".length).split("/").map(decodeURIComponent).join("/") || "/"} />;
    case "start":
      return <Start />;
    case "server":
      return <ServerPage />;
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
  const [state, setState] = useState<{ client: Client; host: string } | { problem: string } | undefined>();
  useEffect(() => {
    void (async () => {
      try {
        const client = await open();
        const { hostName } = await client.describe();
        document.title = `${hostName} – Execwire`;
        setState({ client, host: hostName });
      } catch (error) {
        setState({ problem: error instanceof NoSession ? error.message : `The server cannot be reached: ${messageOf(error)}` });
      }
    })();
  }, []);
  if (!state) {
    return <p class="note">Connecting…</p>;
  }
  return "client" in state ? <App {...state} /> : <p class="note" role="alert">{state.problem}</p>;
}

render(<Page />, document.getElementById("root") as HTMLElement);
