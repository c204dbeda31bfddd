//! Spans of OpenTelemetry: one for each call that submits jobs, and one for each attempt.
//!
//! 1. A submit begins a span. Its context goes with each job as its [`Traceparent`], unless the caller gave one; then the
//!    span is a child of that one.
//! 2. A worker begins a span for each attempt, whose parent is the job's traceparent. So one trace goes from the submit
//!    through every attempt, whichever processes they run in.
//!
//! This crate makes spans by the API of OpenTelemetry alone. The program decides where they go, by the global tracer
//! provider; without one no span is recorded, and the traceparent of a job is what its caller gave.

use crate::worker::attempt::Claimed;
use opentelemetry::global::{self, BoxedSpan};
use opentelemetry::trace::{
    Span, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use qo_core::{Error, ErrorKind, NewJob, Outcome, Result, Submitted, Traceparent};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What spans of this crate are recorded by.
const TRACER: &str = "qo";
/// The error of a submit that a limit refused.
const LIMIT_REACHED: &str = "ConcurrencyLimitReached";

/// A context whose span is that of a job.
fn of(traceparent: Traceparent) -> Context {
    let span = SpanContext::new(
        TraceId::from_bytes(traceparent.trace_id().to_be_bytes()),
        SpanId::from_bytes(traceparent.span_id().to_be_bytes()),
        TraceFlags::new(traceparent.flags()),
        true,
        TraceState::NONE,
    );
    Context::new().with_remote_span_context(span)
}

/// What jobs carry of a span. None if it is not recorded anywhere, and has no parent.
fn carried(span: &SpanContext) -> Option<Traceparent> {
    let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    Traceparent::parse("traceparent", &format!("00-{trace}-{id}-{flags:02x}")).ok()
}

/// A call that submits jobs.
pub(crate) struct SubmitSpan(BoxedSpan);

impl SubmitSpan {
    /// Begins, and puts the span into each job.
    pub fn begin(jobs: &mut [NewJob]) -> Self {
        let tracer = global::tracer(TRACER);
        let first = jobs.first();
        // Jobs of one call that belong to several traces keep theirs.
        let given = first.and_then(|job| job.traceparent);
        let is_one = jobs.iter().all(|job| job.traceparent == given);
        let parent = given.filter(|_| is_one).map_or_else(Context::current, of);
        let name = first.map_or_else(|| "submit".into(), |job| format!("submit {}", job.task));
        let builder = tracer.span_builder(name).with_kind(SpanKind::Producer);
        let mut span = tracer.build_with_context(builder, &parent);
        if span.is_recording() {
            let count = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
            span.set_attribute(KeyValue::new("messaging.batch.message_count", count));
            if let [job] = jobs {
                span.set_attribute(KeyValue::new("qo.job", job.id.to_string()));
            }
            let own = carried(span.span_context());
            jobs.iter_mut().filter(|_| is_one).for_each(|job| job.traceparent = own);
            jobs.iter_mut().filter(|job| job.traceparent.is_none()).for_each(|job| job.traceparent = own);
        }
        Self(span)
    }

    /// The call was answered.
    pub fn end(mut self, answer: std::result::Result<&[Result<Submitted>], &Error>) {
        let error = match &answer {
            Err(error) => Some(*error),
            Ok(outcomes) => outcomes.iter().find_map(|outcome| outcome.as_ref().err()),
        };
        let skipped = answer.as_ref().is_ok_and(|all| all.iter().any(|one| *one == Ok(Submitted::Skipped)));
        if let Some(said) = error.map(said).or_else(|| skipped.then(|| LIMIT_REACHED.to_owned())) {
            self.0.set_attribute(KeyValue::new("error.type", said.clone()));
            self.0.set_status(Status::error(said));
        }
        self.0.end();
    }
}

/// The kind of an error. Its text may show what the caller sent.
fn said(error: &Error) -> String {
    match error.kind() {
        ErrorKind::LimitReached => LIMIT_REACHED.to_owned(),
        kind => kind.to_string(),
    }
}

/// An attempt.
pub(crate) struct AttemptSpan(Mutex<BoxedSpan>);

impl fmt::Debug for AttemptSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptSpan").finish_non_exhaustive()
    }
}

impl AttemptSpan {
    pub fn begin(claim: &Claimed) -> Self {
        let tracer = global::tracer(TRACER);
        let builder = tracer.span_builder(claim.task.to_string()).with_kind(SpanKind::Consumer);
        let parent = claim.traceparent.map_or_else(Context::new, of);
        let mut span = tracer.build_with_context(builder, &parent);
        if span.is_recording() {
            span.set_attributes([
                KeyValue::new("qo.job", claim.job.to_string()),
                KeyValue::new("qo.attempt", i64::from(claim.attempt)),
                KeyValue::new("qo.queue", claim.queue.to_string()),
                KeyValue::new("qo.group", claim.group.to_string()),
            ]);
        }
        Self(Mutex::new(span))
    }

    /// The attempt has ended; without an outcome if the store ended its claim before.
    pub fn end(&self, outcome: Option<&Outcome>) {
        let mut span = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if span.is_recording() {
            let (word, is_error) = match outcome {
                Some(Outcome::Succeed { .. }) => ("succeeded", false),
                Some(Outcome::Snooze { .. }) => ("snoozed", false),
                Some(Outcome::Release) => ("released", false),
                Some(Outcome::Cancelled) => ("cancelled", false),
                Some(Outcome::Retry { .. }) => ("retried", true),
                Some(Outcome::Fail { .. }) => ("failed", true),
                None => ("lease ended", true),
            };
            span.set_attribute(KeyValue::new("qo.outcome", word));
            if is_error {
                span.set_status(Status::error(word));
            }
        }
        span.end();
    }
}
