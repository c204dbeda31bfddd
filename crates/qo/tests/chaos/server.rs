//! The PostgreSQL server, as a superuser sees it.

use std::cell::OnceCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::interval;
use tokio_postgres::{Client, Config, NoTls};

/// Workers connect as one of these roles, so that some can be shut out while others go on.
pub const ROLES: [&str; 2] = ["chaos_left", "chaos_right"];

/// A server that may be restarted.
pub struct Server {
    url: String,
    data: PathBuf,
    pg_ctl: PathBuf,
    /// What it had counted when the test began.
    deadlocks_before: i64,
    /// What it had counted just before its first crash: a crash resets the count.
    deadlocks_at_crash: OnceCell<i64>,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} must say where a server is; `make test` starts one: scripts/with_postgres.py")
    })
}

impl Server {
    pub async fn from_environment() -> Self {
        let mut server = Self {
            url: variable("QO_TEST_POSTGRES_15"),
            data: variable("QO_TEST_POSTGRES_DIR_15").into(),
            pg_ctl: PathBuf::from(variable("QO_TEST_POSTGRES_BIN_15")).join("pg_ctl"),
            deadlocks_before: 0,
            deadlocks_at_crash: OnceCell::new(),
        };
        server.deadlocks_before = server.counted_deadlocks().await;
        server
    }

    /// A new namespace, and its URL.
    pub async fn namespace(&self, schema: &str) -> String {
        let client = self.connect().await.expect("it answers");
        let drop = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        client.batch_execute(&drop).await.expect("it goes");
        let mark = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{mark}schema={schema}", self.url);
        qo::migrate::up(&url).await.expect("it is made");
        for role in ROLES {
            let make = format!(
                "DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; SELECT {schema}.allow('{role}', 'work')"
            );
            client.batch_execute(&make).await.expect("it is made");
        }
        url
    }

    /// Shuts one of the roles out: its connections are cut, and it gets no new ones.
    pub async fn shut_out(&self, role: &str) {
        let cut = format!(
            "ALTER ROLE {role} NOLOGIN;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        );
        self.do_sometime(&cut).await;
    }

    /// Lets it in again.
    pub async fn let_in(&self, role: &str) {
        self.do_sometime(&format!("ALTER ROLE {role} LOGIN")).await;
    }

    /// Runs a statement; if the server is down, when it is back.
    async fn do_sometime(&self, sql: &str) {
        let mut every = interval(Duration::from_millis(20));
        loop {
            every.tick().await;
            let Ok(client) = self.connect().await else { continue };
            if client.batch_execute(sql).await.is_ok() {
                return;
            }
        }
    }

    pub async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let mut config: Config = self.url.parse()?;
        let (client, connection) = config.application_name("chaos").connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Cuts every connection of a worker or client, and returns how many; none if the server is down just now.
    pub async fn cut(&self) -> Option<i64> {
        let client = self.connect().await.ok()?;
        let cut = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE application_name = 'qo'";
        Some(client.query_one(cut, &[]).await.ok()?.get(0))
    }

    /// Crashes the server and starts it again. It is back when this returns.
    pub async fn crash(&self) {
        if self.deadlocks_at_crash.get().is_none() {
            let counted = self.counted_deadlocks().await;
            self.deadlocks_at_crash.set(counted).expect("there is one first time");
        }
        let owner = fs::metadata(&self.data).expect("a data directory");
        let mut command = Command::new(&self.pg_ctl);
        command.args(["-m", "immediate", "-s", "-w", "-t", "60", "-D"]).arg(&self.data);
        command.arg("-l").arg(self.log()).arg("restart").current_dir("/").stdin(Stdio::null());
        // A server does not run as root.
        if rustix::process::geteuid().is_root() {
            command.uid(owner.uid()).gid(owner.gid());
        }
        let status = command.status().await.expect("pg_ctl runs");
        assert!(status.success(), "the server does not come back: {}", self.written());
    }

    /// What the server writes since its first restart.
    fn log(&self) -> PathBuf {
        self.data.join("chaos.log")
    }

    fn written(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Deadlocks: what the server counted until its first crash, and what it logged since.
    pub async fn deadlocks(&self) -> i64 {
        let written = self.written().matches("deadlock detected").count() as i64;
        match self.deadlocks_at_crash.get() {
            Some(counted) => counted - self.deadlocks_before + written,
            None => self.counted_deadlocks().await - self.deadlocks_before,
        }
    }

    async fn counted_deadlocks(&self) -> i64 {
        let client = self.connect().await.expect("it answers");
        let count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        client.query_one(count, &[]).await.expect("a row").get(0)
    }
}
