// The page of `qo serve` in headless Chromium, on a real server with real workers: scripts/test_page.py runs it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { FOLDER, PATIENCE, World, until } from "./world.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDE = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const PICTURES = process.env.QO_TEST_PICTURES;

const world = new World();
let browser;
let jobs;
let session;
const wrong = [];

before(async () => {
  await world.build();
  jobs = JSON.parse(await world.qo("jobs", "list", "--all", "--json"));
  session = JSON.parse(await world.qo("workers", "--json"))[0].session;
  browser = await chromium.launch({ executablePath: process.env.QO_TEST_CHROMIUM, args: ["--no-sandbox"] });
  if (PICTURES) await takePictures();
});

after(async () => {
  await browser?.close();
  await world.end();
});

const job = (state, task) => jobs.find((found) => found.state === state && (!task || found.task === task)).id;

/** The pages, each with something on it. */
const pages = () => [
  "/", "/groups", "/groups/resize", "/groups/email", "/groups/sync_account%2F*", "/queues", "/workers", `/workers/${session}`,
  "/jobs", "/jobs?state=failed&queue=default", `/jobs/${job("running")}`, `/jobs/${job("pending", "resize")}`,
  `/jobs/${job("failed")}`, "/workflows", "/workflows/import-42", "/schedules", "/audit", "/tokens",
  "/actions/set-limit?group=resize&limit=2", "/jobs/nonsense",
];

/** A tab that reports every mistake of the page. */
async function tab(options = {}) {
  const context = await browser.newContext({ viewport: WIDE, colorScheme: "light", baseURL: world.url, ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.on("console", (message) => {
    const isAsked = message.text().includes("400 (Bad Request)") && page.url().endsWith("/jobs/nonsense");
    if (["error", "warning"].includes(message.type()) && !isAsked) wrong.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`${page.url()}: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(world.url)) wrong.push(`a request elsewhere: ${request.url()}`);
  });
  return page;
}

/** Closes a tab. Nothing must have gone wrong in it. */
async function close(page) {
  await page.context().close();
  assert.deepEqual(wrong.splice(0), []);
}

/** Presses a button, reads the question, answers it, and returns what was said before and after. */
async function act(page, button, answer) {
  await button.click();
  const question = await page.locator("#ask #confirm").innerText();
  await page.locator("#ask").getByRole("button", { name: answer, exact: true }).click();
  return { question, said: await page.locator("#said").innerText() };
}

/** The pictures of the README, before the tests change the world. */
async function takePictures() {
  const show = async (path, file, options) => {
    const page = await tab(options);
    await page.goto(path);
    await page.getByText("live", { exact: true }).waitFor();
    await page.screenshot({ path: join(PICTURES, file) });
    await page.context().close();
  };
  // Jobs come and go for a while, so that the sparklines show something.
  const page = await tab();
  await page.goto("/");
  for (let n = 0; n < 14; n += 1) {
    await world.qo("submit", n % 3 ? "resize" : "email", "{}", "--count", String(1 + ((n * 7) % 5)));
    await world.qo("submit", "parse", "{}", "--count", String(1 + ((n * 5) % 40)), "--good-until", "3s", "--queue", "video");
    await page.waitForTimeout(1500);
  }
  await page.context().close();
  const tall = { width: 1280, height: 1000 };
  await show("/", "page-light.png", { viewport: tall });
  await show("/", "page-dark.png", { viewport: tall, colorScheme: "dark" });
  await show("/", "page-phone.png", { viewport: PHONE, colorScheme: "dark" });
  await show("/workflows/import-42", "page-workflow.png", { viewport: { width: 1280, height: 660 } });
}

for (const colorScheme of ["light", "dark"]) {
  test(`every page is accessible and quiet in ${colorScheme}`, async () => {
    const page = await tab({ colorScheme });
    for (const path of pages()) {
      await page.goto(path);
      // The page's own policy allows no foreign script, so the checker comes through the debugger.
      await page.evaluate(AXE);
      const found = await page.evaluate("axe.run().then(({ violations }) => violations)");
      const grave = found.filter(({ impact }) => ["serious", "critical"].includes(impact));
      assert.deepEqual(grave.map(({ id, nodes }) => [path, id, nodes[0].html, nodes[0].failureSummary]), []);
    }
    await close(page);
  });
}

test("no page is wider than a phone", async () => {
  const page = await tab({ viewport: PHONE, hasTouch: true });
  for (const path of pages()) {
    await page.goto(path);
    const width = await page.evaluate("document.scrollingElement.scrollWidth");
    assert.ok(width <= PHONE.width, `${path} is ${width} wide`);
  }
  await close(page);
});

test("an open page shows a change within a second", async () => {
  const page = await tab();
  await page.goto("/groups/late");
  await page.getByText("No live job names this group").waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  await world.submit("late", {}, "--limit", "3");
  const began = Date.now();
  await page.getByText("0 of 3 slots taken, 1 more wanted").waitFor();
  const took = Date.now() - began;
  assert.ok(took < 1000, `it took ${took} ms`);
  await close(page);
});

test("a change keeps a half-typed form, the focus and open details", async () => {
  const page = await tab();
  await page.goto("/jobs");
  await page.getByText("More filters").click();
  await page.getByLabel("Key", { exact: true }).fill("half-ty");
  const id = await world.submit("late", {});
  await page.locator(`#job-${id}`).waitFor();
  assert.equal(await page.getByLabel("Key", { exact: true }).inputValue(), "half-ty");
  assert.equal(await page.evaluate("document.activeElement.name"), "key");
  assert.ok(await page.locator("#more-filters").evaluate((details) => details.open));
  await close(page);
});

test("the log of a running job is followed", async () => {
  const page = await tab();
  const id = job("running", "call_openai");
  await page.goto(`/jobs/${id}`);
  await page.getByText("reading the input").waitFor();
  await writeFile(join(FOLDER, `say-${id}`), "half of it is done\n");
  await page.getByText("half of it is done").waitFor();
  await close(page);
});

test("the theme changes and is kept", async () => {
  const page = await tab();
  const ground = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
  await page.goto("/");
  const light = await ground();
  await page.getByRole("button", { name: "Change between light and dark" }).click();
  const dark = await ground();
  assert.notEqual(light, dark);
  await page.goto("/queues");
  assert.equal(await ground(), dark);
  await close(page);
});

test("a keyboard alone sets a limit", async () => {
  const page = await tab();
  const focused = () => page.evaluate("document.activeElement.id");
  await page.goto("/groups/call_openai");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate("document.activeElement.className"), "skip");
  await page.keyboard.press("Enter");
  for (let n = 0; n < 10 && (await focused()) !== "limit"; n += 1) await page.keyboard.press("Tab");
  assert.notEqual(await page.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none", "the focus shows");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("9");
  await page.keyboard.press("Enter");
  await page.locator("#ask #confirm").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#ask #confirm").waitFor({ state: "detached" });
  assert.equal(await focused(), "limit", "the focus comes back");
  await page.keyboard.press("Enter");
  await page.locator("#ask #confirm").waitFor();
  const isInside = await page.locator("#ask").evaluate((ask) => ask.contains(document.activeElement));
  assert.ok(isInside, "the focus is in the question");
  await page.keyboard.press("Enter");
  await page.getByText("The limit is set.").waitFor();
  await page.getByText("5 of 9 slots taken").waitFor();
  await close(page);
});

test("every action can be done, and says before what it will do", async () => {
  const page = await tab();
  const button = (name) => page.getByRole("button", { name, exact: true });
  await page.goto("/groups/resize");
  await page.getByLabel("Limit").fill("2");
  const lowered = await act(page, button("Set limit"), "Set limit");
  assert.match(lowered.question, /Lowering resize from 4 to 2: 4 slots are taken now.*no job starts until fewer than 2/s);
  await act(page, button("Take the operator's limit back"), "Take it back");
  await page.getByText("4 of 4 slots taken").waitFor();
  const slot = page.getByRole("button", { name: /^Release slot/ });
  assert.match((await act(page, slot.first(), "Release it")).question, /its attempt is used/);
  await page.goto("/queues");
  const resumed = await act(page, button("Resume: video"), "Resume it");
  assert.match(resumed.question, /\d+ jobs in line may start at once/);
  await act(page, button("Pause: video"), "Pause it");
  await page.goto(`/jobs/${job("pending", "email")}`);
  await act(page, button("Cancel"), "Cancel the job");
  assert.equal((await act(page, button("Retry"), "Retry the job")).said, "The job is in line again.");
  await page.goto("/jobs?task=email&state=pending");
  const cancelled = await act(page, button("Cancel all that match"), "Cancel them");
  const [, count] = /every pending job of task email.*?(\d+) jobs match/s.exec(cancelled.question);
  assert.equal(cancelled.said, `${count} jobs cancelled or asked to stop.`);
  await page.goto("/jobs?task=email");
  const retried = await act(page, button("Retry all that match"), "Retry them");
  assert.equal(retried.said, `${count} jobs in line again.`);
  await page.goto("/workflows/import-42");
  await act(page, button("Retry step 3"), "Retry the step");
  // It fails again.
  await act(page, button("Skip step 3"), "Skip the step");
  await page.getByText("finished").first().waitFor();
  await page.goto("/schedules");
  await act(page, button("Disable: nightly-report"), "Disable it");
  await act(page, button("Enable: nightly-report"), "Enable it");
  const { said } = await act(page, button("Run now: nightly-report"), "Run it now");
  assert.equal(said, "The schedule's job is submitted.");
  await close(page);
});

test("a workflow is cancelled", async () => {
  const options = ["--workflow", "import-43", "--max-attempts", "1"];
  for (const task of ["store_rows", "report"]) await world.submit(task, {}, ...options);
  const page = await tab();
  await page.goto("/workflows/import-43");
  await page.getByText("halted").first().waitFor();
  const { question } = await act(page, page.getByRole("button", { name: "Cancel the workflow" }), "Cancel the workflow");
  assert.match(question, /cannot be opened again/);
  await page.getByText("cancelled").first().waitFor();
  await close(page);
});

test("without scripts a limit is set all the same", async () => {
  const page = await tab({ javaScriptEnabled: false });
  await page.goto("/groups/call_openai");
  await page.getByLabel("Limit").fill("7");
  await page.getByRole("button", { name: "Set limit" }).click();
  await page.getByRole("heading", { name: "Set the limit of call_openai to 7?" }).waitFor();
  await page.getByRole("button", { name: "Set limit" }).click();
  await page.getByText("The limit is set.").waitFor();
  await page.getByText("5 of 7 slots taken").waitFor();
  await close(page);
});

// The last one: from the first token on, every caller may need one.
test("a token is revoked, and the audit log says what operators did", async () => {
  const page = await tab();
  const make = async (name, scope) => /qo_[a-z0-9]{8}_\S+/.exec(await world.qo("token", "create", name, "--scope", scope))[0];
  const ada = await make("ada", "admin");
  await make("ci", "submit");
  const row = page.getByRole("row", { name: /^ci / });
  // The server learns of the tokens within a moment, and then asks for one.
  let isSignedIn = false;
  await until(async () => {
    await page.goto("/tokens");
    const field = page.locator("input[type=password]");
    if (await field.count()) {
      await field.fill(ada);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.goto("/tokens");
      isSignedIn = true;
    }
    return isSignedIn && row.count();
  }, "the tokens show");
  // A page that was refused before signing in says so in the console.
  wrong.length = 0;
  const { question } = await act(page, row.getByRole("button"), "Revoke it");
  assert.match(question, /Revoke token ci/);
  assert.equal(await row.count(), 0);
  await page.goto("/audit");
  await page.getByText("revoke").first().waitFor();
  assert.ok(!(await page.content()).includes(ada.slice(12)), "no secret is shown");
  await close(page);
});
