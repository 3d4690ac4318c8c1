#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::model::Meta;

fn queue(name: &str, parent: Option<&str>, guaranteed: i64, limit: Option<i64>) -> Queue {
    Queue {
        meta: Meta {
            name: name.into(),
            ..Meta::default()
        },
        parent: parent.map(Into::into),
        namespaces: [name.into()].into(),
        terms: [QueueTerms {
            guaranteed_milli_gpu: guaranteed * 1_000,
            limit_milli_gpu: limit.map(|l| l * 1_000),
            ..QueueTerms::default()
        }]
        .into(),
        ..Queue::default()
    }
}

fn tree(queues: Vec<Queue>) -> Tree {
    let queues: Vec<Arc<Queue>> = queues.into_iter().map(Arc::new).collect();
    Tree::new(&queues, BTreeMap::new())
}

fn shares(tree: &Tree, gpus: i64, demand: &[(&str, i64)]) -> Vec<i64> {
    let mut wanted = vec![0; tree.len()];
    for (name, gpus) in demand {
        wanted[tree.by_name[*name].0] = gpus * GPU;
    }
    let share = tree.shares(0, gpus * GPU, &wanted, |q| tree.node(q).weight);
    share.iter().skip(1).map(|s| s / GPU).collect()
}

#[test]
fn guarantees_come_first_then_weights() {
    let heavy = Queue {
        weight: 2,
        ..queue("b", None, 3, None)
    };
    let t = tree(vec![queue("a", None, 5, None), heavy]);
    assert_eq!(shares(&t, 20, &[("a", 20), ("b", 20)]), [9, 11]);
    assert_eq!(
        shares(&t, 20, &[("a", 2), ("b", 20)]),
        [2, 18],
        "an idle guarantee is lent"
    );
    assert_eq!(
        shares(&t, 8, &[("a", 20), ("b", 20)]),
        [5, 3],
        "all is promised"
    );
    assert_eq!(
        shares(&t, 16, &[("a", 4), ("b", 20)]),
        [4, 12],
        "what one does not ask for"
    );
}

#[test]
fn a_limit_and_a_band_bound_the_share() {
    let first = Queue {
        band: 1,
        ..queue("first", None, 0, Some(3))
    };
    let t = tree(vec![queue("a", None, 0, None), first]);
    assert_eq!(shares(&t, 10, &[("a", 9), ("first", 9)]), [7, 3]);
}

#[test]
fn a_childs_guarantee_beyond_its_parents_gives_no_extra() {
    let t = tree(vec![
        queue("p", None, 2, None),
        queue("q", None, 2, None),
        queue("p1", Some("p"), 3, None),
        queue("p2", Some("p"), 1, None),
        queue("q1", Some("q"), 0, None),
    ]);
    let demand = [("p1", 9), ("p2", 9), ("q1", 9)];
    assert_eq!(shares(&t, 4, &demand)[..2], [2, 2]);
}

#[test]
fn what_makes_no_sense_is_told() {
    let negative = Queue {
        weight: -1,
        ..queue("neg", None, 0, None)
    };
    let mut t = tree(vec![
        queue("a", Some("b"), 1, None),
        queue("b", Some("a"), 1, None),
        queue("c", Some("nowhere"), 1, None),
        queue("d", Some("c"), 1, None),
        queue("self", Some("self"), 1, None),
        negative,
        queue("low", None, 5, Some(2)),
        queue("none", None, 0, Some(0)),
    ]);
    let words = |name: &str| t.fault(name).unwrap().to_owned();
    assert!(words("a").contains("a > b > a"), "{}", words("a"));
    assert!(words("b").contains("below itself"));
    assert_eq!(words("c"), "its parent nowhere does not exist");
    assert_eq!(words("d"), "its parent c cannot be used");
    assert!(words("self").contains("self > self"));
    assert!(words("neg").contains("-1 is negative"));
    assert!(words("low").contains("below the guarantee"));
    assert!(t.fault("none").is_none(), "a queue without GPUs is allowed");
    assert!(t.of_namespace(&"none".into()).is_ok());
    let why = t.of_namespace(&"a".into()).unwrap_err();
    assert!(why.starts_with("queue a: "), "{why}");
}

#[test]
fn a_namespace_is_in_one_queue_or_one_of_its_own() {
    let other = Queue {
        namespaces: ["a".into(), "x".into()].into(),
        ..queue("b", None, 0, None)
    };
    let mut t = tree(vec![queue("a", None, 0, None), other]);
    let why = t.of_namespace(&"a".into()).unwrap_err();
    assert!(why.contains("namespace a is in queues a and b"), "{why}");
    assert!(t.of_namespace(&"x".into()).is_err());
    let own = t.of_namespace(&"free".into()).unwrap();
    assert_eq!(t.of_namespace(&"free".into()), Ok(own));
    assert_eq!((&*t.node(own).name, t.node(own).parent), ("free", ROOT));
}

#[test]
fn queues_part_below_their_common_ancestor() {
    let t = tree(vec![
        queue("p", None, 0, None),
        queue("q", None, 0, None),
        queue("p1", Some("p"), 0, None),
        queue("p2", Some("p"), 0, None),
        queue("p11", Some("p1"), 0, None),
    ]);
    let id = |name: &str| t.by_name[name];
    let names = |a: &str, b: &str| {
        t.part(id(a), id(b))
            .map(|(a, b)| (t.node(a).name.to_string(), t.node(b).name.to_string()))
    };
    assert_eq!(names("p11", "p2"), Some(("p1".into(), "p2".into())));
    assert_eq!(names("q", "p11"), Some(("q".into(), "p".into())));
    assert_eq!(names("p11", "p"), None);
    assert_eq!(names("p1", "p1"), None);
    let up: Vec<_> = t
        .up(id("p11"))
        .map(|q| t.node(q).name.to_string())
        .collect();
    assert_eq!(up, ["p11", "p1", "p"]);
}

#[test]
fn a_model_that_some_queue_names_is_shared_apart() {
    let mut typed = queue("a", None, 4, None);
    let mut terms = typed.terms.to_vec();
    terms.push(QueueTerms {
        model: Some("H100-80".into()),
        guaranteed_milli_gpu: 2_000,
        ..QueueTerms::default()
    });
    typed.terms = terms.into();
    let t = tree(vec![typed, queue("b", None, 0, None)]);
    assert_eq!(t.pools(), 2);
    let (h100, rest) = (
        t.pool_of(Some("H100-80"), None),
        t.pool_of(Some("L40S"), None),
    );
    assert_eq!((h100, rest), (0, 1));
    assert_eq!(t.pool_of(None, Some(Tier::Spot)), 1);
    let a = t.node(t.by_name["a"]);
    assert_eq!(
        (a.due(h100).guaranteed, a.due(rest).guaranteed),
        (2 * GPU, 4 * GPU)
    );
}
