// The client's side of the protocol, over any channel:
//   channel.send(start, raw)   writes a frame; waits until it is written
//   channel.receive()          waits for the next frame: {kind, request, header, raw}
//   channel.keepAlive(yes)     whether the program has to go on for the channel
//   channel.collect()          has the engine collect garbage; a promise
//   channel.close()
// and calls client.wake() when replies wait, client.end(message) when the bridge has ended.
// `send` and `receive` throw when it has.
import { Kind, frameStart } from './frames.js';
import { domException } from './webidl.js';

function toError([name, message]) {
  return name === 'TypeError' ? new TypeError(message) : domException(message, name);
}

/** A collection is due after this many bytes of device memory, or as many as are alive if that is more. */
const BUDGET = 2 ** 29;

export class Client {
  #channel;
  #live = 0;
  #fresh = 0;
  #request = 0;
  #pending = new Map();
  #released = [];
  #events = new Map();
  #ended;

  constructor(channel) {
    this.#channel = channel;
  }

  get ended() {
    return this.#ended !== undefined;
  }

  /** Calls a method and waits for its value. Throws what it throws. */
  call(method, parameters, raw) {
    const request = this.#send(Kind.CALL, [method, parameters], raw);
    return this.#await(request);
  }

  /**
   * Calls a method that replies later; `made` turns the reply into the promise's value. The objects
   * in `users` are kept until then; `destroy` of one of them rejects the promise.
   */
  start(method, parameters, made, { raw, users = [] } = {}) {
    return new Promise((resolve, reject) => {
      const request = this.#send(Kind.START, [method, parameters], raw);
      this.#pending.set(request, { resolve, reject, made, users });
      this.#channel.keepAlive(true);
    });
  }

  /** Destroys an object: at once for what is pending here, even if its result is on the way. */
  destroy(state) {
    if (this.ended) return;
    for (const [request, { users, reject }] of this.#pending) {
      if (!users.includes(state)) continue;
      this.#forget(request);
      reject(domException('destroy() was called', 'InvalidStateError'));
    }
    this.call('destroy', [state.number]);
  }

  #forget(request) {
    this.#pending.delete(request);
    if (this.#pending.size === 0) this.#channel.keepAlive(false);
  }

  /**
   * The object takes `bytes` on the device. Objects here are small, so that the engine collects
   * them late: once much was created, this has it collect, and the promise waits for that.
   */
  async allocated(object, bytes) {
    this.#live += bytes;
    this.#fresh += bytes;
    if (this.#fresh > Math.max(BUDGET, this.#live - this.#fresh)) {
      this.#fresh = 0;
      await this.#channel.collect();
      this.#flush();
    }
    return object;
  }

  /** Releases an object and subtracts the bytes it took. */
  release(number, bytes) {
    this.#live -= bytes;
    this.#events.delete(number);
    // Objects are collected in groups; a single frame names them all.
    if (this.#released.push(number) === 1) setTimeout(() => this.#flush()).unref?.();
  }

  #flush() {
    if (this.#released.length && !this.ended) {
      const numbers = this.#released.splice(0);
      // A request may not have many more values (webnn_vk/bridge/cbor.py).
      for (let at = 0; at < numbers.length; at += 10_000) {
        this.#attempt(() => this.#send(Kind.RELEASE, numbers.slice(at, at + 10_000)));
      }
    }
  }

  /** Calls `lost(message)` once the context is lost. */
  onLost(context, lost) {
    if (this.ended) lost(this.#ended);
    else this.#events.set(context, lost);
  }

  /** Replies wait. */
  wake() {
    if (!this.ended) this.#attempt(() => this.#await(this.#send(Kind.POLL, null)));
  }

  /** The bridge has ended: whatever waits for it fails. */
  end(message) {
    if (this.ended) return;
    this.#ended = message;
    this.#channel.close();
    for (const { reject } of this.#pending.values()) reject(this.#lostError());
    this.#pending.clear();
    for (const lost of this.#events.values()) lost(message);
    this.#events.clear();
  }

  #lostError() {
    return domException(`the context is lost: ${this.#ended}`, 'InvalidStateError');
  }

  /** What only end() needs to know. */
  #attempt(action) {
    try {
      action();
    } catch (error) {
      if (!this.ended) throw error;
    }
  }

  #send(kind, header, raw) {
    if (this.ended) throw this.#lostError();
    this.#request = (this.#request + 1) >>> 0 || 1;
    const start = frameStart(kind, this.#request, header, raw?.byteLength);
    this.#use(() => this.#channel.send(start, raw));
    return this.#request;
  }

  #await(request) {
    for (;;) {
      const frame = this.#use(() => this.#channel.receive());
      if (frame.request === request) {
        if (frame.kind === Kind.ERROR) throw toError(frame.header);
        return frame.raw ?? frame.header;
      }
      this.#settle(frame);
    }
  }

  #use(action) {
    try {
      return action();
    } catch (error) {
      this.end(error.message);
      throw this.#lostError();
    }
  }

  #settle({ kind, request, header, raw }) {
    if (kind === Kind.EVENT) {
      const [, context, message] = header;
      this.#events.get(context)?.(message);
      this.#events.delete(context);
      return;
    }
    if (request === 0) return this.end(header[1]);
    if (!this.#pending.has(request)) return;
    const { resolve, reject, made } = this.#pending.get(request);
    this.#forget(request);
    if (kind === Kind.ERROR) return reject(toError(header));
    try {
      resolve(made(raw ?? header));
    } catch (error) {
      reject(error);
    }
  }
}
