import type { ProcessEvent, StreamName } from "execwire";
import { size } from "./format.js";

/** A line of output, or a note of the page. */
export interface Line {
  readonly text: string;
  readonly kind: StreamName | "note";
  readonly time: Date | undefined;
}

/** Longer lines are divided, so that one line cannot stop the page. */
const maxLine = 8_000;
/** How much of the output the page keeps, in lines and in characters. */
const maxLines = 500_000;
const maxCharacters = 128 << 20;
/** How many lines go at once when there are too many. */
const dropLines = 10_000;

/** The output of a process by line, as far as the page keeps it. */
export class Lines {
  /** The lines, the oldest first. */
  all: Line[] = [];
  /** How many lines the page has dropped before them. */
  dropped = 0;
  private characters = 0;
  private readonly open = new Map<StreamName, { text: string; decoder: TextDecoder; time: Date | undefined }>();

  /** Adds an event. */
  add(event: ProcessEvent): void {
    switch (event.type) {
      case "output":
        this.output(event.stream, event.data, event.readTime);
        return;
      case "gap":
        this.flush();
        this.push({ text: `${event.upperBound ? "up to " : ""}${size(event.droppedBytes)} of output are missing here${event.cause === "limit" || event.cause === "unknown" ? "" : ` (${event.cause.replace("_", " ")})`}`, kind: "note", time: undefined });
        return;
      case "exited":
        return;
      case "closed":
        this.flush();
    }
  }

  private output(stream: StreamName, data: Uint8Array, time: Date | undefined): void {
    let state = this.open.get(stream);
    if (!state) {
      state = { text: "", decoder: new TextDecoder(), time };
      this.open.set(stream, state);
    }
    state.text += state.decoder.decode(data, { stream: true });
    let from = 0;
    for (let at = state.text.indexOf("\n"); at >= 0; at = state.text.indexOf("\n", from)) {
      this.line(state.text.slice(from, at), stream, from === 0 ? (state.time ?? time) : time);
      from = at + 1;
    }
    let rest = from === 0 ? state.text : state.text.slice(from);
    while (rest.length > maxLine) {
      this.push({ text: rest.slice(0, maxLine), kind: stream, time });
      rest = rest.slice(maxLine);
    }
    state.time = from === 0 && state.text !== "" ? (state.time ?? time) : time;
    state.text = rest;
  }

  /** Adds a whole line. What a carriage return overwrites is left out. */
  private line(text: string, kind: StreamName, time: Date | undefined): void {
    const ended = text.endsWith("\r") ? text.slice(0, -1) : text;
    let visible = ended.slice(ended.lastIndexOf("\r") + 1);
    while (visible.length > maxLine) {
      this.push({ text: visible.slice(0, maxLine), kind, time });
      visible = visible.slice(maxLine);
    }
    this.push({ text: visible, kind, time });
  }

  /** Adds lines that have not ended. */
  private flush(): void {
    for (const [stream, state] of this.open) {
      if (state.text !== "") {
        this.line(state.text, stream, state.time);
        state.text = "";
      }
    }
  }

  private push(line: Line): void {
    this.all.push(line);
    this.characters += line.text.length;
    if (this.all.length > maxLines || this.characters > maxCharacters) {
      const gone = this.all.splice(0, Math.min(dropLines, Math.ceil(this.all.length / 2)));
      this.dropped += gone.length;
      for (const { text } of gone) {
        this.characters -= text.length;
      }
    }
  }

  /** The line that has not ended yet, to be shown after the others. */
  get pending(): Line[] {
    return [...this.open].flatMap(([kind, { text, time }]) => (text === "" ? [] : [{ text: text.slice(text.lastIndexOf("\r") + 1), kind, time }]));
  }
}
