// usage: node draw.mjs PROMETHEUS FROM TO DASHBOARD.json PICTURE.png...
// Draws dashboards of Grafana with the answers that a Prometheus has for their queries, for
// a range of Unix times. Reports panels that show nothing.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';

const [prometheus, from, to, ...files] = process.argv.slice(2);
const width = 1500;
const step = 5; // seconds, as the interval of scrapes

async function ask(path, parameters) {
  const response = await fetch(`${prometheus}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const { status, data, error } = await response.json();
  if (status !== 'success') throw new Error(`${JSON.stringify(parameters)}: ${error}`);
  return data;
}

// valuesOf evaluates the variables of a dashboard, all of which have the value All.
async function valuesOf(board) {
  const values = { $__rate_interval: `${4 * step}s` };
  for (const { name, query } of board.templating.list.filter((v) => v.type === 'query')) {
    const [, selector, label] = /^label_values\((.*), (\w+)\)$/.exec(query);
    const found = await ask(`label/${label}/values`, { 'match[]': replaced(selector, values), start: from, end: to });
    values[`$${name}`] = `(${found.join('|')})`;
  }
  return values;
}

const replaced = (text, values) => text.replace(/\$\w+/g, (name) => values[name] ?? name);

async function answer({ expr, legendFormat, refId }, values) {
  const { result } = await ask('query_range', { query: replaced(expr, values), start: from, end: to, step });
  return { series: result, legend: legendFormat, refId };
}

const work = mkdtempSync(join(tmpdir(), 'dashboards-'));
try {
  const { outputFiles } = await build({
    entryPoints: [join(import.meta.dirname, 'page.jsx')], bundle: true, write: false, outdir: work, minify: true, logLevel: 'error',
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    loader: { '.svg': 'dataurl', '.png': 'dataurl', '.ttf': 'empty' },
  });
  const [script, css] = ['.js', '.css'].map((suffix) => outputFiles.find((file) => file.path.endsWith(suffix)).text);
  for (let i = 0; i < files.length; i += 2) {
    const board = { ...JSON.parse(readFileSync(files[i], 'utf8')), from: Number(from), to: Number(to) };
    const values = await valuesOf(board);
    for (const panel of board.panels.filter((p) => p.targets)) {
      panel.answers = await Promise.all(panel.targets.map((target) => answer(target, values)));
      if (panel.answers.every(({ series }) => series.length === 0)) console.error(`${files[i]}: ${panel.title} has no data`);
    }
    const height = 60 + 38 * Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
    const page = join(work, 'page.html');
    writeFileSync(page, `<!doctype html><meta charset="utf-8"><style>${css}</style><body><div id="root"></div><script>window.board=${JSON.stringify(board).replaceAll('<', '\\u003c')};</script>` +
      `<script>${script.replaceAll('</script', '<\\/script')}</script>`);
    execFileSync('chromium', ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--hide-scrollbars', `--user-data-dir=${join(work, 'profile')}`, `--window-size=${width},${height}`, '--virtual-time-budget=5000',
      `--screenshot=${join(work, 'picture.png')}`, `file://${page}`], { stdio: ['ignore', 'ignore', process.env.DEBUG ? 'inherit' : 'ignore'] });
    execFileSync('pngquant', ['--force', '--strip', '--output', files[i + 1], '64', join(work, 'picture.png')]);
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
