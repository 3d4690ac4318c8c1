//! Any collection of the API as a list: asked for, shown, asked again.

use super::sample::{Desk, now};
use crate::tui::app::{Cmd, Msg};
use crate::tui::browse::{Ask, BrowseRow, Listing, NoListing, ResourceRef};
use crate::tui::view::ViewId;

fn resource(group: &str, plural: &str, kind: &str, namespaced: bool) -> ResourceRef {
    ResourceRef {
        group: group.into(),
        version: "v1beta1".into(),
        plural: plural.into(),
        kind: kind.into(),
        namespaced,
        listable: true,
    }
}

fn offer() -> Msg {
    let token = ResourceRef {
        listable: false,
        ..resource(
            "authentication.k8s.io",
            "tokenreviews",
            "TokenReview",
            false,
        )
    };
    let resources = vec![
        resource("kueue.x-k8s.io", "clusterqueues", "ClusterQueue", false),
        resource("kueue.x-k8s.io", "workloads", "Workload", true),
        resource("scheduling.k8s.io", "workloads", "Workload", true),
        token,
    ];
    Msg::Resources {
        generation: 0,
        result: Ok((resources, vec!["broken.example/v1: no answer".into()])),
    }
}

fn row(namespace: &str, name: &str) -> BrowseRow {
    BrowseRow {
        namespace: namespace.into(),
        name: name.into(),
        created: Some(now()),
        unreadable: "".into(),
    }
}

/// Opens the palette, takes the offer and chooses what is typed.
fn choose(desk: &mut Desk, typed: &str) -> Ask {
    desk.press(":");
    desk.tell(offer());
    desk.typed(typed);
    match desk.press("enter").as_slice() {
        [Cmd::Browse(ask)] => ask.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_palette_asks_once_and_offers_every_resource() {
    let mut desk = Desk::of_nodes(3);
    assert_eq!(desk.press(":"), [Cmd::ListResources { generation: 0 }]);
    desk.typed("workloads");
    desk.tell(offer());
    let screen = desk.screen();
    for name in ["workloads.kueue.x-k8s.io", "workloads.scheduling.k8s.io"] {
        assert!(screen.contains(name), "{screen}");
    }
    desk.press("esc");
    assert_eq!(desk.press(":"), [], "what is known is not asked for again");
    desk.typed("tokenrev");
    assert_eq!(
        desk.press("enter"),
        [],
        "what cannot be listed is not asked for"
    );
    assert!(desk.screen().contains("the API does not list it"));
}

#[test]
fn loading_rows_empty_denied_and_broken_never_look_alike() {
    let mut desk = Desk::of_nodes(3);
    let ask = choose(&mut desk, "clusterqueues");
    assert!(
        desk.screen()
            .contains("waiting for clusterqueues.kueue.x-k8s.io")
    );
    let answer = |desk: &mut Desk, result| {
        desk.press("ctrl-r");
        let ask = desk.app.world().browse.ask.clone().unwrap();
        desk.tell(Msg::Browsed { ask, result });
        desk.screen()
    };
    desk.tell(Msg::Browsed {
        ask,
        result: Ok(Listing {
            rows: vec![row("", "team-a"), row("", "team-b")],
            notes: vec!["item 3 is no object".into()],
        }),
    });
    let screen = desk.screen();
    for text in ["team-a", "team-b", "item 3 is no object"] {
        assert!(screen.contains(text), "{text} in {screen}");
    }
    let empty = answer(&mut desk, Ok(Listing::default()));
    assert!(empty.contains("would show clusterqueues"), "{empty}");
    let denied = answer(&mut desk, Err(NoListing::Denied("forbidden (403)".into())));
    assert!(denied.contains("denied: list clusterqueues"), "{denied}");
    let failed = answer(&mut desk, Err(NoListing::Failed("timed out".into())));
    assert!(failed.contains("no answer: list clusterqueues"), "{failed}");
    assert!(failed.contains("timed out"), "{failed}");
}

#[test]
fn only_the_answer_to_the_latest_question_is_shown() {
    let mut desk = Desk::of_nodes(3);
    let first = choose(&mut desk, "clusterqueues");
    desk.press("ctrl-r");
    desk.tell(Msg::Browsed {
        ask: first.clone(),
        result: Err(NoListing::Failed("late".into())),
    });
    assert!(desk.screen().contains("waiting for"));
    let other = Ask {
        generation: 7,
        ..desk.app.world().browse.ask.clone().unwrap()
    };
    desk.tell(Msg::Browsed {
        ask: other,
        result: Ok(Listing {
            rows: vec![row("", "from-elsewhere")],
            notes: Vec::new(),
        }),
    });
    assert!(!desk.screen().contains("from-elsewhere"));
}

#[test]
fn rows_are_filtered_and_give_their_yaml_by_their_own_group() {
    let mut desk = Desk::of_nodes(3);
    let ask = choose(&mut desk, "workloads.kueue");
    assert_eq!(&*ask.resource.group, "kueue.x-k8s.io");
    desk.tell(Msg::Browsed {
        ask,
        result: Ok(Listing {
            rows: vec![row("ns", "one"), row("ns", "two")],
            notes: Vec::new(),
        }),
    });
    desk.screen();
    desk.press("/");
    desk.typed("two");
    desk.press("enter");
    let screen = desk.screen();
    assert!(
        screen.contains("two") && !screen.contains("one "),
        "{screen}"
    );
    let asked = desk.press("y");
    let [Cmd::FetchObject(object)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!((&*object.name, &*object.namespace), ("two", "ns"));
    let group = object.resource.as_ref().map(|r| &*r.group);
    assert_eq!(group, Some("kueue.x-k8s.io"));
    assert_eq!(desk.app.view().map(|v| v.id()), Some(ViewId::Browse));
    let again = desk.press("ctrl-r");
    assert_eq!(again, asked, "an open object is fetched again");
}

#[test]
fn a_switch_of_namespace_asks_again_and_one_of_context_forgets() {
    let mut desk = Desk::of_nodes(3);
    let ask = choose(&mut desk, "workloads.kueue");
    assert_eq!(ask.namespace, None);
    desk.press("n");
    desk.typed("team-x");
    let cmds = desk.press("enter");
    let asked = cmds.iter().find_map(|c| match c {
        Cmd::Browse(ask) => Some(ask.namespace.clone()),
        _ => None,
    });
    assert_eq!(asked, Some(Some("team-x".into())), "{cmds:?}");
    let session = crate::tui::session::Session {
        generation: 1,
        ..desk.app.world().session.clone()
    };
    desk.tell(Msg::Session(session));
    assert_ne!(desk.app.view().map(|v| v.id()), Some(ViewId::Browse));
    assert!(desk.app.world().browse.resources.is_empty());
}

#[test]
fn sources_and_unreadable_objects_are_told() {
    let mut desk = Desk::of_nodes(3);
    desk.deltas(vec![crate::model::Delta::Unreadable {
        kind: crate::model::Kind::Pod,
        what: "pods: ns/broken has no UID".into(),
    }]);
    assert!(desk.screen().contains("1 unreadable"));
    desk.app.give(crate::tui::command::CommandId::Unreadable);
    assert!(desk.screen().contains("ns/broken has no UID"));
    desk.press("esc");
    desk.app.give(crate::tui::command::CommandId::Sources);
    let screen = desk.screen();
    assert!(
        screen.contains("nodes") && screen.contains("live"),
        "{screen}"
    );
    let mut desk = Desk::empty();
    desk.app.give(crate::tui::command::CommandId::Sources);
    assert!(desk.screen().contains("not asked for yet"));
}
