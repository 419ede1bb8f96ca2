import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { SerializeAddon } from "@xterm/addon-serialize";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITheme, Terminal as Xterm } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import type { Client } from "execwire";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { messageOf } from "./format.js";
import { useClient } from "./hooks.js";
import { saveAs } from "./save.js";

const dark: ITheme = { background: "#0f1216", foreground: "#d8dee6", cursor: "#d8dee6", selectionBackground: "#34506e" };
const light: ITheme = {
  background: "#ffffff", foreground: "#1c2126", cursor: "#1c2126", selectionBackground: "#b9d6f2",
  black: "#1c2126", red: "#b3261e", green: "#1a6e2e", yellow: "#7a5b00", blue: "#0b57a4", magenta: "#8a2a86", cyan: "#00697a", white: "#5f6870",
  brightBlack: "#5f6870", brightRed: "#b3261e", brightGreen: "#1a6e2e", brightYellow: "#7a5b00", brightBlue: "#0b57a4", brightMagenta: "#8a2a86", brightCyan: "#00697a", brightWhite: "#1c2126",
};

/** Keys that a person typed, sent in order: those that are typed during a call make the next one. */
class Keyboard {
  private pending: Uint8Array[] = [];
  private sending = false;
  private readonly prefix = crypto.getRandomValues(new Uint32Array(2)).join("-");
  private writes = 0;

  constructor(private readonly client: Client, private readonly process: { sessionId: string; processId: string }, private readonly failed: (error: unknown) => void) {}

  type(data: Uint8Array): void {
    this.pending.push(data);
    if (!this.sending) {
      this.sending = true;
      void this.send().finally(() => {
        this.sending = false;
      });
    }
  }

  private async send(): Promise<void> {
    while (this.pending.length > 0) {
      const data = new Uint8Array(await new Blob(this.pending.splice(0, 256) as BlobPart[]).arrayBuffer());
      for (let at = 0; at < data.length; at += 32 << 10) {
        const writeId = `${this.prefix}-${this.writes++}`;
        try {
          // A write with an id is applied once, however often it is sent.
          await this.repeat(() => this.client.stubs.processes.writeStdin({ ...this.process, data: data.subarray(at, at + (32 << 10)), writeId }));
        } catch (error) {
          this.pending = [];
          this.failed(error);
          return;
        }
      }
    }
  }

  private async repeat(call: () => Promise<unknown>): Promise<void> {
    for (let pause = 200; ; pause = Math.min(5_000, 2 * pause)) {
      try {
        await call();
        return;
      } catch (error) {
        const code = (error as { code?: number }).code;
        if (code !== 14 && code !== undefined) {
          throw error;
        }
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }
}

/**
 * The terminal of a process. The page neither owns nor blocks the process: several people can use it at once. It
 * has the size of the window in which somebody typed last. What a page has missed is painted anew.
 */
export function Terminal({ id, sessionId, ended }: { id: string; sessionId: string; ended: boolean }) {
  const client = useClient();
  const place = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  const search = useMemo(() => new SearchAddon(), [client, id, sessionId]);
  const serialize = useMemo(() => new SerializeAddon(), [client, id, sessionId]);
  useEffect(() => {
    const stop = new AbortController();
    const process = { sessionId, processId: id };
    const scheme = matchMedia("(prefers-color-scheme: light)");
    const terminal = new Xterm({
      allowProposedApi: true, cursorBlink: true, scrollback: 10_000, fontSize: 13, theme: scheme.matches ? light : dark,
      fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace", minimumContrastRatio: 4.5,
      screenReaderMode: false, disableStdin: ended,
    });
    const recolor = () => (terminal.options.theme = scheme.matches ? light : dark);
    scheme.addEventListener("change", recolor);
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.loadAddon(search);
    terminal.loadAddon(serialize);
    terminal.loadAddon(new Unicode11Addon());
    terminal.unicode.activeVersion = "11";
    terminal.loadAddon(new WebLinksAddon((_event, uri) => void window.open(uri, "_blank", "noopener,noreferrer")));
    terminal.open(place.current as HTMLDivElement);
    fit.fit();
    (place.current as HTMLDivElement & { terminal?: Xterm }).terminal = terminal;
    if (!ended) {
      terminal.focus();
    }
    const keyboard = new Keyboard(client, process, (error) => setProblem(messageOf(error)));
    let sized = "";
    const resize = () => {
      const wanted = `${terminal.rows}x${terminal.cols}`;
      if (wanted !== sized && !ended) {
        sized = wanted;
        client.stubs.processes.resizeTerminal({ ...process, size: { rows: terminal.rows, columns: terminal.cols } }).catch(() => {
          sized = ""; // the next key tries again
        });
      }
    };
    // A terminal answers requests of the program. Requests in earlier output were answered then.
    let live = false;
    let early = ""; // keys that were pressed before
    terminal.onKey(({ key }) => {
      if (!live) {
        early += key;
      }
    });
    terminal.onData((data) => {
      if (live && document.activeElement === terminal.textarea) {
        resize();
        keyboard.type(new TextEncoder().encode(data));
      }
    });
    terminal.onBinary((data) => keyboard.type(Uint8Array.from(data, (c) => c.charCodeAt(0))));
    const observer = new ResizeObserver(() => {
      fit.fit();
      if (document.activeElement === terminal.textarea) {
        resize();
      }
    });
    observer.observe(place.current as HTMLDivElement);
    // The terminal paces the reader.
    const show = (data: Uint8Array | string) => new Promise<void>((resolve) => terminal.write(data, resolve));
    void (async () => {
      try {
        resize();
        // Earlier output is only for scrolling back: what it shows depends on the sizes that the terminal had.
        for (let missed = false, over = false; !over; missed = true) {
          live = false;
          const { screen, repaint } = await client.stubs.processes.getScreen({ ...process, repaint: true }, { signal: stop.signal });
          const shown = Number(screen?.seq ?? 0n);
          let painted = missed || shown === 0 || screen?.alternate === true;
          const paint = async () => {
            await show(repaint);
            live = true;
            if (early !== "") {
              resize();
              keyboard.type(new TextEncoder().encode(early));
              early = "";
            }
          };
          if (painted) {
            await paint();
          }
          over = true;
          for await (const event of client.follow(id, { sessionId, afterSeq: painted ? shown : 0, signal: stop.signal })) {
            if (event.type === "gap") {
              over = false;
              break;
            }
            if (event.type === "output") {
              await show(event.data);
            }
            if (!painted && event.seq >= shown) {
              painted = true;
              await paint();
            }
          }
        }
        terminal.options.disableStdin = true;
        terminal.options.cursorBlink = false;
        await show("\x1b[?25l");
      } catch (error) {
        if (!stop.signal.aborted) {
          setProblem(messageOf(error));
        }
      }
    })();
    return () => {
      stop.abort();
      observer.disconnect();
      scheme.removeEventListener("change", recolor);
      terminal.dispose();
    };
  }, [client, id, sessionId]);
  return (
    <div class="terminal">
      {problem === "" ? null : <p class="problem" role="alert">{problem}</p>}
      <div class="bar small">
        <input type="search" placeholder="Search" aria-label="Search in the terminal" onKeyDown={(e) => {
          if (e.key === "Enter") {
            const what = e.currentTarget.value;
            if (!(e.shiftKey ? search.findPrevious(what) : search.findNext(what))) {
              search.clearDecorations();
            }
          }
        }} />
        <span class="space" />
        <button class="button" onClick={() => saveAs(id, "html", new Blob([serialize.serializeAsHTML({ includeGlobalBackground: true })], { type: "text/html" }))}>Save as HTML</button>
      </div>
      <div class="xterm-place" ref={place} />
    </div>
  );
}
