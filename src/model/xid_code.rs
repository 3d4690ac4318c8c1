//! The codes of NVIDIA's driver (Xid) and of NVSwitches (SXid) that texts name, with their meaning.
//!
//! Sources: [`super::xid`], and the fabric manager's lists of SXids. Forms of the texts: the
//! driver's log, NVSentinel, node-problem-detector, the EKS monitoring agent, GKE and AKS.

use super::xid::{self, XidClass};

/// A code with its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XidCode {
    /// The code.
    pub code: u32,
    /// Whether it is an NVSwitch's.
    pub switch: bool,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// How bad it is; `None`: nothing is published of it.
    pub class: Option<XidClass>,
}

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

impl XidCode {
    /// A code of the driver.
    pub fn of(code: u32) -> Self {
        let known = xid::of(code);
        XidCode {
            code,
            switch: false,
            meaning: known.map_or("a code that is in no published list", |x| x.meaning),
            action: known.map_or("read the driver's log", |x| x.action),
            class: known.map(|x| x.class),
        }
    }

    /// A code of an NVSwitch.
    pub fn of_switch(code: u32) -> Self {
        let fatal = FATAL_SWITCH
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&code));
        let harmless = HARMLESS_SWITCH.contains(&code);
        let (meaning, action, class) = if fatal {
            let action = "drain; reset all GPUs and switches of the host";
            ("fatal NVSwitch error", action, XidClass::Node)
        } else if harmless {
            let action = "none; it often follows a dead GPU";
            (
                "NVSwitch error that hurts nothing",
                action,
                XidClass::Ignore,
            )
        } else {
            let action = "drain what uses that link, reset the GPUs on it";
            ("NVSwitch error", action, XidClass::Gpu)
        };
        XidCode {
            code,
            switch: true,
            meaning,
            action,
            class: Some(class),
        }
    }

    /// The first code that a text names, in the forms that drivers and health agents write:
    /// `Xid (PCI:0000:5d:00): 48`, `XID-79`, `NvidiaXID79Error`, `ErrorCode:31`, `{"79":true}`.
    pub fn in_text(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        if let Some(at) = lower.find("sxid") {
            return number_after(lower.get(at + 4..)?).map(XidCode::of_switch);
        }
        if let Some(at) = lower.find("xid") {
            return number_after(lower.get(at + 3..)?).map(XidCode::of);
        }
        if let Some((_, rest)) = lower.split_once("errorcode:") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return digits.parse().ok().map(XidCode::of);
        }
        None
    }

    /// The code that a condition's type, reason or message names. GKE writes the codes as a JSON
    /// object into the reason.
    pub fn in_condition(kind: &str, reason: &str, message: &str) -> Option<Self> {
        let about_xids = kind.to_ascii_lowercase().contains("xid");
        // NVSentinel: `[79] text - RecommendedAction: …`.
        if let Some((codes, _)) = message.strip_prefix('[').and_then(|m| m.split_once(']'))
            && about_xids
            && let Some(code) = codes.split(',').next().and_then(|c| c.trim().parse().ok())
        {
            return Some(XidCode::of(code));
        }
        if about_xids && reason.trim_start().starts_with('{') {
            let code = reason.split('"').nth(1).and_then(|c| c.parse().ok());
            if let Some(code) = code {
                return Some(XidCode::of(code));
            }
        }
        XidCode::in_text(message).or_else(|| XidCode::in_text(reason))
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
            let found = XidCode::in_text(text).map(|x| (x.code, x.switch));
            assert_eq!(found, wanted, "{text}");
        }
        let gke = XidCode::in_condition("XidCriticalError", "{\"79\":true}", "boot-id");
        assert_eq!(gke.map(|x| x.code), Some(79));
        let sentinel = "[94, 63] memory error - RecommendedAction: NONE";
        let sentinel = XidCode::in_condition("GpuXidError", "", sentinel);
        assert_eq!(sentinel.map(|x| x.code), Some(94));
    }

    #[test]
    fn switches_have_codes_of_their_own() {
        assert_eq!(XidCode::of(79).class, Some(XidClass::Node));
        assert_eq!(XidCode::of(999_999).class, None);
        assert_eq!(XidCode::of_switch(23_005).class, Some(XidClass::Node));
        assert_eq!(XidCode::of_switch(12_028).class, Some(XidClass::Ignore));
    }
}
