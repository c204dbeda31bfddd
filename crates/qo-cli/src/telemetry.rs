//! Spans that leave the process: OTLP over HTTP, by the standard variables of OpenTelemetry.
//!
//! | variable | |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | where the collector is; without either of them no span is recorded |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT` | what goes along, how long it may take |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | who this is; the service is called `qo` by default |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`, `OTEL_BSP_…` | which spans are recorded, how they are sent |
//! | `OTEL_SDK_DISABLED=true`, `OTEL_TRACES_EXPORTER=none` | none at all |

use opentelemetry::global;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::sync::OnceLock;

/// What exports the spans of this process.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Where one of these says that a collector is, spans are recorded.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Starts to export spans if the environment names a collector. The caller is on no runtime.
pub fn start() {
    let value = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let is_off = value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || value("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    if is_off || !ENDPOINTS.iter().any(|name| value(name).is_some()) {
        return;
    }
    // The cryptography of the HTTP client. Another part of the process may have chosen it before.
    rustls::crypto::ring::default_provider().install_default().ok();
    let exporter = match SpanExporter::builder().with_http().build() {
        Ok(exporter) => exporter,
        Err(error) => return tracing::warn!("no spans are exported: {error}"),
    };
    let resource = match value("OTEL_SERVICE_NAME") {
        Some(_) => Resource::builder(),
        None => Resource::builder().with_service_name("qo"),
    };
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    global::set_tracer_provider(provider.clone());
    PROVIDER.set(provider).ok();
}

/// Sends the spans that wait. What the collector does not take in time is lost.
pub fn finish() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown()
    {
        tracing::debug!("some spans were not exported: {error}");
    }
}
