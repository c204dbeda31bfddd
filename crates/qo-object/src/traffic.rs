//! What goes to a bucket and comes back: how many requests of each kind, which is what a bucket costs, and what time its
//! answers say that it is.

use crate::prices::Requests;
use async_trait::async_trait;
use chrono::DateTime;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use qo_core::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// The requests of one opened bucket, and the time that its answers bear.
#[derive(Debug, Default)]
pub struct Traffic {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    /// What the newest answer said.
    date: Mutex<Option<Dated>>,
}

/// A date that an answer bore. It is cut off to whole seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dated {
    pub(crate) date: Time,
    /// When it was asked for; it was not written before that …
    pub(crate) sent: Instant,
    /// … and not after this.
    pub(crate) heard: Instant,
}

impl Traffic {
    /// What was asked for so far. A request that failed and was made again counts twice, as it does on the bill.
    pub fn requests(&self) -> Requests {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            puts: count(&self.puts),
            gets: count(&self.gets),
            lists: count(&self.lists),
            deletes: count(&self.deletes),
        }
    }

    /// The date that the newest answer bore.
    pub(crate) fn date(&self) -> Option<Dated> {
        *self.date.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: &HttpRequest) {
        let counter = match request.method().as_str() {
            "PUT" | "POST" if is_deletion(request) => &self.deletes,
            "PUT" | "POST" => &self.puts,
            "DELETE" => &self.deletes,
            "GET" if request.uri().query().is_some_and(|query| query.contains("list-type=")) => &self.lists,
            _ => &self.gets,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn hear(&self, response: &HttpResponse, sent: Instant) {
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) else { return };
        let date = Time::from_millis(date.timestamp_millis());
        let dated = Dated { date, sent, heard: Instant::now() };
        *self.date.lock().unwrap_or_else(PoisonError::into_inner) = Some(dated);
    }
}

/// Many objects are deleted by one POST.
fn is_deletion(request: &HttpRequest) -> bool {
    request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|word| word.trim_end_matches('=') == "delete"))
}

/// Connects so that all that goes to and fro is seen.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) traffic: Arc<Traffic>,
    /// The host of the bucket, if it is not AWS's.
    pub(crate) host: Option<String>,
}

impl HttpConnector for Watched {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let (traffic, host) = (Arc::clone(&self.traffic), self.host.clone());
        Ok(HttpClient::new(WatchedClient { client, traffic, host }))
    }
}

#[derive(Debug)]
struct WatchedClient {
    client: HttpClient,
    traffic: Arc<Traffic>,
    host: Option<String>,
}

impl WatchedClient {
    /// Whether a request goes to the bucket, and not to whoever gives credentials: those have clocks of their own, and cost
    /// nothing.
    fn is_for_bucket(&self, request: &HttpRequest) -> bool {
        let asked = request.uri().host().unwrap_or_default();
        match &self.host {
            Some(host) => {
                asked == host || asked.strip_suffix(host.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            None => asked.contains("s3") && asked.contains(".amazonaws.com"),
        }
    }
}

#[async_trait]
impl HttpService for WatchedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.is_for_bucket(&request) {
            return self.client.execute(request).await;
        }
        self.traffic.ask(&request);
        let sent = Instant::now();
        let response = self.client.execute(request).await?;
        self.traffic.hear(&response, sent);
        Ok(response)
    }
}
