//! Spans of submits and attempts, at a collector of OpenTelemetry: real processes, real OTLP over HTTP.

use crate::fixture::{Here, Worker, until};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// A collector that keeps what it is sent.
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&spans);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                thread::spawn(move || collect(stream, &kept));
            }
        });
        Self { address, spans }
    }

    /// The spans of that name, by their beginning.
    fn named(&self, name: &str) -> Vec<Span> {
        let spans = self.spans.lock().expect("no panic");
        let mut named: Vec<Span> = spans.iter().filter(|span| span.name == name).cloned().collect();
        named.sort_by_key(|span| span.start_time_unix_nano);
        named
    }

    /// `qo` with the address of this collector.
    fn command(&self, here: &Here, arguments: &[&str]) -> Command {
        let mut command = here.command(arguments);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.address));
        command
    }
}

/// Answers the requests of one connection.
fn collect(stream: TcpStream, spans: &Mutex<Vec<Span>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let (mut length, mut line) = (0, String::new());
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        assert!(line.starts_with("POST /v1/traces "), "{line}");
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request = ExportTraceServiceRequest::decode(&*body).expect("a request of OTLP");
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.lock().expect("no panic").extend(scopes.flat_map(|scope| scope.spans));
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn one_trace_goes_from_a_submit_through_every_attempt() {
    let (here, collector) = (Here::new(), Collector::start());
    let submit = collector.command(&here, &["submit", "flaky", "1"]).output().expect("qo runs");
    let job = String::from_utf8(submit.stdout).expect("an id").trim().to_owned();
    let [submitted] =
        collector.named("submit flaky").try_into().expect("one span, sent before the command ends");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let stored = format!("00-{}-{}-01", hex(&submitted.trace_id), hex(&submitted.span_id));
    assert_eq!(here.qo(&["jobs", "show", &job, "--json"]).json()["traceparent"], stored);
    let task = "flaky=test $QO_ATTEMPT -gt 1 || exit 75";
    let worker = collector
        .command(&here, &["worker", "--task", task])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("qo starts");
    let worker = Worker::of(worker);
    until("the job succeeds", || here.qo(&["jobs", "show", &job, "--json"]).out.contains("\"succeeded\""));
    worker.signal("TERM");
    assert_eq!(worker.wait(), 0);
    let attempts = collector.named("flaky");
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    for attempt in &attempts {
        assert_eq!(attempt.trace_id, submitted.trace_id);
        assert_eq!(attempt.parent_span_id, submitted.span_id);
    }
    let is_error = |span: &Span| span.status.as_ref().is_some_and(|status| status.code == 2);
    assert_eq!(attempts.iter().map(is_error).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_submit_joins_the_trace_that_its_caller_names() {
    let (here, collector) = (Here::new(), Collector::start());
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let arguments = ["submit", "mail", "1", "--traceparent", caller];
    assert!(collector.command(&here, &arguments).status().expect("qo runs").success());
    let [span] = collector.named("submit mail").try_into().expect("one span");
    assert_eq!(span.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(span.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
}

#[test]
fn a_refused_submit_marks_its_span_as_limited() {
    let (here, collector) = (Here::new(), Collector::start());
    here.qo(&["concurrency", "set", "full", "--limit", "0"]).ok();
    let refused = collector.command(&here, &["submit", "full", "1", "--on-limit", "reject"]).output();
    assert_eq!(refused.expect("qo runs").status.code(), Some(4));
    let [span] = collector.named("submit full").try_into().expect("one span");
    let status = span.status.expect("a status");
    assert_eq!((status.code, status.message.as_str()), (2, "ConcurrencyLimitReached"));
}

#[test]
fn without_a_collector_a_job_has_no_trace_of_its_own() {
    let (here, collector) = (Here::new(), Collector::start());
    let job = here.qo(&["submit", "mail", "1"]).line();
    assert!(here.qo(&["jobs", "show", &job, "--json"]).json()["traceparent"].is_null());
    let off = collector.command(&here, &["submit", "mail", "2"]).env("OTEL_SDK_DISABLED", "true").status();
    assert!(off.expect("qo runs").success());
    assert!(collector.named("submit mail").is_empty());
}
