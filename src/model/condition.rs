//! Conditions of nodes. Who writes them has not agreed on what True means.
//!
//! Sources: NVSentinel and node-problem-detector (True = fault), the EKS node monitoring agent
//! (`…Ready`: False = fault), AKS (True = fault), GKE (`XidCriticalError`), OKE
//! (`oci.oraclecloud.com/MaintenanceFault`), KEP-5683 and draino (steps of a drain), CoreWeave
//! (`CW…`, `PhaseState`: bookkeeping).

use jiff::Timestamp;

use super::text::Str;

/// A condition of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Type, e.g. `Ready`.
    pub kind: Str,
    /// `Some(true)` for True, `Some(false)` for False, `None` for Unknown or anything else.
    pub status: Option<bool>,
    /// Reason.
    pub reason: Str,
    /// Message.
    pub message: Str,
    /// When it last changed.
    pub changed: Option<Timestamp>,
}

/// What True means for a type of condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Polarity {
    /// True is good.
    Good,
    /// True is a fault.
    Bad,
    /// Neither is: a phase, a step, a plan.
    Told,
}

/// Ends of types that are good when True. `NotReady` and its like are not.
const GOOD_ENDS: [&str; 10] = [
    "Ready",
    "Health",
    "Healthy",
    "OK",
    "Ok",
    "Available",
    "Initialized",
    "Operational",
    "Passed",
    "Registered",
];

/// Words of types that tell of a fault, whatever else stands there.
const FAULT_WORDS: [&str; 10] = [
    "Fault",
    "Error",
    "Fail",
    "Xid",
    "XID",
    "Sxid",
    "SXID",
    "Problem",
    "Unhealthy",
    "Degraded",
];

/// Words of types that tell what is planned or under way: drains, maintenance, upgrades.
const TOLD_WORDS: [&str; 10] = [
    "Drain",
    "Maintenance",
    "Scheduled",
    "Planned",
    "InProgress",
    "Shutdown",
    "Upgrade",
    "Repair",
    "Reboot",
    "Cordon",
];

impl Polarity {
    fn of(kind: &str) -> Self {
        // A domain before the type tells who wrote it, not what it means.
        let name = kind.rsplit('/').next().unwrap_or(kind);
        let ends_well = GOOD_ENDS.iter().any(|end| {
            name.strip_suffix(end)
                .is_some_and(|rest| !rest.ends_with("Not"))
        });
        if ends_well {
            Polarity::Good
        } else if FAULT_WORDS.iter().any(|word| name.contains(word)) {
            Polarity::Bad
        } else if TOLD_WORDS.iter().any(|word| name.contains(word))
            || name.ends_with("State")
            || name.ends_with("Phase")
            || is_coreweave(name)
        {
            Polarity::Told
        } else {
            Polarity::Bad
        }
    }
}

/// `CWActive`, `CWRegistered`: bookkeeping of CoreWeave, which asks not to act on it.
fn is_coreweave(name: &str) -> bool {
    let rest = name.strip_prefix("CW").unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_uppercase())
}

impl Condition {
    /// Whether this condition tells of a fault, by what True means for its type: good for types
    /// that end in `Ready`, `Healthy` and the like; neither for phases, drains, maintenance and
    /// plans; a fault for all others. `None`: it tells of neither, or its status is not known.
    pub fn is_fault(&self) -> Option<bool> {
        match Polarity::of(&self.kind) {
            Polarity::Good => self.status.map(|status| !status),
            Polarity::Bad => self.status,
            Polarity::Told => None,
        }
    }

    /// Whether it tells of something planned or under way that is no fault: a drain, maintenance.
    pub fn is_notice(&self) -> bool {
        let name = self.kind.rsplit('/').next().unwrap_or(&self.kind);
        self.status == Some(true)
            && Polarity::of(&self.kind) == Polarity::Told
            && TOLD_WORDS.iter().any(|word| name.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_true_means() {
        let fault = |kind: &str, status| {
            let condition = Condition {
                kind: kind.into(),
                status,
                reason: "".into(),
                message: "".into(),
                changed: None,
            };
            (condition.is_fault(), condition.is_notice())
        };
        for (kind, when_true, notice) in [
            ("AcceleratedHardwareReady", Some(false), false),
            ("GPUHealth", Some(false), false),
            ("NotReady", Some(true), false),
            ("GpuXidError", Some(true), false),
            ("XIDErrors", Some(true), false),
            ("XidCriticalError", Some(true), false),
            ("GpuMemWatch", Some(true), false),
            ("SysLogsGPUFallenOff", Some(true), false),
            ("NVLinkStatusInactive", Some(true), false),
            ("GPUMissing", Some(true), false),
            ("KubeletUnhealthy", Some(true), false),
            ("NetworkUnavailable", Some(true), false),
            ("MemoryPressure", Some(true), false),
            ("oci.oraclecloud.com/MaintenanceFault", Some(true), false),
            ("CWRegistered", Some(false), false),
            ("CWActive", None, false),
            ("PhaseState", None, false),
            ("PendingPhaseState", None, false),
            ("DrainInProgress", None, true),
            ("Drained", None, true),
            ("MaintenancePlanned", None, true),
            ("GracefulNodeShutdownInProgress", None, true),
            ("NebiusMaintenanceScheduled", None, true),
            ("CSPMaintenance", None, true),
            ("VMEventScheduled", None, true),
            ("DrainScheduled", None, true),
        ] {
            assert_eq!(fault(kind, Some(true)), (when_true, notice), "{kind}");
            let when_false = when_true.map(|f| !f);
            assert_eq!(fault(kind, Some(false)), (when_false, false), "{kind}");
            assert_eq!(fault(kind, None), (None, false), "{kind}");
        }
    }
}
