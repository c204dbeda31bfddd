//! The log of an attempt: the end of what its handler logs, kept while it runs and after it has ended. A program logs by
//! writing to stderr, a handler by [`Context::log`](crate::Context::log).
//!
//! A log is text of at most [`LOG_BYTES`](caps::LOG_BYTES). If an attempt writes more, the log begins with a line that says
//! how many bytes are gone, `… 12,345 bytes before this were cut …`, and goes on at the beginning of a line; only a line
//! of more than 16 KiB is cut inside. A byte that is not UTF-8 is shown as `\xNN`; no byte is left out or replaced. (A
//! backslash stays what it is: a program that writes `\xff` in four characters looks the same.)
//!
//! While an attempt runs:
//!
//! 1. The log is kept when there is something new and the last write is long enough ago (`Pace`).
//! 2. A worker writes at most `AT_ONCE` such logs at once, and starts one write per `Pace::gap`. The others wait for
//!    their turn, and write what is there when it comes.
//! 3. An attempt has one write under way at most. The last write, of the whole log, starts when that one has ended.
//!
//! So a log that was kept while the attempt ran never replaces the last one. Each write is a task of its own: neither
//! the handler nor the exchange waits for it. A write that fails is repeated with the next line, or at the end.

use futures::future::BoxFuture;
use qo_core::{FenceToken, JobId, Result, Store, caps};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a handler waits until the last log is kept. The write goes on after that.
const PATIENCE: Duration = Duration::from_secs(5);
/// After this long a write is given up.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// Logs of running attempts that a worker writes at once, at most.
const AT_ONCE: usize = 2;
/// Longest line that says how much was cut, in bytes.
const MARK_BYTES: usize = 96;
const MARK_BEGIN: &str = "… ";
const MARK_END: &str = " bytes before this were cut …";
/// A line that is longer than this is cut inside.
const LONG_LINE: usize = 16 << 10;

/// The end of what an attempt has logged. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    written: Mutex<Written>,
    grew: Notify,
}

#[derive(Debug, Default)]
struct Written {
    /// The last bytes.
    end: VecDeque<u8>,
    /// How many it wrote in all.
    total: u64,
}

impl Tail {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn read(&mut self, pipe: Option<&mut (impl AsyncRead + Unpin)>) {
        let Some(pipe) = pipe else { return };
        let mut chunk = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = pipe.read(&mut chunk).await {
            self.write(&chunk[..bytes]);
        }
    }

    pub fn write(&self, bytes: &[u8]) {
        let mut written = self.lock();
        written.total += bytes.len() as u64;
        written.end.extend(bytes);
        let over = written.end.len().saturating_sub(caps::LOG_BYTES);
        written.end.drain(..over);
        drop(written);
        self.0.grew.notify_one();
    }

    /// Waits until it has more than this many bytes.
    async fn past(&self, total: u64) {
        while self.lock().total <= total {
            self.0.grew.notified().await;
        }
    }

    /// The log, and how many bytes the program had written.
    fn text(&self) -> (String, u64) {
        let mut written = self.lock();
        let total = written.total;
        (text(written.end.make_contiguous(), total), total)
    }

    /// The log while the program runs. An incomplete character at its end is left out, and not counted.
    fn text_so_far(&self) -> (String, u64) {
        let mut written = self.lock();
        let total = written.total;
        let bytes = written.end.make_contiguous();
        let begun = bytes.utf8_chunks().last().map_or(0, |chunk| {
            let is_begun =
                std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if is_begun { chunk.invalid().len() } else { 0 }
        });
        let total = total - begun as u64;
        (text(&bytes[..bytes.len() - begun], total), total)
    }
}

/// The log of a program that has written `total` bytes, the last of which are `end`.
fn text(end: &[u8], total: u64) -> String {
    let mut text = String::with_capacity(end.len());
    let mut escapes = Vec::new();
    for chunk in end.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            escapes.push(text.len());
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if total == end.len() as u64 && text.len() <= caps::LOG_BYTES {
        return text;
    }
    // The line that says how much was cut needs room, so some text always goes. That shows where the rest begins.
    let mut from = text.ceil_char_boundary(text.len().saturating_sub(caps::LOG_BYTES - MARK_BYTES));
    let before = escapes.partition_point(|&at| at < from);
    if let Some(last) = escapes[..before].last() {
        from = from.max(last + ESCAPE_BYTES);
    }
    let is_inside = !text[..from].ends_with('\n');
    if let Some(end) = text[from..].find('\n').filter(|&end| is_inside && end < LONG_LINE) {
        from += end + 1;
    }
    let escapes = escapes.len() - escapes.partition_point(|&at| at < from);
    let kept = (text.len() - from - escapes * (ESCAPE_BYTES - 1)) as u64;
    format!("{}\n{}", cut_mark(total - kept), &text[from..])
}

/// The length of `\xNN`.
const ESCAPE_BYTES: usize = 4;

/// A number with a comma after every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The line that says how many bytes were cut.
pub fn cut_mark(bytes: u64) -> String {
    format!("{MARK_BEGIN}{}{MARK_END}", grouped(bytes))
}

/// How many bytes were cut before a log, and the log without the line that says so.
pub fn cut(log: &str) -> (u64, &str) {
    let mark = || {
        let (mark, rest) = log.split_once('\n')?;
        let number = mark.strip_prefix(MARK_BEGIN)?.strip_suffix(MARK_END)?.replace(',', "");
        Some((number.parse().ok()?, rest))
    };
    mark().unwrap_or((0, log))
}

/// What is new in a log since it was `before`: the text that the program wrote since then, and how many bytes of that
/// are cut.
///
/// Both are logs of the same attempt, the older first.
pub fn news<'a>(before: &str, now: &'a str) -> (u64, &'a str) {
    let ((cut_before, before), (cut_now, rest)) = (cut(before), cut(now));
    let seen = cut_before + raw_len(before);
    if seen < cut_now {
        return (cut_now - seen, rest);
    }
    let mut skip = usize::try_from(seen - cut_now).unwrap_or(usize::MAX);
    let mut at = 0;
    // An escape is one byte of what was written.
    while skip > 0 && at < rest.len() {
        at += if is_escape(&rest.as_bytes()[at..]) { ESCAPE_BYTES } else { 1 };
        skip -= 1;
    }
    (0, &rest[rest.ceil_char_boundary(at)..])
}

/// How many bytes the program wrote to produce this text.
fn raw_len(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let escapes = bytes.windows(ESCAPE_BYTES).filter(|window| is_escape(window)).count();
    (bytes.len() - escapes * (ESCAPE_BYTES - 1)) as u64
}

/// Whether the text begins with an escaped byte. A byte that is not UTF-8 is 80 or more.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'x', b'8'..=b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f', ..])
}

/// How often the log of a running attempt is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    /// When it is kept for the first time.
    first: Duration,
    /// The shortest pause after that; it doubles every time …
    next: Duration,
    /// … and at most this long.
    most: Duration,
    /// It waits at least a second for every this many bytes.
    bytes_a_second: usize,
    /// The least time between two writes of any programs of a worker.
    gap: Duration,
}

impl Pace {
    /// A directory or a database: about every second. A long log, which is written as a whole, every fourth second.
    const USUAL: Self = Self {
        first: Duration::from_secs(1),
        next: Duration::from_secs(1),
        most: Duration::from_secs(1),
        bytes_a_second: 16 << 10,
        gap: Duration::from_millis(50),
    };
    /// A bucket, where every write costs money: an attempt that runs for an hour costs some 120 PUTs.
    const WHERE_WRITES_COST: Self = Self {
        first: Duration::from_secs(2),
        next: Duration::from_secs(2),
        most: Duration::from_secs(30),
        bytes_a_second: usize::MAX,
        gap: Duration::from_millis(500),
    };
    /// The pause after a write that failed.
    const AFTER_FAILURE: Duration = Duration::from_secs(15);
}

/// Writes a log to the store.
type Keep = Box<dyn Fn(FenceToken, String) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Keeps the logs of a worker's attempts.
pub(crate) struct AttemptLogs {
    keep: Keep,
    pace: Pace,
    writing: Arc<Semaphore>,
    /// When the next log of a running attempt may be kept.
    next: tokio::sync::Mutex<Instant>,
}

impl AttemptLogs {
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let pace = if store.renewals_cost() { Pace::WHERE_WRITES_COST } else { Pace::USUAL };
        let keep = move |token, log| -> BoxFuture<'static, Result<()>> {
            let store = Arc::clone(&store);
            Box::pin(async move { store.keep_log(token, log).await })
        };
        Self::with(Box::new(keep), pace)
    }

    fn with(keep: Keep, pace: Pace) -> Arc<Self> {
        let writing = Arc::new(Semaphore::new(AT_ONCE));
        Arc::new(Self { keep, pace, writing, next: tokio::sync::Mutex::new(Instant::now()) })
    }

    /// Waits for its turn to keep the log of a running attempt. The turn lasts as long as the permit.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.writing).acquire_owned().await.ok()?;
        let mut next = self.next.lock().await;
        sleep_until(*next).await;
        *next = Instant::now() + self.pace.gap;
        Some(permit)
    }
}

/// The log of one attempt.
pub(crate) struct Log {
    logs: Arc<AttemptLogs>,
    token: FenceToken,
    tail: Tail,
    /// How many bytes of it the store has.
    kept: u64,
    /// The write that is under way. It answers how many bytes of the log it has kept.
    writing: Option<JoinHandle<Result<u64, String>>>,
}

impl Log {
    pub fn new(logs: Arc<AttemptLogs>, token: FenceToken, tail: Tail) -> Self {
        Self { logs, token, tail, kept: 0, writing: None }
    }

    /// Keeps the log while the attempt runs. The future may be dropped at any time.
    pub async fn keep(&mut self) -> Infallible {
        let pace = self.logs.pace;
        let mut distance = pace.next;
        let mut next = Instant::now() + pace.first;
        loop {
            sleep_until(next).await;
            self.tail.past(self.kept).await;
            let permit = self.logs.turn().await;
            let (text, total) = self.tail.text_so_far();
            let seconds = (text.len() / pace.bytes_a_second) as u64;
            // An incomplete character alone is not worth a write.
            if total > self.kept {
                self.write(text, total, permit);
                distance = match self.written().await {
                    Ok(()) => distance,
                    Err(why) => {
                        tracing::debug!(token = %self.token, "the log of a running attempt is not kept: {why}");
                        distance.max(Pace::AFTER_FAILURE)
                    }
                };
            }
            next = Instant::now() + distance.max(Duration::from_secs(seconds));
            distance = (distance * 2).min(pace.most);
        }
    }

    /// Starts a write, which begins when the one before it has ended.
    fn write(&mut self, text: String, total: u64, permit: Option<OwnedSemaphorePermit>) {
        let (logs, token, before) = (Arc::clone(&self.logs), self.token, self.writing.take());
        self.writing = Some(tokio::spawn(async move {
            let _permit = permit;
            if let Some(before) = before {
                // Its result does not matter: this write replaces it.
                let _ = before.await;
            }
            match timeout(WRITE_PATIENCE, (logs.keep)(token, text)).await {
                Ok(kept) => kept.map(|()| total).map_err(|error| error.to_string()),
                Err(_) => Err("it took too long".to_owned()),
            }
        }));
    }

    /// Waits for the write that is under way. If this future is dropped the write goes on, and the next call waits for
    /// it again.
    async fn written(&mut self) -> Result<(), String> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let result = writing.await.map_err(|error| error.to_string());
        self.writing = None;
        self.kept = result??;
        Ok(())
    }

    /// Keeps the whole log of an attempt that has ended, and returns it.
    pub async fn finish(mut self, job: JobId) -> String {
        let (text, total) = self.tail.text();
        let is_kept = self.writing.is_none() && self.kept == total;
        if !text.is_empty() && !is_kept {
            self.write(text.clone(), total, None);
            let kept = timeout(PATIENCE, self.written()).await;
            if let Err(why) = kept.unwrap_or_else(|_| Err("it takes long; the job goes on without it".into()))
            {
                tracing::warn!(%job, "its log is not kept: {why}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::MemoryStore;

    fn tail(chunks: &[&[u8]]) -> Tail {
        let tail = Tail::default();
        chunks.iter().for_each(|chunk| tail.write(chunk));
        tail
    }

    fn lines(numbers: std::ops::Range<u32>) -> String {
        numbers.map(|number| format!("{number}\n")).collect()
    }

    #[test]
    fn a_log_that_fits_is_kept_as_it_is() {
        for written in ["", "one\ntwo", "grüße\n\0\u{1b}[31m", &"x".repeat(caps::LOG_BYTES)] {
            let tail = tail(&[written.as_bytes()]);
            assert_eq!(tail.text(), (written.to_owned(), written.len() as u64));
            assert_eq!((cut(written), tail.text_so_far()), ((0, written), tail.text()));
        }
    }

    #[test]
    fn a_long_log_begins_with_what_was_cut_and_a_whole_line() {
        let whole = lines(0..20_000);
        for chunk in [1, 7, 4_096, 1 << 20] {
            let (log, _) = tail(&whole.as_bytes().chunks(chunk).collect::<Vec<_>>()).text();
            assert!(log.len() <= caps::LOG_BYTES && log.len() > caps::LOG_BYTES - 200, "{} bytes", log.len());
            let (gone, rest) = cut(&log);
            assert_eq!(&whole[usize::try_from(gone).expect("some")..], rest);
            assert!(whole[..whole.len() - rest.len()].ends_with('\n'));
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        for (written, character) in [("ü".repeat(100_000), 'ü'), ("x".repeat(100_000), 'x')] {
            let (log, _) = tail(&[written.as_bytes()]).text();
            let (gone, rest) = cut(&log);
            assert!(rest.chars().all(|c| c == character) && rest.len() > caps::LOG_BYTES - 200);
            assert_eq!(gone as usize + rest.len(), written.len());
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_and_counted_as_what_they_are() {
        let (log, total) = tail(&[b"a\xff\xfeb\xc3"]).text();
        assert_eq!((log.as_str(), total), ("a\\xff\\xfeb\\xc3", 5));
        let (log, _) = tail(&[&[0xff; 100_000]]).text();
        let (gone, rest) = cut(&log);
        assert!(log.len() <= caps::LOG_BYTES);
        assert_eq!(rest, "\\xff".repeat(rest.len() / 4));
        assert_eq!(gone as usize + rest.len() / 4, 100_000);
    }

    #[test]
    fn a_character_that_has_only_begun_is_left_out_while_a_program_runs() {
        let tail = tail(&[b"gr\xc3"]);
        assert_eq!(tail.text_so_far(), ("gr".into(), 2));
        tail.write(b"\xbcn");
        assert_eq!(tail.text_so_far(), ("grün".into(), 5));
        tail.write(b"\xff");
        assert_eq!(tail.text_so_far(), ("grün\\xff".into(), 6));
    }

    #[test]
    fn what_is_new_in_a_log_is_found_although_its_beginning_goes() {
        let tail = Tail::default();
        let (mut before, mut seen) = (String::new(), String::new());
        for step in 0..200_u32 {
            // Equal lines, with bytes among them that are not UTF-8.
            tail.write("same\n".repeat(step as usize).as_bytes());
            tail.write(b"\xff\n");
            let (now, _) = tail.text();
            let (missed, new) = news(&before, &now);
            assert_eq!(missed, 0);
            seen.push_str(new);
            before = now;
        }
        let whole: String = (0..200).map(|step| "same\n".repeat(step) + "\\xff\n").collect();
        assert!(seen == whole, "{} of {} bytes", seen.len(), whole.len());
        tail.write(&[b'x'; 200_000]);
        let (now, _) = tail.text();
        let (missed, new) = news(&before, &now);
        assert_eq!(missed as usize + new.len(), 200_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_log_is_kept_when_it_has_changed_and_the_last_one_wins() {
        let store = Arc::new(MemoryStore::new());
        let logs = AttemptLogs::new(store.clone());
        let tail = Tail::default();
        let token = FenceToken(7);
        let mut log = Log::new(Arc::clone(&logs), token, tail.clone());
        let kept = async || store.log(token).await.expect("a look");
        let wait = async |log: &mut Log, ms| {
            timeout(Duration::from_millis(ms), log.keep())
                .await
                .map(|never| match never {})
                .expect_err("time");
        };
        wait(&mut log, 5_000).await;
        assert_eq!(kept().await, None, "nothing was written");
        tail.write(b"one\n");
        wait(&mut log, 900).await;
        assert_eq!(kept().await, None, "it is too early");
        wait(&mut log, 1_100).await;
        assert_eq!(kept().await.as_deref(), Some("one\n"));
        store.keep_log(token, "replaced".into()).await.expect("kept");
        wait(&mut log, 10_000).await;
        assert_eq!(kept().await.as_deref(), Some("replaced"), "what has not changed is not kept again");
        tail.write(b"two\n");
        assert_eq!(log.finish(JobId(uuid::Uuid::nil())).await, "one\ntwo\n");
        assert_eq!(kept().await.as_deref(), Some("one\ntwo\n"));
    }

    /// A store that takes its time for every log, and remembers them in the order in which they arrived.
    #[derive(Debug, Default)]
    struct Slow {
        arrived: Mutex<Vec<String>>,
        under_way: Mutex<(usize, usize)>,
    }

    impl Slow {
        fn logs(self: &Arc<Self>, takes: Duration) -> Arc<AttemptLogs> {
            let slow = Arc::clone(self);
            let keep = move |_, log| -> BoxFuture<'static, Result<()>> {
                let slow = Arc::clone(&slow);
                Box::pin(async move {
                    let count = |change: fn(usize) -> usize| {
                        let mut under_way = slow.under_way.lock().expect("no panic");
                        under_way.0 = change(under_way.0);
                        under_way.1 = under_way.1.max(under_way.0);
                    };
                    count(|now| now + 1);
                    tokio::time::sleep(takes).await;
                    count(|now| now - 1);
                    slow.arrived.lock().expect("no panic").push(log);
                    Ok(())
                })
            };
            AttemptLogs::with(Box::new(keep), Pace::USUAL)
        }

        /// The most that were under way at once.
        fn most(&self) -> usize {
            self.under_way.lock().expect("no panic").1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_log_arrives_after_one_that_was_under_way() {
        let slow = Arc::new(Slow::default());
        let tail = tail(&[b"one\n"]);
        let mut log = Log::new(slow.logs(Duration::from_secs(3)), FenceToken(7), tail.clone());
        assert!(timeout(Duration::from_secs(2), log.keep()).await.is_err());
        tail.write(b"two\n");
        assert_eq!(log.finish(JobId(uuid::Uuid::nil())).await, "one\ntwo\n");
        // The job did not wait for the write, which still ends.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(*slow.arrived.lock().expect("no panic"), ["one\n", "one\ntwo\n"]);
        assert_eq!(slow.most(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_with_many_programs_keeps_few_logs_at_once() {
        let slow = Arc::new(Slow::default());
        let logs = slow.logs(Duration::from_millis(10));
        let talks = |token| {
            let tail = Tail::default();
            let mut log = Log::new(Arc::clone(&logs), FenceToken(token), tail.clone());
            async move {
                let talk = async {
                    loop {
                        tail.write(b"line\n");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                };
                tokio::select! { () = talk => {}, never = log.keep() => match never {} }
            }
        };
        let all = futures::future::join_all((0..500).map(talks));
        assert!(timeout(Duration::from_secs(10), all).await.is_err());
        let kept = slow.arrived.lock().expect("no panic").len();
        assert!((100..=200).contains(&kept), "{kept} in ten seconds");
        assert!(slow.most() <= AT_ONCE, "{} at once", slow.most());
    }
}
