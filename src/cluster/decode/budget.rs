//! PodDisruptionBudgets (policy/v1).

use super::constraints::{ExpressionRead, expressions};
use super::meta::MetaRead;
use super::read::{Ctx, Pairs, Word, object};
use crate::model::{DisruptionBudget, MatchExpression, Operator};

object! { LabelSelectorRead {
    labels: Pairs = "matchLabels",
    expressions: Vec<ExpressionRead> = "matchExpressions",
}}
object! { BudgetSpecRead {
    selector: Option<LabelSelectorRead> = "selector",
    unready: Word = "unhealthyPodEvictionPolicy",
}}
object! { BudgetStatusRead {
    allowed: i32 = "disruptionsAllowed",
    healthy: i32 = "currentHealthy",
    desired: i32 = "desiredHealthy",
}}
object! { BudgetRead {
    meta: MetaRead = "metadata",
    spec: BudgetSpecRead = "spec",
    status: BudgetStatusRead = "status",
}}

impl LabelSelectorRead {
    /// `None`: one of them cannot be read, so it is of no pod.
    fn finish(self, ctx: &mut Ctx<'_>) -> Option<Box<[MatchExpression]>> {
        let labels = self
            .labels
            .0
            .into_iter()
            .map(|(key, value)| MatchExpression {
                key,
                operator: Operator::In,
                values: [value].into(),
            });
        let more = expressions(self.expressions, "spec.selector", ctx)?;
        Some(labels.chain(more).collect())
    }
}

impl BudgetRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<DisruptionBudget, String> {
        Ok(DisruptionBudget {
            selector: self.spec.selector.and_then(|s| s.finish(ctx)),
            allowed: self.status.allowed.into(),
            healthy: self.status.healthy.into(),
            desired: self.status.desired.into(),
            unready_always_leave: &*self.spec.unready.0 == "AlwaysAllow",
            meta: self.meta.finish(ctx)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::cluster::decode::{Decoder, Object};
    use crate::model::{DisruptionBudget, Kind, Operator};

    fn read(rest: &str) -> DisruptionBudget {
        let json =
            format!(r#"{{"metadata": {{"name": "b", "namespace": "ns", "uid": "u"}}, {rest}}}"#);
        match Decoder::new().decode(Kind::Budget, &json).unwrap() {
            Object::Budget(budget) => (*budget).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_budget_is_read() {
        let b = read(
            r#""spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": {"app": "web"},
                    "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["dev"]}]}},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2,
                "disruptedPods": {"p": "2026-01-01T00:00:00Z"}}"#,
        );
        let selector = b.selector.as_deref().unwrap();
        let shown: Vec<(&str, Operator)> = selector.iter().map(|e| (&*e.key, e.operator)).collect();
        assert_eq!(shown, [("app", Operator::In), ("tier", Operator::NotIn)]);
        assert_eq!(b.rules(), (1, 3, 2, true));
        assert!(b.meta.unreadable.is_empty());
    }

    #[test]
    fn without_a_selector_it_is_of_no_pod_and_with_an_empty_one_of_all() {
        assert_eq!(read(r#""spec": {}"#).selector, None);
        let all = read(r#""spec": {"selector": {}}"#);
        assert_eq!(all.selector.as_deref(), Some(&[][..]));
        assert_eq!(all.rules(), (0, 0, 0, false), "nobody may leave unseen");
    }
}
