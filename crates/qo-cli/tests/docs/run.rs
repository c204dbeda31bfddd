//! Every marked block of every page runs, in a directory of the page's own, and shows what the page says.

use crate::page::{Block, Page};
use qo_testkit::Bucket;
use std::cell::RefCell;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Where the store of a page is.
enum Ground {
    /// The default: a directory of the page's own.
    Directory,
    /// A server in memory.
    Bucket(Bucket),
    /// A database of its own, with no schema yet.
    Postgres(Database),
}

/// Longest time that the blocks of a page may take: a page that hangs must not hang the suite.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ends the output of each block.
const MARK: &str = "@@ end of block";

/// Runs the blocks of a page.
fn run(path: &str, ground: &Ground) {
    let page = Page::read(path);
    let place = Place { directory: tempfile::tempdir().expect("a directory"), path };
    let (mut outputs, mut script, mut expected) = (Vec::new(), String::new(), Vec::new());
    let mut blocks = 0;
    for block in page.blocks() {
        match block {
            Block::Shell(text) => {
                blocks += 1;
                script.push_str(&format!("{text}\necho '{MARK}'\n"));
            }
            Block::Sql(text) => {
                blocks += 1;
                outputs.extend(place.shell(std::mem::take(&mut script), ground));
                let Ground::Postgres(database) = ground else { panic!("{path}: SQL needs PostgreSQL") };
                outputs.push(database.query(&text));
            }
            Block::Shows(lines) => expected.push((blocks, lines)),
        }
    }
    outputs.extend(place.shell(script, ground));
    assert_eq!(outputs.len(), blocks, "{path}: every block has ended");
    for (block, lines) in expected {
        let output: &String = &outputs[block - 1];
        for line in lines {
            assert!(shows(output, &line), "{path}: {line:?} is not in the output:\n{output}");
        }
    }
}

/// Whether a line of the output is like this one, in which `…` stands for any text.
fn shows(output: &str, expected: &str) -> bool {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = words(expected);
    output.lines().any(|line| {
        let line = words(line);
        let mut rest = line.as_str();
        expected.split('…').all(|part| match rest.split_once(part.trim()) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

/// The directory in which a page's blocks run.
struct Place<'a> {
    directory: TempDir,
    path: &'a str,
}

impl Place<'_> {
    /// Runs a script and returns the output of each of its blocks. What it has left in the background is killed.
    fn shell(&self, script: String, ground: &Ground) -> Vec<String> {
        if script.is_empty() {
            return Vec::new();
        }
        let log = tempfile::NamedTempFile::new().expect("a file");
        // Both streams, and those of processes in the background, share one position in the file.
        let output = || Stdio::from(log.as_file().try_clone().expect("a file"));
        let qo = Path::new(env!("CARGO_BIN_EXE_qo")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QO_") {
                command.env_remove(name);
            }
        }
        command.env("PATH", format!("{}:{path}", qo.display())).env("NO_COLOR", "1").env("TZ", "UTC");
        match ground {
            Ground::Directory => {}
            Ground::Bucket(bucket) => {
                command.envs(bucket.environment()).env("QO_STORE", "s3://qo-test/jobs");
            }
            Ground::Postgres(database) => {
                command.env("QO_STORE", format!("{}?schema=qo", database.url));
            }
        }
        command.args(["-eu", "-c", &script]).current_dir(self.directory.path()).process_group(0);
        let mut shell =
            command.stdin(Stdio::null()).stdout(output()).stderr(output()).spawn().expect("sh starts");
        let group = shell.id();
        let (ended, wait) = mpsc::channel();
        std::thread::spawn(move || ended.send(shell.wait()));
        let status = wait.recv_timeout(PATIENCE);
        // Workers in the background, and a script that hangs.
        let _ =
            Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
        let text = String::from_utf8_lossy(&fs::read(log.path()).expect("the output")).into_owned();
        let path = self.path;
        match status {
            Ok(Ok(status)) => assert!(status.success(), "{path}: {status}\n{text}"),
            other => panic!("{path}: not done within {PATIENCE:?} ({other:?})\n{text}"),
        }
        let mut outputs: Vec<String> = text.split(MARK).map(str::to_owned).collect();
        outputs.pop();
        outputs
    }
}

/// A database of its own, dropped at the end.
struct Database {
    name: String,
    url: String,
    /// Roles that the page has made: those are the server's, not the database's.
    roles: RefCell<Vec<String>>,
}

fn server() -> String {
    std::env::var("QO_TEST_POSTGRES").expect(
        "QO_TEST_POSTGRES must be the URL of a server; `make test` starts one: scripts/with_postgres.py",
    )
}

/// Runs statements at a URL, and returns the rows, a line for each.
fn query(url: &str, statements: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        let answers = client.simple_query(statements).await;
        let answers = answers.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        let mut text = String::new();
        for answer in answers {
            if let SimpleQueryMessage::Row(row) = answer {
                let cells: Vec<&str> = (0..row.len()).map(|cell| row.get(cell).unwrap_or("")).collect();
                text.push_str(&format!("{}\n", cells.join(" | ")));
            }
        }
        text
    })
}

impl Database {
    fn new(name: &str) -> Self {
        let name = format!("docs_{name}_{}", std::process::id());
        let server = server();
        query(&server, &format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"));
        let (place, _) = server.rsplit_once('/').expect("a database");
        Self { url: format!("{place}/{name}"), name, roles: RefCell::default() }
    }

    fn query(&self, statements: &str) -> String {
        for made in statements.split("CREATE ROLE ").skip(1) {
            let role: String = made.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            query(&self.url, &format!("DROP ROLE IF EXISTS {role}"));
            self.roles.borrow_mut().push(role);
        }
        query(&self.url, statements)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        query(&server(), &format!("DROP DATABASE {} WITH (FORCE)", self.name));
        for role in self.roles.borrow().iter() {
            query(&server(), &format!("DROP ROLE {role}"));
        }
    }
}

/// A test for each page that has marked blocks, and a test that no such page is left out.
macro_rules! pages {
    ($($test:ident: $path:literal on $ground:expr,)*) => {
        $(#[test]
        fn $test() {
            run($path, &$ground);
        })*

        #[test]
        fn every_page_with_marked_blocks_is_run() {
            let marked = Page::all().into_iter().filter(|page| !page.blocks().is_empty());
            let mut marked: Vec<String> = marked.map(|page| page.path).collect();
            let mut listed = vec![$($path.to_owned()),*];
            marked.sort();
            listed.sort();
            assert_eq!(marked, listed);
        }
    };
}

pages! {
    the_five_minutes_of_the_readme_run: "README.md" on Ground::Directory,
    the_first_tutorial_runs: "docs/tutorial/first-limit.md" on Ground::Directory,
    limits_and_keys_runs: "docs/how-to/limits-and-keys.md" on Ground::Directory,
    retries_and_errors_runs: "docs/how-to/retries-and-errors.md" on Ground::Directory,
    idempotency_runs: "docs/how-to/idempotency.md" on Ground::Directory,
    workflows_runs: "docs/how-to/workflows.md" on Ground::Directory,
    schedules_runs: "docs/how-to/schedules.md" on Ground::Directory,
    program_tasks_runs: "docs/how-to/program-tasks.md" on Ground::Directory,
    slots_for_scripts_runs: "docs/how-to/slots-for-scripts.md" on Ground::Directory,
    run_on_a_directory_runs: "docs/how-to/run-on-a-directory.md" on Ground::Directory,
    operations_runs: "docs/how-to/operations.md" on Ground::Directory,
    troubleshooting_runs: "docs/how-to/troubleshooting.md" on Ground::Directory,
    run_in_a_bucket_runs: "docs/how-to/run-in-a-bucket.md" on Ground::Bucket(Bucket::start(1)),
    run_on_postgresql_runs: "docs/how-to/run-on-postgresql.md" on Ground::Postgres(Database::new("howto")),
    the_sql_reference_runs: "docs/reference/sql.md" on Ground::Postgres(Database::new("sql")),
}
