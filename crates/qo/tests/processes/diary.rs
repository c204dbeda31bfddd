//! What the handlers themselves record: from when to when they ran, and with which token. It is the judge.

use crate::stage::now_us;
use qo::Context;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The diary of one process: one file, a line at a time.
pub struct Diary(Mutex<File>);

impl Diary {
    pub fn new(folder: &Path) -> Self {
        let path = folder.join(format!("diary-{}", std::process::id()));
        Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path).expect("a file")))
    }

    fn write(&self, what: &str, context: &Context) {
        let key = context.key().map(ToString::to_string).unwrap_or_default();
        let line = format!("{what} {} {} {key}\n", now_us(), context.fence_token());
        self.0.lock().expect("no panic").write_all(line.as_bytes()).expect("written");
    }
}

/// A handler that runs. It records its end, however it ends.
pub struct Presence(Arc<Diary>, Context);

impl Presence {
    pub fn new(diary: Arc<Diary>, context: Context) -> Self {
        diary.write("start", &context);
        Self(diary, context)
    }

    /// It still runs.
    pub fn beat(&self) {
        self.0.write("beat", &self.1);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.write("end", &self.1);
    }
}

/// A run of a handler: its process, and from when to when.
#[derive(Debug, Clone)]
pub struct Run {
    pub pid: u32,
    pub token: u64,
    pub key: String,
    pub from: u64,
    pub to: u64,
    /// When it recorded in between that it runs.
    pub beats: Vec<u64>,
}

/// What all processes wrote in a folder: a line when a handler starts, a line when it ends. `killed` has a time for
/// each killed process at which it was surely dead. Runs that it had not ended by then ended with it.
pub fn read(folder: &Path, killed: &BTreeMap<u32, u64>) -> Vec<Run> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("diary-").and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let mut open = BTreeMap::new();
        let text = fs::read_to_string(&path).expect("a diary");
        // The last line may have been cut short by the kill.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [what, at, token, key] = words[..] else { panic!("a strange line: {line}") };
            let (at, token): (u64, u64) = (at.parse().expect("a time"), token.parse().expect("a token"));
            match what {
                "start" => {
                    let (key, beats) = (key.to_owned(), Vec::new());
                    open.insert(token, Run { pid, token, key, from: at, to: u64::MAX, beats });
                }
                "beat" => open.get_mut(&token).expect("it runs").beats.push(at),
                _ => runs.extend(open.remove(&token).map(|run| Run { to: at, ..run })),
            }
        }
        let died = killed.get(&pid).copied().unwrap_or(u64::MAX);
        runs.extend(open.into_values().map(|run| Run { to: died, ..run }));
    }
    runs
}

/// How many ran at once, at most.
pub fn most_at_once<'a>(runs: impl Iterator<Item = &'a Run>) -> usize {
    // At the same moment, ends come before starts: a recorded end is over.
    let mut moments: Vec<(u64, i32)> = runs.flat_map(|run| [(run.from, 1), (run.to, -1)]).collect();
    moments.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in moments {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).expect("more starts than ends")
}
