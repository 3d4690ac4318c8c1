//! Exact amounts: what a pod asks, and what a node still has.
//!
//! Sums are 128 bits wide, so that giving back what was taken restores the state exactly even
//! when a cluster states absurd quantities.

use std::collections::BTreeMap;

use super::gpus::WHOLE;
use super::needs::Share;
use crate::model::{Constraints, GpuResource, HostPort, Pod, Resources, Str};

/// What a pod asks of a node. Negative requests, which no server accepts, count as zero.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Ask {
    pub(super) cpu_milli: i64,
    pub(super) mem_bytes: i64,
    pub(super) ephemeral_bytes: i64,
    /// Extended resources above zero, sorted by key.
    pub(super) extended: Box<[(Str, i64)]>,
    /// Host ports in their full form.
    pub(super) ports: Box<[HostPort]>,
    /// A part of one device.
    pub(super) share: Share,
    /// Which of the extended resources is the first kind of GPU, whether that is whole devices, and
    /// how many of those are asked for: asked of each node.
    gpu: Option<usize>,
    is_whole: bool,
    whole: i64,
}

impl Ask {
    pub(super) fn new(requests: &Resources, constraints: &Constraints, share: Share) -> Self {
        let wanted = requests.extended.iter().filter(|(_, n)| *n > 0);
        let extended: Box<[(Str, i64)]> = wanted.cloned().collect();
        let gpu = extended
            .iter()
            .position(|(key, _)| GpuResource::from_key(key).is_some());
        let first = gpu.and_then(|at| extended.get(at));
        let whole = extended.iter().find(|(key, _)| **key == *WHOLE);
        Self {
            share,
            gpu,
            is_whole: first.is_some_and(|(key, _)| **key == *WHOLE),
            whole: whole.map_or(0, |(_, n)| *n),
            cpu_milli: requests.cpu_milli.max(0),
            mem_bytes: requests.mem_bytes.max(0),
            ephemeral_bytes: requests.ephemeral_bytes.max(0),
            extended,
            ports: constraints
                .host_ports
                .iter()
                .filter(|p| p.port > 0)
                .map(full_port)
                .collect(),
        }
    }

    pub(super) fn of_pod(pod: &Pod) -> Self {
        Self::new(&pod.requests, &pod.constraints, Share::of_pod(pod))
    }

    /// Whole devices, or what a node gives out by their name.
    pub(super) fn whole(&self) -> i64 {
        self.whole
    }

    /// The first kind of GPU among what it asks for, and how many.
    pub(super) fn gpu(&self) -> Option<(&Str, i64)> {
        let (key, n) = self.extended.get(self.gpu?)?;
        Some((key, *n))
    }

    /// Whole devices are the first kind.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// A wide sum as an amount, saturating.
pub(super) fn narrow(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// Fills in the defaults of a host port: every address, TCP.
fn full_port(port: &HostPort) -> HostPort {
    let or = |text: &Str, default: &str| {
        if text.is_empty() {
            default.into()
        } else {
            text.clone()
        }
    };
    HostPort {
        ip: or(&port.ip, EVERY_ADDRESS),
        protocol: or(&port.protocol, "TCP"),
        port: port.port,
    }
}

const EVERY_ADDRESS: &str = "0.0.0.0";

/// What is left on a node: allocatable minus what its pods ask. Below zero when more is bound
/// than the node (now) offers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Room {
    pub(super) cpu_milli: i128,
    pub(super) mem_bytes: i128,
    pub(super) ephemeral_bytes: i128,
    /// Pods that may still come.
    pub(super) pods: i128,
    /// Extended resources sorted by key; zeros are not stored, so equal rooms compare equal.
    extended: Vec<(Str, i128)>,
    /// Host ports in use and by how many pods.
    ports: BTreeMap<HostPort, u32>,
}

impl Room {
    /// What is left of an extended resource.
    pub(super) fn extended(&self, key: &str) -> i128 {
        self.extended
            .binary_search_by(|(k, _)| (**k).cmp(key))
            .ok()
            .and_then(|at| self.extended.get(at))
            .map_or(0, |(_, n)| *n)
    }

    fn add_extended(&mut self, key: &Str, amount: i128) {
        match self.extended.binary_search_by(|(k, _)| k.cmp(key)) {
            Ok(at) => {
                let left = self.extended.get_mut(at).map(|(_, n)| {
                    *n += amount;
                    *n
                });
                if left == Some(0) {
                    self.extended.remove(at);
                }
            }
            Err(_) if amount == 0 => {}
            Err(at) => self.extended.insert(at, (key.clone(), amount)),
        }
    }

    /// Adds (`sign` 1) or takes away (`sign` -1) what a node offers.
    pub(super) fn offer(&mut self, allocatable: &Resources, sign: i128) {
        self.cpu_milli += sign * i128::from(allocatable.cpu_milli);
        self.mem_bytes += sign * i128::from(allocatable.mem_bytes);
        self.ephemeral_bytes += sign * i128::from(allocatable.ephemeral_bytes);
        self.pods += sign * i128::from(allocatable.pods);
        for (key, n) in &allocatable.extended {
            self.add_extended(key, sign * i128::from(*n));
        }
    }

    fn count(&mut self, ask: &Ask, sign: i128) {
        self.cpu_milli += sign * i128::from(ask.cpu_milli);
        self.mem_bytes += sign * i128::from(ask.mem_bytes);
        self.ephemeral_bytes += sign * i128::from(ask.ephemeral_bytes);
        self.pods += sign;
        for (key, n) in &ask.extended {
            self.add_extended(key, sign * i128::from(*n));
        }
    }

    /// A pod comes.
    pub(super) fn take(&mut self, ask: &Ask) {
        self.count(ask, -1);
        for port in &ask.ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
    }

    /// A pod that was taken in goes: the exact inverse of [`Room::take`].
    pub(super) fn give(&mut self, ask: &Ask) {
        self.count(ask, 1);
        for port in &ask.ports {
            if let Some(n) = self.ports.get_mut(port) {
                *n -= 1;
                if *n == 0 {
                    self.ports.remove(port);
                }
            }
        }
    }

    /// No more than this of anything is left.
    pub(super) fn cap(&mut self, most: &Room) {
        self.cpu_milli = self.cpu_milli.min(most.cpu_milli);
        self.mem_bytes = self.mem_bytes.min(most.mem_bytes);
        self.ephemeral_bytes = self.ephemeral_bytes.min(most.ephemeral_bytes);
        self.pods = self.pods.min(most.pods);
        for (key, left) in &mut self.extended {
            *left = (*left).min(most.extended(key));
        }
        self.extended.retain(|(_, left)| *left != 0);
        for (port, n) in &most.ports {
            let here = self.ports.entry(port.clone()).or_default();
            *here = (*here).max(*n);
        }
    }

    /// Whether one of the wanted ports is in use; a port on every address meets each address.
    pub(super) fn has_port_conflict(&self, wanted: &[HostPort]) -> bool {
        !self.ports.is_empty()
            && wanted.iter().any(|w| {
                self.ports.keys().any(|used| {
                    used.port == w.port
                        && used.protocol == w.protocol
                        && (used.ip == w.ip
                            || &*used.ip == EVERY_ADDRESS
                            || &*w.ip == EVERY_ADDRESS)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ip: &str, protocol: &str, port: u16) -> HostPort {
        HostPort {
            ip: ip.into(),
            protocol: protocol.into(),
            port,
        }
    }

    fn ask(ports: &[HostPort]) -> Ask {
        let constraints = Constraints {
            host_ports: ports.into(),
            ..Constraints::default()
        };
        let mut requests = Resources {
            cpu_milli: i64::MAX,
            mem_bytes: -5,
            ..Resources::default()
        };
        requests.set_extended(&"nvidia.com/gpu".into(), 3);
        requests.set_extended(&"rdma/ib".into(), -1);
        Ask::new(&requests, &constraints, Share::None)
    }

    #[test]
    fn ports_meet_by_address_protocol_and_number() {
        for (used, wanted, conflict) in [
            (port("", "", 80), port("10.0.0.1", "TCP", 80), true),
            (port("10.0.0.1", "TCP", 80), port("0.0.0.0", "", 80), true),
            (port("10.0.0.1", "TCP", 80), port("10.0.0.1", "", 80), true),
            (
                port("10.0.0.1", "TCP", 80),
                port("10.0.0.2", "TCP", 80),
                false,
            ),
            (port("", "UDP", 80), port("", "TCP", 80), false),
            (port("", "TCP", 80), port("", "TCP", 81), false),
            (port("", "TCP", 0), port("", "TCP", 0), false),
        ] {
            let mut room = Room::default();
            room.take(&ask(std::slice::from_ref(&used)));
            let wanted = ask(std::slice::from_ref(&wanted));
            assert_eq!(
                room.has_port_conflict(&wanted.ports),
                conflict,
                "{used:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn giving_back_is_exact_even_for_absurd_amounts() {
        let mut room = Room::default();
        room.offer(
            &Resources {
                cpu_milli: i64::MIN,
                ..Resources::default()
            },
            1,
        );
        let before = room.clone();
        let a = ask(&[port("", "", 80)]);
        for _ in 0..3 {
            room.take(&a);
        }
        assert_ne!(room, before);
        for _ in 0..3 {
            room.give(&a);
        }
        assert_eq!(room, before);
        assert_eq!(
            a.extended.len(),
            1,
            "a negative request is not a gift to the node"
        );
        assert_eq!(a.mem_bytes, 0);
    }
}
