//! Many concurrent writers of one key: this tells a store with atomic conditional writes from one without.

use futures::future::join_all;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion, path::Path};

/// How many writers race.
pub const RACERS: usize = 32;

/// How many of the concurrent create-if-absent calls report success.
pub async fn creators(store: &dyn ObjectStore, name: &str) -> usize {
    race(store, &Path::from(name), PutMode::Create).await
}

/// The same for an update of the version that all have read.
pub async fn updaters(store: &dyn ObjectStore, name: &str) -> usize {
    let path = Path::from(name);
    let first = store.put(&path, "the first version".into()).await.expect("a write");
    let version = UpdateVersion { e_tag: first.e_tag, version: first.version };
    race(store, &path, PutMode::Update(version)).await
}

async fn race(store: &dyn ObjectStore, path: &Path, mode: PutMode) -> usize {
    let racers = (0..RACERS).map(|racer| {
        let bytes = format!("written by {racer}").into_bytes();
        store.put_opts(path, bytes.into(), mode.clone().into())
    });
    let mut winners = Vec::new();
    for (racer, outcome) in join_all(racers).await.into_iter().enumerate() {
        match outcome {
            Ok(_) => winners.push(format!("written by {racer}").into_bytes()),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(error) => panic!("racer {racer} neither won nor lost: {error}"),
        }
    }
    let found = store.get(path).await.expect("the object").bytes().await.expect("its bytes");
    assert!(winners.contains(&found.to_vec()), "what is there was written by a loser");
    winners.len()
}
