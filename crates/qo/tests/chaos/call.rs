//! What each process asked of the store, and what it was answered.
//!
//! Like the [records](crate::record) of jobs: each process appends to a file of its own, one line for each event, with
//! one write. It writes a call down before it sends it, so every change has a known caller. Times are of the machine's
//! clock, which commit timestamps use, too.

use async_trait::async_trait;
use qo::Store;
use qo::core::{Answer, Command, Error, ErrorKind, Exchange, ExchangeReply, Result};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Microseconds on the machine's clock.
pub fn clock_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Sent {
        call: u64,
        at_us: u64,
        command: Command,
    },
    /// Without an answer there was nothing to fetch, and nothing happened.
    Heard {
        call: u64,
        at_us: u64,
        answer: Result<Option<Answer>>,
    },
}

/// One call of a process.
#[derive(Debug)]
pub struct Call {
    /// The worker's number; 0 is the test itself.
    pub process: usize,
    pub sent_us: u64,
    pub command: Arc<Command>,
    /// When it was answered, and what; none if its caller died, or stopped waiting.
    pub heard: Option<(u64, Result<Option<Answer>>)>,
}

impl Call {
    /// Whether its caller cannot rule out that it happened.
    pub fn may_have_happened(&self) -> bool {
        match &self.heard {
            None => true,
            Some((_, Ok(answer))) => answer.is_some(),
            Some((_, Err(error))) => {
                matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Internal | ErrorKind::Data)
            }
        }
    }
}

/// The file of a process.
pub fn path(folder: &Path, process: usize) -> PathBuf {
    folder.join(format!("calls-{process}"))
}

/// Reads what a process wrote: nothing, if it ended before it wrote. An incomplete last line is left out: that call was
/// never made.
pub fn read(folder: &Path, process: usize) -> Vec<Call> {
    let bytes = fs::read(path(folder, process)).unwrap_or_default();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[] as &[u8], |end| &bytes[..end]);
    let mut calls = BTreeMap::new();
    for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line).expect("a line") {
            Line::Sent { call, at_us, command } => {
                let command = Arc::new(command);
                calls.insert(call, Call { process, sent_us: at_us, command, heard: None });
            }
            Line::Heard { call, at_us, answer } => {
                calls.get_mut(&call).expect("it was sent").heard = Some((at_us, answer));
            }
        }
    }
    calls.into_values().collect()
}

/// A store that writes its calls down.
pub fn written_down(store: Arc<dyn Store>, path: &Path) -> Arc<dyn Store> {
    let file = File::options().create_new(true).append(true).open(path).expect("a file");
    Arc::new(Intercepted(Pen { store, file: Mutex::new(file), calls: AtomicU64::new(0) }))
}

struct Pen {
    store: Arc<dyn Store>,
    file: Mutex<File>,
    calls: AtomicU64,
}

impl Pen {
    fn write(&self, line: &Line) {
        let mut line = serde_json::to_vec(line).expect("JSON");
        line.push(b'\n');
        self.file.lock().expect("no panic").write_all(&line).expect("written");
    }

    /// The number of a call that is about to be made.
    fn sent(&self, command: &Command) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.write(&Line::Sent { call, at_us: clock_us(), command: command.clone() });
        call
    }

    fn heard(&self, call: u64, answer: Result<Option<Answer>>) {
        self.write(&Line::Heard { call, at_us: clock_us(), answer });
    }
}

#[async_trait]
impl Intercept for Pen {
    async fn command(&self, command: Command) -> Result<Answer> {
        let sent = self.sent(&command);
        let answer = call(&*self.store, command).await;
        self.heard(sent, answer.clone().map(Some));
        answer
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        let sent = self.sent(&Command::Exchange(exchange.clone()));
        let answer: Result<_, Error> = self.store.fetch(exchange).await;
        self.heard(sent, answer.clone().map(|reply| reply.map(|reply| Answer::Exchanged(Box::new(reply)))));
        answer
    }
}
