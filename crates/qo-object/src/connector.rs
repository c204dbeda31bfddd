//! HTTP clients of a bucket that count their requests and remember the dates of the answers.

use crate::traffic::Traffic;
use async_trait::async_trait;
use chrono::DateTime;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use qo_core::Time;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

impl Traffic {
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
        self.answered(Time::from_millis(date.timestamp_millis()), sent);
    }
}

/// Whether a POST deletes objects, many at once.
fn is_deletion(request: &HttpRequest) -> bool {
    request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|word| word.trim_end_matches('=') == "delete"))
}

/// Makes clients that count their requests.
#[derive(Debug)]
pub(crate) struct CountingConnector {
    pub(crate) traffic: Arc<Traffic>,
    /// The host of the bucket, if it is not AWS's.
    pub(crate) host: Option<String>,
}

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let (traffic, host) = (Arc::clone(&self.traffic), self.host.clone());
        Ok(HttpClient::new(CountingClient { client, traffic, host }))
    }
}

#[derive(Debug)]
struct CountingClient {
    client: HttpClient,
    traffic: Arc<Traffic>,
    host: Option<String>,
}

impl CountingClient {
    /// Whether a request goes to the bucket, and not to a service that gives credentials: such a service has a clock of
    /// its own, and costs nothing.
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
impl HttpService for CountingClient {
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
