//! Slots for work that is not a job: a guard that holds them, renews their lease and gives them back.
//!
//! The slots share the group's limit with its jobs.
//!
//! 1. [`AcquireSlots`] asks the store for the slots, under an id of its own, so that a repeated call is the same request.
//! 2. The guard renews the lease every third of it, in a task of its own.
//! 3. The guard trusts the lease as a worker does: until the moment at which it sent the last renewal that succeeded,
//!    plus the lease, minus a margin. After that [`SlotGuard::lost`] returns: the slots may be another program's.
//! 4. Dropping the guard gives the slots back, in the background; [`SlotGuard::release`] waits for it.

use super::Client;
use crate::worker::{default_name, trusted_for};
use futures::future::BoxFuture;
use qo_core::{Error, ErrorKind, FenceToken, GroupRef, LeaseId, Name, Result, SlotRequest, Store};
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use uuid::Uuid;

/// Pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// How often to ask again where the store reports no changes, and where it does.
const POLLS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Longest pause between two tries, for a caller that waits while the store changes all the time: each try is a write.
const TRY_GAP: Duration = Duration::from_millis(250);

/// How long to wait before the next try to take slots of a full group: the longer the wait has been, the longer.
pub fn pause_between_tries(waited: Duration) -> Duration {
    (waited / 20).min(TRY_GAP)
}

impl Client {
    /// Slots of a group (`GROUP` or `GROUP/KEY`) for work that is not a job: set the options, then `.await` it.
    ///
    /// ```
    /// # async fn example(client: qo::Client) -> qo::Result<()> {
    /// let slot = client.acquire("gpu").limit(2).await?; // Waits until one is free.
    /// tokio::select! {
    ///     () = render() => {}
    ///     error = slot.lost() => return Err(error), // Stop: another program may have it.
    /// }
    /// slot.release().await?; // Or drop it.
    /// # Ok(())
    /// # }
    /// # async fn render() {}
    /// ```
    pub fn acquire(&self, group: &str) -> AcquireSlots {
        let request = GroupRef::parse("group", group).map(|group| {
            SlotRequest::new(LeaseId(Uuid::new_v4()), group, default_name(), qo_core::millis(LEASE))
        });
        AcquireSlots { client: self.clone(), request }
    }
}

/// How long a lease is, unless the caller says otherwise.
const LEASE: Duration = Duration::from_secs(30);

/// Slots that are about to be taken. Awaiting it waits until they are free; [`now`](Self::now) does not wait.
#[must_use = "slots are taken when this is awaited"]
#[derive(Debug)]
pub struct AcquireSlots {
    client: Client,
    request: Result<SlotRequest>,
}

impl AcquireSlots {
    fn set(mut self, set: impl FnOnce(&mut SlotRequest) -> Result<()>) -> Self {
        // The first mistake stays.
        if let Ok(request) = &mut self.request
            && let Err(error) = set(request)
        {
            self.request = Err(error);
        }
        self
    }

    /// How many slots, all or none. Defaults to 1.
    pub fn slots(self, slots: u32) -> Self {
        self.set(|request| {
            request.slots = slots;
            Ok(())
        })
    }

    /// A limit for the group where no other source has set one. Defaults to none.
    pub fn limit(self, limit: u32) -> Self {
        self.set(|request| {
            request.limit = Some(limit);
            Ok(())
        })
    }

    /// The name that `status` shows. Defaults to the host's name and the process id.
    pub fn holder(self, holder: &str) -> Self {
        self.set(|request| Name::parse("holder", holder).map(|holder| request.holder = holder))
    }

    /// How long the slots stay taken if this process dies. Defaults to 30 s.
    pub fn lease(self, lease: Duration) -> Self {
        self.set(|request| {
            request.lease_ms = qo_core::millis(lease);
            Ok(())
        })
    }

    /// Takes the slots if they are free now.
    pub async fn now(self) -> Result<Option<SlotGuard>> {
        let request = self.request?;
        request.check()?;
        let sent = Instant::now();
        let store = &self.client.store;
        let granted = self.client.again(|| store.acquire_slots(request.clone())).await?;
        Ok(granted.map(|lease| SlotGuard::new(Arc::clone(store), request, lease.token, sent)))
    }

    /// Waits until the slots are free. Dropping the future gives up; slots that were granted at that very moment come
    /// back when their lease ends.
    async fn wait(self) -> Result<SlotGuard> {
        let store = Arc::clone(&self.client.store);
        let poll = POLLS[usize::from(store.tells_changes())];
        let request = self.request?;
        let started = Instant::now();
        loop {
            let tried = Instant::now();
            // Read the change counter before the slots, so that no change is missed.
            let seen = store.changed(None).await.ok();
            let again = Self { client: self.client.clone(), request: Ok(request.clone()) };
            if let Some(guard) = again.now().await? {
                return Ok(guard);
            }
            let change = async {
                match seen {
                    Some(seen) if store.changed(Some(seen)).await.is_ok() => {}
                    Some(_) | None => std::future::pending().await,
                }
            };
            // Time out where the store reports nothing.
            let _ = timeout_at(Instant::now() + poll, change).await;
            sleep_until(tried + pause_between_tries(started.elapsed())).await;
        }
    }
}

impl IntoFuture for AcquireSlots {
    type Output = Result<SlotGuard>;
    type IntoFuture = BoxFuture<'static, Result<SlotGuard>>;

    /// Waits until the slots are free, and takes them.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}

/// Slots that this process holds. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropping it gives the slots back"]
pub struct SlotGuard {
    token: FenceToken,
    group: GroupRef,
    /// Set once, when the slots may be another program's.
    lost: watch::Receiver<Option<Error>>,
    /// Tells the task that renews to give the slots back.
    release: Option<watch::Sender<()>>,
    renewing: Option<JoinHandle<Result<()>>>,
}

impl SlotGuard {
    fn new(store: Arc<dyn Store>, request: SlotRequest, token: FenceToken, sent: Instant) -> Self {
        let (tell_lost, lost) = watch::channel(None);
        let (release, released) = watch::channel(());
        let group = request.group.clone();
        let renewing = tokio::spawn(Renewing { store, request, token, tell_lost }.run(sent, released));
        Self { token, group, lost, release: Some(release), renewing: Some(renewing) }
    }

    /// The fence token: it grows with every claim of the group's slots. Pass it along to whatever must refuse a stale
    /// holder.
    pub fn token(&self) -> FenceToken {
        self.token
    }

    /// The group.
    pub fn group(&self) -> &GroupRef {
        &self.group
    }

    /// Whether the slots can still be relied upon.
    pub fn is_held(&self) -> bool {
        self.lost.borrow().is_none()
    }

    /// Waits until the slots are lost, and returns why: an operator took them, or the lease could not be renewed. Stop
    /// what they were for.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
            why.unwrap_or_else(|| Error::new(ErrorKind::Fenced, "the slots were given back"))
        }
    }

    /// Gives the slots back, and waits until the store knows. Slots that were lost are given back already.
    pub async fn release(mut self) -> Result<()> {
        self.release = None;
        match self.renewing.take() {
            Some(renewing) => renewing.await.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Internal, format!("giving slots back: {error}")))
            }),
            None => Ok(()),
        }
    }
}

/// The task that keeps a lease.
struct Renewing {
    store: Arc<dyn Store>,
    request: SlotRequest,
    token: FenceToken,
    tell_lost: watch::Sender<Option<Error>>,
}

impl Renewing {
    /// Renews until the guard is dropped, then gives the slots back.
    async fn run(self, sent: Instant, mut released: watch::Receiver<()>) -> Result<()> {
        tokio::select! {
            // The guard is gone: its end of the channel is closed.
            _ = async { while released.changed().await.is_ok() {} } => self.give_back().await,
            () = self.renew(sent) => Ok(()),
        }
    }

    /// Returns when the slots are lost and the guard was told.
    async fn renew(&self, sent: Instant) {
        let lease = Duration::from_millis(self.request.lease_ms);
        let trusted_for = trusted_for(lease, self.store.coarseness());
        let (mut renew_at, mut trusted_until) = (sent + lease / 3, sent + trusted_for);
        let why = loop {
            sleep_until(renew_at.min(trusted_until)).await;
            if Instant::now() >= trusted_until {
                break Error::new(ErrorKind::Fenced, "the lease of the slots could not be renewed in time");
            }
            let sent = Instant::now();
            let extend = self.store.extend_slots(self.request.id, self.token, self.request.lease_ms);
            match timeout_at(trusted_until, extend).await {
                Ok(Ok(_)) => (renew_at, trusted_until) = (sent + lease / 3, sent + trusted_for),
                Ok(Err(error)) if !error.is_transient() => break error,
                Ok(Err(_)) | Err(_) => renew_at = Instant::now() + PAUSE,
            }
        };
        self.tell_lost.send_replace(Some(why));
    }

    /// Tries for as long as the lease lasts; after that the slots are free anyway.
    async fn give_back(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(self.request.lease_ms);
        loop {
            match self.store.return_slots(self.request.id, self.token).await {
                Err(error) if error.is_transient() && Instant::now() < until => sleep(PAUSE).await,
                // An earlier try gave them back, or the lease is over.
                Err(error) if error.kind() == ErrorKind::Fenced => return Ok(()),
                result => return result,
            }
        }
    }
}
