// Runs COUNT jobs that do nothing through graphile-worker, and prints what that took as JSON.
//
//   node run.js postgres://user@host/database COUNT [PROCESSES]
//
// The settings are those of https://worker.graphile.org/docs/performance: 24 jobs at once, a local queue of 500, completions
// in batches without a delay. Jobs are added before the clock starts; it stops when the last one is done, completed in the
// database and the worker has ended. graphile-worker deletes jobs that have succeeded.
//
// With more than one process, each is a child of this one; they begin together, and the clock stops with the last.

import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import pg from "pg";

const [connectionString, countText, processesText = "1"] = process.argv.slice(2);
const count = Number(countText);
const processes = Number(processesText);
const quiet = new Logger(() => () => {});

const preset = {
  worker: {
    connectionString,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
};

async function query(sql, values) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    return (await client.query(sql, values)).rows;
  } finally {
    await client.end();
  }
}

/// A schema of its own, the jobs in it, and a vacuum and a checkpoint, so that none comes while the clock runs.
async function prepare() {
  await query("DROP SCHEMA IF EXISTS graphile_worker CASCADE");
  const utils = await makeWorkerUtils({ preset });
  await utils.migrate();
  await utils.release();
  for (let added = 0; added < count; added += 10_000) {
    const specs = "SELECT array_agg(json_populate_record(null::graphile_worker.job_spec, '{\"identifier\":\"noop\"}')) FROM generate_series(1, $1)";
    await query(`SELECT count(*) FROM graphile_worker.add_jobs((${specs}), false)`, [Math.min(10_000, count - added)]);
  }
  await query("VACUUM (ANALYZE) graphile_worker._private_jobs");
  await query("CHECKPOINT");
}

/// Works until all processes together have done all jobs, and counts each job of this process.
async function work(isOver, counted) {
  const runner = await run({ preset, taskList: { noop: () => counted() } });
  await isOver;
  await runner.stop();
}

async function alone() {
  let done = 0;
  let finish;
  const isOver = new Promise((resolve) => (finish = resolve));
  const began = process.hrtime.bigint();
  await work(isOver, () => {
    if (++done === count) finish();
  });
  return Number(process.hrtime.bigint() - began) / 1e9;
}

async function together() {
  const children = [];
  for (let index = 0; index < processes; index++) {
    children.push(fork(fileURLToPath(import.meta.url), process.argv.slice(2), { env: { ...process.env, GW_CHILD: "1" } }));
  }
  await Promise.all(children.map((child) => new Promise((resolve) => child.once("message", resolve))));
  const began = process.hrtime.bigint();
  const done = children.map(() => 0);
  const all = new Promise((resolve) => {
    children.forEach((child, index) =>
      child.on("message", (message) => {
        done[index] = message.done ?? done[index];
        if (done.reduce((sum, jobs) => sum + jobs, 0) >= count) resolve();
      }),
    );
  });
  children.forEach((child) => child.send("begin"));
  await all;
  const ended = children.map((child) => new Promise((resolve) => child.once("exit", resolve)));
  children.forEach((child) => child.send("end"));
  await Promise.all(ended);
  return Number(process.hrtime.bigint() - began) / 1e9;
}

async function child() {
  let done = 0;
  let finish;
  const isOver = new Promise((resolve) => (finish = resolve));
  const begin = new Promise((resolve) => process.on("message", (message) => (message === "begin" ? resolve() : finish())));
  process.send({ ready: true });
  await begin;
  const telling = setInterval(() => process.send({ done }), 5);
  await work(isOver, () => void done++);
  clearInterval(telling);
  process.disconnect();
}

if (process.env.GW_CHILD) {
  await child();
} else {
  await prepare();
  const seconds = processes > 1 ? await together() : await alone();
  const [{ left }] = await query("SELECT count(*)::int AS left FROM graphile_worker._private_jobs");
  await query("DROP SCHEMA graphile_worker CASCADE");
  if (left !== 0) throw new Error(`${left} jobs are left`);
  console.log(JSON.stringify({ jobs: count, processes, seconds, rate: count / seconds, node: process.version }));
}
