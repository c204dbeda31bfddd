//! Stores that lie: a toy behind a wrapper that does something else than was asked, or answers falsely. For each lie
//! some simulated seed must make the right checker object.

use async_trait::async_trait;
use qo_core::{
    Answer, Command, Configuration, Error, ErrorKind, Exchange, FenceToken, Granted, JobState, Missed, NewJob,
};
use qo_core::{OnFailure, Result, Retention, RetryPolicy, SlotLease, SlotRequest, Started, Steer, Store};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_testkit::simulation::{Profile, run};
use qo_testkit::{Fixture, Fixtures, Flaw, ToyFixtures};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Steps of workflows run like any job.
    StepsAreJobs,
    /// No failure halts a workflow.
    HaltIsContinue,
    /// A workflow that was cancelled goes on.
    CancelChangesNothing,
    /// A program's slots are not counted in its group.
    ProgramsCountElsewhere,
    /// Slots that were given back stay taken.
    ReturnFreesNothing,
    /// Any token may extend a lease.
    AnyTokenExtends,
    /// The job of a fenced start runs all the same.
    AnyTokenStarts,
    /// More is claimed ahead of time than was asked for.
    PrefetchWithoutEnd,
    /// A draining worker keeps its claimed jobs.
    DrainingKeepsClaims,
    /// No session is told that a claim is over.
    ClaimEndsUntold,
    /// The answer says that a job runs which could not start and was given back.
    GivenBackIsSaidToRun,
    /// The answer says that a job which succeeded is reopened.
    SuccessIsReopened,
    /// A bulk change goes on after its page.
    PageHasNoEnd,
    /// Every missed tick runs.
    EveryTickRuns,
    /// Jobs of a schedule overlap.
    SchedulesOverlap,
    /// A schedule that was disabled fires.
    DisabledFires,
    /// Finished jobs are remembered for ever.
    NothingIsForgotten,
}

struct Liar {
    store: Arc<dyn Store>,
    lie: Lie,
}

impl Liar {
    /// The command that is sent instead; none if nothing is sent.
    fn does(&self, command: Command) -> Option<Command> {
        Some(match (self.lie, command) {
            (Lie::StepsAreJobs, Command::Submit(jobs)) => {
                let job = |job| NewJob { workflow: None, on_failure: None, ..job };
                Command::Submit(jobs.into_iter().map(job).collect())
            }
            (Lie::HaltIsContinue, Command::Submit(jobs)) => {
                let goes_on = |job: &NewJob| job.workflow.as_ref().map(|_| OnFailure::Continue);
                let job = |job: NewJob| NewJob { on_failure: goes_on(&job), ..job };
                Command::Submit(jobs.into_iter().map(job).collect())
            }
            (Lie::CancelChangesNothing, Command::SteerWorkflow(_, Steer::Cancel))
            | (Lie::ReturnFreesNothing, Command::ReturnSlots(..))
            | (Lie::DisabledFires, Command::EnableSchedule(_, false)) => return None,
            (Lie::ProgramsCountElsewhere, Command::AcquireSlots(request)) => {
                let group = "elsewhere".parse().expect("a group");
                Command::AcquireSlots(SlotRequest { group, limit: None, ..request })
            }
            (Lie::PrefetchWithoutEnd, Command::Exchange(mut exchange)) => {
                exchange.claim.prefetch.iter_mut().for_each(|prefetch| prefetch.buffer += 2);
                Command::Exchange(exchange)
            }
            (Lie::DrainingKeepsClaims, Command::Exchange(exchange)) => {
                Command::Exchange(Exchange { draining: false, ..exchange })
            }
            (Lie::PageHasNoEnd, Command::ChangeMatching { change, filter, after, limit }) => {
                Command::ChangeMatching { change, filter, after, limit: limit + 1 }
            }
            (_, Command::Configure(configuration)) => Command::Configure(self.configures(configuration)),
            (_, command) => command,
        })
    }

    fn configures(&self, mut configuration: Configuration) -> Configuration {
        for spec in configuration.schedules.values_mut() {
            match self.lie {
                Lie::EveryTickRuns => spec.missed = Missed::All,
                Lie::SchedulesOverlap => spec.overlap = true,
                _ => {}
            }
        }
        if self.lie == Lie::NothingIsForgotten {
            configuration.retention = Retention::default().into();
        }
        configuration
    }

    /// The answer that is given instead.
    async fn says(&self, command: &Command, answer: Result<Answer>) -> Result<Answer> {
        match (self.lie, command, answer) {
            (Lie::AnyTokenExtends, Command::ExtendSlots { token, lease_ms, .. }, Err(error))
                if error.kind() == ErrorKind::Fenced =>
            {
                let since = self.store.now().await?;
                let lease_until = since.plus_ms(*lease_ms);
                Ok(Answer::Extended(SlotLease { token: *token, since, lease_until }))
            }
            (lie, Command::Exchange(_), Ok(Answer::Exchanged(mut reply))) => {
                let run =
                    Granted { token: FenceToken(u64::MAX), timeout_ms: None, retry: RetryPolicy::default() };
                for started in &mut reply.started {
                    let fenced =
                        started.as_ref().is_err_and(|error: &Error| error.kind() == ErrorKind::Fenced);
                    let back = started.as_ref().is_ok_and(|started| started.then == JobState::Pending);
                    if lie == Lie::AnyTokenStarts && fenced || lie == Lie::GivenBackIsSaidToRun && back {
                        *started = Ok(Started { then: JobState::Running, run: Some(run) });
                    }
                }
                if lie == Lie::ClaimEndsUntold {
                    reply.stop.clear();
                }
                Ok(Answer::Exchanged(reply))
            }
            (Lie::SuccessIsReopened, Command::Retry(_), Ok(Answer::Retried(results))) => {
                let open = results.into_iter().map(|result| result.or(Ok(JobState::Pending)));
                Ok(Answer::Retried(open.collect()))
            }
            (_, _, answer) => answer,
        }
    }
}

#[async_trait]
impl Intercept for Liar {
    async fn command(&self, command: Command) -> Result<Answer> {
        match self.does(command.clone()) {
            None => Ok(Answer::Done),
            Some(done) => self.says(&command, call(&*self.store, done).await).await,
        }
    }

    fn look(&self) -> Result<&dyn Store> {
        Ok(&*self.store)
    }
}

#[async_trait]
impl Fixtures for Lie {
    async fn fresh(&self) -> Fixture {
        let Fixture { store, clock } = ToyFixtures(Flaw::None).fresh().await;
        Fixture { store: Arc::new(Intercepted(Liar { store, lie: *self })), clock }
    }
}

/// Whether some seed makes a checker object to the lie under this name.
fn noticed(lie: Lie, guarantee: &str) -> bool {
    let profile = Profile { operations: 600, rest_ms: 30_000, ..Profile::default() };
    (1..=20).any(|seed| {
        let outcome = run(seed, &profile, &lie);
        outcome.violations.iter().any(|violation| violation.guarantee == guarantee)
    })
}

#[test]
fn every_lie_is_noticed_under_the_name_of_its_guarantee() {
    let lies = [
        (Lie::StepsAreJobs, "G6"),
        (Lie::HaltIsContinue, "G6"),
        (Lie::CancelChangesNothing, "G6"),
        (Lie::ProgramsCountElsewhere, "G1"),
        (Lie::ProgramsCountElsewhere, "G8"),
        (Lie::ProgramsCountElsewhere, "slots"),
        (Lie::ReturnFreesNothing, "G2"),
        (Lie::ReturnFreesNothing, "views"),
        (Lie::AnyTokenExtends, "G2"),
        (Lie::AnyTokenStarts, "G2"),
        (Lie::GivenBackIsSaidToRun, "start"),
        (Lie::GivenBackIsSaidToRun, "G1"),
        (Lie::PrefetchWithoutEnd, "G7"),
        (Lie::DrainingKeepsClaims, "views"),
        (Lie::ClaimEndsUntold, "stop"),
        (Lie::SuccessIsReopened, "G3"),
        (Lie::PageHasNoEnd, "G3"),
        (Lie::EveryTickRuns, "schedule"),
        (Lie::SchedulesOverlap, "schedule"),
        (Lie::DisabledFires, "schedule"),
        (Lie::NothingIsForgotten, "views"),
    ];
    let missed: Vec<_> = lies.into_iter().filter(|&(lie, guarantee)| !noticed(lie, guarantee)).collect();
    assert_eq!(missed, []);
}
