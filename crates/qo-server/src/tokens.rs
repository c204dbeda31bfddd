//! The live tokens of the store, as this server knows them.
//!
//! 1. The server reads them when it starts and every two seconds, and at once after it has created or revoked one. So a
//!    token that is created or revoked anywhere counts here within five seconds.
//! 2. If the store does not answer, what is known stays in force for 30 s. After that no caller is let in: a token may
//!    have been revoked meanwhile.
//! 3. Between two reads a token ends by its own date, measured from the store time of the read.

use crate::rights::Rights;
use qo_core::{Bearer, Error, ErrorKind, Result, Store, Time, Token, TokenId};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};

/// The pause between two reads.
const EVERY: Duration = Duration::from_secs(2);
/// How long a read may take.
const PATIENCE: Duration = Duration::from_millis(2_500);
/// How long tokens that were read stay in force while the store does not answer.
const TRUSTED: Duration = Duration::from_secs(30);

/// The live tokens.
pub(crate) struct LiveTokens {
    store: Arc<dyn Store>,
    known: RwLock<Known>,
    /// Grows whenever the set of tokens changes. Streams of a token that is gone end then.
    changes: watch::Sender<u64>,
    /// One read at a time.
    reading: Mutex<()>,
    trusted: Duration,
    read_only: bool,
}

#[derive(Default)]
struct Known {
    tokens: HashMap<TokenId, Arc<Live>>,
    /// When the last read that succeeded began.
    read: Option<Instant>,
}

/// A live token.
pub(crate) struct Live {
    token: Token,
    rights: Arc<Rights>,
    /// When it expires.
    until: Option<Instant>,
}

impl Live {
    fn has_expired(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// The token's id.
    pub fn id(&self) -> TokenId {
        self.token.id
    }

    /// What its bearer may do.
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// Whether this is the same token still, and not another one with its id.
    pub fn is(&self, other: &Self) -> bool {
        self.token.id == other.token.id && self.token.hash == other.token.hash
    }
}

impl LiveTokens {
    pub fn new(store: Arc<dyn Store>, read_only: bool) -> Self {
        Self {
            store,
            known: RwLock::default(),
            changes: watch::Sender::new(0),
            reading: Mutex::default(),
            trusted: TRUSTED,
            read_only,
        }
    }

    /// Reads them again and again.
    pub async fn follow(self: Arc<Self>) {
        loop {
            sleep(EVERY).await;
            if let Err(error) = self.read().await {
                tracing::warn!("the tokens cannot be read: {error}");
            }
        }
    }

    /// Reads them now.
    pub async fn read(&self) -> Result<()> {
        let _reading = self.reading.lock().await;
        let began = Instant::now();
        let late = |_| Error::new(ErrorKind::Unavailable, format!("no answer within {PATIENCE:?}"));
        let tokens = timeout(PATIENCE, self.store.tokens()).await.map_err(late)??;
        let now = match tokens.iter().any(|token| token.expires_at.is_some()) {
            true => Some(timeout(PATIENCE, self.store.now()).await.map_err(late)??),
            false => None,
        };
        self.learn(tokens, now, began);
        Ok(())
    }

    fn learn(&self, tokens: Vec<Token>, now: Option<Time>, began: Instant) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = tokens.len() != known.tokens.len();
        let mut next = HashMap::with_capacity(tokens.len());
        for token in tokens {
            let until =
                token.expires_at.zip(now).map(|(at, now)| began + Duration::from_millis(at.ms_since(now)));
            let live = match known.tokens.get(&token.id) {
                Some(live) if live.token == token => {
                    Arc::new(Live { token, rights: Arc::clone(&live.rights), until })
                }
                Some(_) | None => {
                    changed = true;
                    let rights = Arc::new(Rights::of_token(&token, self.read_only));
                    Arc::new(Live { token, rights, until })
                }
            };
            next.insert(live.id(), live);
        }
        *known = Known { tokens: next, read: Some(began) };
        drop(known);
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Whether there are live tokens. An error if that is not known, or not known any more.
    pub fn any(&self) -> Result<bool> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.read {
            Some(read) if read.elapsed() <= self.trusted => Ok(!known.tokens.is_empty()),
            Some(_) | None => {
                let message = "the tokens cannot be read from the store, so no caller is let in";
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }

    /// The token that a caller shows, if it is live.
    pub fn borne_by(&self, bearer: &Bearer) -> Option<Arc<Live>> {
        self.live(bearer.id()).filter(|live| live.token.is_borne_by(bearer))
    }

    /// The token with this id, if it is live.
    pub fn live(&self, id: TokenId) -> Option<Arc<Live>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.tokens.get(&id).filter(|live| !live.has_expired()).map(Arc::clone)
    }

    /// Waits until a token is not live any more, or not known to be.
    pub async fn gone(self: Arc<Self>, token: Arc<Live>) {
        let mut changes = self.changes.subscribe();
        let is_gone = || self.any().is_err() || !self.live(token.id()).is_some_and(|live| live.is(&token));
        while !is_gone() {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                // Its date may pass, or the store may be away, without a change.
                () = sleep(EVERY) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::{MemoryStore, Name, NewToken, Scope};

    fn new_token(n: u8, expires_at: Option<Time>) -> (Bearer, NewToken) {
        let bearer = Bearer::from_random(std::array::from_fn(|at| n.wrapping_mul(31).wrapping_add(at as u8)));
        let token = NewToken {
            id: bearer.id(),
            name: Name::parse("name", &format!("t{n}")).expect("a name"),
            hash: bearer.hash(),
            scopes: [Scope::Read].into(),
            queues: None,
            app: None,
            expires_at,
        };
        (bearer, token)
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_cannot_be_read_again_are_not_trusted_for_long() {
        let store = Arc::new(MemoryStore::new());
        let tokens = LiveTokens::new(Arc::clone(&store) as Arc<dyn Store>, false);
        assert!(tokens.any().is_err(), "nothing is known before the first read");
        let (bearer, new) = new_token(1, None);
        store.create_token(new, "test".into()).await.expect("created");
        tokens.read().await.expect("read");
        assert!(tokens.any() == Ok(true) && tokens.borne_by(&bearer).is_some());
        tokio::time::advance(TRUSTED + Duration::from_secs(1)).await;
        assert!(tokens.any().is_err(), "it was read too long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_ends_by_its_date_between_two_reads() {
        let store = Arc::new(MemoryStore::new());
        let tokens = Arc::new(LiveTokens::new(Arc::clone(&store) as Arc<dyn Store>, false));
        let soon = Time::from_millis(store.now().await.expect("now").as_millis() + 60_000);
        let (bearer, new) = new_token(1, Some(soon));
        store.create_token(new, "test".into()).await.expect("created");
        tokens.read().await.expect("read");
        let live = tokens.borne_by(&bearer).expect("live");
        let gone = tokio::spawn(Arc::clone(&tokens).gone(live));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(tokens.borne_by(&bearer).is_none());
        gone.await.expect("its streams end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_token_is_gone_after_the_next_read() {
        let store = Arc::new(MemoryStore::new());
        let tokens = Arc::new(LiveTokens::new(Arc::clone(&store) as Arc<dyn Store>, false));
        let ((bearer, new), (other, second)) = (new_token(1, None), new_token(2, None));
        for new in [new, second] {
            store.create_token(new, "test".into()).await.expect("created");
        }
        tokens.read().await.expect("read");
        let live = tokens.borne_by(&bearer).expect("live");
        let gone = tokio::spawn(Arc::clone(&tokens).gone(live));
        store.revoke_token(bearer.id(), "test".into()).await.expect("revoked");
        tokens.read().await.expect("read");
        assert!(tokens.borne_by(&bearer).is_none() && tokens.borne_by(&other).is_some());
        gone.await.expect("its streams end");
    }
}
