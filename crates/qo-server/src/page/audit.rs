//! `/audit`: what operators did.

use super::frame::{Answer, Frame, Section};
use super::moment::Now;
use super::{link, piece};
use crate::caller::Caller;
use axum::extract::Query;
use maud::{Markup, html};
use qo_core::{AuditEntry, AuditText};
use serde::Deserialize;

/// Entries of one page.
const PAGE: usize = 100;

/// Where the list begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    before: Option<u64>,
}

pub(crate) async fn list(caller: Caller, Query(asked): Query<Asked>) -> Answer {
    let (now, entries) = tokio::try_join!(caller.store.now(), caller.store.audit(asked.before, PAGE))?;
    let next = entries.last().filter(|last| entries.len() == PAGE && last.number > 1);
    let content = html! {
        h1 { "Audit log" }
        p.lead { "What operators did, the newest first." }
        @if entries.is_empty() {
            (piece::nothing("No operator has done anything yet.", Some("Limits, pauses, cancels, releases and tokens show up here."), None))
        } @else { (table(&entries, Now(now))) }
        (piece::pager(
            asked.before.map(|_| "/audit".into()),
            next.map(|last| link::query("/audit", [("before", last.number.to_string())])),
        ))
    };
    Ok(Frame::new(&caller, Section::Audit, "Audit log").around(content))
}

fn table(entries: &[AuditEntry], now: Now) -> Markup {
    let value = |value: &Option<AuditText>| {
        html! { @if let Some(value) = value { bdi { (value) } } @else { span.none { "–" } } }
    };
    html! {
        div.scroll role="region" aria-label="Audit log" tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "When" }
                        th scope="col" { "Who" }
                        th scope="col" { "What" }
                        th.wide scope="col" { "Before" }
                        th.wide scope="col" { "After" }
                    }
                }
                tbody {
                    @for entry in entries {
                        tr id={"entry-" (entry.number)} {
                            td { (now.ago(entry.at)) }
                            td.name { bdi { (entry.deed.by) } }
                            td { (entry.deed.what) " " bdi { (entry.deed.on) } }
                            td.wide { (value(&entry.deed.before)) }
                            td.wide { (value(&entry.deed.after)) }
                        }
                    }
                }
            }
        }
    }
}
