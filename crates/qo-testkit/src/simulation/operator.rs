//! A simulated person who changes limits, pauses queues, calls jobs off and takes slots away.

use super::scenery::{self, QUEUES};
use super::stage::Stage;
use futures::executor::block_on;
use qo_core::{Command, FenceToken, GroupRef, Holder, JobId, Store};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Operator {
    /// Jobs that clients know of.
    pub jobs: Vec<JobId>,
}

impl Operator {
    /// What it comes up with next; it looks at the store before it takes a slot.
    pub fn any_command(&self, stage: &mut Stage, store: &dyn Store) -> Command {
        let random = &mut stage.random;
        match random.below(100) {
            0..35 => {
                let group = scenery::any_group(random);
                let limit = scenery::any_limit(random, &group);
                Command::SetLimit(group, limit)
            }
            35..60 => Command::UnsetLimit(scenery::any_group(random)),
            60..64 => Command::PauseQueue(scenery::name(random.pick(&QUEUES)), true),
            64..74 => Command::PauseQueue(scenery::name(random.pick(&QUEUES)), false),
            74..78 => Command::Configure(scenery::any_configuration(random)),
            78..84 => Command::Register(vec![scenery::any_task(random)]),
            84..88 => any_holder(stage, store, GroupRef::Cluster)
                .map_or(Command::Sweep, |holder| Command::Cancel(holder.job().into_iter().collect())),
            88..93 if !self.jobs.is_empty() => {
                let recent = &self.jobs[self.jobs.len().saturating_sub(40)..];
                Command::Cancel((0..random.within(1..=3)).map(|_| random.pick(recent)).collect())
            }
            _ => any_release(stage, store),
        }
    }
}

fn any_release(stage: &mut Stage, store: &dyn Store) -> Command {
    let group = scenery::any_group(&mut stage.random);
    let holder = any_holder(stage, store, group.clone());
    let slot = holder.map_or_else(|| FenceToken(stage.random.within(1..=500)), |holder| holder.token);
    Command::ReleaseSlot(group, slot)
}

fn any_holder(stage: &mut Stage, store: &dyn Store, group: GroupRef) -> Option<Holder> {
    let mut holders = block_on(store.group(group)).ok()?.holders;
    (!holders.is_empty()).then(|| holders.swap_remove(stage.random.below(holders.len())))
}

/// What lets every live job run: limits that are too small for a job, and pauses, are lifted.
pub(super) fn lifting(store: &dyn Store) -> Vec<Command> {
    let mut needs: BTreeMap<GroupRef, u32> = BTreeMap::new();
    for view in super::audit::live_jobs(store) {
        let own = GroupRef::Group(view.group.clone());
        let keyed = view.key.clone().map(|key| GroupRef::Key(view.group.clone(), key));
        let fixed = [(GroupRef::Cluster, 1), (GroupRef::Queue(view.queue.clone()), 1), (own, view.cost)];
        let taken = fixed.into_iter().chain(keyed.map(|keyed| (keyed, view.cost))).chain(view.limits.clone());
        for (group, need) in taken {
            let most = needs.entry(group).or_default();
            *most = need.max(*most);
        }
    }
    let too_small = super::audit::groups(store).into_iter().filter_map(|status| {
        let need = *needs.get(&status.group)?;
        status.limit.filter(|limit| *limit < need).map(|_| Command::SetLimit(status.group, need))
    });
    let paused =
        block_on(store.queues()).expect("the bare store answers").into_iter().filter(|queue| queue.paused);
    let resumed = paused.map(|queue| Command::PauseQueue(queue.queue, false));
    too_small.chain(resumed).collect()
}
