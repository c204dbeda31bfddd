//! Where a command works: the settings and the store.

use crate::output::Times;
use crate::trouble::{Done, Trouble};
use qo::core::Name;
use qo::settings::{Environment, Places, current_directory, without_password};
use qo::{Error, ErrorKind, Settings, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The settings in force, and the way to the store.
pub struct Place {
    /// The settings.
    pub settings: Settings,
    opened: Mutex<Vec<Arc<dyn Store>>>,
}

/// How long a command that is done waits for what its store does on the side.
const PATIENCE: Duration = Duration::from_secs(10);

impl Place {
    /// Reads the settings.
    pub fn find(config: Option<PathBuf>, flags: BTreeMap<&'static str, String>) -> Done<Self> {
        let environment = Environment::of_process();
        let file = config.or_else(|| environment.get("QO_CONFIG").map(PathBuf::from));
        let directory = current_directory()?;
        let settings = Settings::load(Places { directory, file, environment, flags })?;
        Ok(Self { settings, opened: Mutex::default() })
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
    pub fn directory(&self) -> Option<&Path> {
        self.settings.store.strip_prefix("file:").map(Path::new)
    }

    /// Opens the store, and makes it if there is none.
    pub async fn open(&self) -> Done<Arc<dyn Store>> {
        self.noted(qo::connect(&self.settings.store).await)
    }

    /// Opens the store for little more than a submit, and makes it if there is none.
    pub async fn open_to_submit(&self) -> Done<Arc<dyn Store>> {
        self.noted(qo::connect_to_submit(&self.settings.store).await)
    }

    /// The command is done: lets its store finish what it does on the side, such as a snapshot that would otherwise be cut
    /// short by the end of the process, every time.
    pub async fn finish(&self) {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for store in opened {
            // If it takes so long, another will have to do it.
            tokio::time::timeout(PATIENCE, store.finish()).await.ok();
        }
    }

    fn noted(&self, store: qo::Result<Arc<dyn Store>>) -> Done<Arc<dyn Store>> {
        let store = store.map_err(|error| self.explained(error))?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&store));
        Ok(store)
    }

    /// Opens the store if there is one: who only looks at a place should not leave a new store behind in it.
    pub async fn open_existing(&self) -> Done<Arc<dyn Store>> {
        self.must_exist()?;
        self.open().await
    }

    /// Whether there is something at the place of the store, as far as can be seen without asking a server.
    pub fn must_exist(&self) -> Done {
        let is_missing = |directory: &Path| {
            std::fs::symlink_metadata(directory).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        };
        if !self.directory().is_some_and(is_missing) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::NotFound, format!("there is no store at {}", self.shown()));
        let hint =
            "the first `qo submit` or `qo worker` makes it; --store, QO_STORE or .qo.toml name another";
        Err(Trouble::from(error).hint(hint))
    }

    /// Whether there is a namespace at the place of the store. A bucket may have none; any other store is one, or an error.
    pub async fn has_namespace(&self) -> Done<bool> {
        self.must_exist()?;
        if !self.settings.store.starts_with("s3:") {
            return Ok(true);
        }
        let level = qo::migrate::status(&self.settings.store).await;
        Ok(level.map_err(|error| self.explained(error))?.store.is_some())
    }

    /// An error on the way to the store, with what to do about it.
    pub fn explained(&self, error: Error) -> Trouble {
        let kind = error.kind();
        let is_from_server = error.message().starts_with("PostgreSQL: ");
        let trouble = Trouble::from(error);
        match (kind, qo::doctor::server(&self.settings.store)) {
            (ErrorKind::Invalid, Some(server)) if is_from_server => trouble.hint(format!(
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

/// Moments relative to the store's now.
pub async fn times(store: &Arc<dyn Store>) -> Done<Times> {
    Ok(Times::new(store.now().await?))
}

/// The same trouble; if something was not found, with the name that was probably meant.
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

/// Names, separated by commas; of many the first few.
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
