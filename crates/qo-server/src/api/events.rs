//! Live changes as server-sent events.
//!
//! An event says that something has changed, not what: a client reads again what it shows. So one stream serves every
//! client, however large the store is, and a lost event loses nothing.

use super::input::NoQuery;
use super::problem::Problem;
use super::shape::Wide;
use crate::caller::Caller;
use crate::shared::Shared;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;
use uuid::Uuid;

/// Between two events.
const GAP: Duration = Duration::from_millis(200);
/// How often a stream says something, so that proxies keep it and a client that is gone is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often an event is sent while the store cannot tell of changes.
const ANYWAY: Duration = Duration::from_secs(5);
/// Events that wait for a slow client. More of them say nothing new.
const AHEAD: usize = 1;

/// Tells this server's counts from those of others: each counts on its own.
static INSTANCE: LazyLock<String> = LazyLock::new(|| Uuid::now_v7().simple().to_string());

/// What an event of the type `changed` carries.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Changed {
    /// The change counter: it grows with every change, and another server has another one.
    changes: Wide,
}

/// Live changes, as server-sent events.
///
/// An event `changed` comes at the beginning and after changes, at most five times a second. It does not say what has
/// changed: read again what you show. With `Last-Event-ID` the first event comes only if something has changed since.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has got.")),
    responses((status = 200, description = "Events of the type `changed`.", body = Changed, content_type = "text/event-stream"))
)]
pub(super) async fn follow_changes(
    _: Caller,
    State(shared): State<Shared>,
    _: NoQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let place = shared.waits.place()?;
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let (sender, events) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut ending = shared.ending.clone();
        tokio::select! {
            () = send(&shared, seen, &sender) => {}
            () = sender.closed() => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
        drop(place);
    });
    let keep_alive = KeepAlive::new().interval(HEARTBEAT);
    Ok(Sse::new(ReceiverStream::new(events)).keep_alive(keep_alive).into_response())
}

async fn send(shared: &Shared, seen: Option<String>, sender: &mpsc::Sender<Result<Event, Infallible>>) {
    let mut changes = shared.wakes.of_all();
    let mut last = seen;
    loop {
        let changed = *changes.borrow_and_update();
        let id = format!("{}-{changed}", *INSTANCE);
        if last.as_ref() != Some(&id) {
            let data = Changed { changes: Wide(changed) };
            // Plain data: it cannot fail.
            let Ok(event) = Event::default().event("changed").id(&id).json_data(data) else { return };
            if sender.send(Ok(event)).await.is_err() {
                return;
            }
            last = Some(id);
            sleep(GAP).await;
        }
        if shared.store.tells_changes() {
            if changes.changed().await.is_err() {
                return;
            }
        } else if timeout(ANYWAY, changes.changed()).await.is_err() {
            last = None;
        }
    }
}
