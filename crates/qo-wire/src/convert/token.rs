//! Tokens and the audit log. The hash of a secret goes to a server and never comes back.

use super::{built, enumeration, millis, moment, name, name_if, needed, text, value};
use crate::pb;
use qo_core::{AuditEntry, AuditText, Deed, Error, Name, NewToken, Result, Scope, Token, TokenHash, TokenId};
use std::collections::BTreeSet;

enumeration!(Scope, pb::Scope, "scope", { Read, Submit, Work, Admin });

/// A token's id, named `field` in the error.
pub(crate) fn token_id(field: &str, text: &str) -> Result<TokenId> {
    let rule = |error: Error| Error::invalid(field, text, error.rule());
    text.parse().map_err(rule)
}

fn numbers(scopes: &BTreeSet<Scope>) -> Vec<i32> {
    scopes.iter().map(|&scope| super::number::<pb::Scope, _>(scope)).collect()
}

fn queues_of(queues: Option<BTreeSet<Name>>) -> Option<pb::TokenQueues> {
    queues.map(|queues| pb::TokenQueues { queues: queues.into_iter().map(text).collect() })
}

impl pb::CreateTokenRequest {
    /// The request to create a token.
    pub fn of(token: NewToken, by: &AuditText) -> Self {
        let NewToken { id, name, hash, scopes, queues, app, expires_at } = token;
        Self {
            token: id.to_string(),
            name: text(name),
            hash: hash.as_bytes().to_vec(),
            scopes: numbers(&scopes),
            queues: queues_of(queues),
            app: app.map(text),
            expires_at_ms: millis(expires_at),
            by: by.to_string(),
        }
    }
}

impl TryFrom<pb::CreateTokenRequest> for (NewToken, AuditText) {
    type Error = Error;

    fn try_from(request: pb::CreateTokenRequest) -> Result<Self> {
        let pb::CreateTokenRequest { token, name: called, hash, scopes, queues, app, expires_at_ms, by } =
            request;
        // The error must not show the hash.
        let hash = <[u8; 32]>::try_from(hash).map_err(|hash| {
            Error::invalid("hash", format_args!("{} bytes", hash.len()), "must have 32 bytes")
        })?;
        let queue = |(index, text): (usize, &String)| name(&format!("queues[{index}]"), text);
        let queues = queues.map(|named| named.queues.iter().enumerate().map(queue).collect::<Result<_>>());
        let scope = |&scope| value::<pb::Scope, _>("scopes", scope);
        let new = NewToken {
            id: token_id("token", &token)?,
            name: name("name", &called)?,
            hash: TokenHash::from_bytes(hash),
            scopes: scopes.iter().map(scope).collect::<Result<_>>()?,
            queues: queues.transpose()?,
            app: name_if("app", app)?,
            expires_at: moment(expires_at_ms),
        };
        Ok((new, by.into()))
    }
}

impl From<Token> for pb::Token {
    fn from(token: Token) -> Self {
        Self {
            token: token.id.to_string(),
            name: text(token.name),
            scopes: numbers(&token.scopes),
            queues: queues_of(token.queues),
            app: token.app.map(text),
            expires_at_ms: millis(token.expires_at),
            created_at_ms: token.created_at.as_millis(),
        }
    }
}

impl TryFrom<pb::Token> for Token {
    type Error = Error;

    fn try_from(token: pb::Token) -> Result<Self> {
        let scope = |&scope| value::<pb::Scope, _>("scopes", scope);
        let scopes = token.scopes.iter().map(scope).collect::<Result<BTreeSet<Scope>>>()?;
        built(serde_json::json!({
            "id": token.token,
            "name": token.name,
            "scopes": scopes,
            "queues": token.queues.map(|named| named.queues),
            "app": token.app,
            "expires_at": token.expires_at_ms,
            "created_at": token.created_at_ms,
        }))
    }
}

impl From<Deed> for pb::Deed {
    fn from(deed: Deed) -> Self {
        let Deed { by, what, on, before, after } = deed;
        Self {
            by: by.into(),
            what: what.into(),
            on: on.into(),
            before: before.map(String::from),
            after: after.map(String::from),
        }
    }
}

impl From<pb::Deed> for Deed {
    fn from(deed: pb::Deed) -> Self {
        let pb::Deed { by, what, on, before, after } = deed;
        Self {
            by: by.into(),
            what: what.into(),
            on: on.into(),
            before: before.map(AuditText::from),
            after: after.map(AuditText::from),
        }
    }
}

impl From<AuditEntry> for pb::AuditEntry {
    fn from(entry: AuditEntry) -> Self {
        Self { number: entry.number, at_ms: entry.at.as_millis(), deed: Some(entry.deed.into()) }
    }
}

impl TryFrom<pb::AuditEntry> for AuditEntry {
    type Error = Error;

    fn try_from(entry: pb::AuditEntry) -> Result<Self> {
        let deed = Deed::from(needed("deed", entry.deed)?);
        let mut parts = serde_json::to_value(deed).unwrap_or_default();
        parts["number"] = entry.number.into();
        parts["at"] = entry.at_ms.into();
        built(parts)
    }
}
