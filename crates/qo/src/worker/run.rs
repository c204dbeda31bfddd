//! One attempt: the handler under supervision.

use crate::context::{CancelReason, Context};
use crate::failure::Failure;
use crate::handler::Handler;
use crate::log::{AttemptLogs, Log};
use crate::worker::attempt::Attempt;
use futures::FutureExt;
use qo_core::{FenceToken, Json, caps};
use std::any::Any;
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How an attempt came to an end in this process.
#[derive(Debug)]
pub(crate) enum End {
    /// The handler returned.
    Returned(Result<Json, Failure>),
    /// It panicked, with this message.
    Panicked(String),
    /// It was told to stop, did not, and the worker dropped it.
    Dropped,
    /// The runtime that it ran on is gone.
    Vanished,
}

/// An attempt is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub token: FenceToken,
    pub end: End,
    pub at: Instant,
}

/// Reports that an attempt is over, even if the task that runs it is dropped.
struct Report {
    attempt: Arc<Attempt>,
    end: End,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let end = std::mem::replace(&mut self.end, End::Vanished);
        // The watch asks the attempt itself, because the loop may be waiting for the store for a long time.
        self.attempt.end();
        // The receiver is gone if the worker is, and its session ends with it.
        self.ended.send(Ended { token: self.attempt.claim.token, end, at: Instant::now() }).ok();
    }
}

/// Runs an attempt to its end.
pub(crate) fn run(
    attempt: Arc<Attempt>,
    handler: Arc<dyn Handler>,
    payload: Json,
    cancel_grace: Duration,
    logs: Arc<AttemptLogs>,
    ended: mpsc::UnboundedSender<Ended>,
) -> impl Future<Output = ()> + Send + 'static {
    // Made outside the future: a task that is never polled must report too.
    let mut report = Report { attempt: Arc::clone(&attempt), end: End::Vanished, ended };
    async move {
        let context = Context::new(Arc::clone(&attempt));
        let call = AssertUnwindSafe(async move { handler.call(payload, context).await }).catch_unwind();
        let mut call = Box::pin(call);
        let running = poll_fn(|task| {
            // After a stall the handler may be polled before the watch has noticed the end of the lease.
            if attempt.lease.is_over() {
                attempt.cancel(CancelReason::LeaseLost, attempt.lease.over_at());
                return Poll::Ready(End::Dropped);
            }
            call.as_mut().poll(task).map(|result| match result {
                Ok(returned) => End::Returned(returned),
                Err(panic) => End::Panicked(message(&*panic)),
            })
        });
        let mut log = None;
        report.end = tokio::select! {
            biased;
            () = attempt.time_is_up() => End::Dropped,
            () = time_out(&attempt, cancel_grace) => End::Dropped,
            end = running => end,
            never = keep_log(&attempt, &logs, &mut log) => match never {},
        };
        drop(call);
        attempt.let_go().await;
        // Nothing of it runs any more. Only its settle waits for its log, and none waits if it comes too late anyway.
        attempt.end();
        if let Some(logged) = attempt.logged().filter(|_| !attempt.lease.is_over()) {
            let log = log.unwrap_or_else(|| Log::new(logs, attempt.claim.token, logged.clone()));
            log.finish(attempt.claim.job).await;
        }
        drop(report);
    }
}

/// Keeps what the handler logs while it runs. Most handlers log nothing, and then this only waits.
async fn keep_log(attempt: &Attempt, logs: &Arc<AttemptLogs>, log: &mut Option<Log>) -> Infallible {
    let logged = attempt.begins_to_log().await;
    let log = log.insert(Log::new(Arc::clone(logs), attempt.claim.token, logged.clone()));
    log.keep().await
}

/// Tells the handler to stop at its timeout. It never returns: `time_is_up` ends the wait for the handler.
async fn time_out(attempt: &Attempt, cancel_grace: Duration) {
    if let Some(timeout_ms) = attempt.claim.timeout_ms {
        let timeout = Duration::from_millis(timeout_ms.min(caps::DURATION_MS));
        // The store ends the claim ten seconds after the timeout, counted from its own claim. The attempt must be
        // settled by then, even if the answer to the claim took long.
        let store_grace = Duration::from_millis(caps::TIMEOUT_GRACE_MS);
        let latest = attempt.sent + timeout + store_grace / 2;
        tokio::time::sleep_until(latest.min(attempt.started + timeout)).await;
        attempt.cancel(CancelReason::TimedOut, Instant::now() + cancel_grace.min(store_grace * 2 / 5));
    }
    pending().await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it did not say why").to_owned()
}
