//! Xid codes of NVIDIA's driver and SXid codes of NVSwitches: what they mean and what to do.
//!
//! Source: the public Xid catalogue (docs.nvidia.com/deploy/xid-errors, buckets as of October 2025)
//! and the fabric manager's lists of SXids. A code that no bucket is published for says so.

use XidClass::{App, Drain, Hardware, Ignore, Reboot, Reset, Unknown};

/// How bad a code is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum XidClass {
    /// Nothing is to be done.
    Ignore,
    /// The program on the GPU is at fault, or only it is hit.
    App,
    /// The GPU has to be reset.
    Reset,
    /// Work has to leave the node first.
    Drain,
    /// The node has to be restarted.
    Reboot,
    /// Hardware has to be looked at, or the vendor asked.
    Hardware,
    /// No bucket is published.
    Unknown,
}

/// A code with its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xid {
    /// The code.
    pub code: u32,
    /// Whether it is an NVSwitch's.
    pub switch: bool,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// How bad it is.
    pub class: XidClass,
}

/// From code, to code (both included), meaning, action, class; the first that holds a code wins.
#[rustfmt::skip]
const CATALOGUE: &[(u32, u32, &str, &str, XidClass)] = &[
    (8, 8, "GPU stopped processing in time", "restart the program", App),
    (13, 13, "graphics engine exception", "check the program; recurring on one GPU: run diagnostics", App),
    (31, 31, "MMU page fault", "check the program; recurring over programs: run diagnostics", App),
    (11, 11, "invalid push buffer", "restart and check the program", App),
    (25, 25, "invalid method", "restart and check the program", App),
    (32, 32, "invalid or corrupted push buffer stream", "restart and check the program", App),
    (37, 37, "FECS firmware error", "ignore; repeated: ask support", Ignore),
    (38, 38, "FECS firmware error", "ignore; repeated: ask support", Ignore),
    (39, 41, "copy engine exception", "restart the program", App),
    (43, 43, "channel reset after a program's fault", "none: the program has died", Ignore),
    (44, 44, "fault during a context switch", "ignore; repeated: ask support", Ignore),
    (45, 45, "preemptive channel removal", "look for the error before it; alone: restart the program", App),
    (46, 46, "GPU stopped processing", "reset the GPU", Reset),
    (48, 48, "double-bit ECC error", "drain, reset the GPU; follow 63, 64, 94 or 95 beside it", Drain),
    (54, 54, "auxiliary power is not connected", "check the power cables", Hardware),
    (62, 62, "internal microcontroller halted", "reset the GPU; recurring: ask support", Reset),
    (63, 63, "memory row remapped", "none now; it is active after the next reset", Ignore),
    (64, 64, "row remap failed", "drain, reset the GPU; recurring: replace it", Drain),
    (66, 67, "illegal access by the driver", "ignore; repeated: ask support", Ignore),
    (69, 69, "graphics engine class error", "restart and check the program", App),
    (70, 72, "copy engine exception", "restart the program", App),
    (74, 74, "NVLink error", "drain, check the link, reset the GPU; recurring: hardware", Drain),
    (75, 77, "copy engine exception", "restart the program", App),
    (78, 78, "vGPU start error", "update the software", Hardware),
    (79, 79, "GPU has fallen off the bus", "drain and reboot the node; recurring: check power and PCIe, replace", Reboot),
    (80, 80, "corrupted data sent to the GPU", "restart and check the program", App),
    (85, 85, "copy engine exception", "restart the program", App),
    (92, 92, "high rate of single-bit ECC errors", "none; watch it", Ignore),
    (93, 93, "InfoROM wear limit exceeded", "none; watch it", Ignore),
    (94, 94, "contained memory error", "restart the program; reset the GPU when it is free", App),
    (95, 95, "uncontained memory error", "drain, reset the GPU at once (all its MIG devices)", Drain),
    (106, 107, "SMBPBI test message", "none", Ignore),
    (109, 109, "context switch timed out", "reset the GPU; the device plugin does not see it", Reset),
    (110, 110, "security fault", "reset the GPU, look at the software", Reset),
    (119, 119, "GSP did not answer", "drain, reset the GPU; if that fails power-cycle the node", Drain),
    (120, 120, "GSP error", "drain, reset the GPU; if that fails power-cycle the node", Drain),
    (121, 121, "C2C link error, corrected", "none; watch it", Ignore),
    (126, 135, "copy engine exception", "restart the program", App),
    (136, 136, "link training failed", "reset the GPU", Reset),
    (137, 137, "NVLink privilege error", "look for the first GPU that failed", Drain),
    (140, 140, "unrecovered ECC error", "reset the GPU", Reset),
    (141, 141, "CUDA fast path", "none", Ignore),
    (142, 142, "video encoder error", "ask support", Hardware),
    (143, 143, "GPU initialisation failed", "reset the GPU", Reset),
    (144, 148, "NVLink 5 error", "nonfatal: none; fatal: reset the GPU", Reset),
    (149, 149, "NVLink 5: link down", "reset the GPU; check cable, peer and switch tray", Reset),
    (150, 150, "NVLink 5 error of the MSE", "reset the GPU", Reset),
    (151, 151, "key rotation (confidential computing)", "restart the virtual machine", Reboot),
    (152, 153, "DLA fault", "none", Ignore),
    (154, 154, "the GPU's recovery action changed", "do what the text says: reset, reboot, or drain and reset", Drain),
    (155, 155, "NVLink software error", "reset the GPU", Reset),
    (156, 156, "resource retired", "reset the GPU", Reset),
    (157, 157, "resource retirement failed", "ask support", Hardware),
    (158, 158, "GPU timed out fatally", "reset the GPU", Reset),
    (159, 159, "CHI error (Grace)", "check UVM", App),
    (160, 161, "channel retired", "none", Ignore),
    (162, 172, "power, link or memory hardware state", "no action is published: read the text", Unknown),
    (60, 60, "video engine or channel error", "restart the program", App),
    (68, 68, "video engine or channel error", "restart the program", App),
    (82, 84, "video engine or channel error", "restart the program", App),
    (86, 86, "video engine or channel error", "restart the program", App),
    (88, 89, "video engine or channel error", "restart the program", App),
    (96, 105, "video engine or channel error", "restart the program", App),
    (139, 139, "video engine or channel error", "restart the program", App),
];

/// SXids that end all work on the host's GPUs and switches.
const FATAL_SWITCH: [(u32, u32); 5] = [
    (10_003, 10_003),
    (12_020, 12_020),
    (22_003, 22_003),
    (22_011, 22_011),
    (23_001, 23_017),
];

/// SXids that hurt nothing.
#[rustfmt::skip]
const HARMLESS_SWITCH: [u32; 19] = [
    11_004, 11_012, 11_021, 11_022, 11_023, 12_021, 12_023, 12_028, 15_008, 15_011, 19_049, 19_084,
    20_001, 20_009, 20_012, 22_013, 24_001, 24_002, 24_003,
];

impl Xid {
    /// A code of the driver.
    pub fn of(code: u32) -> Self {
        let found = CATALOGUE
            .iter()
            .find(|(from, to, ..)| (*from..=*to).contains(&code));
        let (meaning, action, class) = found.map_or(
            (
                "a code that is in no published list",
                "read the driver's log",
                Unknown,
            ),
            |(_, _, meaning, action, class)| (*meaning, *action, *class),
        );
        Xid {
            code,
            switch: false,
            meaning,
            action,
            class,
        }
    }

    /// A code of an NVSwitch.
    pub fn of_switch(code: u32) -> Self {
        let fatal = FATAL_SWITCH
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&code));
        let harmless = HARMLESS_SWITCH.contains(&code);
        let (meaning, action, class) = if fatal {
            (
                "fatal NVSwitch error",
                "drain; reset all GPUs and switches of the host",
                Drain,
            )
        } else if harmless {
            (
                "NVSwitch error that hurts nothing",
                "none; it often follows a dead GPU",
                Ignore,
            )
        } else {
            (
                "NVSwitch error",
                "drain what uses that link, reset the GPUs on it",
                Drain,
            )
        };
        Xid {
            code,
            switch: true,
            meaning,
            action,
            class,
        }
    }

    /// The first code that a text names, in the forms that drivers and health agents write:
    /// `Xid (PCI:0000:5d:00): 48`, `XID-79`, `NvidiaXID79Error`, `ErrorCode:31`, `{"79":true}`.
    pub fn in_text(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        if let Some(at) = lower.find("sxid") {
            return number_after(lower.get(at + 4..)?).map(Xid::of_switch);
        }
        if let Some(at) = lower.find("xid") {
            return number_after(lower.get(at + 3..)?).map(Xid::of);
        }
        if let Some((_, rest)) = lower.split_once("errorcode:") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return digits.parse().ok().map(Xid::of);
        }
        None
    }

    /// The code that a condition's type, reason or message names. GKE writes the codes as a JSON
    /// object into the reason, NVSentinel in brackets in front of the message.
    pub fn in_condition(kind: &str, reason: &str, message: &str) -> Option<Self> {
        let about_xids = kind.to_ascii_lowercase().contains("xid");
        if about_xids && reason.trim_start().starts_with('{') {
            let code = reason.split('"').nth(1).and_then(|c| c.parse().ok());
            if let Some(code) = code {
                return Some(Xid::of(code));
            }
        }
        let in_front = message
            .trim_start()
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']')?.0.parse().ok());
        if about_xids && let Some(code) = in_front {
            return Some(Xid::of(code));
        }
        Xid::in_text(message).or_else(|| Xid::in_text(reason))
    }
}

/// The number that follows at once, or after the address of a device in brackets.
fn number_after(text: &str) -> Option<u32> {
    let mut rest = text.trim_start_matches([' ', '-', '_', ':', '=', '#']);
    if let Some(inner) = rest.strip_prefix('(') {
        rest = inner.split_once(')')?.1.trim_start_matches([' ', ':']);
    }
    // `XID errors: 79`, `XIDError`: a word, and then perhaps the number.
    let rest = rest
        .strip_prefix("errors")
        .or_else(|| rest.strip_prefix("error"))
        .unwrap_or(rest);
    let rest = rest.trim_start_matches([' ', ':', '=']);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_in_each_form() {
        for (text, wanted) in [
            (
                "NVRM: Xid (PCI:0000:5d:00): 48, pid='<unknown>'",
                Some((48, false)),
            ),
            ("detected XID-79 on the instance", Some((79, false))),
            ("NvidiaXID79Error", Some((79, false))),
            ("ErrorCode:31 PCI:0000:1a:00.0 kernel", Some((31, false))),
            ("XID errors: 94", Some((94, false))),
            ("Xid 119 on GPU 3", Some((119, false))),
            (
                "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal",
                Some((12_028, true)),
            ),
            ("no xids were seen", None),
            ("Successfully assigned team/pod-79 to node", None),
            ("Xid (PCI:0000", None),
        ] {
            let found = Xid::in_text(text).map(|x| (x.code, x.switch));
            assert_eq!(found, wanted, "{text}");
        }
        let gke = Xid::in_condition("XidCriticalError", "{\"79\":true}", "boot-id");
        assert_eq!(gke.map(|x| x.code), Some(79));
    }

    #[test]
    fn each_code_has_one_meaning_and_an_action() {
        for code in 0..=200 {
            let xid = Xid::of(code);
            assert!(!xid.meaning.is_empty() && !xid.action.is_empty());
        }
        assert_eq!(Xid::of(79).class, XidClass::Reboot);
        assert_eq!(Xid::of(94).class, XidClass::App);
        assert_eq!(Xid::of(999).class, XidClass::Unknown);
        assert_eq!(Xid::of_switch(23_005).class, XidClass::Drain);
        assert_eq!(Xid::of_switch(12_028).class, XidClass::Ignore);
    }
}
