//! Every method of the service, and what a client may do when the answer to it is lost.

/// What a method does to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing: a client may ask again, anywhere.
    Looks,
    /// It may change something: a lost answer is `Unknown`.
    Changes,
}

/// A method of `qo.v1.Queue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Its name, as in the path `/qo.v1.Queue/Submit`.
    pub name: &'static str,
    /// What it does.
    pub effect: Effect,
}

macro_rules! methods {
    ($($effect:ident: $($name:ident)*;)*) => {
        /// Every method, in no particular order.
        pub const METHODS: &[Method] = &[$($(Method { name: stringify!($name), effect: Effect::$effect },)*)*];
    };
}

methods! {
    Looks: Handshake Now GetJob ListJobs Explain Work Watch GetLog ListGroups GetGroup ListQueues ListWorkers ListOver
        ListConfigurations ListPushes GetWorkflow ListWorkflows ListSchedules ListTokens ListAudit;
    Changes: Submit Cancel Retry ChangeMatching OpenSession Exchange Fetch Heartbeat CloseSession Sweep KeepLog SetLimit
        UnsetLimit PauseQueue ReleaseSlot AcquireSlots ExtendSlots ReturnSlots Register Configure SteerWorkflow
        EnableSchedule TriggerSchedule CreateToken RevokeToken Record;
}

/// The method of that name.
pub fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}
