//! The bucket of a build without the feature `s3`: there is none, and the compiler knows.

use crate::format::Absent;
use crate::log::Log;
use crate::traffic::Traffic;
use object_store::ObjectStore;
use qo_core::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A bucket. A build without the feature `s3` has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bucket {}

impl fmt::Display for Bucket {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Bucket {
    /// `Invalid`: add the feature.
    pub fn parse(url: &str) -> Result<Self> {
        let shown = url.split(['?', '@']).next().unwrap_or_default();
        Err(Error::invalid("store", shown, "this build of qo has no S3: add the feature s3"))
    }

    /// Whether a namespace is made where there is none.
    pub fn may_make(&self) -> bool {
        match *self {}
    }

    /// The objects under the prefix.
    pub fn objects(&self, _: &Arc<Traffic>) -> Result<Arc<dyn ObjectStore>> {
        match *self {}
    }

    /// How long each of so many small requests takes.
    pub async fn round_trips(&self, _: usize) -> Result<Vec<Duration>> {
        match *self {}
    }

    /// Deletes every object below the prefix.
    pub async fn clear(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) async fn prepare(&self, _: &Log, _: Absent) -> Result<bool> {
        match *self {}
    }

    pub(crate) async fn check(&self, _: &dyn ObjectStore) -> Result<bool> {
        match *self {}
    }

    pub(crate) async fn probe(&self, _: &dyn ObjectStore) -> Result<()> {
        match *self {}
    }

    pub(crate) async fn probe_replacing(&self, _: &dyn ObjectStore) -> Result<()> {
        match *self {}
    }
}
