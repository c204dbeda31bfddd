//! Tokens and the audit log.

use super::state::Toy;
use super::{Flaw, conflict, not_found};
use qo_core::{AuditEntry, AuditText, Deed, Error, NewToken, Result, Token, TokenId, caps};

impl Toy {
    /// The tokens that are live, by name.
    pub fn tokens(&self) -> Vec<Token> {
        let expired = |token: &Token| token.expires_at.is_some_and(|at| at <= self.now);
        let mut live: Vec<Token> = self.tokens.clone();
        live.retain(|token| self.flaw == Flaw::ExpiredTokenLives || !expired(token));
        live.sort_by(|a, b| a.name.cmp(&b.name));
        live
    }

    pub fn create_token(&mut self, new: NewToken, by: AuditText) -> Result<()> {
        new.check()?;
        let live = self.tokens();
        if let Some(known) = live.iter().find(|token| token.id == new.id) {
            let same = Token::new(new, known.created_at) == *known;
            return if same { Ok(()) } else { Err(conflict("another token has this id")) };
        }
        if live.iter().any(|token| token.name == new.name) {
            return Err(conflict("another token has this name"));
        }
        if let Some(at) = new.expires_at.filter(|at| *at <= self.now) {
            return Err(Error::invalid("expires_at", at, "must be in the future"));
        }
        if live.len() >= caps::TOKENS {
            return Err(Error::invalid("name", &new.name, "there are too many tokens"));
        }
        let token = Token::new(new, self.now);
        let what = Deed::new(by, "create token", format!("{} ({})", token.name, token.id));
        self.record(Deed { after: Some(token.rights().into()), ..what });
        self.tokens = live;
        self.tokens.push(token);
        Ok(())
    }

    pub fn revoke_token(&mut self, id: TokenId, by: AuditText) -> Result<()> {
        let Some(token) = self.tokens().into_iter().find(|token| token.id == id) else {
            return Err(not_found(format_args!("token {id}")));
        };
        if self.flaw != Flaw::RevokedTokenLives {
            self.tokens.retain(|token| token.id != id);
        }
        let what = Deed::new(by, "revoke token", format!("{} ({id})", token.name));
        self.record(Deed { before: Some(token.rights().into()), ..what });
        Ok(())
    }

    pub fn record(&mut self, deed: Deed) {
        let number = self.audit_log.last().map_or(1, |last| last.number + 1);
        self.audit_log.push(AuditEntry { number, at: self.now, deed });
        if self.audit_log.len() > caps::AUDIT_ENTRIES {
            self.audit_log.remove(0);
        }
    }

    pub fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        if !(1..=caps::PAGE).contains(&limit) {
            return Err(Error::invalid("limit", limit, "is no page"));
        }
        let older = |entry: &&AuditEntry| before.is_none_or(|before| entry.number < before);
        Ok(self.audit_log.iter().rev().filter(older).take(limit).cloned().collect())
    }
}
