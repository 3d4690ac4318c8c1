//! Pictures of each view, at three sizes and in four kinds of terminal.

use gpudeck::tui::view::ViewId;

use crate::fixture;
use crate::screen::{LOOKS, Stage, TRUE, styles, text, view};

/// What is left for the view of a terminal of 80x24, 120x40 and 200x60.
const SIZES: [(u16, u16); 3] = [(80, 18), (120, 34), (200, 54)];

#[test]
fn each_view_at_each_size_in_each_kind_of_terminal() {
    for id in ViewId::ALL {
        for look in LOOKS {
            let stage = Stage::new(fixture::cluster(), look);
            for (width, height) in SIZES {
                let buf = stage.draw(&mut *view(id), width, height);
                let name = format!("{}-{width}-{}", id.name(), look.name);
                insta::assert_snapshot!(name.clone(), text(&buf));
                // Where colours stand does not depend on the size: one map a look is enough.
                if width == 120 {
                    insta::assert_snapshot!(format!("{name}-styles"), styles(&buf));
                }
            }
        }
    }
}

#[test]
fn a_fleet_of_1200_nodes_fits_one_screen() {
    for look in LOOKS {
        let stage = Stage::new(fixture::large(1200), look);
        let buf = stage.draw(&mut *view(ViewId::Fleet), 120, 34);
        insta::assert_snapshot!(format!("fleet-1200-nodes-{}", look.name), text(&buf));
    }
}

#[test]
fn one_who_may_see_pods_only() {
    let stage = Stage::new(fixture::namespace_only(), TRUE);
    for id in ViewId::ALL {
        let buf = stage.draw(&mut *view(id), 120, 20);
        insta::assert_snapshot!(format!("{}-pods-only", id.name()), text(&buf));
    }
}
