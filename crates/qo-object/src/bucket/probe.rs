//! Trying a server out: does it write conditionally?
//!
//! Of several processes that create the same object at once exactly one may succeed: the log depends on that. Some
//! servers check first and write later, or do not check at all; a log there would lose records unnoticed. Slots that
//! are objects also depend on replacing: of several processes that replace the same version of an object exactly one
//! may succeed.
//!
//! 1. [`RACERS`] requests create one object, or replace one version of it, in parallel; one more request comes later.
//! 2. Exactly one of them must succeed, and its bytes must be there.

use super::Bucket;
use futures::future::join_all;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use qo_core::{Error, ErrorKind, Result};
use uuid::Uuid;

/// Requests that race when a server is tried out, and how often they do.
const RACERS: u128 = 4;
const RACES: usize = 2;

impl Bucket {
    /// Tries out whether one of several requests creates an object. `Invalid` if not.
    pub(crate) async fn probe(&self, objects: &dyn ObjectStore) -> Result<()> {
        for _ in 0..RACES {
            let path = Path::from(format!("probe/{}", Uuid::new_v4()));
            let raced = self.race(objects, &path).await;
            objects.delete(&path).await.ok();
            raced?;
        }
        Ok(())
    }

    /// Tries out whether one of several requests replaces an object that is still the version that was read. `Invalid`
    /// if not.
    pub(crate) async fn probe_replacing(&self, objects: &dyn ObjectStore) -> Result<()> {
        let path = Path::from(format!("probe/{}", Uuid::new_v4()));
        let raced = self.race_to_replace(objects, &path).await;
        objects.delete(&path).await.ok();
        raced
    }

    /// Replaces one object by several requests.
    async fn race_to_replace(&self, objects: &dyn ObjectStore, path: &Path) -> Result<()> {
        let first = objects.put(path, Uuid::nil().as_bytes().to_vec().into()).await;
        let version: UpdateVersion = first.map_err(|error| self.explained(&error))?.into();
        let replace = |racer: u128| {
            let mode = PutMode::Update(version.clone());
            let options = PutOptions { mode, ..PutOptions::default() };
            let bytes = Uuid::from_u128(racer).as_bytes().to_vec();
            objects.put_opts(path, bytes.into(), options)
        };
        let mut all = join_all((1..=RACERS).map(replace)).await;
        all.push(replace(RACERS + 1).await);
        let mut winners = 0;
        for replaced in all {
            match replaced {
                Ok(_) => winners += 1,
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                }
                Err(error) => return Err(self.explained(&error)),
            }
        }
        if winners <= 1 {
            return Ok(());
        }
        let rule = format!(
            "this server does not replace an object only if it is still the version that was read (If-Match), for all who \
             try at once: {winners} of {} succeeded. On it two would hold one slot",
            RACERS + 1
        );
        Err(Error::invalid("store", self, rule))
    }

    /// Creates one object by several requests.
    async fn race(&self, objects: &dyn ObjectStore, path: &Path) -> Result<()> {
        let create = |racer: u128| async move {
            let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let bytes = Uuid::from_u128(racer).as_bytes().to_vec();
            (racer, objects.put_opts(path, bytes.into(), once).await)
        };
        let mut winners = Vec::new();
        let mut all = join_all((0..RACERS).map(create)).await;
        // A request that comes later must fail, too.
        all.push(create(RACERS).await);
        for (racer, created) in all {
            match created {
                Ok(_) => winners.push(racer),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                }
                Err(object_store::Error::NotImplemented { .. }) => return Err(self.careless("it refuses to")),
                Err(error) => return Err(self.explained(&error)),
            }
        }
        let written = objects.get(path).await.map_err(|error| self.explained(&error))?;
        let written = written.bytes().await.map_err(|error| self.explained(&error))?;
        match winners[..] {
            [winner] if written[..] == Uuid::from_u128(winner).as_bytes()[..] => Ok(()),
            [_] => Err(self.careless("another one than it said succeeded")),
            [] => {
                Err(Error::new(ErrorKind::Unavailable, format!("{self}: of {RACERS} writers none succeeded")))
            }
            _ => Err(self.careless(&format!("{} of {} writers succeeded", winners.len(), RACERS + 1))),
        }
    }

    fn careless(&self, how: &str) -> Error {
        let rule = format!(
            "this server does not create an object only if it is absent (If-None-Match), for all who try at once: {how}. \
             On it records would be lost; AWS S3, Cloudflare R2, MinIO and SeaweedFS do"
        );
        Error::invalid("store", self, rule)
    }
}
