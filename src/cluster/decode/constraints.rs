//! Where a pod may run: selectors, tolerations, ports, claims, and what we cannot check.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ahash::{AHashMap, AHasher};

use serde::de::{IgnoredAny, MapAccess};

use super::read::{Ctx, Read, Word, object, quoted};
use crate::model::{
    Constraints, HostPort, MatchExpression, Operator, Selector, SelectorTerm, Str, TaintEffect,
    Toleration,
};

object! { ExpressionRead {
    key: Word = "key",
    operator: Word = "operator",
    values: Vec<Word> = "values",
}}

object! { TermRead {
    labels: Vec<ExpressionRead> = "matchExpressions",
    fields: Vec<ExpressionRead> = "matchFields",
}}

object! { SelectorRead {
    terms: Vec<TermRead> = "nodeSelectorTerms",
}}

pub(super) fn expressions(
    read: Vec<ExpressionRead>,
    at: &'static str,
    ctx: &mut Ctx<'_>,
) -> Option<Box<[MatchExpression]>> {
    read.into_iter()
        .map(|e| {
            let operator = match &*e.operator.0 {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                "Gt" => Operator::Gt,
                "Lt" => Operator::Lt,
                other => {
                    ctx.note_at(at, format_args!("{} is no operator", quoted(other)));
                    return None;
                }
            };
            Some(MatchExpression {
                key: e.key.0,
                operator,
                values: e.values.into_iter().map(|v| v.0).collect(),
            })
        })
        .collect()
}

impl SelectorRead {
    /// Terms that are empty match nothing and are left out, as are those that cannot be read.
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Selector {
        let mut terms = Vec::with_capacity(self.terms.len());
        for term in self.terms {
            let at = "spec.affinity";
            let (Some(labels), Some(fields)) = (
                expressions(term.labels, at, ctx),
                expressions(term.fields, at, ctx),
            ) else {
                continue;
            };
            if !(labels.is_empty() && fields.is_empty()) {
                terms.push(SelectorTerm { labels, fields });
            }
        }
        Selector {
            terms: terms.into(),
        }
    }
}

object! { RequiredNodes { required: Option<SelectorRead> = "requiredDuringSchedulingIgnoredDuringExecution" }}

/// An object whose content does not matter, only that it is there.
#[derive(Default)]
pub(super) struct Present;

impl<'de> Read<'de> for Present {
    const WANTED: &'static str = "an object";
    fn map<A: MapAccess<'de>>(
        &mut self,
        mut access: A,
        _ctx: &mut Ctx<'_>,
    ) -> Result<bool, A::Error> {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(true)
    }
}

object! { RequiredPods { required: Vec<Present> = "requiredDuringSchedulingIgnoredDuringExecution" }}
object! { AffinityRead {
    nodes: RequiredNodes = "nodeAffinity",
    pods: RequiredPods = "podAffinity",
    anti: RequiredPods = "podAntiAffinity",
}}
object! { TolerationRead {
    key: Word = "key",
    operator: Word = "operator",
    value: Word = "value",
    effect: Word = "effect",
}}
object! { SpreadRead { unsatisfiable: Word = "whenUnsatisfiable" }}
object! { ClaimRead { name: Word = "claimName" }}
object! { VolumeRead {
    name: Word = "name",
    claim: Option<ClaimRead> = "persistentVolumeClaim",
    ephemeral: Option<Present> = "ephemeral",
}}
object! { PortRead {
    port: Option<u16> = "hostPort",
    ip: Word = "hostIP",
    protocol: Word = "protocol",
}}

pub(super) fn taint_effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// A toleration that cannot be read is left out: the pod then tolerates less, never more.
fn tolerations(read: Vec<TolerationRead>, ctx: &mut Ctx<'_>) -> Box<[Toleration]> {
    let mut list = Vec::with_capacity(read.len());
    for t in read {
        let effect = match &*t.effect.0 {
            "" => None,
            text => match taint_effect(text) {
                Some(effect) => Some(effect),
                None => {
                    ctx.note_at(
                        "spec.tolerations",
                        format_args!("{} is no effect", quoted(text)),
                    );
                    continue;
                }
            },
        };
        let value = match &*t.operator.0 {
            "Exists" => None,
            "" | "Equal" => Some(t.value.0),
            other => {
                ctx.note_at(
                    "spec.tolerations",
                    format_args!("operator {} is not known", quoted(other)),
                );
                continue;
            }
        };
        list.push(Toleration {
            key: t.key.filled(),
            value,
            effect,
        });
    }
    list.into()
}

/// The parts of a pod's spec that say where it may run.
pub(super) struct Parts {
    pub(super) node_selector: Box<[(Str, Str)]>,
    pub(super) affinity: AffinityRead,
    pub(super) tolerations: Vec<TolerationRead>,
    pub(super) ports: Vec<PortRead>,
    pub(super) volumes: Vec<VolumeRead>,
    pub(super) spread: Vec<SpreadRead>,
    pub(super) resource_claims: Vec<Str>,
}

impl Parts {
    pub(super) fn finish(self, pod_name: &str, ctx: &mut Ctx<'_>) -> Constraints {
        let mut unsupported: Vec<Str> = Vec::new();
        if !self.resource_claims.is_empty() {
            let names = self.resource_claims.join(", ");
            unsupported.push(ctx.word(&format!("devices by resource claim (DRA): {names}")));
        }
        if !self.affinity.pods.required.is_empty() {
            unsupported.push(ctx.word("required pod affinity"));
        }
        if !self.affinity.anti.required.is_empty() {
            unsupported.push(ctx.word("required pod anti-affinity"));
        }
        if self
            .spread
            .iter()
            .any(|s| &*s.unsatisfiable.0 != "ScheduleAnyway")
        {
            unsupported.push(ctx.word("hard topology spread (DoNotSchedule)"));
        }
        let affinity = self.affinity.nodes.required.map(|s| s.finish(ctx));
        let tolerations = tolerations(self.tolerations, ctx);
        let mut host_ports: Vec<HostPort> = self
            .ports
            .into_iter()
            .filter_map(|p| {
                Some(HostPort {
                    port: p.port.filter(|n| *n > 0)?,
                    ip: p.ip.0,
                    protocol: p.protocol.filled().unwrap_or_else(|| ctx.word("TCP")),
                })
            })
            .collect();
        host_ports.sort();
        let claims = self
            .volumes
            .into_iter()
            .filter_map(|v| match (v.claim, v.ephemeral) {
                (Some(claim), _) => claim.name.filled(),
                // A generic ephemeral volume's claim is named after pod and volume.
                (None, Some(_)) => Some(ctx.word(&format!("{pod_name}-{}", v.name.0))),
                (None, None) => None,
            })
            .collect();
        Constraints {
            node_selector: self.node_selector,
            affinity,
            tolerations,
            host_ports: host_ports.into(),
            claims,
            unsupported: unsupported.into(),
        }
    }
}

/// Shares equal constraints: the pods of a gang have one.
#[derive(Default)]
pub(super) struct ConstraintsPool {
    known: AHashMap<u64, Arc<Constraints>>,
    sweep_at: usize,
}

impl ConstraintsPool {
    pub(super) fn share(&mut self, constraints: Constraints) -> Arc<Constraints> {
        let mut hasher = AHasher::default();
        constraints.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(known) = self.known.get(&hash).filter(|k| ***k == constraints) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at.max(1_024) {
            self.known.retain(|_, c| Arc::strong_count(c) > 1);
            self.sweep_at = self.known.len() * 2;
        }
        let new = Arc::new(constraints);
        self.known.insert(hash, new.clone());
        new
    }
}
