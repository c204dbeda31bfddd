//! A fleet with tokens: a program that submits, a worker, an operator, each with the one scope that it needs.

use super::client::remote_as;
use super::{Rights, create};
use crate::stage::{PATIENCE, Served, block_on};
use qo::{Client, Worker};
use qo_core::Scope::{Admin, Submit, Work};
use qo_core::{Cause, JobState, MemoryStore, Store};
use std::sync::Arc;
use tokio::time::timeout;

#[test]
fn each_part_of_a_fleet_needs_one_scope_and_its_queues_alone() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let rights = |scopes, queues| Rights { scopes, queues, ..Rights::default() };
        let shop = create(&*store, "shop", rights(&[Submit], &["mail"])).await;
        let fleet = create(&*store, "fleet", rights(&[Work], &["mail"])).await;
        let ops = create(&*store, "ops", rights(&[Admin], &[])).await;
        let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
        let ops = remote_as(&served, &ops).await;
        let work_for = async || {
            let builder = Worker::builder(Arc::new(remote_as(&served, &fleet).await)).queue("mail");
            let square = |n: u64, context: qo::Context| async move {
                context.log("squared\n");
                Ok::<_, qo::Failure>(n * n)
            };
            builder.task("square", square).build().expect("a worker")
        };
        let working = tokio::spawn(work_for().await.run());
        let client = Client::new(Arc::new(remote_as(&served, &shop).await));
        let job = client.submit("square", &7_u64).queue("mail").await.expect("accepted");
        let detail = timeout(PATIENCE, client.wait(job)).await.expect("it runs").expect("it is there");
        assert_eq!(detail.view.state, JobState::Succeeded);
        assert_eq!(detail.output.map(String::from), Some("49".into()));
        let token = detail.attempts[0].token;
        let log = async || ops.log(token).await.expect("an operator reads it");
        timeout(PATIENCE, async {
            while log().await.as_deref() != Some("squared\n") {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the worker keeps the log of its own attempt");
        ops.revoke_token(fleet.id(), "ops".into()).await.expect("revoked");
        let ended =
            timeout(PATIENCE, working).await.expect("a worker without a token ends").expect("no panic");
        assert_eq!(ended.expect_err("it says why").cause(), Some(Cause::NoToken));
    });
}
