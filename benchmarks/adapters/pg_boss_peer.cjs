// pg-boss: a handler takes an array of jobs, so its fastest drain is also its batch handler; finished jobs are kept.
const { DATABASE, SETTINGS, FILLER, record, main } = require("./peer.cjs");
const { PgBoss } = require("pg-boss");
const { Pool } = require("pg");

const notify = !!SETTINGS.notify;

function boss(options) {
  const made = new PgBoss({ connectionString: DATABASE, useListenNotify: notify, ...options });
  made.on("error", (error) => console.error(error));
  return made;
}

const QUIET = { supervise: false, schedule: false };

main({
  async setup() {
    const made = boss(QUIET);
    await made.start();
    await made.createQueue("bench", { notify });
    await made.stop({ graceful: false });
  },
  async connect() {
    this.boss = boss(QUIET);
    await this.boss.start();
  },
  async close() {
    await this.boss.stop({ graceful: false });
  },
  enqueue(number) {
    return this.boss.send("bench", { number });
  },
  async enqueueMany(count) {
    for (let start = 0; start < count; start += 5000) {
      const length = Math.min(5000, count - start);
      await this.boss.insert("bench", Array.from({ length }, (_, i) => ({ data: { number: start + i } })));
    }
  },
  async fill(waiting, finished) {
    await this.boss.send("bench", { number: FILLER }, { priority: -10 });
    const pool = new Pool({ connectionString: DATABASE });
    const copied = await pool.query(
      `SELECT string_agg(quote_ident(column_name), ', ') AS columns FROM information_schema.columns
       WHERE table_schema = 'pgboss' AND table_name = 'job' AND is_generated = 'NEVER'
         AND column_name NOT IN ('id', 'data', 'priority', 'state', 'completed_on')`,
    );
    const columns = copied.rows[0].columns;
    const put = (values, from, count) =>
      pool.query(
        `INSERT INTO pgboss.job (id, data, priority, state, completed_on, ${columns})
         SELECT gen_random_uuid(), jsonb_build_object('number', n), ${values}, ${columns}
         FROM pgboss.job, generate_series($1::bigint, $2::bigint) n WHERE data->>'number' = '${FILLER}'`,
        [from, from + count - 1],
      );
    await put("-10, 'created', NULL", FILLER + 1, waiting - 1);
    await put("0, 'completed', now()", FILLER + waiting, finished);
    await pool.end();
    return { waiting, finished, how: "lower priority; finished rows in the job table, where it keeps them" };
  },
  async worker() {
    const made = boss({});
    await made.start();
    const { notify: _, ...options } = SETTINGS;
    await made.work("bench", options, async (jobs) => {
      for (const job of jobs) record(job.data.number);
    });
  },
});
