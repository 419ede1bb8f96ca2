import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { spans, textOf } from "./ansi.js";
import { messageOf } from "./format.js";
import { useClient } from "./hooks.js";
import { type Line, Lines } from "./lines.js";
import { saveAs } from "./save.js";

/** The height of a row in pixels, as in console.css. */
const rowHeight = 18;
/** How many rows are drawn beyond the visible ones. */
const spareRows = 20;

/** A row: a line, or with wrapping a part of one. */
interface Row {
  readonly line: Line;
  readonly from: number;
  readonly to: number;
}

/** Adds the rows of the lines from an index on. */
function addRows(rows: Row[], lines: readonly Line[], from: number, columns: number): void {
  for (let i = from; i < lines.length; i++) {
    const line = lines[i] as Line;
    const length = line.text.length;
    if (columns === 0 || length <= columns || line.text.includes("\x1b")) {
      rows.push({ line, from: 0, to: length });
      continue;
    }
    for (let at = 0; at < length; at += columns) {
      rows.push({ line, from: at, to: Math.min(length, at + columns) });
    }
  }
}

/** The output of a process, followed while it runs. Only visible rows are in the document. */
export function Output({ id, sessionId }: { id: string; sessionId: string }) {
  const client = useClient();
  const view = useRef<HTMLDivElement>(null);
  const lines = useMemo(() => new Lines(), [id, sessionId]);
  const [, redraw] = useState(0);
  const [scroll, setScroll] = useState({ top: 0, height: 600, width: 800 });
  const [following, setFollowing] = useState(true);
  const [wrap, setWrap] = useState(false);
  const [times, setTimes] = useState(false);
  const [search, setSearch] = useState("");
  const [hit, setHit] = useState(-1);
  const [problem, setProblem] = useState("");
  const cache = useRef<{ rows: Row[]; lines: number; dropped: number; columns: number }>({ rows: [], lines: 0, dropped: 0, columns: 0 });

  useEffect(() => {
    const stop = new AbortController();
    let planned = false;
    const plan = () => {
      if (!planned) {
        planned = true;
        requestAnimationFrame(() => {
          planned = false;
          redraw((n) => n + 1);
        });
      }
    };
    void (async () => {
      try {
        let sinceFrame = performance.now();
        for await (const event of client.follow(id, { sessionId, signal: stop.signal })) {
          lines.add(event);
          plan();
          if (performance.now() - sinceFrame > 12) {
            await new Promise((resolve) => setTimeout(resolve)); // the page draws and reacts
            sinceFrame = performance.now();
          }
        }
      } catch (error) {
        if (!stop.signal.aborted) {
          setProblem(messageOf(error));
        }
      }
      plan();
    })();
    return () => stop.abort();
  }, [client, id, sessionId]);

  useEffect(() => {
    const element = view.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setScroll((s) => ({ ...s, height: element.clientHeight, width: element.clientWidth })));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const columns = wrap ? Math.max(20, Math.floor((scroll.width - (times ? 120 : 24)) / 7.83)) : 0;
  const c = cache.current;
  if (c.columns !== columns) {
    c.rows = [];
    c.lines = 0;
    c.columns = columns;
  } else if (c.dropped !== lines.dropped) {
    const kept = c.rows.findIndex((r) => r.line === lines.all[0]);
    c.rows.splice(0, kept < 0 ? c.rows.length : kept);
    c.lines = kept < 0 ? 0 : c.lines - (lines.dropped - c.dropped);
  }
  c.dropped = lines.dropped;
  addRows(c.rows, lines.all, c.lines, columns);
  c.lines = lines.all.length;
  const tail: Row[] = [];
  addRows(tail, lines.pending, 0, columns);
  const total = c.rows.length + tail.length;

  useLayoutEffect(() => {
    const element = view.current as HTMLDivElement;
    if (following) {
      element.scrollTop = element.scrollHeight;
    }
  }, [following, total, scroll.height]);

  const first = Math.max(0, Math.min(total, Math.floor(scroll.top / rowHeight)) - spareRows);
  const last = Math.min(total, first + Math.ceil(scroll.height / rowHeight) + 2 * spareRows);
  const visible: JSX.Element[] = [];
  for (let i = first; i < last; i++) {
    const row = (i < c.rows.length ? c.rows[i] : tail[i - c.rows.length]) as Row;
    visible.push(<RowView key={i} row={row} times={times} search={search} hit={i === hit} />);
  }

  const find = (step: 1 | -1) => {
    const wanted = search.toLowerCase();
    if (wanted === "") {
      return;
    }
    const start = hit >= 0 ? hit + step : step > 0 ? Math.floor(scroll.top / rowHeight) : total - 1;
    for (let n = 0, i = start; n < c.rows.length; n++, i += step) {
      const at = ((i % c.rows.length) + c.rows.length) % c.rows.length;
      const { line, from, to } = c.rows[at] as Row;
      if (textOf(line.text).slice(from, to).toLowerCase().includes(wanted)) {
        setHit(at);
        setFollowing(false);
        const element = view.current as HTMLDivElement;
        element.scrollTop = Math.max(0, at * rowHeight - scroll.height / 2);
        return;
      }
    }
    setHit(-1);
  };
  const save = () => saveAs(id, "log", new Blob(lines.all.map((l) => `${textOf(l.text)}\n`), { type: "text/plain" }));

  return (
    <div class="output">
      <div class="bar small">
        <input type="search" placeholder="Find in the output" aria-label="Find in the output" value={search}
          onInput={(e) => (setSearch(e.currentTarget.value), setHit(-1))}
          onKeyDown={(e) => e.key === "Enter" && find(e.shiftKey ? -1 : 1)} />
        <button class="quiet" onClick={() => find(-1)} aria-label="Previous match">↑</button>
        <button class="quiet" onClick={() => find(1)} aria-label="Next match">↓</button>
        <label><input type="checkbox" checked={following} onChange={(e) => setFollowing(e.currentTarget.checked)} /> follow</label>
        <label><input type="checkbox" checked={wrap} onChange={(e) => setWrap(e.currentTarget.checked)} /> wrap</label>
        <label><input type="checkbox" checked={times} onChange={(e) => setTimes(e.currentTarget.checked)} /> times</label>
        <span class="count" role="status" data-lines={lines.all.length + lines.dropped}>{`${(lines.all.length + lines.dropped).toLocaleString("en")} lines`}</span>
        <button class="quiet" onClick={save}>Download</button>
      </div>
      {problem === "" ? null : <p class="problem" role="alert">{problem}</p>}
      <div class="lines" ref={view} tabIndex={0} role="log" aria-label="Output"
        onScroll={(e) => {
          const { scrollTop, clientHeight, scrollHeight, clientWidth } = e.currentTarget;
          setScroll({ top: scrollTop, height: clientHeight, width: clientWidth });
          const atEnd = scrollTop + clientHeight >= scrollHeight - rowHeight;
          if (!atEnd && scrollTop < scroll.top) {
            setFollowing(false);
          }
        }}>
        {lines.dropped > 0 && first === 0 ? <div class="row note-row">{lines.dropped.toLocaleString("en")} earlier lines are not kept by this page</div> : null}
        <div style={{ height: `${first * rowHeight}px` }} />
        {visible}
        <div style={{ height: `${(total - last) * rowHeight}px` }} />
      </div>
    </div>
  );
}

/** One row. Its text never becomes HTML. */
function RowView({ row, times, search, hit }: { row: Row; times: boolean; search: string; hit: boolean }) {
  const { line, from, to } = row;
  const whole = from === 0 && to === line.text.length;
  const parts = spans(whole ? line.text : line.text.slice(from, to));
  return (
    <div class={`row ${line.kind}${hit ? " hit" : ""}`}>
      {times ? <time>{from === 0 && line.time ? line.time.toISOString().slice(11, 23) : ""}</time> : null}
      {line.kind === "stderr" ? <span class="mark" title="stderr">!</span> : null}
      {parts.map((s, i) => (
        <span key={i} class={s.classes} style={s.color || s.background ? { color: s.color, backgroundColor: s.background } : undefined}>{marked(s.text, search)}</span>
      ))}
    </div>
  );
}

/** Divides text where it matches the search, and makes links of URLs. */
function marked(text: string, search: string): (string | JSX.Element)[] | string {
  if (search === "") {
    return linked(text);
  }
  const found: (string | JSX.Element)[] = [];
  const lower = text.toLowerCase();
  const wanted = search.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0 && wanted !== ""; at = lower.indexOf(wanted, from)) {
    found.push(text.slice(from, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>);
    from = at + wanted.length;
  }
  found.push(text.slice(from));
  return found;
}

const link = /https?:\/\/[^\s"'<>\\^`{|}]+[^\s"'<>\\^`{|}.,;:!?)\]]/g;

function linked(text: string): (string | JSX.Element)[] | string {
  if (!text.includes("://")) {
    return text;
  }
  const found: (string | JSX.Element)[] = [];
  let from = 0;
  for (const match of text.matchAll(link)) {
    found.push(text.slice(from, match.index), <a key={match.index} href={match[0]} target="_blank" rel="noopener noreferrer">{match[0]}</a>);
    from = match.index + match[0].length;
  }
  found.push(text.slice(from));
  return found;
}
