'use strict';

/**
 * Tells Polder's caches that data changes.
 *
 *     const { Writers } = require('./polder-writers');
 *     const writers = new Writers('/run/polder-shop/writers.sock');
 *
 *     const token = await writers.begin(['product-4711', 'front-page']);
 *     await database.commit();
 *     await writers.end(token);
 *
 * Between `begin` and `end` no cache serves a page that carries one of the tags; after `end`, none
 * serves a page that was made before. If `begin` fails, nothing may be committed. If `end` fails,
 * the tags stay uncached, which is safe: call it again with the same token. `invalidate` is for
 * data that has changed already. The lines are described in docs/writers.md.
 *
 * Calls may overlap: answers come in the order of the questions. It needs nothing but Node.js.
 */

const net = require('node:net');

const LINE_BYTES_MAX = 128 << 10;
const RETRY_PAUSE_MS = 20;

/** The socket can't be reached, does not answer in time, or what it says is not understood. */
class WritersError extends Error {}

/** It was not done; `code` is malformed, busy, denied, full or failed. */
class Refused extends WritersError {
  constructor(code, words) {
    super(`${code}: ${words}`);
    this.code = code;
  }
}

/** A connection to a site's writers' socket, made when it is first needed. */
class Writers {
  #path;
  #timeoutMs;
  #connecting = null;
  #socket = null;

  /** `timeoutMs` is for connecting, and for each answer. */
  constructor(path, { timeoutMs = 5000 } = {}) {
    this.#path = path;
    this.#timeoutMs = timeoutMs;
  }

  /** Marks tags as pending; the token. Commit only after it. */
  async begin(tags) {
    const answer = await this.#ask(tagLine('begin', tags));
    if (!answer.startsWith('ok ')) throw unfit(answer);
    return answer.slice(3);
  }

  /** After the commit. False if nothing of it was pending any more, which is no harm. */
  end(token) {
    return this.#end('end', token);
  }

  /** After the rollback. False if nothing of it was pending any more. */
  abort(token) {
    return this.#end('abort', token);
  }

  /** Voids what carries these tags, whose data has changed. */
  async invalidate(tags) {
    const answer = await this.#ask(tagLine('invalidate', tags));
    if (answer !== 'ok') throw unfit(answer);
  }

  /** Waits until nobody writes a document, for `timeoutMs` at most; it may be read then, until
   * `readEnd` or the end of the connection. Calls behind it wait too: use another object. */
  read(document) {
    return this.#gate('read', document);
  }

  /** False if it was free already: the connection was another one meanwhile. */
  readEnd(document) {
    return this.#gate('read-end', document);
  }

  /** Waits until nobody reads or writes a document; it may be written then, until `writeEnd` or the
   * end of the connection. Caches know nothing of it: begin an update too. */
  write(document) {
    return this.#gate('write', document);
  }

  /** False if it was free already: the connection was another one meanwhile. */
  writeEnd(document) {
    return this.#gate('write-end', document);
  }

  async #gate(word, document) {
    const answer = await this.#ask(tagLine(word, [document]));
    if (answer !== 'ok' && answer !== 'gone') throw unfit(answer);
    return answer === 'ok';
  }

  /** Ends the connection. What was begun stays pending until its token ends it. */
  close() {
    if (this.#socket) this.#socket.fail(new WritersError('closed'));
  }

  async #end(word, token) {
    if (!/^[0-9a-f-]+$/.test(token)) throw new TypeError('no token of begin');
    const answer = await this.#ask(Buffer.from(`${word} ${token}\n`));
    if (answer !== 'ok' && answer !== 'gone') throw unfit(answer);
    return answer === 'ok';
  }

  async #ask(line) {
    if (!this.#socket) {
      this.#connecting ??= this.#connect().finally(() => { this.#connecting = null; });
      await this.#connecting;
    }
    const answer = await this.#socket.ask(line);
    if (!answer.startsWith('error ')) return answer;
    const [, code, words] = /^error (\S+) ?(.*)$/.exec(answer) ?? [];
    throw new Refused(code ?? 'failed', words ?? answer);
  }

  /** Tries again for a while where nobody listens: the process may just be starting anew. */
  async #connect() {
    const ends = performance.now() + this.#timeoutMs;
    for (;;) {
      try {
        const stream = await connected(this.#path);
        this.#socket = new Asked(stream, this.#path, this.#timeoutMs, () => { this.#socket = null; });
        return;
      } catch (error) {
        const mayCome = error.code === 'ENOENT' || error.code === 'ECONNREFUSED';
        if (!mayCome || performance.now() >= ends) throw new WritersError(`${this.#path}: ${error.message}`);
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE_MS));
    }
  }
}

/** One connection and who waits for its answers, the first first. */
class Asked {
  #stream;
  #path;
  #timeoutMs;
  #gone;
  #waiting = [];
  #rest = '';

  constructor(stream, path, timeoutMs, gone) {
    [this.#stream, this.#path, this.#timeoutMs, this.#gone] = [stream, path, timeoutMs, gone];
    stream.setEncoding('utf8');
    stream.on('data', (part) => this.#take(part));
    stream.on('error', (error) => this.fail(new WritersError(`${path}: ${error.message}`)));
    stream.on('close', () => this.fail(new WritersError(`${path}: the connection has ended`)));
    stream.unref();
  }

  ask(line) {
    return new Promise((resolve, reject) => {
      const text = `${this.#path}: no answer within ${this.#timeoutMs} ms`;
      // What comes later on this connection would answer something else.
      const timer = setTimeout(() => this.fail(new WritersError(text)), this.#timeoutMs);
      this.#waiting.push({ resolve, reject, timer });
      this.#stream.ref();
      this.#stream.write(line);
    });
  }

  fail(error) {
    this.#gone();
    this.#stream.destroy();
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
  }

  #take(part) {
    const lines = (this.#rest + part).split('\n');
    this.#rest = lines.pop();
    for (const line of lines) {
      const first = this.#waiting.shift();
      if (!first) return this.fail(new WritersError('an answer to no question'));
      clearTimeout(first.timer);
      first.resolve(line);
    }
    if (this.#waiting.length === 0) this.#stream.unref();
  }
}

function connected(path) {
  return new Promise((resolve, reject) => {
    const stream = net.connect(path);
    stream.once('error', reject);
    stream.once('connect', () => {
      stream.removeListener('error', reject);
      resolve(stream);
    });
  });
}

function tagLine(word, tags) {
  if (!Array.isArray(tags)) throw new TypeError('tags is a list');
  const parts = [Buffer.from(word)];
  for (const tag of tags) {
    const bytes = Buffer.from(tag);
    if (bytes.some((byte) => byte < 0x20 || byte === 0x7f)) {
      throw new TypeError('a tag has no control characters');
    }
    parts.push(Buffer.from('\t'), bytes);
  }
  const line = Buffer.concat([...parts, Buffer.from('\n')]);
  if (line.length > LINE_BYTES_MAX) throw new TypeError('too many tags for one update');
  return line;
}

function unfit(answer) {
  return new WritersError(`an answer that does not fit: ${JSON.stringify(answer)}`);
}

module.exports = { Writers, WritersError, Refused };
