//! `/tokens`: what callers show, and revoking them. Nothing here shows a secret or its hash.

use super::action::Action;
use super::frame::{After, Answer, Frame, Section};
use super::moment::Now;
use super::{link, piece};
use crate::caller::Caller;
use axum::extract::Query;
use maud::{Markup, html};
use qo_core::Token;
use qo_core::words::counted;
use serde::Deserialize;

/// Tokens of one page.
const PAGE: usize = 100;

/// Where the list begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    after: String,
}

pub(crate) async fn list(caller: Caller, Query(asked): Query<Asked>, Query(done): Query<After>) -> Answer {
    let (now, tokens) = tokio::try_join!(caller.store.now(), caller.store.tokens())?;
    let from = tokens.partition_point(|token| *token.name <= *asked.after);
    let rest = &tokens[from..];
    let shown = &rest[..rest.len().min(PAGE)];
    let next = shown.last().filter(|_| rest.len() > PAGE);
    let content = html! {
        h1 { "Tokens" }
        p.lead { "A token lets a caller in. Its secret is shown once, by the command that makes it." }
        @if tokens.is_empty() {
            (piece::nothing(
                "There is no token: every process of the server's machine may do everything.",
                Some("Make the first one; from then on every caller needs one."),
                Some("qo token create ada --scope admin"),
            ))
        } @else { (table(shown, Now(now))) }
        (piece::pager(
            (from > 0).then(|| "/tokens".into()),
            next.map(|last| link::query("/tokens", [("after", &*last.name)])),
        ))
    };
    Ok(Frame::new(&caller, Section::Tokens, counted(tokens.len() as u64, "token"))
        .after(done)
        .around(content))
}

fn table(tokens: &[Token], now: Now) -> Markup {
    html! {
        div.scroll role="region" aria-label="Tokens" tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Name" }
                        th scope="col" { "May" }
                        th.wide scope="col" { "Id" }
                        th.wide.right scope="col" { "Made" }
                        th.right scope="col" { "Expires" }
                        th scope="col" { span.unseen { "Action" } }
                    }
                }
                tbody {
                    @for token in tokens {
                        tr id={"token-" (token.id)} {
                            td.name { b { (token.name) } }
                            td { (token.rights()) }
                            td.wide { span.id { (token.id) } }
                            td.wide.right { (now.ago(token.created_at)) }
                            td.right { @if let Some(at) = token.expires_at { (now.ago(at)) } @else { "never" } }
                            td.right { (piece::danger(&Action::RevokeToken(token.id), "Revoke")) }
                        }
                    }
                }
            }
        }
    }
}
