import { create, type Player } from "asciinema-player";
import "asciinema-player/dist/bundle/asciinema-player.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf, size } from "./format.js";
import { useClient } from "./hooks.js";

/** The largest recording that is played: the player keeps all of it in memory. */
const maxBytes = 64 << 20;

/** Reports whether a file is taken for a recording. */
export function isRecording(path: string): boolean {
  return path.endsWith(".cast");
}

/** The place of the page that plays recordings of the server. */
export function recordingsPlace(...paths: readonly string[]): string {
  return `#/recordings/${paths.map(encodeURIComponent).join("/")}`;
}

/** Reports whether the first line is that of a recording: the player shows a picture where it is not, and does not say why. */
function isKnownVersion(content: string): boolean {
  try {
    const { version } = JSON.parse(content.split("\n", 1)[0] ?? "") as { version?: unknown };
    return version === 2 || version === 3;
  } catch {
    return false;
  }
}

/** A recording, played from its beginning or from where somebody goes. It is read once: another one needs another key. */
export function Recording({ read, autoPlay = false, ready }: {
  read: (signal: AbortSignal) => AsyncIterable<Uint8Array | string>;
  autoPlay?: boolean;
  ready?: (player: Player | undefined) => void;
}) {
  const place = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    let player: Player | undefined;
    void (async () => {
      const pieces: (Uint8Array | string)[] = [];
      let bytes = 0;
      for await (const piece of read(stop.signal)) {
        pieces.push(piece);
        bytes += piece.length;
        if (bytes > maxBytes) {
          throw new Error(`it has more than ${size(maxBytes)}: play it with execwire play`);
        }
      }
      const content = await new Blob(pieces as BlobPart[]).text();
      if (stop.signal.aborted || !place.current) {
        return;
      }
      if (!isKnownVersion(content)) {
        throw new Error("This is no recording in version 2 or 3 of the format of asciinema.");
      }
      player = create({ data: content }, place.current, { autoPlay, fit: "both", preload: true, terminalFontFamily: "var(--mono)" });
      ready?.(player);
    })().catch((e: unknown) => stop.signal.aborted || setProblem(messageOf(e)));
    return () => {
      stop.abort();
      ready?.(undefined);
      player?.dispose();
    };
  }, []);
  return (
    <div class="recording">
      {problem === "" ? null : <p class="problem" role="alert">{problem}</p>}
      <div class="player" ref={place} />
    </div>
  );
}

/** One recording, or two beside each other, which are played together. */
export function Recordings({ paths }: { paths: readonly [string, string?] }) {
  const client = useClient();
  const [first, second] = paths;
  const players = useRef(new Map<string, Player>());
  const [problem, setProblem] = useState("");
  const all = (act: (player: Player) => Promise<unknown>) => void Promise.all([...players.current.values()].map(act)).then(() => setProblem(""), (e: unknown) => setProblem(messageOf(e)));
  const shown = [first, ...(second === undefined ? [] : [second])];
  return (
    <section class="page">
      <div class="bar">
        <h1>{second === undefined ? "Recording" : "Recordings"}</h1>
        <span class="space" />
        {second === undefined ? null : (
          <>
            <button class="button" onClick={() => all((p) => p.play())}>Play both</button>
            <button class="button" onClick={() => all((p) => p.pause())}>Pause both</button>
            <button class="button" onClick={() => all((p) => p.seek(0))}>Both to the beginning</button>
          </>
        )}
        <form class="bar small" onSubmit={(e) => {
          e.preventDefault();
          const other = new FormData(e.currentTarget).get("other");
          location.hash = typeof other === "string" && other !== "" ? recordingsPlace(first, other) : recordingsPlace(first);
        }}>
          <input name="other" aria-label="The path of another recording" placeholder="Path of another recording" defaultValue={second ?? ""} />
          <button class="button">Compare</button>
        </form>
      </div>
      {problem === "" ? null : <p class="problem" role="alert">{problem}</p>}
      <div class="split">
        {shown.map((path, i) => (
          <figure key={`${i} ${path}`} class="recordings">
            <figcaption><code>{path}</code></figcaption>
            <Recording read={(signal) => client.files.download(path, { signal })} ready={(player) => (player ? players.current.set(`${i}`, player) : players.current.delete(`${i}`))} />
          </figure>
        ))}
      </div>
    </section>
  );
}
