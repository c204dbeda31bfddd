//! Creating and revoking tokens, and recording what operators did.

use super::Decider;
use crate::{Answer, AuditText, Deed, Error, Event, NewToken, Result, Token, TokenId, caps};
use std::sync::Arc;

impl Decider<'_> {
    pub(super) fn create_token(&mut self, new: &NewToken, by: &AuditText) -> Result<Answer> {
        new.check()?;
        // The command's own time: a token that expires between the last event and now is gone.
        let now = self.now.max(self.state.now);
        let live = || self.state.tokens.values().filter(|token| !token.has_expired(now));
        if let Some(known) = live().find(|token| token.id == new.id) {
            let same = Token::new(new.clone(), known.created_at);
            if **known != same {
                return Err(Error::conflict(format!("token {}: another one has this id", new.id)));
            }
            return Ok(Answer::Done);
        }
        if live().any(|token| token.name == new.name) {
            return Err(Error::conflict(format!("token {}: another one has this name", new.name)));
        }
        if new.has_expired(now) {
            return Err(Error::invalid("expires_at", new.expires_at.unwrap_or(now), "must be in the future"));
        }
        if live().count() >= caps::TOKENS {
            let rule = format_args!("must be one of at most {} tokens of the namespace", caps::TOKENS);
            return Err(Error::invalid("name", &new.name, rule));
        }
        self.tick();
        self.happen(Event::TokenCreated { token: Arc::new(new.clone()), by: by.clone() });
        Ok(Answer::Done)
    }

    pub(super) fn revoke_token(&mut self, id: TokenId, by: &AuditText) -> Result<Answer> {
        let now = self.now.max(self.state.now);
        if self.state.tokens.get(&id).is_none_or(|token| token.has_expired(now)) {
            return Err(Error::not_found(format!("token {id}")));
        }
        self.tick();
        self.happen(Event::TokenRevoked { token: id, by: by.clone() });
        Ok(Answer::Done)
    }

    pub(super) fn record(&mut self, deed: &Deed) -> Answer {
        self.tick();
        self.happen(Event::Recorded(Arc::new(deed.clone())));
        Answer::Done
    }
}
