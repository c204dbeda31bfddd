// A real server on a directory, with real workers: something of everything that the page shows.

import { spawn, execFile } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const QO = process.env.QO_TEST_BINARY;
const FOLDER = process.env.QO_TEST_FOLDER;

/** Longest that anything may take, in milliseconds. */
export const PATIENCE = 30_000;

const CONFIGURATION = `
app = "shop"
[concurrency]
cluster_wide_cap = 40
[concurrency.limits]
resize = 4
call_openai = 12
email = 0
import = 3
"sync_account/*" = 1
[queues.images]
priority = 50
[schedules.nightly-report]
cron = "0 3 * * *"
timezone = "Europe/Berlin"
task = "report"
[schedules.refresh-prices]
cron = "*/15 * * * *"
task = "report"
`;

// Jobs of these tasks run until the test lets them go.
const HOLD = `#!/bin/sh
echo "job $QO_JOB_ID, attempt $QO_ATTEMPT" >&2
echo "reading the input" >&2
n=0
while [ ! -e "$QO_TEST_FOLDER/go-$QO_TASK" ]; do
  if [ -e "$QO_TEST_FOLDER/say-$QO_JOB_ID" ]; then cat "$QO_TEST_FOLDER/say-$QO_JOB_ID" >&2; rm "$QO_TEST_FOLDER/say-$QO_JOB_ID"; fi
  sleep 0.1
done
echo '{"done": true}'
`;
const FAIL = `#!/bin/sh
echo "connecting to the warehouse" >&2
echo "error: table orders_2026_11 does not exist" >&2
exit 100
`;
const OK = `#!/bin/sh
cat
`;

export class World {
  #processes = [];
  url = "";

  /** The command line on the same store, not through the server. */
  async qo(...args) {
    const env = { ...process.env, QO_STORE: `file:${join(FOLDER, "store")}` };
    const { stdout } = await run(QO, args, { cwd: join(FOLDER, "client"), env });
    return stdout.trim();
  }

  /** Submits a job and returns its id. */
  async submit(task, payload, ...options) {
    const out = await this.qo("submit", task, JSON.stringify(payload), "--json", ...options);
    return JSON.parse(out).id;
  }

  async #start(name, args, cwd) {
    const env = { ...process.env, QO_STORE: `file:${join(FOLDER, "store")}`, QO_TEST_FOLDER: FOLDER };
    const child = spawn(QO, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    child.said = "";
    child.stdout.on("data", (text) => { child.said += text; });
    child.stderr.on("data", (text) => { child.said += text; });
    child.on("exit", (code) => { child.ended = code ?? -1; });
    child.title = name;
    this.#processes.push(child);
    return child;
  }

  async serve() {
    const child = await this.#start("serve", ["serve", "--listen", "127.0.0.1:0"], join(FOLDER, "client"));
    await until(() => {
      if (child.ended !== undefined) throw new Error(`the server ended: ${child.said}`);
      this.url = /at (http:\/\/\S+)/.exec(child.said)?.[1] ?? "";
      return this.url;
    }, "the server listens");
  }

  async worker(name, ...options) {
    const programs = { hold: HOLD, fail: FAIL, ok: OK };
    const task = (of, program) => ["--task", `${of}=${join(FOLDER, program)}`];
    for (const [program, text] of Object.entries(programs)) {
      const path = join(FOLDER, program);
      if (!existsSync(path)) await writeFile(path, text, { mode: 0o755 });
    }
    const holding = ["resize", "call_openai", "sync_account"].flatMap((of) => task(of, "hold"));
    const quick = ["fetch", "parse", "report", "transcode"].flatMap((of) => task(of, "ok"));
    const child = await this.#start(name, ["worker", "--name", name, ...options, ...holding, ...quick, ...task("store_rows", "fail")], join(FOLDER, "shop"));
    return child;
  }

  async build() {
    for (const folder of ["client", "shop", "store"]) await mkdir(join(FOLDER, folder), { recursive: true });
    await writeFile(join(FOLDER, "shop", ".qo.toml"), CONFIGURATION);
    await this.serve();
    await this.worker("fra-1", "--max-concurrent-tasks", "8");
    await this.worker("fra-2", "--max-concurrent-tasks", "8");
    await until(async () => JSON.parse(await this.qo("workers", "--json")).length === 2, "two workers");
    const workflow = ["--workflow", "import-42", "--max-attempts", "1"];
    for (const task of ["fetch", "parse", "store_rows", "report"]) await this.submit(task, { file: "orders.csv" }, ...workflow);
    await this.qo("submit", "resize", '{"image":"cat.png","width":640}', "--count", "26", "--queue", "images");
    await this.qo("submit", "call_openai", '{"prompt":"Summarise the ticket"}', "--count", "5");
    for (const account of ["acme", "globex"]) {
      await this.qo("submit", "sync_account", "{}", "--count", "3", "--key", account);
    }
    await this.qo("submit", "email", '{"to":"ada@example.com"}', "--count", "12");
    await this.qo("submit", "transcode", "{}", "--count", "7", "--queue", "video", "--delay", "1h");
    await this.qo("queues", "pause", "video");
    await this.qo("submit", "transcode", "{}", "--count", "9", "--queue", "video");
    await until(async () => {
      const workers = JSON.parse(await this.qo("workers", "--json"));
      const halted = JSON.parse(await this.qo("workflows", "--json"))[0]?.state === "halted";
      return halted && workers.reduce((sum, worker) => sum + worker.running, 0) === 11;
    }, "eleven jobs run and the workflow is halted");
  }

  /** Ends every process, and waits for it. */
  async end() {
    for (const child of this.#processes) if (child.ended === undefined) child.kill("SIGKILL");
    await until(() => this.#processes.every((child) => child.ended !== undefined), "all have ended");
  }

  /** What the processes said, for a test that failed. */
  said() {
    return this.#processes.map((child) => `--- ${child.title}\n${child.said.slice(-2000)}`).join("\n");
  }
}

/** Waits until a condition holds. */
export async function until(condition, what, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const met = await condition();
    if (met) return met;
    if (Date.now() > end) throw new Error(`not within ${patience} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

export { FOLDER };
