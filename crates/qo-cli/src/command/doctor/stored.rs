//! What is stored: can it be read, is it whole, and how does it get going again?

use super::{Finding, Level};
use crate::output::counted;
use crate::place::{Place, SPEAK, listed, on_hold};
use crate::trouble::{Done, Trouble};
use qo::ErrorKind;
use qo::doctor::{
    Damage, DirectoryHealth, DirectoryRepair, Drift, Health, Hold, MayWrite, PostgresHealth, Repair,
};

/// Looks at what is stored; with `repair` it first gets a damaged store going again. It makes no namespace.
pub async fn examine(place: &Place, is_there: bool, verify: bool, repair: bool) -> Done<Vec<Finding>> {
    let url = &place.settings.store;
    let mut findings = writing(place).await?;
    if findings.iter().any(|finding| finding.level == Level::Problem) {
        return Ok(findings);
    }
    if !is_there {
        let what = format!("there is no namespace at {} yet", place.shown());
        let advice = "the first `qo submit` or `qo worker` makes it";
        findings.push(Finding::new(Level::Note, "store", what).advice(advice));
        if verify {
            // Whether the server is reliable should be known before a namespace is made.
            findings.extend(examined(place).await?);
        }
        return Ok(findings);
    }
    if repair {
        match qo::doctor::repair(url).await {
            Ok(repair) => findings.extend(repaired(&repair)),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                findings.push(Finding::new(Level::Ok, "store", "there is nothing to repair"));
            }
            Err(error) => return Err(place.explained(error)),
        }
    }
    match place.open_existing().await {
        // On a server the examination costs little, so it always runs.
        Ok(_) if verify || repair || qo::doctor::server(url).is_some() => {}
        Ok(store) => {
            let namespace = place.namespace().await?;
            let identity = namespace.as_ref().and_then(|namespace| namespace.identity);
            let which = identity.map_or_else(String::new, |identity| format!(": {identity}"));
            let what = format!("{} can be read{which}", place.shown());
            findings.push(Finding::new(Level::Ok, "store", what));
            findings.extend(namespace.and_then(|namespace| namespace.damage).as_ref().map(damaged));
            let hold = place.hold(&store).await?;
            findings.extend(hold.map(|what| Finding::new(Level::Note, "hold", what).advice(SPEAK)));
            return Ok(findings);
        }
        // The examination below reports all of it.
        Err(Trouble::Error { error, .. }) if error.kind() == ErrorKind::Data => {
            let level = qo::migrate::status(url).await?;
            if level.store.is_some_and(|store| store != level.release) {
                return Err(error.into());
            }
        }
        Err(trouble) => return Err(trouble),
    }
    findings.extend(examined(place).await?);
    Ok(findings)
}

/// A finding if a bucket cannot be written to as it should be. Reading it does not show that.
async fn writing(place: &Place) -> Done<Vec<Finding>> {
    let finding = match qo::doctor::may_write(&place.settings.store).await {
        Ok(None | Some(MayWrite::AndDelete)) => return Ok(Vec::new()),
        Ok(Some(MayWrite::NotDelete(why))) => {
            let what = format!("the credentials may write, and not delete what they wrote: {why}");
            let advice = "they need s3:DeleteObject too, or records that no reader needs are never swept";
            Finding::new(Level::Note, "store", what).advice(advice)
        }
        Ok(Some(MayWrite::NotKnown(why))) => {
            let what = format!("cannot find out whether {} can be written to: {why}", place.shown());
            Finding::new(Level::Note, "store", what).advice("try again")
        }
        Err(error) if error.kind() == ErrorKind::Invalid => {
            Finding::new(Level::Problem, "store", error.message())
                .advice("with these credentials nothing can be submitted, and no worker can run")
        }
        Err(error) => return Err(place.explained(error)),
    };
    Ok(vec![finding])
}

/// Ends the hold of a repair, because an operator says so.
pub async fn release(place: &Place) -> Done<Vec<Finding>> {
    let released = qo::doctor::release(&place.settings.store).await;
    Ok(vec![match released.map_err(|error| place.explained(error))? {
        Some(hold) => {
            let cluster = hold.cluster.map_or_else(|| "no limit".into(), |limit| format!("limit {limit}"));
            let what =
                format!("jobs start again; cluster has {cluster} of an operator, as before the repair");
            Finding::new(Level::Ok, "hold", what)
        }
        None => Finding::new(Level::Ok, "hold", "the namespace is not on hold"),
    }])
}

fn held(hold: &Hold) -> Finding {
    Finding::new(Level::Note, "hold", on_hold(hold)).advice(SPEAK)
}

/// Reads and checks everything that is stored.
async fn examined(place: &Place) -> Done<Vec<Finding>> {
    let examined = qo::doctor::examine(&place.settings.store).await;
    Ok(match examined.map_err(|error| place.explained(error))? {
        Some(Health::Directory(health)) => directory(place, &health),
        Some(Health::Postgres(health)) => postgres(place, &health),
        None => Vec::new(),
    })
}

fn postgres(place: &Place, health: &PostgresHealth) -> Vec<Finding> {
    let PostgresHealth { server, schema, version, drift, unreadable } = health;
    let what = format!("{}: PostgreSQL {server}, schema {schema} has version {version}", place.shown());
    let mut findings = vec![Finding::new(Level::Ok, "store", what)];
    if drift.is_empty() {
        let what = "0 groups whose count of slots differs from what their holders have";
        findings.push(Finding::new(Level::Ok, "slots", what));
    }
    findings.extend(drift.iter().map(|Drift { group, held, counted }| {
        Finding::new(
            Level::Problem,
            group,
            format!("slots that are counted: {counted}; that its holders have: {held}"),
        )
        .advice("qo doctor --repair counts it anew; this is a bug of qo, please report it")
    }));
    findings.extend(unreadable.iter().map(|what| {
        Finding::new(Level::Problem, "configuration", format!("cannot be read, and is left out: {what}"))
            .advice("push a configuration that says it otherwise, or run the release that wrote it")
    }));
    findings
}

fn directory(place: &Place, health: &DirectoryHealth) -> Vec<Finding> {
    let format = health.format.map_or_else(|| "none yet".into(), |format| format.to_string());
    let which = health.identity.map_or_else(String::new, |identity| format!("{identity}, "));
    let what = format!(
        "{}: {which}format {format}, {} records up to {}, snapshot of {}",
        place.shown(),
        health.records,
        health.last,
        health.snapshot
    );
    let level = if health.is_usable() { Level::Ok } else { Level::Problem };
    let mut findings = vec![Finding::new(level, "store", what)];
    findings.extend(health.damage.iter().map(damaged));
    findings.extend(health.hold.as_ref().map(held));
    findings
}

fn damaged(damage: &Damage) -> Finding {
    match (damage.needed, damage.hinders) {
        (true, _) => Finding::new(Level::Problem, "store", &damage.what)
            .advice("stop all workers, then: qo doctor --repair, which says what was lost"),
        (false, Some(hinders)) => Finding::new(Level::Problem, "store", &damage.what).advice(hinders),
        (false, None) => Finding::new(Level::Note, "store", format!("{} (no reader needs it)", damage.what)),
    }
}

fn repaired(repair: &Repair) -> Vec<Finding> {
    let drift = match repair {
        Repair::Directory(repair) => return directory_repaired(repair),
        Repair::Postgres(drift) => drift,
    };
    let finding = |Drift { group, held, counted }: &Drift| {
        let what = format!("counted anew: slots that its holders have: {held}; that were counted: {counted}");
        Finding::new(Level::Note, group, what)
    };
    drift.iter().map(finding).collect()
}

fn directory_repaired(repair: &DirectoryRepair) -> Vec<Finding> {
    let ids = |jobs: &[qo::core::JobId]| listed(&jobs.iter().map(ToString::to_string).collect::<Vec<_>>());
    let mut findings = vec![Finding::new(Level::Note, "repair", "the store goes on again")];
    let mut note = |what: String| findings.push(Finding::new(Level::Note, "repair", what));
    for lost in &repair.lost {
        note(format!("lost: {lost}"));
    }
    if repair.not_used > 0 {
        note(format!("not used, because it rests on what was lost: {}", counted(repair.not_used, "record")));
    }
    if !repair.submitted_again.is_empty() {
        let jobs = &repair.submitted_again;
        note(format!("submitted again: {}: {}", counted(jobs.len() as u64, "job"), ids(jobs)));
    }
    for (job, why) in &repair.not_submitted {
        note(format!("job {job} is lost: {why}"));
    }
    if !repair.runs_again.is_empty() {
        let jobs = &repair.runs_again;
        note(format!("ended before, runs again: {}: {}", counted(jobs.len() as u64, "job"), ids(jobs)));
    }
    if !repair.set_again.is_empty() {
        note(format!("set again: {}", listed(&repair.set_again)));
    }
    if !repair.moved.is_empty() {
        note(format!("moved: {}", listed(&repair.moved)));
    }
    findings
}
