//! The values of qo-core that the SQL needs. `{{NAME}}` stands for each in a migration or a function, and [`filled`] puts it in, so
//! that SQL repeats no cap, no default and no enumeration.

use qo_core::{
    DEFAULT_QUEUE_PRIORITY, JobId, JobState, Missed, NewJob, OnFailure, OnLimit, RetryPolicy, Scope, caps,
    default_app,
};
use serde::Serialize;
use std::sync::LazyLock;
use uuid::Uuid;

/// Names in double braces, and what stands for them.
static VALUES: LazyLock<Vec<(String, String)>> =
    LazyLock::new(|| caps().into_iter().chain(defaults()).chain(enumerations()).collect());

/// SQL with the values in their places.
pub(crate) fn filled(sql: &str) -> String {
    VALUES.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
}

fn value(name: &str, value: impl ToString) -> (String, String) {
    (format!("{{{{{name}}}}}"), value.to_string())
}

fn caps() -> Vec<(String, String)> {
    vec![
        value("APPS", caps::APPS),
        value("ATTEMPTS", caps::ATTEMPTS),
        value("ATTEMPTS_KEPT", caps::ATTEMPTS_KEPT),
        value("AUDIT_BYTES", caps::AUDIT_BYTES),
        value("AUDIT_ENTRIES", caps::AUDIT_ENTRIES),
        value("CLAIM", caps::CLAIM),
        value("CLAIM_BYTES", caps::CLAIM_BYTES),
        value("CONFIGURED", caps::CONFIGURED),
        value("CRON_BYTES", caps::CRON_BYTES),
        value("DURATION_MS", caps::DURATION_MS),
        value("ERROR_BYTES", caps::ERROR_BYTES),
        value("EXTRA_LIMITS", caps::EXTRA_LIMITS),
        value("FORESEEN", caps::FORESEEN),
        value("FORGOTTEN", caps::FORGOTTEN),
        value("JSON_DEPTH", caps::JSON_DEPTH),
        value("KEY_BYTES", caps::KEY_BYTES),
        value("LEASE_MAX_MS", caps::LEASE_MAX_MS),
        value("LEASE_MIN_MS", caps::LEASE_MIN_MS),
        value("LIMIT", caps::LIMIT),
        value("LOG_BYTES", caps::LOG_BYTES),
        value("NAME_BYTES", caps::NAME_BYTES),
        // Of a name, behind its first byte.
        value("NAME_REST_BYTES", caps::NAME_BYTES - 1),
        value("NOTE_BYTES", caps::NOTE_BYTES),
        value("PAGE", caps::PAGE),
        value("PAYLOAD_BYTES", caps::PAYLOAD_BYTES),
        value("POSITION", caps::POSITION),
        value("PROGRESS", caps::PROGRESS),
        value("PUSHES", caps::PUSHES),
        value("PUSH_CHANGES", caps::PUSH_CHANGES),
        value("PUSH_TEXT_CHARS", caps::PUSH_TEXT_CHARS),
        value("QUEUE_PRIORITY", caps::QUEUE_PRIORITY),
        value("RETAIN_FAILED_MS", caps::RETAIN_FAILED_MS),
        value("RETAIN_KEY_MS", caps::RETAIN_KEY_MS),
        value("RETAIN_MS", caps::RETAIN_MS),
        value("RETAIN_SESSION_MS", caps::RETAIN_SESSION_MS),
        value("SERVED", caps::SERVED),
        value("SETTLES", caps::SETTLES),
        value("SUBMIT_BYTES", caps::SUBMIT_BYTES),
        value("SUBMIT_JOBS", caps::SUBMIT_JOBS),
        value("TIMEOUT_GRACE_MS", caps::TIMEOUT_GRACE_MS),
        value("TIME_MS", caps::TIME_MS),
        value("TOKENS", caps::TOKENS),
        value("TOKEN_QUEUES", caps::TOKEN_QUEUES),
    ]
}

/// What a job, a backoff and an app are where nothing is said.
fn defaults() -> Vec<(String, String)> {
    let app = default_app();
    let job = NewJob::new(JobId(Uuid::nil()), app.clone());
    let retry = RetryPolicy::default();
    vec![
        value("DEFAULT_APP", app),
        value("DEFAULT_COST", job.cost),
        value("DEFAULT_MAX_ATTEMPTS", job.max_attempts),
        value("DEFAULT_ON_FAILURE", word(&OnFailure::default())),
        value("DEFAULT_ON_LIMIT", word(&OnLimit::default())),
        value("DEFAULT_PRIORITY", job.priority),
        value("DEFAULT_QUEUE", job.queue),
        value("DEFAULT_QUEUE_PRIORITY", DEFAULT_QUEUE_PRIORITY),
        value("DEFAULT_RETRY_BASE_MS", retry.base_ms),
        value("DEFAULT_RETRY_MAX_MS", retry.max_ms),
    ]
}

/// `{{NAME}}` is a list for SQL, `{{NAME_WORDS}}` the same list for people.
fn enumerations() -> Vec<(String, String)> {
    let lists = [
        ("JOB_STATES", words(&JOB_STATES)),
        ("MISSED", words(&MISSED)),
        ("ON_FAILURE", words(&ON_FAILURE)),
        ("ON_LIMIT", words(&ON_LIMIT)),
        ("SCOPES", words(&Scope::ALL)),
    ];
    let both = lists.into_iter().flat_map(|(name, words)| {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (last, others) =
            words.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
        [
            value(name, quoted.join(", ")),
            value(&format!("{name}_WORDS"), format!("{} or {last}", others.join(", "))),
        ]
    });
    both.collect()
}

const JOB_STATES: [JobState; 7] = {
    use JobState::*;
    [Pending, Claimed, Running, Succeeded, Failed, Cancelled, Expired]
};
const MISSED: [Missed; 3] = [Missed::Latest, Missed::All, Missed::Skip];
const ON_FAILURE: [OnFailure; 2] = [OnFailure::Halt, OnFailure::Continue];
const ON_LIMIT: [OnLimit; 3] = [OnLimit::Wait, OnLimit::Reject, OnLimit::Skip];

fn words<T: Serialize>(all: &[T]) -> Vec<String> {
    all.iter().map(word).collect()
}

/// A value of an enumeration as it is sent.
fn word<T: Serialize>(value: &T) -> String {
    let value = serde_json::to_value(value).ok();
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::all_sql;
    use std::collections::BTreeSet;

    /// Names in double braces that are none of qo-core's: the word itself, in a comment.
    const NO_NAME: &str = "{{NAME}}";

    #[test]
    fn every_name_in_double_braces_is_a_value_and_is_used() {
        for (file, sql) in all_sql() {
            let left = filled(sql);
            let left = left.lines().find(|line| line.contains("{{") && !line.contains(NO_NAME));
            assert_eq!(left, None, "{file}");
        }
        let unused = |name: &&String| !all_sql().iter().any(|(_, sql)| sql.contains(&***name));
        let unused: Vec<_> = VALUES.iter().map(|(name, _)| name).filter(unused).collect();
        // Only one of the two forms of a list may be needed.
        let unused: Vec<_> = unused.into_iter().filter(|name| !name.ends_with("_WORDS}}")).collect();
        assert!(unused.is_empty(), "no SQL uses {unused:?}");
    }

    #[test]
    fn every_value_of_an_enumeration_is_listed() {
        // A new variant fails to compile here, and belongs into the list above.
        for state in JOB_STATES {
            use JobState::*;
            let (Pending | Claimed | Running | Succeeded | Failed | Cancelled | Expired) = state;
        }
        for missed in MISSED {
            let (Missed::Latest | Missed::All | Missed::Skip) = missed;
        }
        for on_failure in ON_FAILURE {
            let (OnFailure::Halt | OnFailure::Continue) = on_failure;
        }
        for on_limit in ON_LIMIT {
            let (OnLimit::Wait | OnLimit::Reject | OnLimit::Skip) = on_limit;
        }
        assert_eq!(words(&ON_LIMIT), ["wait", "reject", "skip"]);
    }

    /// Comparisons of the schema's own numbers, which happen to equal a cap.
    const OWN_NUMBERS: [&str; 12] = [
        // From this limit on, a group's slots have several rows.
        "coalesce(declared, submit) >= 100",
        "coalesce(g.declared, g.submit) >= 100",
        // Fronts: so many early jobs, and so many queues, are too many.
        "count(*) > 1000",
        "_fronts > 100",
        // A look: so many jobs of a class, and so many different keys of theirs, are looked at.
        "_seen = 1000",
        "l.seq LIMIT 1000",
        "cardinality(_lacking) = 100",
        // So many jobs whose date has come are woken by one exchange.
        "LIMIT 10000 FOR UPDATE SKIP LOCKED",
        // The first bits of a byte that continues a character.
        "& 192 = 128",
        // Backoff, in percent.
        "'factor_percent', 100, 10000",
        "'jitter_percent', 0, 100",
        // Memory, in percent.
        "coalesce(_memory_percent, 0) NOT BETWEEN 0 AND 100",
    ];

    #[test]
    fn sql_compares_with_no_number_that_is_a_cap() {
        let known: BTreeSet<&str> =
            VALUES.iter().map(|(_, value)| &**value).filter(|value| value.len() > 2).collect();
        let mut found = Vec::new();
        for (file, sql) in all_sql() {
            for (number, line) in sql.lines().enumerate() {
                let code = line.split("--").next().unwrap_or_default();
                let code = OWN_NUMBERS.iter().fold(code.to_owned(), |code, own| code.replace(own, ""));
                found.extend(
                    compared(&code)
                        .filter(|value| known.contains(value))
                        .map(|value| format!("{file}:{}: {value}", number + 1)),
                );
            }
        }
        assert!(found.is_empty(), "fill in the value of qo-core: {found:#?}");
        assert_eq!(
            compared("a >= 100 AND b BETWEEN 1 AND 1000 OR c = x100").collect::<Vec<_>>(),
            ["100", "1000"]
        );
    }

    /// Numbers that follow a comparison, BETWEEN … AND, LIMIT, OFFSET, THEN or ELSE.
    fn compared(code: &str) -> impl Iterator<Item = &str> {
        let words: Vec<&str> = code.split_whitespace().collect();
        let before = ["<", "<=", ">", ">=", "=", "<>", "AND", "LIMIT", "OFFSET", "THEN", "ELSE"];
        let pairs = words.windows(2).filter(move |pair| before.contains(&pair[0]));
        let numbers = pairs.map(|pair| pair[1].trim_matches(|c: char| !c.is_ascii_alphanumeric()));
        let numbers: Vec<&str> = numbers.filter(|word| word.bytes().all(|b| b.is_ascii_digit())).collect();
        numbers.into_iter()
    }
}
