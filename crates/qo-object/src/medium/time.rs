//! Store time: by the stamps on what is written, and in a bucket by the dates of its answers.

use super::Medium;
use crate::object_error::unavailable;
use crate::traffic::Dated;
use object_store::{ObjectStoreExt, path::Path};
use qo_core::{Error, ErrorKind, Result, Time};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Answers that are asked for, most of which must agree, before a process believes that its machine slept.
const CONFIRMATIONS: usize = 5;

impl Medium {
    /// Store time now. Outside a bucket this writes an object, reads its stamp and deletes it.
    pub(crate) async fn store_time(&self) -> Result<Time> {
        if let Some(time) = self.time_of_an_answer().await? {
            return Ok(time);
        }
        // The write would make a directory that is away anew.
        self.still_there()?;
        let path = Path::from(format!("clock/{}", Uuid::new_v4()));
        let written = self.objects.put(&path, Vec::new().into()).await;
        written.map_err(|error| unavailable(&path, error))?;
        let stamped = self.written_at(&path).await;
        // If this fails, a sweep deletes it.
        self.delete(&path).await.ok();
        let gone = || Error::new(ErrorKind::Unavailable, format!("{path}: was written and is not there"));
        stamped?.ok_or_else(gone)
    }

    /// The time at which a namespace that is made now was made, if that is known without one more request.
    pub(crate) async fn time_of_making(&self) -> Option<Time> {
        match &self.directory {
            Some(_) => self.store_time().await.ok(),
            None => self.date().map(|dated| dated.date),
        }
    }

    /// The date of a bucket's newest answer, right or wrong; none elsewhere, or if its answers bear no date.
    fn date(&self) -> Option<Dated> {
        self.traffic.as_ref().and_then(|traffic| traffic.date())
    }

    /// The date that most of the newest answers of a bucket agree with.
    pub(crate) fn believed(&self) -> Option<Dated> {
        self.traffic.as_ref().and_then(|traffic| traffic.believed())
    }

    /// The same, if it rests on enough answers to set a clock by.
    pub(crate) fn settled(&self) -> Option<Dated> {
        self.traffic.as_ref().and_then(|traffic| traffic.settled())
    }

    /// The time of a bucket now, by most of its newest answers.
    pub(crate) fn believed_now(&self) -> Option<Time> {
        self.traffic.as_ref().and_then(|traffic| traffic.believed_now())
    }

    /// Sends requests to a bucket, in parallel, until `count` of its answers have borne a date.
    pub(crate) async fn hear_dates(&self, count: u64) -> Result<()> {
        let Some(traffic) = &self.traffic else { return Ok(()) };
        let missing = count.saturating_sub(traffic.dates_heard());
        let path = Path::from("clock/now");
        futures::future::try_join_all((0..missing).map(|_| self.exists(&path))).await.map(drop)
    }

    /// Whether a bucket's time is at least `age` after `seen`. A date that says so may be wrong, so more answers must
    /// confirm it. False where answers bear no date.
    pub(crate) async fn is_late_since(&self, seen: Option<Time>, age: Duration) -> bool {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let (Some(traffic), Some(seen)) = (&self.traffic, seen) else { return false };
        let says_so = |dated: &Dated| dated.date.ms_since(seen) >= age_ms;
        if !traffic.date().is_some_and(|dated| says_so(&dated)) {
            return false;
        }
        let mut late = 1;
        for _ in 1..CONFIRMATIONS {
            // A request that fails tells nothing, and to be late is the safe answer.
            let answered = self.exists(&Path::from("clock/now")).await.is_ok();
            late += usize::from(!answered || traffic.date().is_some_and(|dated| says_so(&dated)));
        }
        let is_late = late * 2 > CONFIRMATIONS;
        if is_late {
            traffic.believe_newest(CONFIRMATIONS);
        }
        is_late
    }

    /// The time that a bucket's answer to a request of now leads to; none elsewhere, or if that answer bears no date.
    async fn time_of_an_answer(&self) -> Result<Option<Time>> {
        if self.traffic.is_none() {
            return Ok(None);
        }
        let asked = Instant::now();
        self.exists(&Path::from("clock/now")).await?;
        Ok(self.date().filter(|dated| dated.sent >= asked).and_then(|_| self.believed_now()))
    }
}
