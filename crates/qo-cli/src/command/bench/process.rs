//! A process that works, or serves, for the benchmark: both ends of it.
//!
//! They talk in lines. `done` asks how many jobs are done, `cpu` how much processor time the process has used, in
//! nanoseconds, `memory` how many bytes it has resident, `requests` how many requests it has made to a bucket, `address`
//! where it listens. When stdin closes, the process drains, writes its [`Report`] as JSON and ends.

use super::noop::{Noop, Tally, options};
use crate::machine::{cpu_ns, resident_bytes};
use crate::trouble::Done;
use clap::Args;
use qo::bucket::{Requests, Traffic};
use qo::core::{ClaimSettings, ErrorKind};
use qo::{Error, Result, ShutdownHandle, Store, WorkerOptions};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// What a process reports at its end. A server has done no jobs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Jobs that it did.
    pub done: u64,
    /// When the last one was done, on the machine's monotonic clock.
    pub last_ns: u64,
    /// How long each job waited that carries the time of its submit, in milliseconds.
    pub waits_ms: Vec<f64>,
}

/// A worker process of `qo bench`, which starts it.
#[derive(Debug, Args)]
pub struct BenchWorker {
    /// How long its session lives.
    #[arg(long)]
    lease_ms: Option<u64>,
    /// Jobs that it runs at once.
    #[arg(long)]
    permits: Option<u32>,
    /// Jobs that it claims with one exchange.
    #[arg(long)]
    batch: Option<u32>,
    /// Workers in the process, each with a connection of its own.
    #[arg(long, default_value_t = 1)]
    workers: u32,
}

/// A server process of `qo bench`, which starts it.
#[derive(Debug, Args)]
pub struct BenchServer {}

/// Opens the store that `qo bench` names, and counts its requests if it is a bucket.
async fn open() -> Result<(Arc<dyn Store>, Option<Arc<Traffic>>)> {
    let missing = |_| Error::invalid("QO_STORE", "", "must name the store: `qo bench` starts this");
    let url = std::env::var("QO_STORE").map_err(missing)?;
    match url.starts_with("s3:") {
        true => qo::bucket::connect(&url).await.map(|(store, traffic)| (store, Some(traffic))),
        false => Ok((qo::connect(&url).await?, None)),
    }
}

/// Answers what every process of the benchmark is asked. None if it is another question.
fn facts(question: &str, traffic: Option<&Traffic>) -> Option<String> {
    Some(match question {
        "cpu" => cpu_ns().to_string(),
        "memory" => resident_bytes().to_string(),
        "requests" => {
            let Requests { puts, gets, lists, deletes } =
                traffic.map_or_else(Requests::default, Traffic::requests);
            format!("{puts} {gets} {lists} {deletes}")
        }
        _ => return None,
    })
}

/// Answers the lines of stdin on a thread, and calls `end` when stdin closes.
fn answer(
    answer: impl Fn(&str) -> Option<String> + Send + 'static,
    end: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let answering = move || {
        let _ = writeln!(std::io::stdout(), "ready");
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if let Some(answer) = answer(&line) {
                let _ = writeln!(std::io::stdout(), "{answer}");
            }
        }
        end();
    };
    let started = std::thread::Builder::new().name("bench-stdin".into()).spawn(answering);
    let failed = |error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}"));
    started.map(drop).map_err(failed)
}

fn report(report: &Report) -> Done {
    let text = serde_json::to_string(report)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("report: {error}")))?;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

impl BenchServer {
    /// Serves until stdin is closed.
    pub async fn run(self) -> Done {
        let (store, traffic) = open().await?;
        let listener = qo_server::bind("127.0.0.1:0").await?;
        let server = qo_server::Server::new(listener, store, qo_server::Options::default())?;
        let (address, stopper) = (server.address().to_string(), server.stopper());
        let answers = move |question: &str| match question {
            "address" => Some(address.clone()),
            other => facts(other, traffic.as_deref()),
        };
        answer(answers, move || stopper.stop())?;
        server.run().await?;
        report(&Report::default())
    }
}

impl BenchWorker {
    /// Works until stdin is closed.
    pub async fn run(self) -> Done {
        let (store, traffic) = open().await?;
        let usual = options();
        let batch = self.batch.unwrap_or(usual.claim.claim_batch_size);
        let options = WorkerOptions {
            lease: self.lease_ms.map_or(usual.lease, Duration::from_millis),
            max_concurrent_tasks: self.permits.or(usual.max_concurrent_tasks),
            claim: ClaimSettings { claim_batch_size: batch, ..usual.claim },
            ..usual
        };
        let tally = Arc::new(Tally::default());
        let mut workers = vec![Noop::start_with(&store, options.clone(), Arc::clone(&tally)).await?];
        let mut others = JoinSet::new();
        for _ in 1..self.workers {
            let (options, tally) = (options.clone(), Arc::clone(&tally));
            others.spawn(async move { Noop::start_with(&open().await?.0, options, tally).await });
        }
        while let Some(started) = others.join_next().await {
            let gone = |error| Error::new(ErrorKind::Internal, format!("a worker is gone: {error}"));
            workers.push(started.map_err(gone)??);
        }
        let shutdowns: Vec<_> = workers.iter().map(Noop::shutdown).collect();
        let counted = Arc::clone(&tally);
        let answers = move |question: &str| match question {
            "done" => Some(counted.done().to_string()),
            other => facts(other, traffic.as_deref()),
        };
        answer(answers, move || shutdowns.iter().for_each(ShutdownHandle::drain))?;
        for worker in workers {
            worker.wait().await?;
        }
        report(&Report { done: tally.done(), last_ns: tally.last_ns(), waits_ms: tally.waits_ms() })
    }
}

/// A process that was started. It does not outlive this.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it. It may not be ready yet.
    pub fn start(url: &str) -> Result<Self> {
        Self::start_with(url, &[])
    }

    /// The same, with more arguments.
    pub fn start_with(url: &str, arguments: &[&str]) -> Result<Self> {
        Self::run("bench-worker", url, arguments)
    }

    /// Starts a server of this store, and waits until it serves.
    pub fn serve(url: &str) -> Result<Self> {
        let mut server = Self::run("bench-server", url, &[])?;
        server.wait_until_ready()?;
        Ok(server)
    }

    fn run(what: &str, url: &str, arguments: &[&str]) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unavailable, format!("{what} does not start: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg(what)
            .args(arguments)
            .env("QO_STORE", url)
            .env_remove("QO_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The benchmark handles Ctrl-C: its workers end with it.
            .process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| failed(std::io::Error::other("it has no stdout")))?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    /// Waits until it works.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            line => {
                Err(Error::new(ErrorKind::Internal, format!("a worker said {line:?} before it was ready")))
            }
        }
    }

    /// Jobs that it has done.
    pub fn done(&mut self) -> Result<u64> {
        self.ask("done")
    }

    /// Processor time that it has used, in nanoseconds.
    pub fn cpu_ns(&mut self) -> Result<u64> {
        self.ask("cpu")
    }

    /// Bytes of memory that it has resident.
    pub fn memory(&mut self) -> Result<u64> {
        self.ask("memory")
    }

    /// The URL of a server.
    pub fn url(&mut self) -> Result<String> {
        Ok(format!("http://{}", self.answer("address")?))
    }

    /// The requests that it has made to a bucket.
    pub fn requests(&mut self) -> Result<Requests> {
        let line = self.answer("requests")?;
        let numbers: Vec<u64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
        match numbers[..] {
            [puts, gets, lists, deletes] => Ok(Requests { puts, gets, lists, deletes }),
            _ => Err(strange(&line)),
        }
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        let failed = |error| Error::new(ErrorKind::Internal, format!("a worker cannot be killed: {error}"));
        self.child.kill().map_err(failed)
    }

    /// Drains it, and returns its report.
    pub fn end(mut self) -> Result<Report> {
        drop(self.stdin.take());
        let line = self.line()?;
        serde_json::from_str(&line)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("a worker reported {line:?}: {error}")))
    }

    fn ask(&mut self, what: &str) -> Result<u64> {
        let line = self.answer(what)?;
        line.parse().map_err(|_| strange(&line))
    }

    fn answer(&mut self, what: &str) -> Result<String> {
        let gone = |error| Error::new(ErrorKind::Internal, format!("a worker is gone: {error}"));
        if let Some(stdin) = &mut self.stdin {
            writeln!(stdin, "{what}").map_err(gone)?;
        }
        self.line()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(1..) => Ok(line.trim_end().to_owned()),
            Ok(0) | Err(_) => Err(Error::new(ErrorKind::Internal, "a worker ended by itself")),
        }
    }
}

fn strange(answer: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("a worker answered {answer:?}"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
