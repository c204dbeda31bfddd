//! The bucket that is measured, and prefixes that are deleted again.

use super::super::figure::median;
use qo::Result;
use qo::bucket::Bucket;
use serde::Serialize;
use std::sync::atomic::{AtomicU32, Ordering};
use uuid::Uuid;

/// How many requests are timed.
const QUESTIONS: usize = 30;

/// A bucket, and the one prefix in it that everything is under.
#[derive(Debug)]
pub struct Site {
    place: String,
    query: String,
    number: AtomicU32,
}

/// How far away a bucket is.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// How long a request with a small answer takes; the median of some.
    pub request_ms: f64,
}

impl Site {
    /// Everything is under a prefix of its own, below the one that the URL names.
    pub fn find(url: &str) -> Result<Self> {
        Bucket::parse(url)?;
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let place = format!("{}/qo-bench-{}", place.trim_end_matches('/'), Uuid::new_v4());
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        Ok(Self { place, query, number: AtomicU32::default() })
    }

    /// The URL of a fresh namespace.
    pub fn fresh(&self) -> String {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        format!("{}/{number}{}", self.place, self.query)
    }

    /// How far away the bucket is.
    pub async fn facts(&self) -> Result<Facts> {
        let times = self.bucket()?.round_trips(QUESTIONS).await?;
        let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        Ok(Facts { request_ms: median(&times) })
    }

    /// Deletes everything that the benchmark made.
    pub async fn clear(&self) -> Result<()> {
        self.bucket()?.clear().await
    }

    fn bucket(&self) -> Result<Bucket> {
        Bucket::parse(&format!("{}{}", self.place, self.query))
    }
}
