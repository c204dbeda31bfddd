//! Every cap of qo, in one place. A cap bounds everything that a caller sends.

/// Largest payload or output of a job, in bytes.
pub const PAYLOAD_BYTES: usize = 1 << 20;
/// Deepest nesting of JSON: as deep as every worker's parser reads.
pub const JSON_DEPTH: usize = 127;
/// Most payload bytes in one submit call.
pub const SUBMIT_BYTES: usize = 8 << 20;
/// Most jobs in one submit call.
pub const SUBMIT_JOBS: usize = 10_000;
/// Most groups of one job: cluster, queue, its group, its key and the extra limits.
pub const GROUPS_PER_JOB: usize = 16;
/// Most extra limits of one job: [`GROUPS_PER_JOB`] less cluster, queue, group and key.
pub const EXTRA_LIMITS: usize = GROUPS_PER_JOB - 4;
/// Longest error text kept of an attempt, in bytes. A longer one is cut, never refused.
pub const ERROR_BYTES: usize = 8 << 10;
/// Longest note of a job's progress, in bytes. A longer one is cut, never refused.
pub const NOTE_BYTES: usize = 256;
/// Longest log kept of an attempt, in bytes. Of a longer one the end is kept.
pub const LOG_BYTES: usize = 64 << 10;
/// Attempts remembered of one job. The oldest are forgotten first.
pub const ATTEMPTS_KEPT: usize = 100;
/// Longest name (task, queue, group, worker), in bytes.
pub const NAME_BYTES: usize = 128;
/// Longest key or idempotency key, in bytes.
pub const KEY_BYTES: usize = 256;
/// Largest limit, and largest cost.
pub const LIMIT: u32 = 1_000_000;
/// A queue's priority lies in `1..=QUEUE_PRIORITY`.
pub const QUEUE_PRIORITY: u32 = 1_000;
/// Most attempts that a job may ask for.
pub const ATTEMPTS: u32 = 1_000;
/// A job's place in line is counted up to this number.
pub const POSITION: u32 = 10_000;
/// Most jobs that one exchange may claim.
pub const CLAIM: u32 = 10_000;
/// A claim stops once the payloads of its jobs have this many bytes together, so that the answer fits into a message.
pub const CLAIM_BYTES: usize = 8 << 20;
/// Most bytes of output and error text that one exchange may carry.
pub const SETTLE_BYTES: usize = 16 << 20;
/// Most settles that one exchange may carry.
pub const SETTLES: usize = 10_000;
/// Most reports of progress that one exchange may carry.
pub const PROGRESS: usize = 10_000;
/// Most tasks or queues that one session may serve, and most tasks in one registration.
pub const SERVED: usize = 10_000;
/// Most limits, queues or schedules in one pushed configuration.
pub const CONFIGURED: usize = 10_000;
/// Most apps whose configuration a namespace keeps, and most apps that register one task.
pub const APPS: usize = 1_000;
/// How many pushes of configurations and registrations are remembered. The oldest are forgotten first.
pub const PUSHES: usize = 100;
/// How many changes of one push are remembered.
pub const PUSH_CHANGES: usize = 50;
/// How many characters are remembered of a schedule that a push changed.
pub const PUSH_TEXT_CHARS: usize = 120;
/// Most tokens of a namespace.
pub const TOKENS: usize = 1_000;
/// Most queues that one token names.
pub const TOKEN_QUEUES: usize = 100;
/// How many entries of the audit log are kept. The oldest are forgotten first.
pub const AUDIT_ENTRIES: usize = 10_000;
/// Longest text of an entry of the audit log, in bytes. A longer one is cut, never refused.
pub const AUDIT_BYTES: usize = 512;
/// How many mistakes of a configuration are listed at once.
pub const MISTAKES: usize = 100;
/// Most jobs named by one cancel or retry call.
pub const CANCELS: usize = 10_000;
/// Most rows in one page of a listing.
pub const PAGE: usize = 1_000;
/// Shortest session lease, in milliseconds.
pub const LEASE_MIN_MS: u64 = 100;
/// Longest session lease, in milliseconds: one day.
pub const LEASE_MAX_MS: u64 = 86_400_000;
/// Longest delay, timeout or backoff, in milliseconds: ten years.
pub const DURATION_MS: u64 = 10 * 365 * 86_400_000;
/// Latest moment that a job may name: the end of the year 9999.
pub const TIME_MS: i64 = 253_402_300_799_999;
/// How long a job keeps its lease after its timeout, so that its worker can settle it, in milliseconds.
pub const TIMEOUT_GRACE_MS: u64 = 10_000;
/// How long an idempotency key is remembered at least after its job ended.
pub const RETAIN_KEY_MS: u64 = 24 * 3_600_000;
/// How long the id of a session that ended is remembered.
pub const RETAIN_SESSION_MS: u64 = 24 * 3_600_000;
/// Longest cron expression or name of a time zone, in bytes.
pub const CRON_BYTES: usize = 256;
/// How late a tick may be for a schedule that skips missed ticks to run it, in milliseconds.
pub const TICK_GRACE_MS: u64 = 60_000;
/// How many missed ticks of one schedule one step makes up for. The next step goes on.
pub const TICKS: usize = 100;
/// Most ended jobs, and most ids of ended sessions, that one sweep forgets. The next one goes on.
pub const FORGOTTEN: usize = 1_000;
/// Most jobs that a view counts as expired before a command has ended them.
pub const FORESEEN: u64 = 1_000;
/// How long a succeeded, cancelled or expired job is remembered unless the configuration says otherwise.
pub const RETAIN_MS: u64 = 24 * 3_600_000;
/// How long a failed job is remembered unless the configuration says otherwise.
pub const RETAIN_FAILED_MS: u64 = 14 * 24 * 3_600_000;
