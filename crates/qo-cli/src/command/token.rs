//! `qo token`

use super::argument::{self, Moment};
use crate::cli::Format;
use crate::machine::{operator, random};
use crate::output::{Screen, Style, Table};
use crate::place::{Place, did_you_mean, times};
use crate::trouble::{Done, Trouble};
use clap::{Args, Subcommand};
use qo::core::Cause;
use qo::core::{Bearer, Name, NewToken, Scope, Token, TokenId};
use qo::{Error, ErrorKind, Store};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Create, list and revoke tokens: what a caller of `qo serve` shows, and what it may then do.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A caller of qo serve shows its token by QO_TOKEN, or by QO_TOKEN_FILE, a file that only it can read.
Once there is a token, every caller of every qo serve of the store needs one. The store itself asks for none: who has
its directory, bucket or database has everything.

Examples:
  qo token create ops --scope admin                         the first one: you need it yourself from then on
  qo token create shop --scope submit --queue mail --queue video
  qo token create fleet --scope work --expires 90d --json | jq -r .token > fleet.token
  qo token list
  qo token revoke shop")]
pub enum Tokens {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Create a token, and print it. It is printed this once: the store keeps only a hash of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo token create ops --scope admin
  qo token create shop --scope submit --scope read --queue mail --expires 90d

Scopes: read (look at everything), submit (submit jobs), work (run jobs: sessions, logs, slots, its own app's tasks and
configuration), admin (all of these, and what operators do).")]
pub struct Create {
    /// Its name: what the audit log calls its bearer.
    #[arg(value_parser = argument::name)]
    name: Name,
    /// What its bearer may do: read, submit, work or admin; more than one is possible.
    #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',', value_parser = scope)]
    scope: Vec<Scope>,
    /// The queues whose jobs its bearer may see and change; more than one is possible. Without, all of them.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = argument::name)]
    queue: Vec<Name>,
    /// The app whose tasks and configuration its bearer may push. Without, any.
    #[arg(long, value_name = "NAME", value_parser = argument::name)]
    app: Option<Name>,
    /// When it expires: a moment, or a length of time from now, such as 90d. Without, never.
    #[arg(long, value_name = "WHEN", value_parser = argument::moment)]
    expires: Option<Moment>,
    #[command(flatten)]
    format: Format,
}

/// List the tokens that are live. Their secrets are nowhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  qo token list\n  qo token list --json")]
pub struct List {
    #[command(flatten)]
    format: Format,
}

/// Revoke a token: within 5 s no server accepts it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  qo token revoke shop\n  qo token revoke 4fj20dk3")]
pub struct Revoke {
    /// The token's name or id.
    token: String,
    #[command(flatten)]
    format: Format,
}

/// A scope, as it is typed.
fn scope(text: &str) -> Result<Scope, String> {
    text.parse().map_err(|error: Error| error.rule().to_owned())
}

impl Tokens {
    /// Creates, lists or revokes.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        match self {
            Self::Create(create) => create.run(place, screen).await,
            Self::List(List { format }) => {
                let store = place.open_existing().await?;
                list(&store, screen, format).await
            }
            Self::Revoke(revoke) => revoke.run(place, screen).await,
        }
    }
}

impl Create {
    async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let Self { name, scope, queue, app, expires, format } = self;
        // Before the store: a machine without randomness must not make a namespace.
        let bearer = Bearer::from_random(random()?);
        let store = place.open().await?;
        let expires_at = match expires {
            Some(moment) => Some(moment.from(store.now().await?)),
            None => None,
        };
        let token = NewToken {
            id: bearer.id(),
            name: name.clone(),
            hash: bearer.hash(),
            scopes: scope.into_iter().collect(),
            queues: (!queue.is_empty()).then(|| queue.into_iter().collect::<BTreeSet<_>>()),
            app,
            expires_at,
        };
        let is_first = store.tokens().await?.is_empty();
        let created = create(&store, &token).await;
        let doubt = match created {
            Err(error) if error.kind() == ErrorKind::Unknown => Some(error),
            created => created.map(|()| None)?,
        };
        if format.json {
            let secret = bearer.secret_text();
            screen.json(&serde_json::json!({ "id": token.id, "name": token.name, "token": secret }))?;
        } else {
            screen.line(bearer.secret_text())?;
            screen.say("this is the only time that it is shown; give it to its bearer as QO_TOKEN, or in a file named by QO_TOKEN_FILE");
        }
        if let Some(error) = doubt {
            // Its secret is nowhere else: a live token whose secret was not shown could only be revoked.
            let id = token.id;
            let hint = format!("the token above may exist: use it, or `qo token revoke {id}`");
            return Err(Trouble::from(error).hint(hint));
        }
        if is_first {
            screen.warn("this is the first token: within 5 s every qo serve of this store refuses callers without one");
        }
        if is_first && !token.scopes.contains(&Scope::Admin) {
            screen.hint(
                "through qo serve only an admin can make more tokens; with the store itself anybody can",
            );
        }
        Ok(())
    }
}

/// Creates a token, and asks once more if the outcome is unknown: the same token again is the same token. `Unknown` if
/// it may exist.
async fn create(store: &Arc<dyn Store>, token: &NewToken) -> qo::Result<()> {
    match store.create_token(token.clone(), operator()).await {
        Err(error) if error.kind() == ErrorKind::Unknown => {
            let again = store.create_token(token.clone(), operator()).await;
            // The second error tells nothing of the first try, unless the store has decided about the token.
            // A server that asks for a token now has let the first try through.
            again.map_err(|second| match second.cause() {
                Some(Cause::NoToken) => error,
                _ if second.is_transient() => second.with_kind(ErrorKind::Unknown),
                _ => second,
            })
        }
        created => created,
    }
}

impl Revoke {
    async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let Self { token, format } = self;
        let store = place.open_existing().await?;
        let live = store.tokens().await?;
        // Names first: a name may look like an id.
        let found = live.iter().find(|live| *live.name == *token);
        let found = found.or_else(|| live.iter().find(|live| live.id.as_str() == token));
        let Some(Token { id, name, .. }) = found else {
            let error = Error::new(ErrorKind::NotFound, format!("token {token}"));
            return Err(did_you_mean(error.into(), &token, live.iter().map(|live| live.name.to_string())));
        };
        revoke(&store, *id).await?;
        if format.json {
            screen.json(&serde_json::json!({ "id": id, "name": name, "revoked": true }))?;
        } else {
            screen.line(format_args!("token {name} is revoked"))?;
        }
        if live.len() == 1 {
            screen.warn(
                "this was the last token: every process that reaches a qo serve of this store may use it",
            );
        }
        Ok(())
    }
}

async fn revoke(store: &Arc<dyn Store>, token: TokenId) -> Done {
    match store.revoke_token(token, operator()).await {
        Err(error) if error.kind() == ErrorKind::Unknown => match store.revoke_token(token, operator()).await
        {
            // The first try has done it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.is_transient() => Err(error.with_kind(ErrorKind::Unknown).into()),
            again => Ok(again?),
        },
        revoked => Ok(revoked?),
    }
}

async fn list(store: &Arc<dyn Store>, screen: &mut Screen, format: Format) -> Done {
    let tokens: Vec<Token> = store.tokens().await?.into_iter().map(without_hash).collect();
    if format.json {
        return screen.json(&tokens);
    }
    if tokens.is_empty() {
        screen.say("no tokens: every process that reaches a qo serve of this store may use it");
        screen.hint("qo token create ops --scope admin makes the first one");
        return Ok(());
    }
    let times = times(store).await?;
    let mut table = Table::new(&["NAME", "ID", "SCOPES", "QUEUES", "APP", "CREATED", "EXPIRES"]);
    for token in &tokens {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let queues = token.queues.as_ref().map_or_else(
            || "all".to_owned(),
            |queues| queues.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(","),
        );
        table.row([
            (token.name.to_string(), Style::Strong),
            (token.id.to_string(), Style::Plain),
            (scopes.join(","), Style::Plain),
            (queues, Style::Plain),
            (token.app.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string), Style::Plain),
            (times.away(token.created_at), Style::Dim),
            (token.expires_at.map_or_else(|| "never".to_owned(), |at| times.away(at)), Style::Plain),
        ]);
    }
    screen.table(table)
}

/// A listing has no hash: it is of no use there, and it would be copied into logs.
fn without_hash(mut token: Token) -> Token {
    token.hash = None;
    token
}
