//! What was done, in a sentence. The address of the next page carries a word for it, never the sentence itself, so that
//! no link can put words into the page.

use qo_core::words::counted;

/// What an action did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    LimitSet,
    LimitUnset,
    Released,
    Paused,
    Resumed,
    Cancelled,
    AskedToStop,
    Ended,
    Retried,
    ManyCancelled,
    ManyRetried,
    Partly,
    StepRetried,
    StepSkipped,
    WorkflowCancelled,
    Enabled,
    Disabled,
    Triggered,
    Revoked,
}

impl Done {
    const ALL: [(Self, &'static str); 19] = [
        (Self::LimitSet, "limit-set"),
        (Self::LimitUnset, "limit-unset"),
        (Self::Released, "released"),
        (Self::Paused, "paused"),
        (Self::Resumed, "resumed"),
        (Self::Cancelled, "cancelled"),
        (Self::AskedToStop, "asked-to-stop"),
        (Self::Ended, "ended"),
        (Self::Retried, "retried"),
        (Self::ManyCancelled, "many-cancelled"),
        (Self::ManyRetried, "many-retried"),
        (Self::Partly, "partly"),
        (Self::StepRetried, "step-retried"),
        (Self::StepSkipped, "step-skipped"),
        (Self::WorkflowCancelled, "workflow-cancelled"),
        (Self::Enabled, "enabled"),
        (Self::Disabled, "disabled"),
        (Self::Triggered, "triggered"),
        (Self::Revoked, "revoked"),
    ];

    /// The word for it in an address.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(done, _)| *done == self).map_or("", |(_, word)| word)
    }

    /// What a word of an address stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(done, _)| *done)
    }

    /// The sentence.
    pub fn said(self, count: Option<u64>) -> String {
        let jobs = counted(count.unwrap_or(0), "job");
        match self {
            Self::LimitSet => "The limit is set. It counts from now on, everywhere.".into(),
            Self::LimitUnset => "The operator's limit is gone. The next source counts.".into(),
            Self::Released => "The slot is free. Its holder was told to stop.".into(),
            Self::Paused => "The queue is paused.".into(),
            Self::Resumed => "The queue gives out jobs again.".into(),
            Self::Cancelled => "The job is cancelled.".into(),
            Self::AskedToStop => "The job was asked to stop. It keeps its slots until it has.".into(),
            Self::Ended => "The job had ended already.".into(),
            Self::Retried => "The job is in line again.".into(),
            Self::ManyCancelled => format!("{jobs} cancelled or asked to stop."),
            Self::ManyRetried => format!("{jobs} in line again."),
            Self::Partly => format!("{jobs} done so far. More match: do it again to go on."),
            Self::StepRetried => "The step is in line again.".into(),
            Self::StepSkipped => "The step is skipped. The next one may start.".into(),
            Self::WorkflowCancelled => "The workflow is cancelled.".into(),
            Self::Enabled => "The schedule fires again.".into(),
            Self::Disabled => "The schedule fires no more.".into(),
            Self::Triggered => "The schedule's job is submitted.".into(),
            Self::Revoked => "The token is revoked. It is refused everywhere within seconds.".into(),
        }
    }
}
