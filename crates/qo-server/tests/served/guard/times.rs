//! How soon a token counts, and stops to, at every server.

use super::client::{connect, remote_as};
use super::{Rights, create};
use crate::stage::{PATIENCE, Served, block_on};
use qo_core::Scope::{Admin, Read};
use qo_core::{Cause, JobFilter, MemoryStore, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// What the documentation promises.
const SOON: Duration = Duration::from_secs(5);

/// Waits until something holds, and returns how long that took.
async fn until(mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "it holds in the end");
        sleep(Duration::from_millis(25)).await;
    }
    began.elapsed()
}

#[test]
fn tokens_count_and_stop_to_count_at_all_servers_within_five_seconds() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let first = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let second = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        connect(&first, None).await.expect("there is no token yet");
        let ops = create(&*store, "ops", Rights { scopes: &[Admin], ..Rights::default() }).await;
        for served in [&first, &second] {
            let took = until(async || connect(served, None).await.is_err()).await;
            assert!(took < SOON, "from the first token on every caller needs one: {took:?}");
        }
        let refused = connect(&first, None).await.expect_err("refused");
        assert_eq!(refused.cause(), Some(Cause::NoToken));
        let ops = remote_as(&first, &ops).await;
        let reader = create(&ops, "reader", Rights { scopes: &[Read], ..Rights::default() }).await;
        let at_first = remote_as(&first, &reader).await;
        let took = until(async || connect(&second, Some(&reader)).await.is_ok()).await;
        assert!(took < SOON, "a new token counts: {took:?}");
        let at_second = remote_as(&second, &reader).await;
        let waiting = tokio::spawn(async move {
            let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", second.address));
            let channel = channel.expect("a url").connect().await.expect("it listens");
            let mut client = qo_wire::pb::queue_client::QueueClient::new(channel);
            let mut request = tonic::Request::new(qo_wire::pb::WatchRequest { session: None });
            let shown = format!("Bearer {}", reader.secret_text());
            request.metadata_mut().insert("authorization", shown.parse().expect("a header"));
            let mut stream = client.watch(request).await.expect("it watches").into_inner();
            while let Ok(Some(_)) = stream.message().await {}
            second
        });
        let listed = ops.tokens().await.expect("tokens");
        assert!(listed.iter().all(|token| token.hash.is_none()), "no hash leaves the server: {listed:?}");
        let id = listed.iter().find(|token| *token.name == *"reader").expect("it is listed").id;
        ops.revoke_token(id, "someone else".into()).await.expect("revoked");
        let looks =
            async |remote: &qo_wire::RemoteStore| remote.jobs(JobFilter::default(), None, 1).await.is_ok();
        assert!(!looks(&at_first).await, "at once, where it was revoked");
        let began = Instant::now();
        let took = until(async || !looks(&at_second).await).await;
        assert!(took < SOON, "a revoked token does not count anywhere: {took:?}");
        waiting.await.expect("its streams end");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        let by: Vec<String> = ops
            .audit(None, 10)
            .await
            .expect("the log")
            .into_iter()
            .map(|entry| entry.deed.by.into())
            .collect();
        assert_eq!(by, ["ops", "ops", "test"], "a caller does not choose its name in the audit log");
    });
}
