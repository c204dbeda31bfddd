//! No log and no answer holds a secret, a path or a line of SQL.

use super::client::{ask, connect, remote_as};
use super::{Rights, bearer, create, name};
use crate::stage::{Served, block_on, remote};
use async_trait::async_trait;
use qo_core::Scope::Admin;
use qo_core::{Answer, Command, Error, ErrorKind, GroupRef, JobFilter, JobId, MemoryStore, NewJob, Result};
use qo_core::{Store, TaskOptions};
use qo_testkit::intercept::{Intercept, Intercepted};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// The test runs in a process of its own: tracing remembers for all threads which events no thread wants to see.
#[test]
fn nothing_in_the_log_or_an_answer_holds_a_secret() {
    const ALONE: &str = "QO_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let this = std::env::current_exe().expect("a program");
        let test = "guard::secrets::nothing_in_the_log_or_an_answer_holds_a_secret";
        let child = std::process::Command::new(this).args([test, "--exact"]).env(ALONE, "1").output();
        let output = child.expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let store = Arc::new(MemoryStore::new());
            let good = create(&*store, "ops", Rights { scopes: &[Admin], ..Rights::default() }).await;
            let unknown = bearer();
            let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
            let remote = remote_as(&served, &good).await;
            let made = create(&remote, "made", Rights { scopes: &[Admin], ..Rights::default() }).await;
            remote.jobs(JobFilter::default(), None, 1).await.expect("a page");
            let refused = connect(&served, Some(&unknown)).await.expect_err("refused");
            let mut told = format!("{refused} {refused:?} {good:?} {remote:?}");
            let secrets = [&good, &made, &unknown].map(|bearer| bearer.secret_text());
            for secret in &secrets {
                let header = format!("Bearer {secret}");
                let body = format!("token={secret}");
                let form = ("Content-Type", "application/x-www-form-urlencoded");
                let url = format!("/login?token={secret}");
                for answer in [
                    ask(served.address, "GET", "/login", &[("Authorization", &header)], "").await,
                    ask(served.address, "POST", "/login", &[form], &body).await,
                    ask(served.address, "GET", &url, &[], "").await,
                    ask(served.address, "GET", "/nothing", &[("Cookie", &format!("qo={secret}"))], "").await,
                ] {
                    told += &format!("{answer:?}");
                }
            }
            let logged = log.text();
            assert!(logged.contains("request{id="), "requests are logged: {logged}");
            for secret in &secrets {
                let (_, random) = secret.rsplit_once('_').expect("an id and a secret");
                assert!(!logged.contains(random), "{random} in {logged}");
                assert!(!told.contains(random), "{random} in {told}");
            }
        });
    });
}

/// A store whose errors say too much.
struct Talkative {
    tokens: MemoryStore,
    is_away: bool,
}

const SAID: &str = "SELECT secret FROM jobs at /var/lib/qo on db.internal:5432";

#[async_trait]
impl Intercept for Talkative {
    async fn command(&self, command: Command) -> Result<Answer> {
        let kind = match command {
            Command::Submit(_) => ErrorKind::Unknown,
            Command::Sweep => ErrorKind::Data,
            Command::SetLimit(..) => ErrorKind::Internal,
            _ => ErrorKind::Unavailable,
        };
        Err(Error::new(kind, SAID))
    }

    fn look(&self) -> Result<&dyn Store> {
        match self.is_away {
            true => Err(Error::new(ErrorKind::Unavailable, SAID)),
            false => Ok(&self.tokens),
        }
    }
}

async fn talkative(is_away: bool) -> Served {
    Served::start(Arc::new(Intercepted(Talkative { tokens: MemoryStore::new(), is_away }))).await
}

#[test]
fn a_store_that_cannot_tell_its_tokens_lets_no_caller_in() {
    block_on(async {
        let served = talkative(true).await;
        let refused = connect(&served, None).await.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.message().contains("no caller is let in"), "{refused}");
        assert_eq!(ask(served.address, "GET", "/healthz", &[], "").await.status, 200);
        let ready = ask(served.address, "GET", "/readyz", &[], "").await;
        assert!(ready.status == 503 && !ready.body.contains("SELECT"), "{ready:?}");
    });
}

#[test]
fn errors_of_the_store_tell_callers_their_kind_and_no_more() {
    block_on(async {
        let served = talkative(false).await;
        let store = remote(&[served.address]).await;
        let job = NewJob::new(JobId(uuid::Uuid::from_u128(1 << 76)), name("send"));
        for (answer, kind) in [
            (store.sweep().await.map(drop), ErrorKind::Data),
            (store.set_limit(GroupRef::Cluster, 1).await, ErrorKind::Internal),
            (store.submit(vec![job]).await.map(drop), ErrorKind::Unknown),
            (store.register(vec![TaskOptions::new(name("send"))]).await.map(drop), ErrorKind::Unavailable),
        ] {
            let error = answer.expect_err("it fails");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                !error.message().contains("SELECT") && error.message().contains("at request "),
                "{error}"
            );
        }
    });
}
