//! Where a command works: the settings and the store.

use crate::host::Host;
use crate::output::{Screen, Times};
use crate::trouble::{Done, Trouble};
use qo::connect::{Opened, Purpose};
use qo::core::{GroupRef, Name};
use qo::doctor::{Hold, Namespace};
use qo::settings::{Environment, Places, current_directory, without_password};
use qo::{Cause, Error, ErrorKind, Result, Settings, Store};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The settings in force, and the way to the store.
pub struct Place {
    /// The settings.
    pub settings: Settings,
    /// The process that runs the command.
    pub host: Host,
    opened: Mutex<Vec<Arc<dyn Store>>>,
}

/// How long a finished command waits for the background work of its store.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of a command: its flags, the environment and the configuration file.
pub fn settings(config: Option<PathBuf>, flags: BTreeMap<&'static str, String>) -> Result<Settings> {
    let environment = Environment::of_process();
    let file = config.or_else(|| environment.get("QO_CONFIG").map(PathBuf::from));
    Settings::load(Places { directory: current_directory()?, file, environment, flags })
}

impl Place {
    /// Reads the settings.
    pub fn find(host: Host, config: Option<PathBuf>, flags: BTreeMap<&'static str, String>) -> Done<Self> {
        Ok(Self { settings: settings(config, flags)?, host, opened: Mutex::default() })
    }

    /// The store's URL, for people.
    pub fn shown(&self) -> String {
        without_password(&self.settings.store)
    }

    /// The command that starts a worker for a task.
    pub fn worker_for(&self, task: &Name) -> String {
        let has_command = self.settings.tasks.get(task).is_some_and(|task| task.command.is_some());
        match &self.settings.file {
            Some(file) if has_command => format!("qo worker, in the directory of {}", file.display()),
            _ => format!("qo worker --task {task}=COMMAND"),
        }
    }

    /// The directory of the store, if it is one.
    pub fn directory(&self) -> Option<PathBuf> {
        qo::connect::directory(&self.settings.store)
    }

    /// Opens the store. Makes the namespace if there is none, and prints that.
    pub async fn open(&self) -> Done<Arc<dyn Store>> {
        self.open_for(Purpose::Work).await
    }

    /// Opens the store for little more than a submit. Makes the namespace if there is none, and prints that.
    pub async fn open_to_submit(&self) -> Done<Arc<dyn Store>> {
        self.open_for(Purpose::Submit).await
    }

    async fn open_for(&self, purpose: Purpose) -> Done<Arc<dyn Store>> {
        let opened = qo::connect::open(&self.settings.store, purpose).await;
        let Opened { store, has_made } = opened.map_err(|error| self.explained(error))?;
        if has_made {
            // A namespace that is away (moved, not mounted) looks like one that was never made, so say that this one is
            // new.
            let _ = writeln!(std::io::stderr(), "made a new namespace: {}", self.shown());
        }
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&store));
        Ok(store)
    }

    /// Lets the store of a finished command end its background work, such as a snapshot, which the end of the process
    /// would otherwise cut short every time.
    pub async fn finish(&self) {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for store in opened {
            // After this long, another process will have to do it.
            tokio::time::timeout(PATIENCE, store.finish()).await.ok();
        }
    }

    /// Opens the store if there is a namespace: a command that only looks at a place leaves no new namespace behind.
    pub async fn open_existing(&self) -> Done<Arc<dyn Store>> {
        self.must_exist()?;
        self.open_for(Purpose::Look).await
    }

    /// An error if there is nothing at the place of the store, as far as that can be known without asking a server.
    pub fn must_exist(&self) -> Done {
        let is_missing = |directory: &Path| {
            std::fs::symlink_metadata(directory).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        };
        if !self.directory().as_deref().is_some_and(is_missing) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::NotFound, format!("there is no namespace at {}", self.shown()));
        Err(Trouble::from(error).hint(FIRST))
    }

    /// The namespace at the place of the store, if that is a directory or a bucket.
    pub async fn namespace(&self) -> Done<Option<Namespace>> {
        let namespace = qo::doctor::namespace(&self.settings.store).await;
        namespace.map_err(|error| self.explained(error))
    }

    /// Whether there is a namespace at the place of the store. A bucket may have none, because it may have slots that
    /// are objects without one. Any other store has one, or is an error.
    pub async fn has_namespace(&self) -> Done<bool> {
        self.must_exist()?;
        let is_bucket = self.settings.store.starts_with("s3:");
        if !is_bucket && self.directory().is_none() || self.namespace().await?.is_some() {
            return Ok(true);
        }
        if is_bucket {
            return Ok(false);
        }
        let what = format!("there is no namespace at {}", self.shown());
        Err(self.explained(Error::new(ErrorKind::NotFound, what).with_cause(Cause::NoNamespace)))
    }

    /// Why nothing may start, if that is because a repair lost records. It costs a request only if the limit of
    /// `cluster` is 0.
    pub async fn hold(&self, store: &Arc<dyn Store>) -> Done<Option<String>> {
        let cluster = store.group(GroupRef::Cluster).await;
        if !cluster.is_ok_and(|cluster| cluster.status.limit == Some(0)) {
            return Ok(None);
        }
        let hold = self.namespace().await?.and_then(|namespace| namespace.hold);
        Ok(hold.map(|hold| on_hold(&hold)))
    }

    /// Warns that nothing may start, if that is because a repair lost records.
    pub async fn tell_hold(&self, store: &Arc<dyn Store>, screen: &mut Screen) -> Done {
        if let Some(hold) = self.hold(store).await? {
            screen.warn(format_args!("the namespace is {hold}"));
            screen.hint(SPEAK);
        }
        Ok(())
    }

    /// Whether the store is behind a server, which records what operators do.
    pub fn is_served(&self) -> bool {
        ["http:", "https:"].iter().any(|scheme| self.settings.store.starts_with(scheme))
    }

    /// An error on the way to the store, with what to do about it.
    pub fn explained(&self, error: Error) -> Trouble {
        let kind = error.kind();
        let cause = error.cause();
        let trouble = Trouble::from(error);
        match cause {
            Some(Cause::NoNamespace) => return trouble.hint(FIRST),
            Some(Cause::MustNotCreate) => return trouble,
            Some(Cause::NoToken) => return trouble.hint(TOKEN),
            Some(Cause::NotAllowed) => return trouble,
            _ => {}
        }
        if kind == ErrorKind::Unavailable && self.is_served() {
            return trouble.hint(format!("is a server running at {}? `qo serve` starts one", self.shown()));
        }
        match (kind, qo::doctor::server(&self.settings.store)) {
            (ErrorKind::Invalid, Some(server)) if cause == Some(Cause::Refused) => trouble.hint(format!(
                "PostgreSQL at {server} answers and refuses: user, password, database or rights of {} must change first",
                self.shown()
            )),
            (ErrorKind::Unavailable, Some(server)) => trouble.hint(format!(
                "is PostgreSQL reachable at {server}, and do user, password and database of {} exist there?",
                self.shown()
            )),
            (ErrorKind::Unavailable, None) => {
                trouble.hint(format!("is {} a place that you may write to?", self.shown()))
            }
            (ErrorKind::NotFound, Some(_)) => trouble.hint(
                "run `qo migrate up` once, as a role that may create a schema; --store, QO_STORE or .qo.toml name another",
            ),
            (ErrorKind::Conflict, Some(_)) => trouble.hint("`qo migrate status` says which release it is of"),
            _ => trouble,
        }
    }
}

/// What to do where there is no namespace.
const FIRST: &str =
    "the first `qo submit` or `qo worker` makes it; --store, QO_STORE or .qo.toml name another";

/// What to do without a token, or with a wrong one.
const TOKEN: &str =
    "QO_TOKEN holds a token, or QO_TOKEN_FILE names a file that does; `qo token create` makes one";

/// What to do about a hold.
pub const SPEAK: &str =
    "see qo concurrency status and qo queues, set what is missing, then: qo doctor --release";

/// A hold, in words.
pub fn on_hold(hold: &Hold) -> String {
    format!(
        "on hold: nothing starts, because a repair at {} lost records ({}), and limits or pauses may have been in them",
        hold.at,
        listed(&hold.lost)
    )
}

/// Moments relative to the store's now.
pub async fn times(store: &Arc<dyn Store>) -> Done<Times> {
    Ok(Times::new(store.now().await?))
}

/// The same trouble. If a name was not found, with the name that was probably meant.
pub fn did_you_mean(trouble: Trouble, name: &str, known: impl IntoIterator<Item = String>) -> Trouble {
    if trouble.kind() != Some(ErrorKind::NotFound) {
        return trouble;
    }
    let known: Vec<String> = known.into_iter().collect();
    match qo::settings::nearest(name, known.iter().map(String::as_str)) {
        Some(near) => trouble.hint(format!("did you mean {near}?")),
        None if known.is_empty() => trouble,
        None => trouble.hint(format!("there are: {}", listed(&known))),
    }
}

/// Names, separated by commas; only the first few of many.
pub fn listed(names: &[String]) -> String {
    const MOST: usize = 10;
    let shown = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > MOST { format!("{shown} and {} more", names.len() - MOST) } else { shown }
}

/// Whether a live worker runs a task; if not, the tasks that live workers run.
pub async fn tasks_of_workers(store: &Arc<dyn Store>, task: &Name) -> Done<Result<(), Vec<String>>> {
    let workers = store.workers().await?;
    if workers.iter().any(|worker| worker.tasks.contains(task)) {
        return Ok(Ok(()));
    }
    let mut tasks: Vec<String> =
        workers.iter().flat_map(|worker| worker.tasks.iter().map(ToString::to_string)).collect();
    tasks.sort();
    tasks.dedup();
    Ok(Err(tasks))
}
