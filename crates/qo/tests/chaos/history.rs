//! The history of a run, for the simulator's checkers: what the store did, in its order, and what the processes were
//! answered and when.
//!
//! The caller and the content of each change come from the calls that the processes recorded. The answer is the one
//! that the store recorded, even if it was lost on the way. The runs of the handlers are not in it: the jobs recorded
//! more of them than a history can hold, and the [verdict](crate::verdict) judges it.

use crate::call::Call;
use crate::journal::{Change, Row};
use qo::core::{
    Answer, Command, ErrorKind, FenceToken, GroupRef, JobId, OpenedSession, Result, SessionId, Submitted,
    Time,
};
use qo_testkit::checker::{self, tally::Tally};
use qo_testkit::history::{Actor, Audit, Entry, History, What};
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

/// Where the history is kept if a checker objects.
pub const TRACE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/chaos-history.txt");

/// What the last entries of a history say.
pub struct End {
    /// When the last fault was over, in microseconds of the machine's clock.
    pub healed_us: u64,
    /// How long anything may stand still from then on.
    pub bound_ms: u64,
    /// Store time of the audit.
    pub audited: Time,
    pub audit: Audit,
}

/// What the checkers found, and what the history was made of.
#[derive(Debug, Default)]
pub struct Findings {
    pub entries: usize,
    pub exchanges: usize,
    pub submits: usize,
    pub limit_changes: usize,
    /// Answers to exchanges that were lost, and that the worker got when it sent the same number again.
    pub heard_again: usize,
    /// Answers that no worker ever got: their worker was gone.
    pub never_heard: usize,
    /// What the checkers saw.
    pub tally: Tally,
    /// Every grant that was committed.
    pub granted: HashMap<FenceToken, JobId>,
    pub violations: Vec<String>,
}

/// Puts the history together and lets the checkers read it.
pub fn check(journal: &[Row], calls: &[Call], end: End) -> Findings {
    let mut writer = Writer::new(calls);
    for rows in journal.chunk_by(|one, next| one.transaction == next.transaction) {
        writer.transaction(rows);
    }
    calls.iter().for_each(|call| writer.heard(call));
    let Writer { mut moments, mut findings, .. } = writer;
    let healed = What::Healed { bound_ms: end.bound_ms };
    moments.push(Moment { us: end.healed_us, at: None, actor: Actor::Auditor, what: healed });
    let audited = What::Audited(Box::new(end.audit));
    moments.push(Moment { us: u64::MAX, at: Some(end.audited), actor: Actor::Auditor, what: audited });
    let history = in_order(moments);
    findings.entries = history.entries.len();
    let (objections, tally) = checker::check_concurrent(&history);
    findings.tally = tally;
    findings.violations.extend(objections.iter().map(ToString::to_string));
    if !findings.violations.is_empty() {
        // Keep it: the run cannot be repeated.
        fs::write(TRACE, text(&history)).expect("written");
    }
    findings
}

fn text(history: &History) -> String {
    let entries = history.entries.iter().enumerate();
    entries.map(|(index, entry)| format!("{index:>6} {} {entry}\n", entry.at)).collect()
}

/// An entry, and when it happened by the machine's clock.
struct Moment {
    us: u64,
    /// Store time, where the store said so; else that of the last change before it.
    at: Option<Time>,
    actor: Actor,
    what: What,
}

/// Changes were added first, and the sort is stable: at the same moment changes come first.
fn in_order(mut moments: Vec<Moment>) -> History {
    moments.sort_by_key(|moment| moment.us);
    let mut last = Time::default();
    let entries = moments.into_iter().map(|Moment { at, actor, what, .. }| {
        last = at.unwrap_or(last);
        Entry { at: last, actor, what }
    });
    History { entries: entries.collect() }
}

/// What a call is about. There is at most one change for each, except for limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Opening(SessionId),
    Exchange(SessionId, u64),
    End(SessionId),
    /// A submit, by its first job.
    Submit(JobId),
    Limit(GroupRef, u32),
}

fn subject(command: &Command) -> Option<Subject> {
    Some(match command {
        Command::OpenSession(new) => Subject::Opening(new.id),
        Command::Exchange(exchange) => Subject::Exchange(exchange.session, exchange.number),
        Command::CloseSession(session) => Subject::End(*session),
        Command::Submit(jobs) => Subject::Submit(jobs.first()?.id),
        Command::SetLimit(group, limit) => Subject::Limit(group.clone(), *limit),
        _ => return None,
    })
}

fn actor(call: &Call) -> Actor {
    match (&*call.command, call.process) {
        (Command::SetLimit(..), 0) => Actor::Operator,
        (_, 0) => Actor::Submitter(0),
        (_, worker) => Actor::Worker(worker),
    }
}

struct Writer<'a> {
    /// Calls that may have happened.
    calls: HashMap<Subject, Vec<&'a Call>>,
    /// What was committed about a subject, and when.
    changes: HashMap<Subject, Vec<(u64, Answer)>>,
    moments: Vec<Moment>,
    findings: Findings,
}

impl<'a> Writer<'a> {
    fn new(all: &'a [Call]) -> Self {
        let mut calls: HashMap<_, Vec<_>> = HashMap::new();
        for call in all.iter().filter(|call| call.may_have_happened()) {
            if let Some(subject) = subject(&call.command) {
                calls.entry(subject).or_default().push(call);
            }
        }
        Self { calls, changes: HashMap::new(), moments: Vec::new(), findings: Findings::default() }
    }

    fn demand(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.findings.violations.push(otherwise());
        }
    }

    /// What one transaction did.
    fn transaction(&mut self, rows: &[Row]) {
        let is_exchange = rows.iter().any(|row| matches!(row.change, Change::Exchanged { .. }));
        let mut accepted = Vec::new();
        for row in rows {
            match &row.change {
                Change::Opened { session, lease_until } => {
                    let opened = OpenedSession { now: row.at, lease_until: *lease_until };
                    self.change(row, Subject::Opening(*session), Answer::Opened(opened));
                }
                Change::Exchanged { session, reply } => {
                    let subject = Subject::Exchange(*session, reply.number);
                    self.count_lost(row, &subject);
                    self.findings.exchanges += 1;
                    self.findings.granted.extend(reply.claimed.iter().map(|job| (job.token, job.id)));
                    self.change(row, subject, Answer::Exchanged(reply.clone()));
                }
                Change::Ended { session, lease_until } => {
                    self.end(row, *session, *lease_until, is_exchange);
                }
                Change::Accepted(job) => accepted.push(*job),
                Change::Limited { group, limit } => {
                    self.findings.limit_changes += 1;
                    self.change(row, Subject::Limit(group.clone(), *limit), Answer::Done);
                }
            }
        }
        if let (Some(first), Some(row)) = (accepted.first(), rows.first()) {
            self.findings.submits += 1;
            let answers = accepted.iter().map(|job| Ok(Submitted::Accepted(*job))).collect();
            self.change(row, Subject::Submit(*first), Answer::Submitted(answers));
        }
    }

    /// A change, by a call that a process made. All calls for it must have asked for the same.
    fn change(&mut self, row: &Row, subject: Subject, answer: Answer) {
        let calls = self.calls.get(&subject).map(Vec::as_slice).unwrap_or_default();
        let Some(call) = calls.iter().find(|call| call.sent_us <= row.committed_us) else {
            return self.findings.violations.push(format!("no call asked for {row:?}"));
        };
        let (command, actor) = (Arc::clone(&call.command), actor(call));
        let agree = calls.iter().all(|call| call.command == command) && is_whole(&command, &answer);
        self.demand(agree, || format!("{row:?} is not what was asked for: {command:?}"));
        self.changes.entry(subject).or_default().push((row.committed_us, answer.clone()));
        let what = What::Applied(command, Arc::new(Ok(answer)));
        self.moments.push(Moment { us: row.committed_us, at: Some(row.at), actor, what });
    }

    /// A session ends because its worker closed it or its lease was over. Exchanges end what is over by themselves, as
    /// the rules say. If another transaction finds the session over, it has the same effect as a close by the worker.
    fn end(&mut self, row: &Row, session: SessionId, lease_until: Time, is_exchange: bool) {
        let subject = Subject::End(session);
        let mut closing = self.calls.get(&subject).into_iter().flatten();
        let closing = closing.find(|call| call.sent_us <= row.committed_us);
        let (command, actor) = match closing {
            Some(call) => (Arc::clone(&call.command), actor(call)),
            None => (Arc::new(Command::CloseSession(session)), Actor::Sweeper),
        };
        let may_end = closing.is_some() || lease_until <= row.at;
        self.demand(may_end, || format!("{session} was ended before its lease was over: {row:?}"));
        self.changes.entry(subject).or_default().push((row.committed_us, Answer::Done));
        if !is_exchange {
            let what = What::Applied(command, Arc::new(Ok(Answer::Done)));
            self.moments.push(Moment { us: row.committed_us, at: Some(row.at), actor, what });
        }
    }

    fn count_lost(&mut self, row: &Row, subject: &Subject) {
        let calls = self.calls.get(subject).into_iter().flatten();
        let heard = calls.filter(|call| matches!(call.heard, Some((_, Ok(_)))));
        match heard.map(|call| call.sent_us).min() {
            None => self.findings.never_heard += 1,
            Some(sent_us) if sent_us > row.committed_us => self.findings.heard_again += 1,
            Some(_) => {}
        }
    }

    /// What a caller was answered must have been committed before (G10).
    fn heard(&mut self, call: &Call) {
        let Some((us, answer)) = &call.heard else { return };
        let answer: Result<Answer> = match answer {
            // Nothing has happened.
            Ok(None) => return,
            Ok(Some(answer)) => Ok(answer.clone()),
            Err(error) => Err(error.clone()),
        };
        if let Some(subject) = subject(&call.command) {
            let was_so = self.was_so(call, &subject, *us, &answer);
            self.demand(was_so, || {
                format!("G10: {} heard of {subject:?} what was never so, at {us} µs", actor(call))
            });
        }
        let (command, actor) = (&call.command, actor(call));
        if let (Command::Register(_), Ok(_)) = (&**command, &answer) {
            // Every worker declares the same tasks, without limits: its place in the order does not matter.
            let what = What::Applied(Arc::clone(command), Arc::new(Ok(Answer::Done)));
            self.moments.push(Moment { us: *us, at: None, actor, what });
        }
        let what = What::Heard(Arc::clone(command), Arc::new(answer));
        self.moments.push(Moment { us: *us, at: None, actor, what });
    }

    /// Whether what was committed until then agrees with what a caller was answered.
    fn was_so(&self, call: &Call, subject: &Subject, heard_us: u64, answer: &Result<Answer>) -> bool {
        let changes = |subject: &Subject| {
            let changes = self.changes.get(subject).into_iter().flatten();
            changes.filter(move |(us, _)| *us <= heard_us)
        };
        match (subject, answer) {
            (Subject::Opening(_) | Subject::Exchange(..), Ok(answer)) => {
                changes(subject).any(|(_, recorded)| recorded == answer)
            }
            (Subject::Limit(..), Ok(_)) => changes(subject).any(|(us, _)| *us >= call.sent_us),
            // Existing jobs were accepted by an earlier call with the same jobs.
            (Subject::Submit(_) | Subject::End(_), Ok(_)) => changes(subject).next().is_some(),
            // A worker that is told that its session has ended must have no session.
            (Subject::Opening(session) | Subject::Exchange(session, _), Err(error)) => {
                error.kind() != ErrorKind::Fenced || changes(&Subject::End(*session)).next().is_some()
            }
            (_, Err(_)) => true,
        }
    }
}

/// Whether an answer is about all that was asked for: a submit is accepted as a whole, and in its order.
fn is_whole(command: &Command, answer: &Answer) -> bool {
    match (command, answer) {
        (Command::Submit(jobs), Answer::Submitted(answers)) => {
            let asked = jobs.iter().map(|job| Ok(Submitted::Accepted(job.id)));
            answers.len() == jobs.len() && answers.iter().zip(asked).all(|(answer, asked)| *answer == asked)
        }
        _ => true,
    }
}
