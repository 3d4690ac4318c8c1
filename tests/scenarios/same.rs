//! Two runs under one seed write the same objects.

use std::time::Duration;

use gpudeck::app::embedded::World;
use gpudeck::app::stepped::Stepped;
use gpudeck::sandbox::{History, Time};

fn run(seed: u64) -> History {
    Stepped {
        world: World {
            seed,
            speed: 20.0,
            nodes: 24,
            time: Time::System,
        },
        length: Duration::from_secs(60),
        schedule: true,
    }
    .run()
    .unwrap()
}

#[test]
fn the_default_fleet() {
    let (a, b) = (run(42), run(42));
    let n = a.entries.len();
    for (i, (x, y)) in a.entries.iter().zip(&b.entries).enumerate() {
        assert_eq!(x, y, "{i} of {n}");
    }
    assert_eq!(a.digest, b.digest);
    let bound = a
        .entries
        .iter()
        .filter(|e| e.table.ends_with("/pods"))
        .count();
    eprintln!("{n} {bound} {}", a.digest);
    assert!(n > 1000, "{n}");
    assert_ne!(run(43).digest, a.digest);
}
