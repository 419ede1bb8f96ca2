/** How many samples a plot shows, one every two seconds. */
export const maxSamples = 120;
/** The time between samples. */
export const sampleMs = 2_000;

/** A line of values over time, the last at the right. A value that is not known makes a gap in it. */
export function Plot({ name, values, show }: { name: string; values: readonly (number | undefined)[]; show: (value: number) => string }) {
  const known = values.filter((v) => v !== undefined);
  const most = Math.max(1e-9, ...known);
  const lines: string[][] = [[]];
  values.forEach((v, i) => {
    if (v === undefined) {
      lines.push([]);
    } else {
      lines.at(-1)?.push(`${((300 * (maxSamples - values.length + i)) / (maxSamples - 1)).toFixed(1)},${(58 - (54 * v) / most).toFixed(1)}`);
    }
  });
  const last = values.at(-1);
  const summary = known.length > 0 ? `at most ${show(Math.max(...known))}` : "nothing yet";
  return (
    <figure class="plot" data-samples={values.length}>
      <figcaption>{name}<strong>{last === undefined ? "–" : show(last)}</strong></figcaption>
      <svg viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label={`${name}, ${summary}`}>
        {lines.map((points, i) => (points.length > 1 ? <polyline key={i} points={points.join(" ")} vector-effect="non-scaling-stroke" /> : null))}
      </svg>
      <small>{values.length > 1 ? `${summary} in ${(values.length * sampleMs) / 1000} s` : "collecting…"}</small>
    </figure>
  );
}
