// The demo page in headless Chromium.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { serve } from '../lib/server.js';

const PAGE = fileURLToPath(new URL('../browser', import.meta.url));
const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/google-chrome'].find((file) => fs.existsSync(file));
const env = { ...process.env, WEBNN_VK_DEVICE: 'cpu' };

/** What the page shows once it has a result: asked over Chromium's debugging pipe. */
async function shownBy(url, profile) {
  const browser = spawn(CHROMIUM, ['--headless', '--no-sandbox', '--disable-gpu',
    '--remote-debugging-pipe', `--user-data-dir=${profile}`, url],
  { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
  const [, , , requests, replies] = browser.stdio;
  const waiting = new Map();
  let text = '';
  replies.on('data', (data) => {
    text += data;
    const messages = text.split('\0');
    text = messages.pop();
    for (const message of messages.map(JSON.parse)) waiting.get(message.id)?.(message.result);
  });
  const ask = (method, params = {}, sessionId = undefined) => new Promise((resolve) => {
    const id = waiting.size + 1;
    waiting.set(id, resolve);
    requests.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  });
  try {
    let page;
    while (!page) {
      const { targetInfos } = await ask('Target.getTargets');
      page = targetInfos.find((target) => target.url === url);
    }
    const { sessionId } = await ask('Target.attachToTarget', { targetId: page.targetId, flatten: true });
    const expression = `new Promise((resolve) => {
      const look = () => {
        const shown = document.getElementById('result')?.textContent ?? '…';
        if (shown === '…') setTimeout(look, 50);
        else resolve(shown);
      };
      look();
    })`;
    for (;;) {
      // Nothing comes back when the page was not there yet.
      const answer = await ask('Runtime.evaluate', { expression, awaitPromise: true }, sessionId);
      if (answer?.result.value) return answer.result.value;
    }
  } finally {
    const ended = new Promise((resolve) => { browser.on('exit', resolve); });
    browser.kill();
    await ended;
  }
}

test('a page computes in a worker', { skip: CHROMIUM ? false : 'chromium is not installed' }, async () => {
  const { url, close } = await serve(PAGE, { env });
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'page-'));
  try {
    assert.deepEqual(JSON.parse(await shownBy(url, profile)), {
      isolated: true, devices: ['cpu'], y: [4.5, 7.5, 8.5, 15.5], refused: 'InvalidStateError',
    });
  } finally {
    close();
    fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
});

test('only its own pages reach the server', async () => {
  const { url, close } = await serve(PAGE, { env });
  try {
    const { origin, pathname } = new URL(url);
    const status = async (to, options) => (await fetch(to, options)).status;
    assert.equal(await status(url), 200);
    assert.equal(await status(`${url}lib/cbor.js`), 200);
    assert.equal(await status(`${origin}/`), 403);
    assert.equal(await status(`${origin}/${'0'.repeat(32)}/`), 403);
    assert.equal(await status(url, { headers: { Origin: 'https://example.org' } }), 403);
    assert.equal(await status(`${origin}${pathname}..%2fpackage.json`), 404);
    assert.equal(await status(`${url}lib/..%2fpackage.json`), 404);
    assert.equal(await status(`${url}bridge/nobody`, { method: 'POST', body: 'x' }), 500);
  } finally {
    close();
  }
});
