/** A run of characters with the same look. */
export interface Span {
  readonly text: string;
  readonly classes: string;
  readonly color: string | undefined;
  readonly background: string | undefined;
}

/** The look of characters, as the last SGR sequences set it. */
interface Look {
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
  color: string | undefined;
  background: string | undefined;
}

const plain: Look = { bold: false, dim: false, italic: false, underline: false, inverse: false, color: undefined, background: undefined };
const steps = [0, 95, 135, 175, 215, 255];

/** Returns the colour with an index of the palette of 256. */
function indexed(n: number): string | undefined {
  if (n < 0 || n > 255) {
    return undefined;
  }
  if (n < 16) {
    return `var(--ansi-${n})`;
  }
  if (n >= 232) {
    const grey = 8 + (n - 232) * 10;
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const at = n - 16;
  return `rgb(${steps[Math.floor(at / 36)]} ${steps[Math.floor(at / 6) % 6]} ${steps[at % 6]})`;
}

function apply(look: Look, parameters: string): Look {
  const next = { ...look };
  const codes = parameters.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) Object.assign(next, plain);
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code === 39) next.color = undefined;
    else if (code === 49) next.background = undefined;
    else if (code >= 30 && code <= 37) next.color = indexed(code - 30);
    else if (code >= 90 && code <= 97) next.color = indexed(code - 82);
    else if (code >= 40 && code <= 47) next.background = indexed(code - 40);
    else if (code >= 100 && code <= 107) next.background = indexed(code - 92);
    else if (code === 38 || code === 48) {
      let color: string | undefined;
      if (codes[i + 1] === 5) {
        color = indexed(codes[i + 2] ?? -1);
        i += 2;
      } else if (codes[i + 1] === 2) {
        color = `rgb(${[2, 3, 4].map((k) => Math.min(255, Math.max(0, codes[i + k] || 0))).join(" ")})`;
        i += 4;
      }
      if (code === 38) next.color = color;
      else next.background = color;
    }
  }
  return next;
}

// A sequence: CSI, OSC or another string, or a short escape. What is not complete is dropped, too.
const sequence = /\x1b(?:\[([0-?]*)[ -/]*([@-~]?)|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)/g;
// Other control characters but the tab.
const controls = /[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]/g;

/**
 * Divides a line into runs by its SGR sequences. Other sequences and control characters are left out. The look at
 * the begin of a line is the default: each line can be shown without those before it.
 */
export function spans(line: string): Span[] {
  const found: Span[] = [];
  let look = plain;
  let from = 0;
  const add = (text: string) => {
    const visible = text.replace(controls, "");
    if (visible === "") {
      return;
    }
    const { bold, dim, italic, underline, inverse, color, background } = look;
    found.push({
      text: visible,
      classes: [bold && "b", dim && "d", italic && "i", underline && "u"].filter(Boolean).join(" "),
      color: inverse ? (background ?? "var(--back)") : color,
      background: inverse ? (color ?? "var(--text)") : background,
    });
  };
  if (!line.includes("\x1b")) {
    add(line);
    return found;
  }
  for (const match of line.matchAll(sequence)) {
    add(line.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") {
      look = apply(look, match[1] ?? "");
    }
  }
  add(line.slice(from));
  return found;
}

/** Returns the text of a line without sequences and control characters. */
export function textOf(line: string): string {
  return spans(line).map((s) => s.text).join("");
}
