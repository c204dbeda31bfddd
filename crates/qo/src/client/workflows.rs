//! Workflows and schedules.

use super::{Client, Page};
use qo_core::WorkflowStatus;
use qo_core::{Error, ErrorKind, JobId, Name, Result, ScheduleStatus, Steer, Submitted, WorkflowPage};
use uuid::Uuid;

impl Client {
    /// Workflows that are remembered, by name, one page at a time.
    pub async fn workflows(&self, page: Page<Name>) -> Result<WorkflowPage> {
        self.again(|| self.store.workflows(page.after.clone(), page.limit)).await
    }

    /// One workflow. Its steps are the [`jobs`](Self::jobs) of that workflow. `NotFound` if there is none or it was
    /// forgotten.
    pub async fn workflow(&self, workflow: &str) -> Result<WorkflowStatus> {
        let workflow = Name::parse("workflow", workflow)?;
        self.again(|| self.store.workflow(workflow.clone())).await
    }

    /// Opens the step that halts a workflow again. `Conflict` if another step halts it, or none.
    pub async fn retry_step(&self, workflow: &str, step: u32) -> Result<()> {
        self.steer(workflow, Steer::Retry(step)).await
    }

    /// Passes over the step that halts a workflow: the next one runs. `Conflict` if another step halts it, or none.
    pub async fn skip_step(&self, workflow: &str, step: u32) -> Result<()> {
        self.steer(workflow, Steer::Skip(step)).await
    }

    /// Cancels the steps that wait, tells the one that runs to stop, and takes no further steps.
    pub async fn cancel_workflow(&self, workflow: &str) -> Result<()> {
        self.steer(workflow, Steer::Cancel).await
    }

    async fn steer(&self, workflow: &str, steer: Steer) -> Result<()> {
        let workflow = Name::parse("workflow", workflow)?;
        self.again(|| self.store.steer_workflow(workflow.clone(), steer)).await
    }

    /// All schedules.
    pub async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.again(|| self.store.schedules()).await
    }

    /// Lets a schedule fire. `NotFound` if there is none.
    pub async fn enable_schedule(&self, schedule: &str) -> Result<()> {
        self.switch(schedule, true).await
    }

    /// Stops a schedule from firing. Its ticks are not made up for. `NotFound` if there is none.
    pub async fn disable_schedule(&self, schedule: &str) -> Result<()> {
        self.switch(schedule, false).await
    }

    async fn switch(&self, schedule: &str, enabled: bool) -> Result<()> {
        let schedule = Name::parse("schedule", schedule)?;
        self.again(|| self.store.enable_schedule(schedule.clone(), enabled)).await
    }

    /// Submits a schedule's job now, whether it is enabled or not. `LimitReached` if an earlier one has not ended
    /// (unless they may overlap), `NotFound` if there is no such schedule.
    pub async fn trigger_schedule(&self, schedule: &str) -> Result<JobId> {
        let (schedule, id) = (Name::parse("schedule", schedule)?, JobId(Uuid::now_v7()));
        match self.again(|| self.store.trigger_schedule(schedule.clone(), id)).await? {
            Submitted::Accepted(id) | Submitted::Existing(id) => Ok(id),
            Submitted::Skipped => {
                let message = format!("schedule {schedule}: an earlier job has not ended");
                Err(Error::new(ErrorKind::LimitReached, message))
            }
        }
    }
}
