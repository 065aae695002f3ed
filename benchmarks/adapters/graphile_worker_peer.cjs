// graphile-worker: a local queue and batched completion at its best; it deletes what is done.
const { DATABASE, SETTINGS, FILLER, record, main } = require("./peer.cjs");
const { run, makeWorkerUtils, Logger } = require("graphile-worker");
const { Pool } = require("pg");

const logger = new Logger(() => () => {});
const connect = () => makeWorkerUtils({ connectionString: DATABASE, logger });

main({
  async setup() {
    const utils = await connect();
    await utils.migrate();
    await utils.release();
  },
  async connect() {
    this.utils = await connect();
  },
  async close() {
    await this.utils.release();
  },
  enqueue(number) {
    return this.utils.addJob("noop", { number });
  },
  async enqueueMany(count) {
    for (let start = 0; start < count; start += 2000) {
      const length = Math.min(2000, count - start);
      await this.utils.addJobs(
        Array.from({ length }, (_, i) => ({ identifier: "noop", payload: { number: start + i } })),
      );
    }
  },
  async fill(waiting) {
    await this.utils.addJob("noop", { number: FILLER }, { priority: 10 });
    const pool = new Pool({ connectionString: DATABASE });
    await pool.query(
      `INSERT INTO graphile_worker._private_jobs (task_id, payload, priority)
       SELECT task_id, json_build_object('number', n), 10
       FROM graphile_worker._private_jobs, generate_series($1::bigint, $2::bigint) n WHERE priority = 10`,
      [FILLER + 1, FILLER + waiting - 1],
    );
    await pool.end();
    return { waiting, finished: 0, how: "lower priority; it deletes what is done" };
  },
  async worker() {
    const worker = { connectionString: DATABASE, logger, ...SETTINGS };
    await run({ preset: { worker }, taskList: { noop: async (payload) => record(payload.number) } });
  },
});
