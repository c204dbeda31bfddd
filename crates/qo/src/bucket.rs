//! What only a bucket has: a count of its requests, which are what it costs.
//!
//! ```no_run
//! # async fn example() -> qo::Result<()> {
//! let (store, traffic) = qo::bucket::connect("s3://jobs/mail?region=eu-central-1").await?;
//! let before = traffic.requests();
//! qo::Client::new(store).submit("send", "ada@example.com").await?;
//! let requests = traffic.requests().since(&before);
//! println!("{} PUT, {} GET: ${}", requests.puts, requests.gets, requests.dollars());
//! # Ok(())
//! # }
//! ```

use crate::settings::without_password;
use qo_core::{Error, Result, Store};
pub use qo_object::{Bucket, Requests, Traffic};
use qo_object::{LogStore, Options};
use std::sync::Arc;

/// Opens the namespace in a bucket as [`crate::connect()`] does, and also returns the counter of its requests.
/// `Invalid` if the URL is not that of a bucket.
pub async fn connect(url: &str) -> Result<(Arc<dyn Store>, Arc<Traffic>)> {
    let store = LogStore::open_bucket(&Bucket::parse(url)?, Options::bucket()).await?;
    counted(url, store)
}

/// The same for a process that does little more than submit, as [`crate::connect_to_submit`] does.
pub async fn connect_to_submit(url: &str) -> Result<(Arc<dyn Store>, Arc<Traffic>)> {
    let store = LogStore::open_bucket_to_submit(&Bucket::parse(url)?, Options::bucket()).await?;
    counted(url, store)
}

fn counted(url: &str, store: LogStore) -> Result<(Arc<dyn Store>, Arc<Traffic>)> {
    let traffic = store.traffic().cloned();
    let traffic =
        traffic.ok_or_else(|| Error::invalid("store", without_password(url), "must be a bucket"))?;
    Ok((Arc::new(store), traffic))
}
