//! Series in the timeline: one row for what happens to the pods of a workload one after the other.

use gpudeck::model::{Cluster, DecisionKind, Kind, Severity, SourceState};
use gpudeck::tui::view::{Target, View, ViewId};

use crate::fixture;
use crate::screen::{Stage, TRUE, text, view};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn told(cluster: &mut Cluster, name: &str, reason: &str, message: &str, age: i64) {
    let about = ("Pod", "train", name);
    let what = (reason, message);
    cluster.apply(&fixture::event(about, Severity::Normal, what, age, 1));
}

/// Twelve ranks are placed by us, twelve others by another scheduler; all start, one of them twice.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for rank in 0..12 {
        let node = NODES[rank / 4];
        let kind = DecisionKind::Placed {
            node: node.into(),
            why: "fullest leaf".into(),
        };
        cluster.apply(&fixture::decision(
            "train",
            &format!("llm-{rank}"),
            kind,
            600,
        ));
        let other = format!("job-{rank}-x7k2p");
        let message = format!("Successfully assigned train/{other} to {node}");
        told(&mut cluster, &other, "Scheduled", &message, 590);
        let age = 580 - 5 * i64::try_from(rank).unwrap();
        told(
            &mut cluster,
            &format!("llm-{rank}"),
            "Started",
            "Started container main",
            age,
        );
    }
    told(
        &mut cluster,
        "llm-3",
        "Started",
        "Started container main",
        520,
    );
    // Neighbours in time of another workload, and of another namespace's words.
    told(
        &mut cluster,
        "eval-1",
        "Started",
        "Started container main",
        555,
    );
    // What an autoscaler says of all that waits.
    for (ns, name) in [
        ("train", "nb-1"),
        ("train", "nb-2"),
        ("team-a", "run-0-x7k2p"),
    ] {
        let what = ("NotTriggerScaleUp", "pod didn't trigger scale-up");
        let about = ("Pod", ns, name);
        cluster.apply(&fixture::event(about, Severity::Normal, what, 500, 1));
    }
    for kind in Kind::ALL {
        cluster.apply(&fixture::source(kind, SourceState::Live));
    }
    cluster
}

fn timeline(stage: &Stage) -> (Box<dyn View>, String) {
    let mut timeline = view(ViewId::Timeline);
    let picture = text(&stage.draw(&mut *timeline, 140, 20));
    (timeline, picture)
}

#[test]
fn a_series_is_one_row_and_opens() {
    let stage = Stage::new(cluster(), TRUE);
    let (mut timeline, picture) = timeline(&stage);
    assert_eq!(timeline.count(), (6, 6), "{picture}");
    for words in [
        "12 pods of train/llm",
        "placed on 3 nodes: fullest leaf",
        "12 pods of train/job",
        "pod train/eval-1",
        // A pod that starts again is not one of the series.
        "pod train/llm-3",
        "3 pods, 2 workloads",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    // The filter finds what is inside.
    timeline.set_filter("ns=team-a").unwrap();
    stage.draw(&mut *timeline, 140, 20);
    assert_eq!(timeline.count(), (1, 6));
    timeline.set_filter("name=llm-7 what=placed").unwrap();
    stage.draw(&mut *timeline, 140, 20);
    assert_eq!(timeline.count(), (1, 6));
    let about = timeline
        .describe(&timeline.selected().unwrap(), &stage.ctx())
        .unwrap();
    let about: Vec<String> = about.iter().map(ToString::to_string).collect();
    assert!(
        about.iter().any(|l| l.contains("pod train/llm-11")),
        "{about:?}"
    );
    assert!(timeline.enter(), "it opens");
    let inside = text(&stage.draw(&mut *timeline, 140, 20));
    assert_eq!(timeline.count(), (12, 12), "{inside}");
    assert!(inside.contains("pod train/llm-11"), "{inside}");
    assert!(!timeline.enter(), "one of them does not open further");
    assert!(timeline.leave());
    stage.draw(&mut *timeline, 140, 20);
    assert_eq!(timeline.count(), (1, 6), "the filter is as it was");
}

#[test]
fn a_member_is_found_at_its_series_which_keeps_its_name_as_it_grows() {
    let stage = Stage::new(cluster(), TRUE);
    let (mut timeline, _) = timeline(&stage);
    let at = |age| fixture::ago(age);
    let member = Target::Decision(at(600), fixture::pod_uid("train", "llm-7"));
    assert!(timeline.select(&member));
    let first = Target::Decision(at(600), fixture::pod_uid("train", "llm-0"));
    assert_eq!(timeline.selected(), Some(first.clone()));
    let kind = DecisionKind::Placed {
        node: "n4".into(),
        why: "last".into(),
    };
    let mut grown = stage.cluster;
    grown.apply(&fixture::decision("train", "llm-12", kind, 570));
    let stage = Stage::new(grown, TRUE);
    let picture = text(&stage.draw(&mut *timeline, 140, 20));
    assert_eq!(timeline.selected(), Some(first));
    assert!(picture.contains("13 pods of train/llm"), "{picture}");
    assert!(picture.contains("placed on 4 nodes: last"), "{picture}");
}
