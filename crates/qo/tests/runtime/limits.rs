//! Limits, several workers, and claiming ahead of time.

use crate::stage::{Running, ended, on_every_store};
use qo::core::{ClaimSettings, JobState};
use qo::{Client, Context, Failure, TaskConfig, Worker, WorkerOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many run now, and how many ran at once at most, by key.
#[derive(Default)]
struct AtOnce(Mutex<BTreeMap<String, (u32, u32)>>);

impl AtOnce {
    fn change(&self, key: &str, by: i32) {
        let mut counts = self.0.lock().expect("no panic");
        let (now, most) = counts.entry(key.to_owned()).or_default();
        *now = now.checked_add_signed(by).expect("none ends twice");
        *most = (*most).max(*now);
    }

    fn most(&self) -> BTreeMap<String, u32> {
        self.0.lock().expect("no panic").iter().map(|(key, counts)| (key.clone(), counts.1)).collect()
    }
}

async fn a_limit_is_kept_and_reached(options: WorkerOptions) {
    on_every_store(async |store| {
        let counts = Arc::new(AtOnce::default());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let counts = counts.clone();
                let count = move |(): (), context: Context| {
                    let counts = counts.clone();
                    async move {
                        let key = context.key().expect("a key").to_string();
                        counts.change("all", 1);
                        counts.change(&key, 1);
                        tokio::time::sleep(Duration::from_millis(15)).await;
                        counts.change(&key, -1);
                        counts.change("all", -1);
                        Ok::<_, Failure>(())
                    }
                };
                let config = TaskConfig::new().max_concurrent(4);
                let builder = Worker::builder(store.clone()).options(options.clone());
                Running::start(builder.task_with("count", config, count))
            })
            .collect();
        let client = Client::new(store.clone());
        store.set_limit("count/*".parse().expect("a group"), 2).await.expect("set");
        let mut jobs = Vec::new();
        for index in 0..90 {
            let key = ["a", "b", "c"][index % 3];
            jobs.push(client.submit("count", &()).key(key).await.expect("submitted"));
        }
        for job in jobs {
            let detail = ended(&client, job).await;
            assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Succeeded, 1));
        }
        let most = counts.most();
        assert_eq!(most["all"], 4, "{most:?}");
        assert!(["a", "b", "c"].iter().all(|&key| most[key] <= 2), "{most:?}");
        for worker in workers {
            worker.drain().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_kept_and_reached_by_three_workers() {
    a_limit_is_kept_and_reached(WorkerOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_kept_and_reached_by_workers_that_claim_ahead() {
    let claim = ClaimSettings { prefetch_buffer: 5, claim_lease_ms: Some(5_000), ..ClaimSettings::default() };
    a_limit_is_kept_and_reached(WorkerOptions {
        claim,
        max_concurrent_tasks: Some(2),
        ..WorkerOptions::default()
    })
    .await;
}
