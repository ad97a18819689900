// The bridge as a child process of Node, over two FIFOs (webnn_vk/bridge/__main__.py).
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import v8 from 'node:v8';
import vm from 'node:vm';
import { Client } from './client.js';
import { HEAD, Kind, PROTOCOL, frameStart, lengths, parseStart } from './frames.js';
import { domException } from './webidl.js';

function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length;) at += fs.writeSync(fd, bytes, at, bytes.length - at);
}

/** Frames over two descriptors; blocks, which Node's own pipes can't. */
class Channel {
  #requests;
  #replies;
  #child;
  #buffer = new Uint8Array(2 ** 16);
  #start = 0;
  #end = 0;

  constructor(requests, replies, child) {
    this.#requests = requests;
    this.#replies = replies;
    this.#child = child;
  }

  send(start, raw) {
    writeAll(this.#requests, start);
    if (raw?.byteLength) writeAll(this.#requests, raw);
  }

  receive() {
    this.#fill(HEAD);
    const { header, raw } = lengths(this.#buffer.subarray(this.#start, this.#start + HEAD));
    this.#fill(HEAD + header);
    const frame = parseStart(this.#buffer.subarray(this.#start, this.#start + HEAD + header));
    this.#start += HEAD + header;
    if (raw) frame.raw = this.#raw(raw);
    return frame;
  }

  keepAlive(yes) {
    for (const handle of [this.#child, this.#child.stdout]) yes ? handle.ref() : handle.unref();
  }

  async collect() {
    v8.setFlagsFromString('--expose-gc');
    vm.runInNewContext('gc')();
    // Finalizers run in turns of their own.
    for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => { setImmediate(resolve); });
  }

  close() {
    if (this.#requests === undefined) return;
    fs.closeSync(this.#requests);
    fs.closeSync(this.#replies);
    this.#requests = undefined;
    this.keepAlive(false);
  }

  /** The descriptors of requests and replies as sockets, which block nothing. They are the caller's. */
  sockets() {
    const made = [
      new net.Socket({ fd: this.#requests, readable: false, writable: true }),
      new net.Socket({ fd: this.#replies, readable: true, writable: false }),
    ];
    this.#requests = undefined;
    return made;
  }

  /** Reads until `count` bytes are in the buffer. */
  #fill(count) {
    if (this.#end - this.#start >= count) return;
    if (this.#start + count > this.#buffer.length) {
      const rest = this.#buffer.subarray(this.#start, this.#end);
      if (count > this.#buffer.length) this.#buffer = new Uint8Array(2 * count);
      this.#buffer.set(rest);
      this.#end = rest.length;
      this.#start = 0;
    } else if (this.#start === this.#end) {
      this.#start = this.#end = 0;
    }
    while (this.#end - this.#start < count) {
      this.#end += this.#read(this.#buffer, this.#end, this.#buffer.length - this.#end);
    }
  }

  #raw(count) {
    const bytes = new Uint8Array(count);
    const buffered = this.#buffer.subarray(this.#start, Math.min(this.#end, this.#start + count));
    bytes.set(buffered);
    this.#start += buffered.length;
    for (let at = buffered.length; at < count;) at += this.#read(bytes, at, count - at);
    return bytes;
  }

  #read(bytes, at, count) {
    const read = fs.readSync(this.#replies, bytes, at, Math.min(count, 2 ** 30), null);
    if (read === 0) throw new Error('the bridge ended');
    return read;
  }
}

/** Starts a bridge and connects a client to it. Options as for `launch`. */
export function connect(options) {
  return launch(options, (channel, version, pid) => Object.assign(new Client(channel), { version, pid }));
}

/**
 * Starts a bridge and resolves to what `make(channel, version, pid)` makes: its `wake()` is called
 * when replies wait, its `end(message)` when the bridge has ended. `python`: the interpreter with
 * webnn_vk, by default $WEBNN_VK_PYTHON, else python3. `env`: its environment. `stderr`: 'inherit'
 * or 'ignore'. `signal`: of an AbortController, ends the bridge, whatever it is doing.
 */
export function launch({ python, env = process.env, stderr = 'inherit', signal } = {}, make) {
  const program = python ?? (env.WEBNN_VK_PYTHON || 'python3');
  return new Promise((resolve, reject) => {
    const child = spawn(program, ['-m', 'webnn_vk.bridge'], { env, stdio: ['pipe', 'pipe', stderr] });
    let folder;
    let client;
    let open = [];
    let text = '';
    let failed = false;

    const fail = (message) => {
      if (failed) return undefined;
      failed = true;
      // The bridge removes the folder when both sides have opened the FIFOs, and before that when it
      // is asked to end.
      if (folder && !client) fs.rmSync(folder, { recursive: true, force: true });
      child.kill(client ? 'SIGKILL' : 'SIGTERM');
      child.stdin?.destroy();
      child.stdout?.destroy();
      if (client) return client.end(message);
      open.forEach((fd) => fs.closeSync(fd));
      open = [];
      reject(domException(`webnn_vk's bridge: ${message}`, 'OperationError'));
    };
    child.on('error', (error) => fail(
      `${program} can't be started (${error.code}); set WEBNN_VK_PYTHON to a Python with webnn_vk`));
    child.on('exit', (code, cause) => fail(
      `${program} -m webnn_vk.bridge ended with ${cause ?? `status ${code}`}`));
    signal?.addEventListener('abort', () => fail('it is not wanted any more'));
    child.stdin.on('error', () => {});
    child.stdout.on('data', (data) => {
      if (failed) return undefined;
      if (client) return client.wake();
      text += data.toString('latin1');
      if (folder === undefined) {
        if (!text.includes('\n')) return;
        [folder, text] = text.split('\n');
        try {
          open = begin(folder);
        } catch (error) {
          return fail(error.message);
        }
      }
      if (!text.includes('\0')) return;
      const [requests, replies, holder] = open;
      fs.closeSync(holder);
      open = [requests, replies];
      const channel = new Channel(requests, replies, child);
      try {
        const frame = channel.receive();
        if (frame.kind !== Kind.HELLO) throw new Error(frame.header[1]);
        if (frame.header.protocol !== PROTOCOL) throw new Error('of another version');
        client = make(channel, frame.header.version, child.pid);
        child.stdin.unref();
        channel.keepAlive(false);
        resolve(client);
      } catch (error) {
        fail(error.message);
      }
    });
  });
}

/**
 * Opens the FIFOs and greets the bridge. No open waits, since a descriptor for both directions stands
 * in for the bridge: at once if it has died, and for its writer of replies until it has opened them.
 */
function begin(folder) {
  const opened = [];
  try {
    const reader = fs.openSync(`${folder}/requests`, 'r+');
    opened.push(fs.openSync(`${folder}/requests`, 'w'));
    fs.closeSync(reader);
    const holder = fs.openSync(`${folder}/replies`, 'r+');
    opened.push(holder);
    opened.splice(1, 0, fs.openSync(`${folder}/replies`, 'r'));
    writeAll(opened[0], frameStart(Kind.HELLO, 1, { protocol: PROTOCOL }));
    return opened;
  } catch (error) {
    opened.forEach((fd) => fs.closeSync(fd));
    throw error;
  }
}

/** Connects once; again only when the bridge has ended. */
export function connector(options) {
  let connection;
  return async () => {
    const current = connection && await connection.catch(() => undefined);
    if (!current || current.ended) connection = connect(options);
    return connection;
  };
}
