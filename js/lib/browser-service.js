// The service of lib/browser.js: sends frames to the server, one after the other, and hands the
// replies to the worker that waits for them.
let shared;
let queue = Promise.resolve();

function end(message) {
  Atomics.store(shared.state, 0, 2);
  Atomics.notify(shared.state, 0);
  postMessage(message);
}

function deliver(bytes) {
  const { state, data } = shared;
  for (let at = 0; at < bytes.length; at += data.length) {
    const chunk = bytes.subarray(at, at + data.length);
    data.set(chunk);
    state[1] = chunk.length;
    Atomics.store(state, 0, 1);
    Atomics.notify(state, 0);
    Atomics.wait(state, 0, 1);
  }
}

async function forward(body) {
  const response = await fetch(shared.url, { method: 'POST', body });
  if (!response.ok) return end('the bridge ended');
  return deliver(new Uint8Array(await response.arrayBuffer()));
}

/** The server's stream: a byte when the bridge is there, then one when replies wait. */
async function listen() {
  const response = await fetch(`${shared.url}/events`);
  const reader = response.body.getReader();
  for (let message = 'ready'; ; message = 'wake') {
    const { done } = await reader.read();
    if (done) break;
    postMessage(message);
  }
  end('the bridge ended');
}

onmessage = ({ data }) => {
  if (data instanceof ArrayBuffer) {
    queue = queue.then(() => forward(data)).catch((error) => end(error.message));
  } else {
    shared = data;
    listen().catch((error) => end(error.message));
  }
};
