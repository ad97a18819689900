// Runs web-platform-tests' webnn/ with webnn_vk:
//
//     npm run wpt -- PATH [--json FILE] [--jobs N] [--verbose] [FILTER…]
//
// PATH is a checkout of web-platform-tests. A FILTER keeps the tests whose "file?variant" has it.
// Files run as they are, each variant in a thread of its own with its own bridge. `?cpu` runs on
// the CPU device, other variants on Vulkan, or on the device that WEBNN_VK_DEVICE names.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { connect } from '../lib/node.js';

const CLONE = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
// Seconds per file, as META says; a software device is slower than what the suite has in mind.
const TIMEOUTS = { normal: 300, long: 1200 };

function usage(message) {
  console.error(`${message}\nnpm run wpt -- PATH [--json FILE] [--jobs N] [--verbose] [FILTER…]`);
  process.exit(2);
}

function findRoot(given) {
  for (const folder of [given, path.dirname(given)]) {
    if (fs.existsSync(path.join(folder, 'resources/testharness.js'))) return folder;
  }
  return usage(`${given}: no checkout of web-platform-tests (no resources/testharness.js)`);
}

/** The test files below webnn/, sorted; pages are for browsers. */
function findFiles(root) {
  const names = fs.readdirSync(path.join(root, 'webnn'), { recursive: true }).sort();
  return {
    scripts: names.filter((name) => /\.(any|window|worker)\.js$/.test(name)).map((n) => `webnn/${n}`),
    pages: names.filter((name) => /\.html$/.test(name)),
  };
}

/** The runs of a file: each of its variants, in each kind of global scope. */
function runsOf(root, file) {
  const source = fs.readFileSync(path.join(root, file), 'utf8');
  const meta = (key) => [...source.matchAll(new RegExp(`^// META: ${key}=(.*)$`, 'gm'))].map((m) => m[1].trim());
  const variants = meta('variant');
  let kinds = ['window'];
  if (file.endsWith('.worker.js')) kinds = ['worker'];
  else if (file.endsWith('.any.js')) {
    const globals = (meta('global')[0] ?? 'window,dedicatedworker').split(',').map((g) => g.trim());
    kinds = ['window', 'worker'].filter((kind) =>
      globals.some((g) => g === kind || (kind === 'worker' && g === 'dedicatedworker')));
  }
  const seconds = meta('timeout').includes('long') ? TIMEOUTS.long : TIMEOUTS.normal;
  return kinds.flatMap((kind) => (variants.length ? variants : ['']).map((variant) => (
    { root, file, kind, variant, seconds })));
}

/** Where a run stands in the results: workers are told apart from windows. */
const variantOf = ({ kind, variant }) => (kind === 'worker' ? `.worker${variant}` : variant);

function environment(variant) {
  const env = { ...process.env };
  if (!env.WEBNN_VK_PYTHON) {
    const python = path.join(CLONE, '.venv/bin/python');
    if (fs.existsSync(python)) env.WEBNN_VK_PYTHON = python;
  }
  if (fs.existsSync(path.join(CLONE, 'webnn_vk'))) {
    env.PYTHONPATH = [CLONE, env.PYTHONPATH].filter(Boolean).join(path.delimiter);
  }
  if (/\bcpu\b/.test(variant)) env.WEBNN_VK_DEVICE = 'cpu';
  else env.WEBNN_VK_DEVICE ||= 'vulkan';
  return env;
}

/** Runs one file; resolves to its results. */
function execute(run, verbose) {
  return new Promise((resolve) => {
    const results = [];
    const variant = variantOf(run);
    const add = (subtest, status, message) => {
      results.push({ file: run.file, variant, subtest, status, message });
    };
    const env = environment(run.variant);
    if (verbose) env.WPT_STDERR = 'inherit';
    const worker = new Worker(new URL('worker.js', import.meta.url), { workerData: { ...run, env } });
    let over = false;
    const end = (status, message) => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      if (status !== 'OK') add('', status, message);
      worker.terminate().then(() => resolve(results));
    };
    const timer = setTimeout(
      () => end('TIMEOUT', `not done after ${run.seconds} seconds`), run.seconds * 1000);
    worker.on('message', (result) => {
      if (result.end) end(result.status, result.message);
      else add(result.subtest, result.status, result.message);
    });
    worker.on('error', (error) => end('ERROR', `${error?.stack ?? error}`));
    worker.on('exit', () => end('ERROR', 'the test ended before it was complete'));
  });
}

function count(results) {
  const counts = {};
  for (const { status } of results) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

const shown = (counts) => Object.entries(counts).map(([status, n]) => `${n} ${status}`).join(', ') || 'no subtests';

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: 'string' }, jobs: { type: 'string' }, verbose: { type: 'boolean' },
    },
  });
  if (!positionals.length) usage('PATH is missing');
  const [given, ...filters] = positionals;
  // npm runs scripts in js/; paths are relative to where the user is.
  const from = process.env.INIT_CWD ?? process.cwd();
  const root = findRoot(path.resolve(from, given));
  const { scripts, pages } = findFiles(root);
  const runs = scripts.flatMap((file) => runsOf(root, file)).filter((run) =>
    !filters.length || filters.some((text) => `${run.file}${variantOf(run)}`.includes(text)));
  if (!runs.length) usage(`no test matches ${filters.join(' ')}`);

  // Without a bridge every test would fail, for a reason that only the bridge tells.
  const bridge = await connect({ env: environment('') }).catch((error) => usage(error.message));
  bridge.end('it was tried out');

  const all = new Array(runs.length);
  let next = 0;
  const lane = async () => {
    while (next < runs.length) {
      const index = next++;
      const results = all[index] = await execute(runs[index], values.verbose);
      console.log(`${runs[index].file}${variantOf(runs[index])}: ${shown(count(results))}`);
      for (const { subtest, status, message } of results) {
        if (status !== 'PASS') console.log(`  ${status} ${subtest}${message && `: ${message}`}`);
      }
    }
  };
  await Promise.all(Array.from({ length: Number(values.jobs) || os.availableParallelism() }, lane));

  const results = all.flat();
  if (values.json) {
    fs.writeFileSync(path.resolve(from, values.json), `${JSON.stringify(results, null, 1)}\n`);
  }
  console.log(`${runs.length} runs of ${new Set(runs.map((run) => run.file)).size} files: ${shown(count(results))}`);
  if (pages.length && !filters.length) console.log(`${pages.length} HTML pages need a browser: not run`);
  process.exitCode = results.every(({ status }) => status === 'PASS') ? 0 : 1;
}

await main();
