//! Groups, limits, queues and workers.

use super::{Client, Page};
use qo_core::ErrorKind;
use qo_core::{FenceToken, GroupDetail, GroupPage, GroupRef, Name, QueueStatus, Result, WorkerStatus};

impl Client {
    /// Groups that have live jobs or a limit, by name and key, one page at a time.
    pub async fn groups(&self, page: Page<GroupRef>) -> Result<GroupPage> {
        self.again(|| self.store.groups(page.after.clone(), page.limit)).await
    }

    /// A group (`cluster`, `queue:NAME`, `GROUP` or `GROUP/KEY`), its limit and what holds its slots. `NotFound` if it
    /// has neither live jobs nor a limit.
    pub async fn group(&self, group: &str) -> Result<GroupDetail> {
        let group = GroupRef::parse("group", group)?;
        self.again(|| self.store.group(group.clone())).await
    }

    /// Sets the operator's limit of a group, or with `GROUP/*` of every key. It beats what code and configuration say.
    ///
    /// It holds from the moment this returns: running jobs go on, and nothing more starts until there is room.
    ///
    /// ```
    /// # async fn example(client: qo::Client) -> qo::Result<()> {
    /// client.set_limit("call_external_api", 5).await?;
    /// client.set_limit("process_user/*", 1).await?;
    /// client.set_limit("cluster", 0).await?; // Nothing starts.
    /// client.unset_limit("cluster").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_limit(&self, group: &str, limit: u32) -> Result<()> {
        let group = GroupRef::parse("group", group)?;
        self.again(|| self.store.set_limit(group.clone(), limit)).await
    }

    /// Takes the operator's limit back: the limit of the configuration, else of the code, counts again. Returns
    /// whether there was one.
    pub async fn unset_limit(&self, group: &str) -> Result<bool> {
        let group = GroupRef::parse("group", group)?;
        match self.again(|| self.store.unset_limit(group.clone())).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes the slots that a claim holds in a group away from it. The attempt is used, and its handler is told to
    /// stop; another job may start before it has. `NotFound` if that token holds nothing there.
    pub async fn release_slot(&self, group: &str, token: FenceToken) -> Result<()> {
        let group = GroupRef::parse("group", group)?;
        self.again(|| self.store.release_slot(group.clone(), token)).await
    }

    /// All queues that have live jobs, a limit, a priority or a pause.
    pub async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.again(|| self.store.queues()).await
    }

    /// Stops claims from a queue. From the moment this returns nothing is claimed from it; running jobs go on, and
    /// submits are accepted.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        let queue = Name::parse("queue", queue)?;
        self.again(|| self.store.pause_queue(queue.clone(), true)).await
    }

    /// Lets a paused queue go on.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        let queue = Name::parse("queue", queue)?;
        self.again(|| self.store.pause_queue(queue.clone(), false)).await
    }

    /// All live workers.
    pub async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.again(|| self.store.workers()).await
    }
}
