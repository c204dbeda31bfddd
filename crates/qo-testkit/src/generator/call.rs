//! Any command, to any store.

use qo_core::{Answer, Command, Error, Result, Store};

/// Sends a command to a store and gives back what it answers.
pub async fn call(store: &dyn Store, command: Command) -> Result<Answer> {
    Ok(match command {
        Command::Submit(jobs) => Answer::Submitted(store.submit(jobs).await?),
        Command::Admit(_) => return Err(not_of_the_seam("admit")),
        Command::Archive { .. } => return Err(not_of_the_seam("archive")),
        Command::Cancel(jobs) => Answer::Cancelled(store.cancel(jobs).await?),
        Command::Register(tasks) => Answer::Pushed(store.register(tasks).await?),
        Command::Configure(configuration) => Answer::Pushed(store.configure(configuration).await?),
        Command::SetLimit(group, limit) => done(store.set_limit(group, limit).await?),
        Command::UnsetLimit(group) => done(store.unset_limit(group).await?),
        Command::PauseQueue(queue, paused) => done(store.pause_queue(queue, paused).await?),
        Command::OpenSession(session) => Answer::Opened(store.open_session(session).await?),
        Command::Exchange(exchange) => Answer::Exchanged(Box::new(store.exchange(exchange).await?)),
        Command::CloseSession(session) => done(store.close_session(session).await?),
        Command::ReleaseSlot(group, slot) => done(store.release_slot(group, slot).await?),
        Command::Sweep => Answer::Swept(store.sweep().await?),
        Command::Retry(jobs) => Answer::Retried(store.retry(jobs).await?),
        Command::ChangeMatching { change, filter, after, limit } => {
            Answer::Changed(store.change_matching(change, filter, after, limit).await?)
        }
        Command::SteerWorkflow(workflow, steer) => done(store.steer_workflow(workflow, steer).await?),
        Command::AcquireSlots(request) => Answer::Acquired(store.acquire_slots(request).await?),
        Command::ExtendSlots { lease, token, lease_ms } => {
            Answer::Extended(store.extend_slots(lease, token, lease_ms).await?)
        }
        Command::ReturnSlots(lease, token) => done(store.return_slots(lease, token).await?),
        Command::EnableSchedule(schedule, enabled) => done(store.enable_schedule(schedule, enabled).await?),
        Command::TriggerSchedule(schedule, job) => {
            Answer::Triggered(Ok(store.trigger_schedule(schedule, job).await?))
        }
        Command::CreateToken(token, by) => done(store.create_token(token, by).await?),
        Command::RevokeToken(token, by) => done(store.revoke_token(token, by).await?),
        Command::Record(deed) => done(store.record(deed).await?),
    })
}

/// Some commands are for a process that keeps the state, and are not part of the seam.
fn not_of_the_seam(command: &str) -> Error {
    Error::invalid("command", command, "is not part of the seam")
}

fn done((): ()) -> Answer {
    Answer::Done
}
