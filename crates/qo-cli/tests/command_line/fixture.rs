//! A directory, and `qo` in it.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The output of a command, and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Asserts this exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// Asserts success.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    /// Asserts that stdout is one JSON document, and returns it.
    #[track_caller]
    pub fn json(self) -> Value {
        let ran = self.ok();
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    }

    /// Asserts that stdout is one line, and returns it.
    #[track_caller]
    pub fn line(self) -> String {
        let ran = self.ok();
        let line = ran.out.trim_end_matches('\n');
        assert!(!line.is_empty() && !line.contains('\n'), "{:?}", ran.out);
        line.to_owned()
    }

    /// Asserts that stderr contains this.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        assert!(self.err.contains(part), "{part:?} is not in stderr: {}", self.err);
        self
    }

    /// Asserts that stdout contains this.
    #[track_caller]
    pub fn shows(self, part: &str) -> Self {
        assert!(self.out.contains(part), "{part:?} is not in stdout: {}", self.out);
        self
    }
}

/// A directory of its own for one test.
pub struct Here {
    directory: TempDir,
}

impl Here {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> &Self {
        fs::write(self.path(name), text).expect("written");
        self
    }

    /// Writes a program.
    pub fn script(&self, name: &str, text: &str) -> &Self {
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).expect("executable");
        self
    }

    /// `qo`, ready to run here, without anything of this process's environment that could be a setting.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QO_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.directory.path()).env("NO_COLOR", "1").env("TZ", "UTC");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn qo(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments).spawn().expect("qo starts"), "")
    }

    /// The same, with something on stdin.
    pub fn qo_with(&self, arguments: &[&str], stdin: &str) -> Ran {
        ran(self.command(arguments).stdin(Stdio::piped()).spawn().expect("qo starts"), stdin)
    }

    /// A worker that runs until it is dropped.
    pub fn worker(&self, arguments: &[&str]) -> Worker {
        let name = arguments.iter().skip_while(|argument| **argument != "--name").nth(1).unwrap_or(&"w1");
        let mut all = vec!["worker", "--name", name];
        all.extend(arguments);
        if arguments.contains(&"--name") {
            all.drain(1..3);
        }
        let log = fs::File::create(self.path(&format!("{name}.log"))).expect("a log");
        let child = self.command(&all).stdout(Stdio::null()).stderr(log).spawn().expect("qo starts");
        let worker = Worker { child };
        until("the worker is alive", || {
            let workers = self.qo(&["workers", "--json"]);
            workers.code == 0 && workers.out.contains(&format!("\"{name}\""))
        });
        worker
    }

    /// Every job, as JSON.
    pub fn jobs(&self) -> Vec<Value> {
        self.qo(&["jobs", "list", "--json"]).json().as_array().expect("an array").clone()
    }
}

fn ran(mut child: Child, stdin: &str) -> Ran {
    if let Some(mut pipe) = child.stdin.take() {
        // A command that fails early need not read it.
        let _ = pipe.write_all(stdin.as_bytes());
    }
    let output = child.wait_with_output().expect("qo ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A moment of a JSON document, in milliseconds since 1970.
#[track_caller]
pub fn millis(moment: &Value) -> i64 {
    let text = moment.as_str().unwrap_or_else(|| panic!("{moment}: no moment"));
    let moment: jiff::Timestamp = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    moment.as_millisecond()
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::yield_now();
    }
}

/// A worker process.
pub struct Worker {
    child: Child,
}

impl Worker {
    /// A process that the test started in another way.
    pub fn of(child: Child) -> Self {
        Self { child }
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end.
    pub fn wait(mut self) -> i32 {
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {process}");
}
