//! A script, and what a store answers to it.

use super::context::Context;
use super::{Step, Views, call, look};
use crate::Fixture;
use qo_core::{Answer, Command, Cursor, Error, ErrorKind, JobId, Store};
use std::fmt;

/// A list of symbolic steps that can run on any store.
#[derive(Clone, PartialEq)]
pub struct Script {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// One step a line: a failing script is there to be read.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().enumerate().try_for_each(|(number, step)| write!(f, "\n{number:>4} {step:?}"))
    }
}

/// What a store answered to a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// One entry per step, and one per look at the views.
    pub entries: Vec<Entry>,
}

/// One step of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The number of the step, from 0.
    pub step: usize,
    /// The command that the step meant; none for time that passes and for a look.
    pub command: Option<Command>,
    /// What came of it.
    pub seen: Seen,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Time passed.
    Advanced(u64),
    /// The store answered; errors are reduced to their kind.
    Answer(Result<Answer, ErrorKind>),
    /// All views.
    Views(Box<Views>),
}

/// Steps between two comparisons of all views.
const LOOK_EVERY: usize = 8;
/// Jobs that are looked at one by one; listings show all.
const LOOKED_AT: usize = 60;

impl Script {
    /// Runs the script on a store.
    pub async fn run(&self, fixture: &Fixture) -> Transcript {
        let store: &dyn Store = &*fixture.store;
        let mut context = Context::default();
        let mut entries = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            entries.push(self.entry(fixture, &mut context, number, step).await);
            if number % LOOK_EVERY == LOOK_EVERY - 1 || number + 1 == self.steps.len() {
                let seen = Seen::Views(Box::new(look(store, &some(&context.known_jobs)).await));
                entries.push(Entry { step: number, command: None, seen });
            }
        }
        Transcript { entries }
    }

    async fn entry(&self, fixture: &Fixture, context: &mut Context, number: usize, step: &Step) -> Entry {
        if let Step::Advance(ms) = step {
            fixture.clock.advance_ms(*ms).await;
            return Entry { step: number, command: None, seen: Seen::Advanced(*ms) };
        }
        let now = fixture.store.now().await.expect("a store knows the time");
        let command = context.command(step, now).expect("only time is no command");
        let answer = call(&*fixture.store, command.clone()).await;
        context.learn(&command, &answer);
        let seen = Seen::Answer(answer.map(comparable).map_err(|e| e.kind()));
        Entry { step: number, command: Some(without_cursor(command)), seen }
    }
}

/// Jobs to look at, from all over the line.
fn some(jobs: &[JobId]) -> Vec<JobId> {
    jobs.iter().copied().step_by(jobs.len() / LOOKED_AT + 1).collect()
}

/// A store's answer to a command, errors reduced to their kind.
pub(super) async fn ask(store: &dyn Store, command: Command) -> Result<Answer, ErrorKind> {
    call(store, command).await.map(comparable).map_err(|e| e.kind())
}

/// Cursors of two stores cannot be compared, only whether there is one.
fn without_cursor(mut command: Command) -> Command {
    if let Command::ChangeMatching { after, .. } = &mut command {
        *after = after.map(|_| Cursor(0));
    }
    command
}

/// An answer without what may differ between stores: the wording of errors, and the value of cursors.
fn comparable(mut answer: Answer) -> Answer {
    fn reduce<T>(results: &mut [qo_core::Result<T>]) {
        for error in results.iter_mut().filter_map(|result| result.as_mut().err()) {
            *error = Error::new(error.kind(), "");
        }
    }
    match &mut answer {
        Answer::Submitted(results) => reduce(results),
        Answer::Cancelled(results) | Answer::Retried(results) => reduce(results),
        Answer::Exchanged(reply) => {
            reduce(&mut reply.settled);
            reduce(&mut reply.started);
        }
        Answer::Changed(changed) => changed.next = changed.next.map(|_| Cursor(0)),
        Answer::Opened(_) | Answer::Swept(_) | Answer::Done => {}
        Answer::Acquired(_) | Answer::Extended(_) | Answer::Triggered(_) | Answer::Pushed(_) => {}
    }
    answer
}
