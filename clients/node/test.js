'use strict';

// Tests the client against a real socket, whose path is the only argument.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { Writers, WritersError, Refused } = require('./polder-writers');

async function main(socket) {
  const writers = new Writers(socket);
  const token = await writers.begin(['node:1', 'with blank', 'preis/€']);
  assert.equal(await writers.end(token), true);
  assert.equal(await writers.end(token), false, 'it is ended already');
  assert.equal(await writers.abort(await writers.begin(['node:1'])), true);
  await writers.invalidate(['node:1']);
  // Calls that overlap.
  const tokens = await Promise.all(Array.from({ length: 100 }, (_, n) => writers.begin([`node:${n}`])));
  assert.equal(new Set(tokens).size, 100);
  assert.ok((await Promise.all(tokens.map((one) => writers.end(one)))).every((done) => done));
  // A token holds over connections.
  const kept = await writers.begin(['node:3']);
  writers.close();
  assert.equal(await writers.end(kept), true);
  await gate(socket, writers);
  const malformed = (error) => error instanceof Refused && error.code === 'malformed';
  await assert.rejects(writers.begin([]), malformed);
  await assert.rejects(writers.begin(['']), malformed);
  await assert.rejects(writers.end('0-0-0-0'), malformed);
  await assert.rejects(writers.begin(['a\nend']), TypeError);
  await assert.rejects(writers.begin('a'), TypeError);
  await writers.invalidate(['node:1']);
  writers.close();
  await assert.rejects(new Writers(`${socket}.none`, { timeoutMs: 100 }).begin(['a']), WritersError);
  await silent();
  console.log('node: ok');
}

async function gate(socket, writers) {
  await writers.read('node 1');
  const other = new Writers(socket, { timeoutMs: 100 });
  await other.read('node 1');
  assert.equal(await other.readEnd('node 1'), true);
  await assert.rejects(other.write('node 1'), WritersError);
  assert.equal(await writers.readEnd('node 1'), true);
  assert.equal(await writers.readEnd('node 1'), false);
  await writers.write('node 1');
  assert.equal(await writers.writeEnd('node 1'), true);
}

async function silent() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'polder-node-'));
  const socket = path.join(folder, 'silent.sock');
  const held = [];
  const server = net.createServer((stream) => held.push(stream)).listen(socket);
  await new Promise((resolve) => server.once('listening', resolve));
  const late = new Writers(socket, { timeoutMs: 100 }).begin(['a']);
  await assert.rejects(late, (error) => error instanceof WritersError && /no answer/.test(error.message));
  held.forEach((stream) => stream.destroy());
  server.close();
  fs.rmSync(folder, { recursive: true });
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
