//! What NVIDIA's driver means by an Xid, and what to do.
//!
//! Source: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) and gpud's buckets of it.

/// How bad an Xid is for the GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum XidClass {
    /// Nothing is wrong with the GPU.
    Ignore,
    /// The program that ran on it failed.
    App,
    /// The GPU needs a reset, or somebody to look.
    Gpu,
    /// The node has to be drained and restarted, or the GPU replaced.
    Node,
}

/// An Xid in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xid {
    /// What happened.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// How bad it is.
    pub class: XidClass,
}

const fn xid(class: XidClass, meaning: &'static str, action: &'static str) -> Xid {
    Xid {
        meaning,
        action,
        class,
    }
}

const RESTART: &str = "restart the program";
const RESET: &str = "drain and reset the GPU";

/// The words for an Xid; `None` for one that the catalogue does not name.
pub fn of(code: u32) -> Option<Xid> {
    use XidClass::{App, Gpu, Ignore, Node};
    Some(match code {
        8 => xid(App, "GPU stopped processing (timeout)", RESTART),
        11 | 25 | 32 | 69 | 80 => xid(App, "invalid push buffer, method or class", RESTART),
        13 => xid(
            App,
            "graphics engine exception",
            "restart the program; on one GPU again and again: diagnose it",
        ),
        31 => xid(
            App,
            "MMU page fault",
            "a bug of the program; over several programs: diagnose the GPU",
        ),
        37 | 38 | 44 | 66 | 67 => xid(
            Ignore,
            "firmware or context fault",
            "watch; repeated: support",
        ),
        39..=41 | 70..=72 | 75..=77 | 85 | 126..=135 => xid(App, "copy engine exception", RESTART),
        43 => xid(Ignore, "channel reset after a fault of the program", "none"),
        45 => xid(
            Ignore,
            "pre-emptive channel removal",
            "look for what came before it",
        ),
        46 => xid(Gpu, "GPU stopped processing", "reset the GPU"),
        48 => xid(Gpu, "double-bit ECC error", RESET),
        54 => xid(Gpu, "auxiliary power not connected", "check the cables"),
        60 | 68 | 82..=84 | 86 | 88 | 89 | 96..=105 | 139 => {
            xid(App, "video engine or channel error", RESTART)
        }
        62 => xid(
            Gpu,
            "internal microcontroller halt",
            "reset the GPU; again: support",
        ),
        63 => xid(
            Gpu,
            "memory row remapping recorded",
            "pending until the GPU is reset",
        ),
        64 => xid(
            Node,
            "memory row remapping FAILED",
            "drain, reset; replace the GPU",
        ),
        74 => xid(Gpu, "NVLink error", RESET),
        78 => xid(App, "vGPU start error", "update the software"),
        79 => xid(
            Node,
            "GPU has fallen off the bus",
            "drain and reboot the node",
        ),
        92 => xid(Ignore, "high rate of single-bit ECC errors", "watch"),
        93 => xid(Ignore, "InfoROM wear limit exceeded", "watch"),
        94 => xid(
            App,
            "contained memory error",
            "restart the program; reset the GPU when idle",
        ),
        95 => xid(
            Gpu,
            "uncontained ECC error",
            "drain and reset the GPU at once",
        ),
        106 | 107 | 141 => xid(Ignore, "test message", "none"),
        109 => xid(Gpu, "context switch timeout", "reset the GPU"),
        110 => xid(Gpu, "security fault", "reset the GPU, check the software"),
        119 | 120 => xid(
            Node,
            "GSP does not answer",
            "drain, reset; if that fails power-cycle the node",
        ),
        121 => xid(Ignore, "C2C link error, corrected", "watch"),
        136 => xid(Gpu, "link training failed", "reset the GPU"),
        137 => xid(
            Gpu,
            "NVLink privilege error",
            "look for the peer that failed first",
        ),
        140 => xid(Gpu, "unrecovered ECC error", "reset the GPU"),
        143 => xid(Gpu, "GPU initialisation failed", "reset the GPU"),
        144..=150 => xid(
            Gpu,
            "NVLink 5 error",
            "fatal: reset the GPU; link down: check cable and peer",
        ),
        151 => xid(App, "key rotation failed", "restart the virtual machine"),
        154 => xid(Gpu, "recovery action changed", "do what its text says"),
        155 | 156 | 158 => xid(Gpu, "fault of NVLink, resources or time", "reset the GPU"),
        157 => xid(Gpu, "retirement of a resource failed", "support"),
        _ => return None,
    })
}
