//! Events: what was decided. Replaying them decides nothing, so every replay reaches the same state.

use crate::job::is_default;
use crate::{
    AttemptOutcome, Configuration, ErrorText, FenceToken, Granted, GroupRef, JobId, JobState, Json, LeaseId,
};
use crate::{AuditText, Deed, NewToken, TickOutcome, Time, TokenId};
use crate::{
    Name, NewJob, NewSession, Note, Result, SessionId, SlotRequest, SlotsFreedBy, Started, Stop, TaskOptions,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One thing that happened. A command decides zero or more events, which happen together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Store time advanced. Jobs that become due stand in line from now on.
    Ticked(Time),
    /// A job was accepted. Its group is filled in unless it is the task's name, and its `run_at` unless that is now.
    Accepted(Arc<NewJob>),
    /// A worker owns the job now, and the job holds all its slots.
    Started {
        /// The job.
        job: JobId,
        /// Its new owner.
        session: SessionId,
        /// The claim's token: one more than the namespace's last.
        token: FenceToken,
        /// When its timeout ends the attempt, even if the session renews.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_at: Option<Time>,
    },
    /// A worker claimed a job ahead of time. It holds no slot.
    Claimed {
        /// The job.
        job: JobId,
        /// The session that claimed it.
        session: SessionId,
        /// The claim's token: one more than the namespace's last.
        token: FenceToken,
        /// When the claim is over unless the job starts before.
        until: Time,
    },
    /// A claim ended before its job started. No attempt was used.
    ClaimEnded {
        /// The job.
        job: JobId,
        /// The claim that is over.
        token: FenceToken,
        /// The state of the job: pending or expired.
        then: JobState,
        /// The worker did not end the claim itself and must be told.
        tell_owner: bool,
    },
    /// An attempt ended, and its slots are free.
    AttemptEnded(Box<AttemptEnded>),
    /// The owner of a running job reported progress.
    Progressed {
        /// The job.
        job: JobId,
        /// The claim that owns it.
        token: FenceToken,
        /// How much of it is done.
        percent: u8,
        /// A note in words.
        note: Note,
    },
    /// A cancel was requested for a running job. Its worker will be told.
    CancelRequested(JobId),
    /// A pending or claimed job ended without running: cancelled or expired.
    Dropped {
        /// The job.
        job: JobId,
        /// The state of the job.
        state: JobState,
    },
    /// A job that had ended without success was reopened. It is pending, with all its attempts left.
    Reopened {
        /// The job.
        job: JobId,
        /// When it is due.
        run_at: Time,
        /// When it expires. None if that moment has passed.
        good_until: Option<Time>,
    },
    /// The retention of an ended job was over.
    Forgotten(JobId),
    /// A job that succeeded left the state, because the store archives it.
    Archived(JobId),
    /// The step that halted its workflow was skipped.
    StepSkipped(JobId),
    /// A workflow was cancelled. Its steps were cancelled before.
    WorkflowCancelled(Name),
    /// A program took slots.
    SlotsTaken {
        /// The program's request.
        request: Arc<SlotRequest>,
        /// Its token: one more than the namespace's last.
        token: FenceToken,
        /// When the lease is over unless it is extended.
        lease_until: Time,
    },
    /// A job that waited for its next attempt is due now.
    Hurried {
        /// The job.
        job: JobId,
        /// When it became due.
        run_at: Time,
    },
    /// A program's lease was extended.
    SlotsExtended {
        /// The lease.
        lease: LeaseId,
        /// When it is over unless it is extended again.
        lease_until: Time,
    },
    /// A program's slots are free again.
    SlotsFreed {
        /// The lease that is over.
        lease: LeaseId,
        /// Why they are free.
        by: SlotsFreedBy,
    },
    /// The next tick of a schedule was found.
    ScheduleMoved {
        /// The schedule.
        schedule: Name,
        /// Its next tick. None if there is no later tick, or it is disabled.
        next: Option<Time>,
    },
    /// A schedule was enabled or disabled.
    ScheduleEnabled {
        /// The schedule.
        schedule: Name,
        /// Whether it is enabled now.
        enabled: bool,
    },
    /// A tick of a schedule was due, and its job was submitted.
    ScheduleFired {
        /// The schedule.
        schedule: Name,
        /// The tick.
        tick: Time,
        /// What became of it.
        outcome: TickOutcome,
    },
    /// An app declared a task.
    Registered(Arc<TaskOptions>),
    /// A configuration replaced the last one of its app.
    Configured(Arc<Configuration>),
    /// An operator set a limit or, with none, took it back.
    LimitSet {
        /// The group, or every key of one.
        group: GroupRef,
        /// The limit. None takes it back.
        limit: Option<u32>,
    },
    /// The last live job or program of a group was gone, and its submit-side limit with it.
    LimitSpent(GroupRef),
    /// A queue was paused or resumed.
    QueuePaused {
        /// The queue.
        queue: Name,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A worker opened a session.
    SessionOpened {
        /// The worker's request.
        session: Arc<NewSession>,
        /// When it ends unless it is renewed.
        lease_until: Time,
    },
    /// A session was renewed: its lease begins anew.
    Renewed {
        /// The session.
        session: SessionId,
        /// When it ends unless it is renewed again.
        lease_until: Time,
        /// Permits that the worker had free.
        free_permits: u32,
        /// The worker takes no more jobs.
        draining: bool,
        /// How full the worker's memory was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory_percent: Option<u8>,
    },
    /// An exchange was answered.
    Exchanged(Box<Exchanged>),
    /// A session ended. Its attempts ended before.
    SessionEnded(SessionId),
    /// The id of a session that ended long ago was forgotten.
    SessionForgotten(SessionId),
    /// A token was created. The audit log says so, too. Tokens that have expired are gone.
    TokenCreated {
        /// The token.
        token: Arc<NewToken>,
        /// Who created it.
        by: AuditText,
    },
    /// A token was revoked. The audit log says so, too.
    TokenRevoked {
        /// The token.
        token: TokenId,
        /// Who revoked it.
        by: AuditText,
    },
    /// An operator did something that the audit log keeps.
    Recorded(Arc<Deed>),
    /// Submits or programs were refused because a group, or a key of it, had no room. It decides nothing: a store may
    /// keep it back until it writes something else.
    Rejected {
        /// The group, or every key of one. It has a limit.
        group: GroupRef,
        /// How often.
        times: u64,
    },
}

/// The end of an attempt, and the state in which it left the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The job.
    pub job: JobId,
    /// The claim that is over.
    pub token: FenceToken,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the handler, or the rule that ended it, said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
    /// What the handler returned. None means `null` if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// The state of the job.
    pub then: JobState,
    /// When it is due again. None keeps its place in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// The worker did not end the attempt itself and must be told to stop.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tell_owner: bool,
}

/// The reply to an exchange, recorded after its settles and claims. The same number again gets the same reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanged {
    /// The session.
    pub session: SessionId,
    /// The number that was answered.
    pub number: u64,
    /// Results of its settles.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "brief::results")]
    pub settled: Vec<Result<JobState>>,
    /// Results of its starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<Result<Started>>,
    /// The jobs it claimed, in order; the claims themselves were `Started`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "brief::grants")]
    pub claimed: Vec<Granted>,
    /// The jobs it claimed ahead of time, in order; the claims themselves were `Claimed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "brief::grants")]
    pub prefetched: Vec<Granted>,
    /// What it must stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<Stop>,
}

/// A short form for lists of thousands of entries, nearly all of which say the same: the usual entry is one word.
mod brief {
    use crate::{FenceToken, Granted, Result, RetryPolicy};
    use serde::de::value::MapAccessDeserializer;
    use serde::de::{IntoDeserializer, MapAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::fmt;

    /// A result is written as its state, an error as itself.
    pub(super) mod results {
        use super::*;
        use crate::JobState;

        #[derive(Serialize)]
        #[serde(untagged)]
        enum Written<'a> {
            State(JobState),
            Error(&'a crate::Error),
        }

        struct Entry(Result<JobState>);

        impl<'de> Deserialize<'de> for Entry {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                struct Either;
                impl<'de> Visitor<'de> for Either {
                    type Value = Entry;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a state or an error")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Entry, E> {
                        JobState::deserialize(text.into_deserializer()).map(|state| Entry(Ok(state)))
                    }
                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Entry, A::Error> {
                        crate::Error::deserialize(MapAccessDeserializer::new(map))
                            .map(|error| Entry(Err(error)))
                    }
                }
                deserializer.deserialize_any(Either)
            }
        }

        pub(in super::super) fn serialize<S: Serializer>(
            results: &[Result<JobState>],
            serializer: S,
        ) -> std::result::Result<S::Ok, S::Error> {
            serializer.collect_seq(results.iter().map(|result| match result {
                Ok(state) => Written::State(*state),
                Err(error) => Written::Error(error),
            }))
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> std::result::Result<Vec<Result<JobState>>, D::Error> {
            let entries = Vec::<Entry>::deserialize(deserializer)?;
            Ok(entries.into_iter().map(|entry| entry.0).collect())
        }
    }

    /// A grant that brings no timeout and the usual backoff is written as its token.
    pub(super) mod grants {
        use super::*;

        #[derive(Serialize)]
        #[serde(untagged)]
        enum Written<'a> {
            Token(FenceToken),
            Grant(&'a Granted),
        }

        struct Entry(Granted);

        impl<'de> Deserialize<'de> for Entry {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                struct Either;
                impl<'de> Visitor<'de> for Either {
                    type Value = Entry;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a token or a grant")
                    }
                    fn visit_u64<E: serde::de::Error>(self, token: u64) -> std::result::Result<Entry, E> {
                        Ok(Entry(usual(FenceToken(token))))
                    }
                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Entry, A::Error> {
                        Granted::deserialize(MapAccessDeserializer::new(map)).map(Entry)
                    }
                }
                deserializer.deserialize_any(Either)
            }
        }

        fn usual(token: FenceToken) -> Granted {
            Granted { token, timeout_ms: None, retry: RetryPolicy::default() }
        }

        pub(in super::super) fn serialize<S: Serializer>(
            grants: &[Granted],
            serializer: S,
        ) -> std::result::Result<S::Ok, S::Error> {
            serializer.collect_seq(grants.iter().map(|grant| {
                if *grant == usual(grant.token) { Written::Token(grant.token) } else { Written::Grant(grant) }
            }))
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> std::result::Result<Vec<Granted>, D::Error> {
            let entries = Vec::<Entry>::deserialize(deserializer)?;
            Ok(entries.into_iter().map(|entry| entry.0).collect())
        }
    }
}
