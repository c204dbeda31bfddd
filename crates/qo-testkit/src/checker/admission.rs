//! `on_limit` (contract §4): counted in the same step as the insert, so nothing is over-admitted and nothing
//! is refused that had room.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;
use qo_core::{ErrorKind, GroupRef, NewJob, OnLimit, Submitted};

/// Watches submits that may be refused.
#[derive(Debug, Default)]
pub struct Admission;

/// Submits that were admitted or refused wrongly.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Admission])
}

impl Watch for Admission {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let Fact::Submitted(job, result) = fact else { return };
        let refused = match result {
            Ok(Submitted::Accepted(_)) => false,
            Ok(Submitted::Skipped) => true,
            Err(error) if error.kind() == ErrorKind::LimitReached => true,
            _ => return,
        };
        if job.on_limit == OnLimit::Wait {
            return objections
                .unless(!refused, "on_limit", || format!("{} wanted to wait: {result:?}", job.id));
        }
        let taken = first_limited(books, job).is_some_and(|(live, need, limit)| live + need > limit);
        objections.unless(refused == taken, "on_limit", || {
            format!("{}: {result:?} where (live, need, limit) is {:?}", job.id, first_limited(books, job))
        });
    }
}

/// Live slots, the job's need and the limit of the first limited group: key, group, extras, queue, cluster.
fn first_limited(books: &Ledger, job: &NewJob) -> Option<(u64, u64, u64)> {
    let group = books.group_of(job);
    let own = GroupRef::Group(group.clone());
    let keyed = job.key.clone().map(|key| GroupRef::Key(group, key));
    let limited_by_job = keyed.clone().unwrap_or_else(|| own.clone());
    let mut line: Vec<(GroupRef, u32)> = keyed.into_iter().map(|keyed| (keyed, job.cost)).collect();
    line.push((own, job.cost));
    line.extend(job.limits.iter().map(|(group, &slots)| (group.clone(), slots)));
    line.extend([(GroupRef::Queue(job.queue.clone()), 1), (GroupRef::Cluster, 1)]);
    line.into_iter().find_map(|(group, need)| {
        let own_limit = job.limit.filter(|_| group == limited_by_job);
        let limit = books.groups.limit_with(&group, own_limit)?;
        let live = books.groups.find(&group).map_or(0, |index| books.groups.live(index));
        Some((live, need.into(), limit.into()))
    })
}
