//! Tokens and the audit log: rows that no other rule depends on.

use super::State;
use super::journal::Undo;
use crate::job::within;
use crate::{AuditEntry, AuditText, Deed, Name, NewToken, Result, Token, TokenId, caps};
use std::sync::Arc;

impl State {
    /// The tokens that are live, by name.
    pub fn tokens(&self) -> Vec<Token> {
        let mut live: Vec<_> = self.live_tokens().cloned().collect();
        live.sort_by(|a, b| a.name.cmp(&b.name));
        live
    }

    /// The audit log, newest first: at most `limit` of the entries with a number below `before`.
    pub fn audit_page(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        within("limit", limit as u64, 1, caps::PAGE as u64)?;
        let end = before.map_or(self.audit_log.len(), |before| {
            self.audit_log.partition_point(|entry| entry.number < before)
        });
        Ok(self.audit_log.range(..end).rev().take(limit).map(|entry| AuditEntry::clone(entry)).collect())
    }

    /// The tokens that have not expired.
    pub(crate) fn live_tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.values().map(|token| &**token).filter(|token| !token.has_expired(self.now))
    }

    pub(crate) fn token_created(&mut self, new: &NewToken, by: &AuditText) {
        // Their names are free, and nothing else looks at them. So they go here, and need no event of their own.
        let expired = self.tokens.values().filter(|token| token.has_expired(self.now));
        for id in expired.map(|token| token.id).collect::<Vec<_>>() {
            self.set_token(id, None);
        }
        let token = Token::new(new.clone(), self.now);
        let after = Some(token.rights().into());
        let deed = Deed { after, ..Deed::new(by.clone(), "create token", named(&token.name, token.id)) };
        self.set_token(new.id, Some(Arc::new(token)));
        self.append_deed(deed);
    }

    pub(crate) fn token_revoked(&mut self, id: TokenId, by: &AuditText) {
        let Some(token) = self.set_token(id, None) else { return };
        let before = Some(token.rights().into());
        self.append_deed(Deed { before, ..Deed::new(by.clone(), "revoke token", named(&token.name, id)) });
    }

    pub(crate) fn append_deed(&mut self, deed: Deed) {
        let number = self.audit_log.back().map_or(0, |last| last.number) + 1;
        let is_full = self.audit_log.len() >= caps::AUDIT_ENTRIES;
        let forgotten = if is_full { self.audit_log.pop_front() } else { None };
        self.audit_log.push_back(Arc::new(AuditEntry { number, at: self.now, deed }));
        self.note(|| Undo::AuditEntry(forgotten));
    }

    fn set_token(&mut self, id: TokenId, token: Option<Arc<Token>>) -> Option<Arc<Token>> {
        let old = self.put_token(id, token);
        let noted = old.clone();
        self.note(|| Undo::Token(id, noted));
        old
    }

    pub(super) fn put_token(&mut self, id: TokenId, token: Option<Arc<Token>>) -> Option<Arc<Token>> {
        match token {
            Some(token) => self.tokens.insert(id, token),
            None => self.tokens.remove(&id),
        }
    }

    /// Takes a token of a snapshot. The error says what is wrong with it.
    pub(super) fn restore_token(&mut self, token: Arc<Token>) -> std::result::Result<(), String> {
        let id = token.id;
        if token.hash.is_none() {
            return Err(format!("token {id} has no hash"));
        }
        if self.tokens.insert(id, token).is_some() {
            return Err(format!("token {id} comes twice"));
        }
        Ok(())
    }

    /// Takes an entry of a snapshot. The error says what is wrong with it.
    pub(super) fn restore_entry(&mut self, entry: Arc<AuditEntry>) -> std::result::Result<(), String> {
        if let Some(last) = self.audit_log.back().filter(|last| last.number + 1 != entry.number) {
            return Err(format!("entry {} of the audit log follows entry {}", entry.number, last.number));
        }
        self.audit_log.push_back(entry);
        Ok(())
    }
}

/// A token as the audit log names it: `ci (ab12cd34)`.
fn named(name: &Name, id: TokenId) -> String {
    format!("{name} ({id})")
}
