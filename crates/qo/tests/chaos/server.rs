//! The PostgreSQL server, as somebody with rights over it sees it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::Command;
use tokio_postgres::{Client, Config, NoTls};

/// A server that may be restarted.
pub struct Server {
    url: String,
    data: PathBuf,
    pg_ctl: PathBuf,
    /// Deadlocks that were counted before the count was last lost.
    deadlocks: i64,
    restarted: bool,
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
            deadlocks: 0,
            restarted: false,
        };
        server.deadlocks = -server.counted_deadlocks().await;
        server
    }

    /// A new namespace, and its URL.
    pub async fn namespace(&self, schema: &str) -> String {
        let drop = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        self.connect().await.expect("it answers").batch_execute(&drop).await.expect("it goes");
        let mark = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{mark}schema={schema}", self.url);
        qo::migrate::up(&url).await.expect("it is made");
        url
    }

    async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let mut config: Config = self.url.parse()?;
        let (client, connection) = config.application_name("chaos").connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Cuts every connection of everybody who works, and says how many; none if the server is down just now.
    pub async fn cut(&self) -> Option<i64> {
        let client = self.connect().await.ok()?;
        let cut = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE application_name = 'qo' AND datname = current_database()";
        Some(client.query_one(cut, &[]).await.ok()?.get(0))
    }

    /// Crashes the server and starts it again. It is back when this returns.
    pub async fn crash(&mut self) {
        if !self.restarted {
            self.deadlocks += self.counted_deadlocks().await;
            self.restarted = true;
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

    /// How many times somebody waited in a circle. A crash resets the server's count, so from the first one on its log is
    /// what counts.
    pub async fn deadlocks(&self) -> i64 {
        match self.restarted {
            true => self.deadlocks + self.written().matches("deadlock detected").count() as i64,
            false => self.deadlocks + self.counted_deadlocks().await,
        }
    }

    async fn counted_deadlocks(&self) -> i64 {
        let client = self.connect().await.expect("it answers");
        let count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        client.query_one(count, &[]).await.expect("a row").get(0)
    }
}
