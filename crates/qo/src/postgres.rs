//! What only PostgreSQL can do: jobs that are stored in your own transaction.
//!
//! ```no_run
//! use qo::Client;
//! use qo::postgres::tokio_postgres::{self, NoTls};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("postgres://me@localhost/shop?schema=qo").await?;
//! let (mut database, connection) = tokio_postgres::connect("postgres://me@localhost/shop", NoTls).await?;
//! tokio::spawn(connection);
//!
//! let mut transaction = database.transaction().await?;
//! transaction.execute("INSERT INTO orders (customer) VALUES ($1)", &[&"ACME"]).await?;
//! let invoice = client.submit("send_invoice", "ACME").key("customer-7").into_job()?;
//! client.submit_in(&mut transaction, vec![invoice]).await?;
//! transaction.commit().await?; // the order and its invoice, or neither
//! # Ok(())
//! # }
//! ```
//!
//! The connection must be to the database that has the namespace, as a role that may submit there:
//! `SELECT qo.allow('me', 'work')`. Pools that hand out `tokio_postgres` transactions, like `deadpool-postgres`, work as well.

use crate::Client;
use qo_core::{Error, NewJob, Result, Submitted};
pub use qo_postgres::{Options, PostgresStore, Url, tokio_postgres};
use std::any::Any;
use tokio_postgres::Transaction;

impl Client {
    /// Stores jobs in your own transaction: they exist once it commits, and never do if it does not. Returns the
    /// outcome that each job has if the transaction commits. `Invalid` if the store is not PostgreSQL.
    ///
    /// The client does not repeat this call: after an error, roll the transaction back and begin a new one with the
    /// same jobs. `Unavailable` means that a concurrent transaction was faster (at REPEATABLE READ and SERIALIZABLE),
    /// or that the server cannot be reached. See [`PostgresStore::submit_in`] for what other sessions wait for
    /// meanwhile, and [the module](crate::postgres) for an example.
    pub async fn submit_in(
        &self,
        transaction: &mut Transaction<'_>,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<Submitted>>> {
        let store: &dyn Any = &**self.store();
        let Some(store) = store.downcast_ref::<PostgresStore>() else {
            let rule = "jobs are stored in a transaction on PostgreSQL only: use submit_many";
            return Err(Error::invalid("store", "not PostgreSQL", rule));
        };
        store.submit_in(transaction, jobs).await
    }
}
