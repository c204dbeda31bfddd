//! What a caller may do: its scopes, its queues, its app.

use qo_core::{AuditText, Cause, Error, ErrorKind, Name, Result, Scope, Token, TokenId};
use std::collections::BTreeSet;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    /// A caller that shows no live token, and why it is let in nowhere.
    Unknown(Error),
    /// A caller on this machine, while there are no tokens.
    Local,
    /// The bearer of a token.
    Token(TokenId, Name),
}

/// What a caller may do.
#[derive(Debug, Clone)]
pub(crate) struct Rights {
    who: Who,
    scopes: BTreeSet<Scope>,
    queues: Option<BTreeSet<Name>>,
    app: Option<Name>,
}

impl Rights {
    /// The rights of a token's bearer.
    pub fn of_token(token: &Token, read_only: bool) -> Self {
        Self {
            who: Who::Token(token.id, token.name.clone()),
            scopes: scopes(&token.scopes, read_only),
            queues: token.queues.clone(),
            app: token.app.clone(),
        }
    }

    /// The rights of a local caller, while there are no tokens.
    pub fn local(read_only: bool) -> Self {
        let scopes = scopes(&Scope::ALL.into(), read_only);
        Self { who: Who::Local, scopes, queues: None, app: None }
    }

    /// The rights of a caller that is not known.
    pub fn none(why: Error) -> Self {
        Self { who: Who::Unknown(why), scopes: BTreeSet::new(), queues: None, app: None }
    }

    /// Whether it may do this.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// An error unless it may do this.
    pub fn need(&self, scope: Scope) -> Result<()> {
        self.need_one_of(&[scope])
    }

    /// An error unless it may do one of these.
    pub fn need_one_of(&self, scopes: &[Scope]) -> Result<()> {
        if let Who::Unknown(why) = &self.who {
            return Err(why.clone());
        }
        if scopes.iter().any(|scope| self.may(*scope)) {
            return Ok(());
        }
        let named: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
        Err(not_allowed(format!("{} must have the scope {}", self.called(), named.join(" or "))))
    }

    /// An error unless it is known.
    pub fn known(&self) -> Result<()> {
        match &self.who {
            Who::Unknown(why) => Err(why.clone()),
            Who::Local | Who::Token(..) => Ok(()),
        }
    }

    /// An error if it is bound to queues: what it asks for belongs to no queue, or to several.
    pub fn need_every_queue(&self, what: &str) -> Result<()> {
        match &self.queues {
            None => Ok(()),
            Some(_) => Err(not_allowed(format!("{} is bound to queues, and {what} is not", self.called()))),
        }
    }

    /// The queues that it is bound to. None means every queue.
    pub fn queues(&self) -> Option<&BTreeSet<Name>> {
        self.queues.as_ref()
    }

    /// Whether jobs of this queue are there for it.
    pub fn sees(&self, queue: &Name) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }

    /// An error if this queue is not one of its own. The field is named in the error.
    pub fn need_queue(&self, field: &str, queue: &Name) -> Result<()> {
        if self.sees(queue) {
            return Ok(());
        }
        Err(not_allowed(format!("queue {queue} is none of {}", self.called())).at(field))
    }

    /// An error if this app is not its own.
    pub fn need_app(&self, app: &Name) -> Result<()> {
        match &self.app {
            Some(own) if own != app => {
                Err(not_allowed(format!("{} is of app {own}, not of {app}", self.called())))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// An error if it is bound to an app.
    pub fn need_every_app(&self) -> Result<()> {
        match &self.app {
            None => Ok(()),
            Some(app) => Err(not_allowed(format!("{} is bound to app {app}", self.called()))),
        }
    }

    /// The token that it shows. None for a local caller while there are no tokens.
    pub fn token(&self) -> Option<TokenId> {
        match self.who {
            Who::Token(id, _) => Some(id),
            Who::Local | Who::Unknown(_) => None,
        }
    }

    /// Who it is, for the page and the audit log.
    pub fn name(&self) -> &str {
        match &self.who {
            Who::Token(_, name) => name.as_ref(),
            Who::Local => "local",
            Who::Unknown(_) => "unknown",
        }
    }

    /// Who it is, in the audit log.
    pub fn by(&self) -> AuditText {
        self.name().into()
    }

    fn called(&self) -> String {
        match &self.who {
            Who::Token(_, name) => format!("token {name}"),
            // While the server is read-only, it may not do everything either.
            Who::Local | Who::Unknown(_) => "this caller".into(),
        }
    }
}

/// An admin may do everything. On a server that only shows, no caller may do more than look.
fn scopes(scopes: &BTreeSet<Scope>, read_only: bool) -> BTreeSet<Scope> {
    let scopes = if scopes.contains(&Scope::Admin) { Scope::ALL.into() } else { scopes.clone() };
    scopes.into_iter().filter(|scope| !read_only || *scope == Scope::Read).collect()
}

/// The error of a caller that may not do what it asks for: 403.
pub(crate) fn not_allowed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_cause(Cause::NotAllowed)
}

/// The error of a caller that is not known: 401.
pub(crate) fn no_token(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_cause(Cause::NoToken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_may_do_all_and_a_server_that_shows_only_read() {
        let all = Rights::local(false);
        assert!(Scope::ALL.iter().all(|scope| all.may(*scope)));
        let shown = Rights::local(true);
        assert!(Scope::ALL.iter().all(|scope| shown.may(*scope) == (*scope == Scope::Read)));
        assert_eq!(shown.need(Scope::Admin).map_err(|error| error.cause()), Err(Some(Cause::NotAllowed)));
    }

    #[test]
    fn a_caller_that_is_not_known_may_do_nothing() {
        let unknown = Rights::none(no_token("no"));
        assert!(Scope::ALL.iter().all(|scope| !unknown.may(*scope)));
        assert_eq!(unknown.need(Scope::Read).map_err(|error| error.cause()), Err(Some(Cause::NoToken)));
    }
}
