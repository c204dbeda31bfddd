//! Schedules: each tick runs at most once across the fleet, no two jobs of a schedule run at once (unless they may
//! overlap), and of missed ticks only those run that the schedule's policy names.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{Error, ErrorKind, JobId, Key, Missed, Name, TickOutcome, Time};
use std::collections::{BTreeMap, HashMap};

/// Watches ticks and the jobs that come of them.
#[derive(Debug, Default)]
pub struct Schedules {
    /// The jobs of ticks, by schedule and moment of firing.
    fired: BTreeMap<(Name, Time), u64>,
    /// The tick's job, by what makes it one across the fleet.
    ticks: HashMap<Key, JobId>,
}

/// Ticks that ran twice, jobs that overlapped, and schedules whose view differs from the ledger.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Schedules::default()])
}

impl Watch for Schedules {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Ticked(schedule, _, job, TickOutcome::Accepted(_)) => {
                if let Some(key) = &job.idempotency_key {
                    let again = self.ticks.insert(key.clone(), job.id);
                    objections.unless(again.is_none(), "schedule", || format!("tick {key} came twice"));
                }
                let fired = self.fired.entry(((*schedule).clone(), books.now)).or_default();
                *fired += 1;
                let all = books.schedules.get(*schedule).is_some_and(|row| row.spec.missed == Missed::All);
                objections.unless(all || *fired == 1, "schedule", || {
                    format!("{schedule} fired {fired} jobs at once")
                });
            }
            Fact::Granted(grant) => grant.job.iter().for_each(|&job| alone(books, job, objections)),
            Fact::ScheduleAsked(schedule, answer, there) => {
                let missing = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
                objections.unless(missing != *there, "schedule", || {
                    let kind = answer.as_ref().map(drop).map_err(Error::kind);
                    format!("{schedule}, which is there: {there}: {kind:?}")
                });
            }
            _ => {}
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        let What::Audited(audit) = &entry.what else { return };
        self.once_across_the_fleet(audit, objections);
        if !audit.is_partial() {
            compare(books, audit, objections);
        }
    }
}

/// No other job of the schedule runs, unless they may overlap, or a source other than the schedule limits its key.
fn alone(books: &Ledger, index: usize, objections: &mut Objections) {
    let job = &books.jobs[index];
    let Some((schedule, false)) = &job.schedule else { return };
    let own_key = job.needs.iter().find(|(group, _)| {
        matches!(books.groups.name(*group), qo_core::GroupRef::Key(group, _) if *group == job.group)
    });
    let Some(&(own_key, _)) = own_key else { return };
    if books.groups.is_declared(own_key) {
        return;
    }
    for &other in books.running.values() {
        let other = &books.jobs[other];
        let of_schedule = other.schedule.as_ref().is_some_and(|(name, _)| name == schedule);
        objections.unless(!of_schedule || other.group != job.group, "schedule", || {
            format!("{} of schedule {schedule} starts while {} runs", job.new.id, other.new.id)
        });
    }
}

impl Schedules {
    /// What the store itself lists: each tick once, and only ticks that came.
    fn once_across_the_fleet(&self, audit: &Audit, objections: &mut Objections) {
        let mut listed: HashMap<&Key, JobId> = HashMap::new();
        let schedules: Vec<String> =
            audit.schedules.iter().map(|status| format!("{}:", status.schedule)).collect();
        for view in &audit.jobs {
            let Some(key) = view.idempotency_key.as_ref() else { continue };
            if !schedules.iter().any(|prefix| key.starts_with(prefix.as_str())) {
                continue;
            }
            let twice = listed.insert(key, view.id);
            objections.unless(twice.is_none(), "schedule", || format!("tick {key} has two jobs"));
            let due = self.ticks.get(key);
            objections.unless(due == Some(&view.id), "schedule", || {
                format!("{} ran for tick {key}, by the books {due:?}", view.id)
            });
        }
    }
}

fn compare(books: &Ledger, audit: &Audit, objections: &mut Objections) {
    let listed: Vec<&Name> = audit.schedules.iter().map(|status| &status.schedule).collect();
    let due: Vec<&Name> = books.schedules.keys().collect();
    objections.unless(listed == due, "schedule", || format!("{listed:?} are listed, by the books {due:?}"));
    for status in &audit.schedules {
        let Some(row) = books.schedules.get(&status.schedule) else { continue };
        // Stores may word a refusal differently.
        let worded = |outcome: &TickOutcome| match outcome {
            TickOutcome::Refused(_) => TickOutcome::Refused(String::new()),
            other => other.clone(),
        };
        let last = |last: &Option<qo_core::LastTick>| last.as_ref().map(|l| (l.tick, worded(&l.outcome)));
        let by_store = (status.enabled, status.next, last(&status.last));
        let by_books = (row.enabled, row.next, last(&row.last));
        objections.unless(by_store == by_books && status.spec == row.spec, "schedule", || {
            let name = &status.schedule;
            format!("{name} (enabled, next, last) is {by_store:?}, by the books {by_books:?}")
        });
    }
}
