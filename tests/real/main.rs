//! The real-cluster suite: every case runs against a real Kubernetes control plane and against
//! the embedded cluster, with the same code and the same expectations. CONTRIBUTING.md says how
//! to run it.
//!
//! To add a case, write one `async fn name(server: &Server)` in a file under `cases/` and name
//! it in the list below. The cases of `shared` use one server of each kind, side by side, and
//! therefore work in a namespace of their own (`server.namespace`) or on objects with names of
//! their own; a case of `own` has a server to itself and may stop it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    // Figures, for who runs it with --nocapture.
    clippy::print_stdout
)]

mod cases;
mod servers;
// What the suite of the terminal drives the binary with; not all of it is needed here.
#[path = "../pty/term.rs"]
#[allow(dead_code)]
mod term;

use std::time::Duration;

use servers::{Kind, Server};

/// How long one case may take before it counts as hung.
const CASE_DEADLINE: Duration = Duration::from_secs(300);

macro_rules! cases {
    (shared: [$($file:ident::$case:ident),* $(,)?], own: [$($own_file:ident::$own_case:ident),* $(,)?]) => {
        cases!(@kind real, Real, [$($file::$case),*], [$($own_file::$own_case),*]);
        cases!(@kind embedded, Embedded, [$($file::$case),*], [$($own_file::$own_case),*]);
    };
    (@kind $module:ident, $kind:ident, [$($file:ident::$case:ident),*], [$($own_file:ident::$own_case:ident),*]) => {
        mod $module {
            use crate::{Kind, Server, cases, run};
            $(
                #[test]
                fn $case() {
                    run(Server::shared(Kind::$kind), cases::$file::$case);
                }
            )*
            $(
                #[test]
                fn $own_case() {
                    run(&Server::start(Kind::$kind), cases::$own_file::$own_case);
                }
            )*
        }
    };
}

cases! {
    shared: [
        objects::create_read_update_delete,
        objects::generated_names_are_unique,
        objects::stale_update_conflicts,
        objects::delete_with_wrong_uid_conflicts,
        objects::list_in_pages,
        objects::label_selectors,
        objects::delete_collection_takes_what_is_selected,
        objects::missing_namespace_is_named,
        objects::field_selectors,
        watches::watch_tells_each_change_in_order,
        watches::watch_with_selector_tells_who_leaves,
        watches::streamed_list_ends_with_a_marked_bookmark,
        watches::watch_ends_with_a_bookmark,
        nodes::new_node_is_tainted_not_ready,
        nodes::status_is_written_apart,
        nodes::strategic_patch_merges_conditions_by_type,
        custom::installed_kind_is_served,
        custom::missing_kind_is_told_from_missing_path,
        pods::binding_sets_the_node_once,
        pods::deletion_of_a_bound_pod_waits_for_its_node,
        pods::priority_comes_from_the_class,
        pods::eviction_obeys_the_disruption_budget,
        access::forbidden_says_who_what_and_where,
        access::role_opens_one_namespace,
        access::access_review_tells_before_the_act,
        access::unknown_token_is_unauthorized,
        access::audit_names_user_verb_and_resource,
        bad_input::an_expired_token_is_told,
        bad_input::a_user_without_rights_is_told_which,
        bad_input::a_user_of_one_namespace_sees_it_and_what_is_denied,
    ],
    own: [
        actors::a_world_is_played,
        inventory::each_pod_that_fits_is_bound_once,
        outage::everything_is_right_again_after_an_outage,
        samples::samples_are_kept_as_posted_and_shown,
        scheduling::one_leads_and_the_other_takes_over,
        scheduling::what_must_wait_waits_and_says_why,
        queues::reclaim_and_preemption_are_proven_before_anybody_leaves,
        read_only::a_read_only_run_writes_nothing,
        bad_input::odd_objects_are_shown_for_what_they_are,
        gpu::a_node_is_cut_by_its_label,
        figures::the_command_prints_the_models_figures,
        watches::compacted_version_is_gone,
        restarts::data_survives_a_restart,
        restarts::watcher_recovers_after_a_restart,
    ]
}

/// Runs one case on a runtime of its own, within `CASE_DEADLINE`.
fn run(server: &Server, case: impl AsyncFn(&Server)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let within =
        runtime.block_on(async { tokio::time::timeout(CASE_DEADLINE, case(server)).await });
    assert!(
        within.is_ok(),
        "the case did not end within {CASE_DEADLINE:?}"
    );
}
