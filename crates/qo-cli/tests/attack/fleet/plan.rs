//! The jobs of an attack, the limits that they are under, and the configuration of the fleet.

use super::probe::{self, Orders};
use qo_testkit::random::Random;
use serde_json::{Value, json};

/// Every limit, at its highest: the operator only lowers limits, and restores them.
pub const LIMITS: [(&str, u32); 8] = [
    ("cluster", 10),
    ("queue:slow", 3),
    ("plain", 4),
    ("keyed", 6),
    ("keyed/*", 1),
    ("db", 3),
    ("gpu", 4),
    ("api/eu", 2),
];
/// The key of the schedule's jobs: one at a time.
pub const TICK: &str = "tick/tick";
const KEYS: u64 = 5;
/// Numbers from here on are those of scripts that take slots. A killed script does not run again.
pub const SCRIPTS: u64 = 1_000_000_000;

/// The limit of a group at its highest.
pub fn limit(group: &str) -> u32 {
    let of = |name: &str| LIMITS.iter().find(|(group, _)| *group == name).map(|(_, limit)| *limit);
    let pattern = || of(&format!("{}/*", group.split_once('/')?.0));
    if group == TICK { 1 } else { of(group).or_else(pattern).expect("a limit") }
}

/// How a submit can be repeated after a lost answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Its lines have ids.
    Id,
    /// Its lines have idempotency keys.
    Key,
    /// Not at all: the jobs may exist or not.
    Never,
}

/// One job.
#[derive(Debug, Clone)]
pub struct Job {
    pub number: u64,
    /// The groups that limit it, and the slots it takes there.
    pub needs: Vec<(String, u32)>,
    /// The workflow that it is a step of. Steps have rising numbers.
    pub workflow: Option<String>,
    /// Its line in a file of jobs.
    pub line: Value,
}

/// The slots that a job of a schedule takes.
pub fn needs_of_a_tick() -> Vec<(String, u32)> {
    vec![("cluster".to_owned(), 1), (TICK.to_owned(), 1)]
}

/// Makes jobs with rising numbers. Each plan has its own: a first number, and a stride.
pub struct Plan {
    dice: Random,
    next: u64,
    stride: u64,
}

impl Plan {
    pub fn new(dice: Random, first: u64, stride: u64) -> Self {
        Self { dice, next: first, stride }
    }

    /// Jobs for one submit.
    pub fn batch(&mut self) -> (Again, Vec<Job>) {
        if self.dice.percent(15) {
            return (Again::Key, self.workflow());
        }
        let again = self.dice.pick(&[Again::Id, Again::Key, Again::Never]);
        let jobs = (0..self.dice.within(3..=9)).map(|_| self.job(again)).collect();
        (again, jobs)
    }

    /// Steps that run one after another; some need a second attempt.
    fn workflow(&mut self) -> Vec<Job> {
        let name = format!("flow{}", self.next);
        let steps = (0..self.dice.within(2..=4)).map(|_| {
            let mut job = self.bare("plain", Again::Key);
            job.line["workflow"] = json!(name);
            job.workflow = Some(name.clone());
            job
        });
        steps.collect()
    }

    /// A job of any kind.
    fn job(&mut self, again: Again) -> Job {
        match self.dice.below(6) {
            0 => self.bare("plain", again),
            1 | 2 => {
                let mut job = self.bare("keyed", again);
                let key = format!("k{}", self.dice.within(1..=KEYS));
                job.line["key"] = json!(key);
                job.needs.push((format!("keyed/{key}"), 1));
                job
            }
            3 => {
                let mut job = self.bare("line", again);
                let cost = self.dice.within(1..=2) as u32;
                job.line["group"] = json!("db");
                job.line["cost"] = json!(cost);
                job.needs.push(("db".to_owned(), cost));
                job
            }
            4 => {
                let mut job = self.bare("par", again);
                job.line["queue"] = json!("slow");
                job.needs.push(("queue:slow".to_owned(), 1));
                job
            }
            _ => {
                let mut job = self.bare("free", again);
                let slots = self.dice.within(1..=2) as u32;
                job.line["limits"] = json!({"gpu": slots, "api/eu": 1});
                job.needs.extend([("gpu".to_owned(), slots), ("api/eu".to_owned(), 1)]);
                if again == Again::Key && self.dice.percent(30) {
                    job.line["on_limit"] = json!("skip");
                }
                job
            }
        }
    }

    /// A job of a task, with nothing but its orders.
    fn bare(&mut self, task: &str, again: Again) -> Job {
        let number = self.next;
        self.next += self.stride;
        let mut orders = Orders { number, ms: self.dice.within(20..=250), ..Orders::default() };
        match self.dice.below(10) {
            // A shell line that ends with `wait` succeeds however its programs end, so they must succeed.
            0 | 2 if task == "par" => {}
            0 => orders.good_from = 2,
            1 => orders.hangs = true,
            // A failed step would halt its workflow. Only jobs whose answer does not matter fail.
            2 if again == Again::Never => orders.fails = true,
            _ => {}
        }
        let mut line = json!({"task": task, "payload": orders, "max_attempts": 500});
        if orders.hangs {
            line["timeout"] = json!("1s");
        }
        match again {
            Again::Id => line["id"] = json!(self.dice.uuid(1_800_000_000_000 + number).to_string()),
            Again::Key => line["idempotency_key"] = json!(format!("job-{number}")),
            Again::Never => {}
        }
        let mut needs = vec![("cluster".to_owned(), 1)];
        if LIMITS.iter().any(|(group, _)| *group == task) {
            needs.push((task.to_owned(), 1));
        }
        Job { number, needs, workflow: None, line }
    }
}

/// The configuration that every process of the fleet reads.
pub fn configuration(store: &str, lease_secs: u64) -> String {
    let words = probe::command();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (list, probe) = (json!(words).to_string(), quoted.join(" "));
    // A shell would give a background command no stdin of its own. `timeout` makes a process group of its own.
    let line = json!(format!("exec 3<&0; timeout 60 {probe} <&3 & wait $!"));
    let par = json!(format!("exec 3<&0; {probe} <&3 & wait"));
    let [(_, cluster), (_, slow), (_, plain), ..] = LIMITS;
    let mut limits = String::new();
    for (group, limit) in LIMITS.iter().skip(3) {
        limits.push_str(&format!("\"{group}\" = {limit}\n"));
    }
    let retry = "retry = { base_ms = 20, max_ms = 200 }\n";
    format!(
        "store = \"{store}\"\n\
         [concurrency]\ndefault_lease_duration_secs = {lease_secs}\ncluster_wide_cap = {cluster}\n\
         [concurrency.limits]\n{limits}\
         [queues.slow]\nmax_concurrency = {slow}\n\
         [tasks.plain]\ncommand = {list}\nmax_concurrent = {plain}\n{retry}\
         [tasks.keyed]\ncommand = {list}\n{retry}\
         [tasks.free]\ncommand = {list}\n{retry}\
         [tasks.line]\ncommand = {line}\n{retry}\
         [tasks.par]\ncommand = {par}\n{retry}\
         [tasks.tick]\ncommand = {list}\n{retry}\
         [schedules.tick]\ncron = \"* * * * * *\"\ntask = \"tick\"\nmax_attempts = 500\n\
         payload = {{ number = 0, ms = 100 }}\n\
         [worker]\nprocesses = 4\ncancel_grace_ms = 500\n"
    )
}
