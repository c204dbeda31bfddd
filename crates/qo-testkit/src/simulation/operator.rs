//! A simulated operator: changes limits, pauses queues, cancels and retries jobs, releases slots by force, steers
//! workflows, enables and disables schedules.

use super::scenery::{self, QUEUES, SCHEDULES};
use super::stage::Stage;
use futures::executor::block_on;
use qo_core::{Answer, Change, Changed, Command, ErrorKind, FenceToken, GroupRef, Holder, JobFilter, JobId};
use qo_core::{JobState, Name, Result, Steer, Store, WorkflowState};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Operator {
    /// Jobs that clients know of.
    pub jobs: Vec<JobId>,
    /// The next page of a bulk change.
    next: Option<Command>,
}

impl Operator {
    /// The operator's next call; it looks at the store before it releases a slot.
    pub fn any_command(&mut self, stage: &mut Stage, store: &dyn Store) -> Command {
        if let Some(next) = self.next.take() {
            return next;
        }
        let random = &mut stage.random;
        match random.below(100) {
            0..22 => {
                let group = scenery::any_group(random);
                let limit = scenery::any_limit(random, &group);
                Command::SetLimit(group, limit)
            }
            22..38 => Command::UnsetLimit(scenery::any_group(random)),
            38..41 => Command::PauseQueue(scenery::name(random.pick(&QUEUES)), true),
            41..50 => Command::PauseQueue(scenery::name(random.pick(&QUEUES)), false),
            50..54 => Command::Configure(scenery::any_configuration(random)),
            54..58 => Command::Register(vec![scenery::any_task(random)]),
            58..60 => any_holder(stage, store, GroupRef::Cluster)
                .map_or(Command::Sweep, |holder| Command::Cancel(holder.job().into_iter().collect())),
            60..63 if !self.jobs.is_empty() => Command::Cancel(self.any_jobs(stage)),
            63..65 if !self.jobs.is_empty() => Command::Retry(self.any_jobs(stage)),
            65..78 => any_steer(stage, store),
            78..81 => any_change(stage),
            81..90 => Command::Retry(any_ended(stage, store)),
            90..93 => {
                let enabled = random.percent(65);
                Command::EnableSchedule(scenery::name(random.pick(&SCHEDULES)), enabled)
            }
            93..96 => {
                let schedule = scenery::name(random.pick(&SCHEDULES));
                let wall_ms = u64::try_from(stage.wall(0).as_millis()).unwrap_or(0);
                Command::TriggerSchedule(schedule, JobId(stage.random.uuid(wall_ms)))
            }
            _ => any_release(stage, store),
        }
    }

    fn any_jobs(&self, stage: &mut Stage) -> Vec<JobId> {
        let recent = &self.jobs[self.jobs.len().saturating_sub(40)..];
        (0..stage.random.within(1..=3)).map(|_| stage.random.pick(recent)).collect()
    }

    /// An answer arrives: a bulk change continues after its last page.
    pub fn hear(&mut self, stage: &mut Stage, command: &Command, reply: &Result<Answer>) {
        let Command::ChangeMatching { change, filter, limit, .. } = command else { return };
        match reply {
            Ok(Answer::Changed(Changed { next: Some(next), .. })) if stage.random.percent(70) => {
                let (change, filter, limit) = (*change, filter.clone(), *limit);
                self.next = Some(Command::ChangeMatching { change, filter, after: Some(*next), limit });
            }
            // The page may have been done: a repeated call changes what is left.
            Err(error) if error.kind() == ErrorKind::Unknown => self.next = Some(command.clone()),
            _ => {}
        }
    }
}

const BY_STEP: [fn(u32) -> Steer; 2] = [Steer::Retry, Steer::Skip];

/// Mostly about a workflow that is halted.
fn any_steer(stage: &mut Stage, store: &dyn Store) -> Command {
    let workflows = super::audit::workflows(store);
    let halted = workflows.iter().filter(|status| status.state == WorkflowState::Halted);
    let halted: Vec<_> = halted.filter_map(|status| Some((&status.workflow, status.head?.step))).collect();
    let random = &mut stage.random;
    if halted.is_empty() || random.percent(20) {
        let step = random.within(1..=6) as u32;
        let steer = if random.percent(15) { Steer::Cancel } else { random.pick(&BY_STEP)(step) };
        return Command::SteerWorkflow(scenery::any_workflow(random), steer);
    }
    let (workflow, step) = random.pick(&halted);
    let steer = if random.percent(10) { Steer::Cancel } else { random.pick(&BY_STEP)(step) };
    Command::SteerWorkflow(workflow.clone(), steer)
}

fn any_change(stage: &mut Stage) -> Command {
    let random = &mut stage.random;
    let change = random.pick(&[Change::Cancel, Change::Retry, Change::Retry]);
    let mut filter = JobFilter::default();
    match random.below(4) {
        0 => filter.task = Some(scenery::name(random.pick(&scenery::TASKS))),
        1 => filter.workflow = Some(scenery::any_workflow(random)),
        2 => filter.states = vec![JobState::Failed, JobState::Cancelled, JobState::Claimed],
        _ => filter.queue = Some(scenery::name(random.pick(&QUEUES))),
    }
    Command::ChangeMatching { change, filter, after: None, limit: random.within(1..=4) as usize }
}

/// Jobs that ended without success; often steps of a workflow that has gone on, so that its head comes before the step
/// that runs.
fn any_ended(stage: &mut Stage, store: &dyn Store) -> Vec<JobId> {
    let jobs = |states, workflow| {
        let filter = JobFilter { states, workflow, ..JobFilter::default() };
        block_on(store.jobs(filter, None, 100)).map_or(Vec::new(), |page| page.jobs)
    };
    let running = jobs(vec![JobState::Running], None);
    let passed: Vec<&Name> = running.iter().filter_map(|view| view.workflow.as_ref()).collect();
    let goes_on = !passed.is_empty() && stage.random.percent(70);
    let workflow = goes_on.then(|| stage.random.pick(&passed).clone());
    let ended = jobs(vec![JobState::Failed, JobState::Cancelled, JobState::Expired], workflow);
    let (most, percent) = (stage.random.within(1..=3) as usize, if goes_on { 80 } else { 20 });
    ended.iter().filter(|_| stage.random.percent(percent)).take(most).map(|view| view.id).collect()
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

/// Lets every live job run, and no new ones come: lifts pauses and limits that are too small for a job, steers halted
/// workflows, disables schedules.
pub(super) fn lifting(stage: &mut Stage, store: &dyn Store) -> Vec<Command> {
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
    let halted = super::audit::workflows(store).into_iter();
    let halted = halted.filter(|status| status.state == WorkflowState::Halted && status.live > 0);
    let steered = halted.map(|status| {
        let step = status.head.map_or(0, |head| head.step);
        let steer = if stage.random.percent(33) { Steer::Retry } else { Steer::Skip };
        Command::SteerWorkflow(status.workflow, steer(step))
    });
    let enabled = block_on(store.schedules()).expect("the bare store answers").into_iter();
    let disabled = enabled.filter(|status| status.enabled);
    let disabled = disabled.map(|status| Command::EnableSchedule(status.schedule, false));
    too_small.chain(resumed).chain(steered).chain(disabled).collect()
}
