// The Node twin of peer.py: the same commands, the same record, the same clock (CLOCK_MONOTONIC).
const fs = require("node:fs");

const DATABASE = process.env.BENCH_DATABASE;
const SETTINGS = JSON.parse(process.env.BENCH_SETTINGS || "{}");
const FILLER = 10_000_000;
const WARM = -1;

const line = Buffer.alloc(24);
let recordFile = null;

function record(number) {
  if (recordFile === null) {
    recordFile = fs.openSync(process.env.BENCH_RECORD, "a");
    line.writeBigInt64LE(BigInt(process.pid), 16);
  }
  line.writeBigInt64LE(BigInt(number), 0);
  line.writeBigInt64LE(process.hrtime.bigint(), 8);
  fs.writeSync(recordFile, line);
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function paced(peer, count, perSecond) {
  const start = process.hrtime.bigint() + 1_000_000_000n;
  const called = [];
  for (let number = 0; number < count; number++) {
    const due = start + BigInt(Math.round((number / perSecond) * 1e9));
    const wait = Number(due - process.hrtime.bigint()) / 1e6;
    if (wait > 0) await pause(wait);
    called.push(Number(process.hrtime.bigint()));
    await peer.enqueue(number);
  }
  return called;
}

async function concurrently(peer, count, tasks, number = (next) => next) {
  let next = 0;
  const enqueuer = async () => {
    while (next < count) await peer.enqueue(number(next++));
  };
  await Promise.all(Array.from({ length: tasks }, enqueuer));
}

async function client(peer, command, numbers) {
  if (command === "setup") return (await peer.setup()) || {};
  await peer.connect();
  try {
    if (command === "fill") return await peer.fill(...numbers);
    if (command === "load") return (await peer.enqueueMany(numbers[0])) || {};
    await peer.enqueue(WARM);
    if (command === "paced") return { called_ns: await paced(peer, ...numbers) };
    if (command === "concurrent") await concurrently(peer, numbers[1], numbers[1], () => WARM);
    const started = process.hrtime.bigint();
    if (command === "one") for (let number = 0; number < numbers[0]; number++) await peer.enqueue(number);
    else if (command === "bulk") await peer.enqueueMany(numbers[0]);
    else if (command === "concurrent") await concurrently(peer, ...numbers);
    else throw new Error("unknown command " + command);
    return { jobs: numbers[0], seconds: Number(process.hrtime.bigint() - started) / 1e9 };
  } finally {
    await peer.close();
  }
}

async function main(peer) {
  const [command, ...words] = process.argv.slice(2);
  const numbers = words.map(Number);
  if (command === "worker") return peer.worker(...numbers);
  const answer = await client(peer, command, numbers);
  process.stdout.write(JSON.stringify(answer) + "\n", () => process.exit(0));
}

module.exports = { DATABASE, SETTINGS, FILLER, record, main };
