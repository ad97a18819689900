// Runs one test file, in a thread of its own, with the suite's testharness.js.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import { parentPort, workerData } from 'node:worker_threads';
import { prepare } from './scope.js';

const { root, file, kind, variant, env } = workerData;
const STATUS = ['PASS', 'FAIL', 'TIMEOUT', 'NOTRUN', 'PRECONDITION_FAILED'];
const HARNESS = ['OK', 'ERROR', 'TIMEOUT', 'PRECONDITION_FAILED'];
// The server of web-platform-tests serves it under this name.
const ALIASES = { '/resources/WebIDLParser.js': '/resources/webidl2/lib/webidl2.js' };

prepare(root, kind, new URL(`https://web-platform.test/${file}${variant}`));
const { createML, interfaces } = await import('../lib/interfaces.js');
const { install } = await import('../lib/global.js');
const { connector } = await import('../lib/node.js');
install(globalThis, interfaces, createML(connector({ env, stderr: env.WPT_STDERR ?? 'ignore' })));

function locate(script) {
  const absolute = script.startsWith('/') ? script : path.posix.resolve('/', path.posix.dirname(file), script);
  return path.join(root, ALIASES[absolute] ?? absolute);
}

const source = fs.readFileSync(path.join(root, file), 'utf8');
const scripts = [...source.matchAll(/^\/\/ META: script=(\S+)$/gm)].map(([, name]) => locate(name));
const paths = [path.join(root, 'resources/testharness.js'), ...scripts, path.join(root, file)];
const programs = paths.map((name) => new vm.Script(fs.readFileSync(name, 'utf8'), { filename: name }));

// All at once: testharness.js takes the file as loaded after the first turn.
programs[0].runInThisContext();
globalThis.add_result_callback(({ name, status, message }) => {
  parentPort.postMessage({ subtest: name, status: STATUS[status], message: message ?? '' });
});
globalThis.add_completion_callback((tests, { status, message }) => {
  parentPort.postMessage({ end: true, status: HARNESS[status], message: message ?? '' });
});
for (const program of programs.slice(1)) program.runInThisContext();
if (kind === 'worker') globalThis.done();
