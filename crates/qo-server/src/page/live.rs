//! Tells open pages that something has changed. A page then asks for itself again, as its caller, and shows the
//! differences. The event itself says nothing, so it needs no filter.

use crate::caller::Caller;
use crate::shared::Shared;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::{Stream, wrappers::ReceiverStream};

/// Between two events of one page.
const GAP: Duration = Duration::from_millis(300);
/// A sign of life while nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a stream lasts. The browser then opens the next one, so a caller that may no longer look finds out.
const LASTS: Duration = Duration::from_secs(60);
/// How soon a browser opens the next stream.
const AGAIN: Duration = Duration::from_millis(500);

/// Browsers pass over an event without data.
const SOMETHING: &str = "now";

pub(crate) async fn changes(
    State(shared): State<Shared>,
    _: Caller,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (sender, receiver) = mpsc::channel(1);
    let (mut changes, mut ending) = (shared.wakes.of_all(), shared.ending.clone());
    tokio::spawn(async move {
        let told = async {
            // The first event sends the headers on their way. What changes from here on is told.
            sender.send(Ok(Event::default().event("ready").retry(AGAIN).data(SOMETHING))).await.ok();
            while changes.changed().await.is_ok() {
                if sender.send(Ok(Event::default().event("changed").data(SOMETHING))).await.is_err() {
                    return;
                }
                sleep(GAP).await;
            }
        };
        tokio::select! {
            () = told => {}
            () = sender.closed() => {}
            () = sleep(LASTS) => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    });
    Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::new().interval(HEARTBEAT))
}
