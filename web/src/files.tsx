import type { WalkEntry } from "execwire";
import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf, mode, shownTime, size } from "./format.js";
import { useClient, usePoll } from "./hooks.js";
import { isRecording, Recording, recordingsPlace } from "./recordings.js";
import { fileUrl, upload } from "./uploads.js";

/** How much of a file is shown. */
const previewBytes = 512 << 10;
const imageBytes = 16 << 20;
const images = /\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i;
/** The most entries of a directory that are shown. */
const maxEntries = 5000;

function join(directory: string, name: string): string {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

function placeOf(path: string): string {
  return `#/files${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** A directory of the server: its entries, and one of them in more detail. */
export function Files({ path }: { path: string }) {
  const client = useClient();
  const directory = path.replace(/\/+$/, "") || "/";
  const [selected, setSelected] = useState<WalkEntry | undefined>();
  const [problem, setProblem] = useState("");
  const [over, setOver] = useState(false);
  const [transfers, setTransfers] = useState<readonly Transfer[]>([]);
  const chooser = useRef<HTMLInputElement>(null);
  useEffect(() => setSelected(undefined), [directory]);
  const { value, error, again } = usePoll(async (signal) => {
    const entries: WalkEntry[] = [];
    for await (const entry of client.files.walk(directory, { maxDepth: 0, metadata: true, signal })) {
      entries.push(entry);
      if (entries.length > maxEntries) {
        break;
      }
    }
    const rank = (e: WalkEntry) => (isDirectory(e) ? 0 : 1);
    return entries.sort((a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1));
  }, 5_000, [client, directory]);
  const act = (what: Promise<unknown>) => void what.then(() => (setProblem(""), again()), (e: unknown) => setProblem(messageOf(e)));
  const send = (files: Iterable<File>) => {
    for (const file of files) {
      const transfer: Transfer = { name: file.name, size: file.size, sent: 0, problem: "", done: false, stop: new AbortController() };
      const change = (more: Partial<Transfer>) => setTransfers((all) => all.map((t) => (t.stop === transfer.stop ? { ...t, ...more } : t)));
      setTransfers((all) => [...all, transfer]);
      upload(join(directory, file.name), file, (sent) => change({ sent }), transfer.stop.signal).then(
        () => (change({ done: true, sent: file.size }), again()),
        (e: unknown) => change({ problem: messageOf(e) }),
      );
    }
  };
  const crumbs = directory === "/" ? [] : directory.slice(1).split("/");
  return (
    <section class="page">
      <div class="bar">
        <h1 class="crumbs">
          <a href={placeOf("/")}>/</a>
          {crumbs.map((name, i) => <span key={i}><a href={placeOf(`/${crumbs.slice(0, i + 1).join("/")}`)}>{name}</a>/</span>)}
        </h1>
        <span class="space" />
        <button class="button" onClick={() => {
          const name = prompt("The name of the new directory");
          if (name) {
            act(client.files.mkdir(join(directory, name)));
          }
        }}>New directory</button>
        <button class="button" onClick={() => chooser.current?.click()}>Upload…</button>
        <input ref={chooser} id="upload" type="file" multiple hidden onChange={(e) => {
          send([...(e.currentTarget.files ?? [])]);
          e.currentTarget.value = "";
        }} />
      </div>
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      {problem === "" ? null : <p class="problem" role="alert">{problem}</p>}
      {transfers.map((t, i) => (
        <p key={i} class="transfer" role="status">
          <progress max={Math.max(1, t.size)} value={t.size === 0 && t.done ? 1 : t.sent} aria-label={t.name} />
          <span>{t.problem !== "" ? `${t.name}: ${t.problem}` : `${t.name}: ${size(t.sent)} of ${size(t.size)}${t.done ? ", done" : ""}`}</span>
          <button class="quiet" onClick={() => (t.stop.abort(), setTransfers((all) => all.filter((other) => other.stop !== t.stop)))}>{t.done || t.problem ? "Dismiss" : "Cancel"}</button>
        </p>
      ))}
      <div class={`split${over ? " drop" : ""}`}
        onDragOver={(e) => (e.preventDefault(), setOver(true))} onDragLeave={() => setOver(false)}
        onDrop={(e) => (e.preventDefault(), setOver(false), send([...(e.dataTransfer?.files ?? [])]))}>
        <div class="scroll" tabIndex={0} role="region" aria-label="Entries">
          <table class="grid">
            <thead><tr><th>Name</th><th>Size</th><th>Modified</th><th>Mode</th></tr></thead>
            <tbody>
              {(value ?? []).slice(0, maxEntries).map((e) => (
                <tr key={e.path} class={selected?.path === e.path ? "selected" : ""}>
                  <td class="wide">
                    {isDirectory(e)
                      ? <a class="directory" href={placeOf(join(directory, e.path))}>{e.path}/</a>
                      : <button class="name" onClick={() => setSelected(e)}>{e.path}</button>}
                    {e.linkTarget ? <span class="dim"> → {e.linkTarget}</span> : null}
                  </td>
                  <td class="number">{isDirectory(e) || !e.metadata ? "" : size(e.metadata.size)}</td>
                  <td class="number">{shownTime(e.metadata?.modifyTime)}</td>
                  <td><code>{e.metadata ? mode(e.metadata.mode) : ""}</code></td>
                </tr>
              ))}
            </tbody>
          </table>
          {value?.length === 0 ? <p class="note">The directory is empty. Drop files here to upload them.</p> : null}
          {value && value.length > maxEntries ? <p class="note">Only {maxEntries} entries are shown.</p> : null}
        </div>
        {selected ? (
          <Preview key={selected.path} path={join(directory, selected.path)} entry={selected} close={() => setSelected(undefined)}
            rename={() => {
              const name = prompt("The new name", selected.path);
              if (name && name !== selected.path) {
                act(client.files.rename(join(directory, selected.path), join(directory, name), { noReplace: true }));
                setSelected(undefined);
              }
            }}
            remove={() => {
              if (confirm(`Delete ${join(directory, selected.path)}?`)) {
                act(client.files.remove(join(directory, selected.path)));
                setSelected(undefined);
              }
            }} />
        ) : null}
      </div>
    </section>
  );
}

/** An upload of this page. */
interface Transfer {
  readonly name: string;
  readonly size: number;
  readonly sent: number;
  readonly problem: string;
  readonly done: boolean;
  readonly stop: AbortController;
}

function isDirectory(e: WalkEntry): boolean {
  return e.type === "directory";
}

/** A file: its beginning or its picture, and what can be done with it. */
function Preview({ path, entry, close, rename, remove }: { path: string; entry: WalkEntry; close: () => void; rename: () => void; remove: () => void }) {
  const client = useClient();
  const [text, setText] = useState<string | undefined>();
  const [image, setImage] = useState("");
  const [problem, setProblem] = useState("");
  const length = Number(entry.metadata?.size ?? 0n);
  useEffect(() => {
    if (isRecording(path)) {
      return undefined;
    }
    const stop = new AbortController();
    let url = "";
    const asImage = images.test(path) && length <= imageBytes;
    void (async () => {
      const pieces: Uint8Array[] = [];
      for await (const piece of client.files.download(path, { length: asImage ? imageBytes : previewBytes, signal: stop.signal })) {
        pieces.push(piece);
      }
      const content = new Blob(pieces as BlobPart[]);
      if (asImage) {
        url = URL.createObjectURL(content);
        setImage(url);
        return;
      }
      const bytes = new Uint8Array(await content.arrayBuffer());
      setText(bytes.subarray(0, 4096).includes(0) ? undefined : new TextDecoder().decode(bytes));
      setProblem(bytes.subarray(0, 4096).includes(0) ? "This is not text." : "");
    })().catch((e: unknown) => stop.signal.aborted || setProblem(messageOf(e)));
    return () => {
      stop.abort();
      URL.revokeObjectURL(url);
    };
  }, [path]);
  return (
    <aside class="preview" aria-label={`File ${entry.path}`}>
      <div class="bar small">
        <strong>{entry.path}</strong>
        <span class="space" />
        {isRecording(path) ? <a class="button" href={recordingsPlace(path)}>Compare…</a> : null}
        <a class="button" href={fileUrl(path)} download={entry.path}>Download</a>
        <button class="button" onClick={rename}>Rename…</button>
        <button class="button danger" onClick={remove}>Delete…</button>
        <button class="quiet" onClick={close} aria-label="Close">✕</button>
      </div>
      {problem === "" ? null : <p class="note">{problem}</p>}
      {isRecording(path) ? <Recording key={path} read={(signal) => client.files.download(path, { signal })} /> : null}
      {image === "" ? null : <img src={image} alt={entry.path} />}
      {text === undefined ? null : <pre tabIndex={0}>{text}</pre>}
      {text !== undefined && length > previewBytes ? <p class="note">The first {size(previewBytes)} of {size(length)}.</p> : null}
    </aside>
  );
}
