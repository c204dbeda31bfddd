//! `qo demo`: why qo exists, in less than half a minute.
//!
//! Three worker processes share one store. Some 300 jobs run under a limit of each kind, and steps of workflows run in
//! their order. On the way the demo lowers and raises a limit, and kills a worker. Every job records itself when it
//! begins and when it ends, and the verdict is computed from these records alone.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | tasks, limits and jobs |
//! | [`show`] | what happens, act by act |
//! | [`fleet`], [`worker`] | the worker processes, and what one of them does |
//! | [`record`], [`evidence`] | what the jobs record, and what was submitted |
//! | [`verdict`], [`report`] | what the judge (`qo_judge`) is told, and how its verdict is shown |
//! | [`picture`], [`frame`], [`line`], [`stage`] | the live view |

mod evidence;
mod fleet;
mod frame;
mod line;
mod picture;
mod plan;
mod record;
mod report;
mod show;
mod stage;
mod verdict;
mod worker;

pub use worker::DemoWorker;

use crate::host::Host;
use crate::machine::interrupted;
use crate::output::Screen;
use crate::trouble::{Done, FAILED, INTERRUPTED, Trouble};
use clap::Args;
use evidence::{Evidence, read_records};
use plan::Names;
use qo::core::ErrorKind;
use qo::{Error, Result};
use show::{Setting, Show, clean_up, is_unused};
use stage::Stage;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Where the jobs of a run write to, within its folder.
const RECORDS: &str = "records";

/// See in half a minute that limits hold, across processes and through a crash.
///
/// A store in a temporary folder, three worker processes, some 300 jobs under a limit of each kind and five workflows.
/// The demo changes a limit while they run, and kills a worker. The verdict is computed from the jobs' own records; the
/// exit code is 0 only if all of it holds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo demo
  qo demo --keep                keep the store and the records, to look at them
  qo demo --check DIR           judge the records of an earlier run again
  qo demo --store file:/mnt/x   the same on a store of yours: names with a prefix of their own, nothing of yours changes")]
pub struct Demo {
    /// Keep the folder with the store and the records.
    #[arg(long)]
    keep: bool,
    /// Judge the records that an earlier run with --keep left in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    check: Option<PathBuf>,
}

impl Demo {
    /// Runs the demo on the given store, else on one in a temporary folder.
    pub async fn run(self, host: &Host, store: Option<String>, screen: &mut Screen) -> Done {
        if let Some(folder) = &self.check {
            let evidence = Evidence::read(&folder.join(RECORDS))?;
            return judge(&evidence, &folder.join(RECORDS), screen);
        }
        if store.as_deref().is_some_and(|url| url.starts_with("memory:")) {
            let rule = "the demo needs a store that several processes can open, such as file:DIR";
            return Err(Error::invalid("store", store.unwrap_or_default(), rule).into());
        }
        let folder = folder()?;
        let is_in_folder = store.is_none();
        let done = play(&folder, host, store, screen).await.map_err(|trouble| match trouble {
            // The reader of the verdict is gone, so the demo has proved nothing.
            Trouble::Closed => Trouble::Exit(FAILED),
            trouble => trouble,
        });
        if self.keep {
            let kept = folder.keep().display().to_string();
            let store = if is_in_folder { format!(" (the store is in {kept}/store)") } else { String::new() };
            screen.say(format_args!("kept: {kept}{store}"));
        }
        done
    }
}

fn folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("qo-demo-").tempdir().and_then(|folder| {
        std::fs::create_dir(folder.path().join(RECORDS))?;
        Ok(folder)
    });
    made.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no temporary folder: {error}")))
}

async fn play(folder: &TempDir, host: &Host, asked: Option<String>, screen: &mut Screen) -> Done {
    let url = asked.clone().unwrap_or_else(|| format!("file:{}", folder.path().join("store").display()));
    let names = if asked.is_some() { Names::of_run() } else { Names::plain() };
    let store = qo::connect(&url).await?;
    let with_cluster = is_unused(&store).await?;
    if asked.is_some() {
        screen.say(format_args!("names of this run begin with {}", names.prefix()));
        if !with_cluster {
            screen.say("others use this store: no cluster cap is set, everything else is the same");
        }
    }
    let records = folder.path().join(RECORDS);
    let (host, shared) = (host.clone(), Arc::clone(&store));
    let setting = Setting { host, store: shared, url, names: names.clone(), with_cluster, records };
    let performed = perform(&setting, screen).await;
    if asked.is_some() {
        clean_up(&store, &names, with_cluster).await?;
    }
    let evidence = performed?;
    evidence.write(&setting.records)?;
    judge(&evidence, &setting.records, screen)
}

/// Plays the show, unless Ctrl-C ends it. Its workers have ended when this returns.
async fn perform(setting: &Setting, screen: &mut Screen) -> Done<Evidence> {
    let stage = Stage::new(screen);
    let mut show = None;
    let playing = async { show.insert(Show::open(setting, stage).await?).play().await };
    let done = tokio::select! {
        done = playing => done,
        ended = interrupted() => ended.map_err(Trouble::from).and(Err(Trouble::Exit(INTERRUPTED))),
    };
    match (done, show) {
        (Ok(()), Some(show)) => Ok(show.close().await),
        (Ok(()), None) => Err(Trouble::Exit(FAILED)),
        (Err(trouble), _) => Err(trouble),
    }
}

/// Shows the verdict on the records in a folder; an error if something does not hold.
fn judge(evidence: &Evidence, records: &Path, screen: &mut Screen) -> Done {
    let verdict = verdict::judge(evidence, &read_records(records)?);
    report::show(screen, evidence, &verdict)?;
    if verdict.holds() { Ok(()) } else { Err(Trouble::Exit(FAILED)) }
}
