//! A bucket in memory behind a real S3 interface: a small server on a port of this machine, with the faults, delays and
//! wrong answers that buckets have. It counts its requests; its [`Bucket`] handle controls its answers.
//!
//! Checking a condition and writing are one step under one lock, unless [`Bucket::set_conditions`] says otherwise.

mod client;
mod fault;
mod objects;
mod request;
mod server;

pub use client::DateLies;
pub use fault::{Fault, FaultRates};
pub use objects::Conditions;
pub use request::{Kind, Requests};

use crate::random::Random;
use client::Clients;
use fault::Plans;
use object_store::aws::AmazonS3Builder;
use objects::Objects;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::Notify;

/// The one bucket that exists there; any other is `NoSuchBucket`.
pub const NAME: &str = "qo-test";
/// The access key of the tests. A key that begins with it and a dash is valid too, each as a client of its own. Any
/// other is refused with 403. `scripts/with_s3.py` gives real servers the same credentials.
pub const ACCESS_KEY: &str = "qo-test-key";
/// The secret that goes with [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "qo-test-secret";
/// Any region will do; this is the one that [`Bucket::client`] names.
pub const REGION: &str = "us-east-1";

/// A running server with one bucket. It ends when this is dropped.
pub struct Bucket {
    state: Arc<State>,
    url: String,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// What the server and its handle share.
struct State {
    objects: Mutex<Objects>,
    plans: Mutex<Plans>,
    clients: Mutex<Clients>,
}

impl Bucket {
    /// Starts a server on a free port of 127.0.0.1, with an empty bucket and no faults. The seed is that of the dice
    /// for [`Bucket::set_faults`].
    pub fn start(seed: u64) -> Self {
        let state = Arc::new(State {
            objects: Mutex::new(Objects::new()),
            plans: Mutex::new(Plans::new(Random::new(seed))),
            clients: Mutex::new(Clients::new(Random::new(seed ^ 0xda7e))),
        });
        let stop = Arc::new(Notify::new());
        let (url, thread) = server::start(state.clone(), stop.clone());
        Self { state, url, stop, thread: Some(thread) }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How `object_store` reaches it. Its retries are on: tests of a single request turn them off.
    pub fn client(&self) -> AmazonS3Builder {
        client(&self.url, NAME)
    }

    /// What another process needs in its environment to reach it.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT_URL", self.url.clone()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_REGION", REGION.to_owned()),
        ]
    }

    /// The same for a client of its own, whose key ends with a dash and this name.
    pub fn environment_of(&self, client: &str) -> [(&'static str, String); 5] {
        self.environment().map(|(name, value)| match name {
            "AWS_ACCESS_KEY_ID" => (name, format!("{ACCESS_KEY}-{client}")),
            _ => (name, value),
        })
    }

    /// Sets which answers to a client have a wrong date from now on.
    pub fn set_dates(&self, client: &str, lies: DateLies) {
        self.state.clients().set_lies(&format!("{ACCESS_KEY}-{client}"), lies);
    }

    /// Sets whether a client may only read from now on: its writes are refused with 403 `AccessDenied`.
    pub fn set_may_only_read(&self, client: &str, may_only_read: bool) {
        self.state.clients().set_may_only_read(&format!("{ACCESS_KEY}-{client}"), may_only_read);
    }

    /// Sets how long every request takes from now on: half of it before the request takes effect and half after.
    pub fn set_latency(&self, latency: Duration) {
        self.plans().latency = latency;
    }

    /// Sets the random faults of requests of some kinds from now on; the default is none.
    pub fn set_faults(&self, kinds: &[Kind], rates: FaultRates) {
        let mut plans = self.plans();
        for kind in kinds {
            plans.rates[*kind as usize] = rates;
        }
    }

    /// Gives the next request of a kind this fault, whatever the dice say. A second call is for the request after that.
    pub fn fail_next(&self, kind: Kind, fault: Fault) {
        self.plans().next.push_back((kind, fault));
    }

    /// Objects younger than this are in no listing, though they can be read.
    pub fn set_listing_delay(&self, delay: Duration) {
        self.objects().listing_delay = delay;
    }

    /// Sets how it treats conditional writes from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.objects().conditions = conditions;
    }

    /// Sets the server's clock forward: that of `Date` and `Last-Modified`.
    pub fn advance(&self, time: Duration) {
        self.objects().ahead += time;
    }

    /// The requests that have come in since the start, or since they were last taken.
    pub fn requests(&self) -> Requests {
        self.plans().requests
    }

    /// The same, and resets the counts.
    pub fn take_requests(&self) -> Requests {
        std::mem::take(&mut self.plans().requests)
    }

    /// The names of all objects that begin with a prefix, in order, with no request and no delay.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.objects().below(prefix).map(|(name, _)| name.to_owned()).collect()
    }

    /// The bytes of an object.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.objects().get(name).map(|object| object.bytes.to_vec())
    }

    /// Writes an object, whether there is one or not.
    pub fn write(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.objects().write(name, bytes.into().into());
    }

    /// Removes an object; returns whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        self.objects().remove(name)
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.state.objects()
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.state.plans()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.stop.notify_one();
        // If it has panicked, the test that uses it has seen that.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl State {
    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How `object_store` reaches a server with the tests' credentials, this one or one that `scripts/with_s3.py` started.
pub fn client(url: &str, bucket: &str) -> AmazonS3Builder {
    // One provider per process: the second call fails and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    AmazonS3Builder::new()
        .with_endpoint(url)
        .with_allow_http(true)
        .with_virtual_hosted_style_request(false)
        .with_bucket_name(bucket)
        .with_region(REGION)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
}
