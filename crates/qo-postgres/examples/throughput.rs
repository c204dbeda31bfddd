//! A bare exchange loop.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]
use qo_core::*;
use qo_postgres::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;
fn name(s: &str) -> Name {
    Name::parse("n", s).unwrap()
}
#[tokio::main]
async fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (url, claimers, batch, jobs, tasks, limit, scen) = (
        &a[1],
        a[2].parse::<usize>().unwrap(),
        a[3].parse::<u32>().unwrap(),
        a[4].parse::<usize>().unwrap(),
        a[5].parse::<usize>().unwrap(),
        a[6].parse::<u32>().unwrap(),
        a.get(7).cloned().unwrap_or_default(),
    );
    let url = Url::parse(url).unwrap();
    let client = {
        let (c, conn) =
            tokio_postgres::connect(&a[1].split('?').next().unwrap(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(conn);
        c
    };
    client.batch_execute(&format!("drop schema if exists {} cascade", url.schema())).await.unwrap();
    migrate::up(&url).await.unwrap();
    let store = Arc::new(
        PostgresStore::open(&url, Options { connections: claimers + 2, ..Options::default() }).await.unwrap(),
    );
    let all: Vec<Name> = (0..tasks).map(|t| name(&format!("task{t}"))).collect();
    if limit > 0 {
        for (i, t) in all.iter().enumerate() {
            if scen != "mixed" || i == 0 {
                store.set_limit(t.to_string().parse().unwrap(), limit).await.unwrap();
            }
        }
    }
    if scen == "nested" {
        store.set_limit(GroupRef::Cluster, 100000).await.unwrap();
        store.set_limit("queue:default".parse().unwrap(), 100000).await.unwrap();
        for t in &all {
            store.set_limit(format!("{t}/*").parse().unwrap(), 1000).await.unwrap();
        }
    }
    if scen == "keys" {
        store.set_limit("task0/*".parse().unwrap(), 1).await.unwrap();
    }
    let t0 = std::time::Instant::now();
    let mut i = 0;
    while i < jobs {
        let chunk: Vec<NewJob> = (0..5000.min(jobs - i))
            .map(|k| {
                let mut j = NewJob::new(
                    JobId(Uuid::from_u128(((i + k) as u128) << 20 | 7)),
                    all[(i + k) % tasks].clone(),
                );
                if scen == "nested" {
                    j.key = Some(Key::parse("k", &format!("k{}", (i + k) % 50)).unwrap());
                }
                if scen == "keys" {
                    j.key = Some(Key::parse("k", &format!("k{}", (i + k) % 100_000)).unwrap());
                }
                j
            })
            .collect();
        i += chunk.len();
        for r in store.submit(chunk).await.unwrap() {
            r.unwrap();
        }
    }
    println!("submit {:.0} jobs/s", jobs as f64 / t0.elapsed().as_secs_f64());
    for t in ["vacuum analyze {s}.job", "vacuum analyze {s}.line", "analyze {s}.gate", "checkpoint"] {
        client.batch_execute(&t.replace("{s}", url.schema())).await.unwrap();
    }
    if scen == "stuck" || scen == "foreign" {
        // 100,000 jobs ahead
        let names: Vec<Name> =
            if scen == "stuck" { vec![name("full0"), name("full1")] } else { vec![name("foreign")] };
        if scen == "stuck" {
            for n in &names {
                store.set_limit(n.to_string().parse().unwrap(), 0).await.unwrap();
            }
        }
        let mut i = 0usize;
        while i < 100_000 {
            let chunk: Vec<NewJob> = (0..5000)
                .map(|k| {
                    let mut j = NewJob::new(
                        JobId(Uuid::from_u128(((i + k) as u128) << 20 | 9)),
                        names[(i + k) % names.len()].clone(),
                    );
                    j.priority = -1;
                    j
                })
                .collect();
            i += 5000;
            store.submit(chunk).await.unwrap();
        }
        client.batch_execute(&format!("vacuum analyze {}.line", url.schema())).await.unwrap();
    }
    let mut all = all;
    if scen == "stuck" {
        all.push(name("full0"));
        all.push(name("full1"));
    }
    let done = Arc::new(AtomicU64::new(0));
    let ex = Arc::new(AtomicU64::new(0));
    let t0 = std::time::Instant::now();
    let mut hs = vec![];
    for w in 0..claimers {
        let (store, all, done, ex) = (store.clone(), all.clone(), done.clone(), ex.clone());
        hs.push(tokio::spawn(async move {
            let id = SessionId(Uuid::from_u128(1 << 100 | (w as u128) << 40 | std::process::id() as u128));
            store
                .open_session(NewSession {
                    id,
                    worker: name(&format!("w{w}")),
                    queues: vec![],
                    tasks: all,
                    lease_ms: 60000,
                    permits: 10000,
                })
                .await
                .unwrap();
            let mut settles = vec![];
            let mut number = 0;
            let mut empty = 0;
            let mut lat = vec![];
            loop {
                number += 1;
                let n = settles.len() as u64;
                let t = std::time::Instant::now();
                let r = store
                    .exchange(Exchange {
                        session: id,
                        number,
                        settles: std::mem::take(&mut settles),
                        starts: vec![],
                        progress: vec![],
                        claim: Claim { max: batch, max_per_queue: None, prefetch: None },
                        free_permits: 10000,
                        draining: false,
                    })
                    .await
                    .unwrap();
                lat.push(t.elapsed().as_micros());
                ex.fetch_add(1, Ordering::Relaxed);
                done.fetch_add(n, Ordering::Relaxed);
                if r.claimed.is_empty() {
                    empty += 1;
                    if empty > 5 || done.load(Ordering::Relaxed) as usize >= jobs {
                        break;
                    }
                } else {
                    empty = 0;
                }
                settles = r
                    .claimed
                    .iter()
                    .map(|c| Settle {
                        job: c.id,
                        token: c.token,
                        outcome: Outcome::Succeed { output: Json::null() },
                    })
                    .collect();
            }
            lat.sort();
            println!("w{w} p50 {} p99 {}", lat[lat.len() / 2], lat[lat.len() * 99 / 100]);
        }));
    }
    for h in hs {
        h.await.unwrap();
    }
    let e = t0.elapsed().as_secs_f64();
    println!(
        "done {} in {:.2} s: {:.0} jobs/s, {} exchanges",
        done.load(Ordering::Relaxed),
        e,
        done.load(Ordering::Relaxed) as f64 / e,
        ex.load(Ordering::Relaxed)
    );
    println!("drift {}", store.drift().await.unwrap());
}
