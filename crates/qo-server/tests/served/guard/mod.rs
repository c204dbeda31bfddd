//! Who may do what: tokens, scopes, queues, sessions, sites, limits, TLS.

mod bounds;
mod client;
mod every_call;
mod fleet;
mod owned;
mod queues;
mod secrets;
mod sign_in;
mod times;
mod tls;

use crate::stage::Served;
use qo_core::{Bearer, MemoryStore, Name, NewToken, Scope, Store, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A token's rights.
#[derive(Clone, Default)]
pub struct Rights<'a> {
    pub scopes: &'a [Scope],
    pub queues: &'a [&'a str],
    pub app: Option<&'a str>,
    pub expires_at: Option<Time>,
}

/// A store of its own, behind a server.
pub struct Stage {
    pub store: Arc<MemoryStore>,
    pub served: Served,
}

pub fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// A token that no other test has.
pub fn bearer() -> Bearer {
    static MADE: AtomicU8 = AtomicU8::new(0);
    let n = MADE.fetch_add(1, Ordering::Relaxed);
    Bearer::from_random(std::array::from_fn(|at| {
        let byte = u8::try_from(at).expect("few bytes").wrapping_mul(97);
        if at < 2 { n.wrapping_add(byte) } else { byte ^ n }
    }))
}

/// Creates a token in the store.
pub async fn create(store: &dyn Store, called: &str, rights: Rights<'_>) -> Bearer {
    let bearer = bearer();
    let queues = (!rights.queues.is_empty()).then(|| rights.queues.iter().map(|queue| name(queue)).collect());
    let token = NewToken {
        id: bearer.id(),
        name: name(called),
        hash: bearer.hash(),
        scopes: rights.scopes.iter().copied().collect(),
        queues,
        app: rights.app.map(name),
        expires_at: rights.expires_at,
    };
    store.create_token(token, "test".into()).await.expect("created");
    bearer
}

/// A token with one scope.
pub async fn with_scope(store: &dyn Store, scope: Scope) -> Bearer {
    create(store, &format!("only-{scope}"), Rights { scopes: &[scope], ..Rights::default() }).await
}
