//! A caller's own connection, and jobs in the caller's own transaction.

use crate::fixtures::{RUNTIME, connect};
use crate::stage::{job, namespace, open, options, server};
use qo::Client;
use qo_core::{ErrorKind, JobState, MemoryStore, Submitted};
use std::sync::Arc;

#[test]
fn jobs_of_a_callers_transaction_exist_only_if_it_commits() {
    RUNTIME.block_on(async {
        let url = namespace(&server(), "own_transaction").await;
        let client = Client::new(Arc::new(open(&url, options(2)).await));
        let mut database = connect(&server()).await;
        database.batch_execute("CREATE TEMP TABLE orders (customer text)").await.expect("a table");
        for (id, commits) in [(1, false), (2, true)] {
            let mut transaction = database.transaction().await.expect("it begins");
            transaction.batch_execute("INSERT INTO orders VALUES ('ACME')").await.expect("it is stored");
            let invoice = client.submit("send_invoice", "ACME").key("customer-7").id(job(id, "t").id);
            let invoice = invoice.into_job().expect("a job");
            let outcomes = client.submit_in(&mut transaction, vec![invoice]).await.expect("a call");
            assert_eq!(outcomes, [Ok(Submitted::Accepted(job(id, "t").id))]);
            let early =
                client.store().job(job(id, "t").id).await.expect_err("no other transaction sees it yet");
            assert_eq!(early.kind(), ErrorKind::NotFound);
            match commits {
                true => transaction.commit().await.expect("it commits"),
                false => transaction.rollback().await.expect("it is undone"),
            }
        }
        let never = client.store().job(job(1, "t").id).await.expect_err("it never was");
        assert_eq!(never.kind(), ErrorKind::NotFound);
        let stored = client.store().job(job(2, "t").id).await.expect("a job");
        assert_eq!(stored.view.state, JobState::Pending);
        let orders = database.query_one("SELECT count(*) FROM orders", &[]).await.expect("a count");
        assert_eq!(orders.get::<_, i64>(0), 1);
    });
}

#[test]
fn a_transaction_of_postgresql_means_nothing_to_another_store() {
    RUNTIME.block_on(async {
        let client = Client::new(Arc::new(MemoryStore::new()));
        let mut database = connect(&server()).await;
        let mut transaction = database.transaction().await.expect("it begins");
        let refused = client.submit_in(&mut transaction, vec![job(1, "t")]).await.expect_err("it is refused");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.message().contains("submit_many"), "{refused}");
    });
}

#[test]
fn a_transaction_whose_connection_is_lost_stores_no_job() {
    RUNTIME.block_on(async {
        let url = namespace(&server(), "own_lost").await;
        let client = Client::new(Arc::new(open(&url, options(2)).await));
        let mut database = connect(&server()).await;
        let pid: i32 = database.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0);
        let mut transaction = database.transaction().await.expect("it begins");
        client.submit_in(&mut transaction, vec![job(1, "t")]).await.expect("a call");
        let killer = connect(&server()).await;
        killer.query("SELECT pg_terminate_backend($1, 5000)", &[&pid]).await.expect("it is ended");
        let error = client.submit_in(&mut transaction, vec![job(2, "t")]).await.expect_err("it is gone");
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
        let never = client.store().job(job(1, "t").id).await.expect_err("it never was");
        assert_eq!(never.kind(), ErrorKind::NotFound);
    });
}
