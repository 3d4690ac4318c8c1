#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::collections::BTreeMap;

use super::*;

fn model(number: usize) -> ModelId {
    ModelId::new(number).unwrap()
}

fn shape(cpu_milli: i64, gpus: u8, milli_gpu: u16) -> Shape {
    Shape {
        cpu_milli,
        mem_mib: 1024,
        gpus,
        milli_gpu,
        models: ModelSet::ANY,
    }
}

/// A small fleet of two models.
fn fleet() -> Fleet {
    let row = |i: usize| {
        let gpus = [8, 4, 2, 1][i % 4];
        NodeRow::empty(i64::from(gpus) * 12_000, 65_536, gpus, model(i % 3))
    };
    Fleet::new((0..24).map(row).collect())
}

fn shapes() -> Vec<Shape> {
    let mut shapes = vec![
        shape(4_000, 0, 0),
        shape(3_000, 1, 810),
        shape(4_000, 1, 220),
        shape(6_000, 1, 470),
        shape(11_000, 1, 1000),
        shape(8_000, 2, 1000),
        shape(30_000, 4, 1000),
        shape(64_000, 8, 1000),
    ];
    let typed = shapes[3];
    shapes.push(Shape {
        models: ModelSet::NONE.with(model(1)),
        ..typed
    });
    shapes
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from((self.0 >> 33) % n as u64).unwrap()
    }
}

fn policies() -> Vec<(&'static str, Box<dyn Policy>)> {
    let shapes = shapes();
    let named = || shapes.iter().map(|shape| (shape, ""));
    vec![
        ("ours", Box::new(GapPrice::known(Demand::of(&shapes), 24))),
        ("learning", Box::new(GapPrice::learning(24))),
        ("fgd", Box::new(by_score(Fgd::new(named())))),
        ("bestfit", Box::new(by_score(Baseline::BestFit))),
        ("dotprod", Box::new(by_score(Baseline::DotProduct))),
        ("packing", Box::new(by_score(Baseline::Packing))),
        ("clustering", Box::new(by_score(Baseline::clustering(24)))),
        ("least", Box::new(by_score(Baseline::KubeLeast))),
        ("most", Box::new(by_score(Baseline::KubeMost))),
        ("random", Box::new(Random::new(7))),
    ]
}

/// Arrivals and departures under a policy; says where each arrival went.
fn churn(policy: &mut dyn Policy, seed: u64, steps: usize) -> Vec<Option<Choice>> {
    let shapes = shapes();
    let (mut fleet, mut dice) = (fleet(), Dice(seed));
    let mut running: Vec<(Choice, Shape)> = Vec::new();
    let mut went = Vec::new();
    for _ in 0..steps {
        if !running.is_empty() && dice.below(5) < 2 {
            let (choice, shape) = running.swap_remove(dice.below(running.len()));
            fleet.remove(choice.node, &shape, choice.devices);
            policy.changed(choice.node, &shape, -1);
            continue;
        }
        let shape = shapes[dice.below(shapes.len())];
        policy.arrived(&fleet, &shape);
        let choice = policy.choose(&fleet, &shape);
        let fits = fleet.rows().iter().any(|row| row.fits(&shape));
        assert_eq!(
            choice.is_some(),
            fits,
            "a pod that fits somewhere is placed"
        );
        if let Some(choice) = choice {
            let row = &fleet.rows()[choice.node];
            assert!(row.fits(&shape));
            assert_eq!(choice.devices.count_ones(), u32::from(shape.gpus));
            for (device, free) in row.free().iter().enumerate() {
                assert!(choice.devices >> device & 1 == 0 || *free >= shape.milli_gpu);
            }
            assert_eq!(choice.devices >> row.gpus(), 0, "devices that the node has");
            fleet.place(choice.node, &shape, choice.devices);
            policy.changed(choice.node, &shape, 1);
            running.push((choice, shape));
        }
        went.push(choice);
    }
    // Taking everything out again leaves the fleet as it was.
    for (choice, shape) in running {
        fleet.remove(choice.node, &shape, choice.devices);
    }
    assert_eq!(fleet.rows(), self::fleet().rows());
    assert_eq!(fleet.free_milli_gpu(), self::fleet().free_milli_gpu());
    went
}

#[test]
fn nothing_is_over_committed_and_what_fits_is_placed() {
    for (name, mut policy) in policies() {
        let went = churn(policy.as_mut(), 3, 1_500);
        let placed = went.iter().flatten().count();
        assert!(placed > 300 && placed < went.len(), "{name}: {placed}");
    }
}

#[test]
fn the_same_input_gives_the_same_choices() {
    for ((name, mut one), (_, mut two)) in policies().into_iter().zip(policies()) {
        let (one, two) = (churn(one.as_mut(), 5, 600), churn(two.as_mut(), 5, 600));
        assert_eq!(one, two, "{name}");
    }
}

/// Scores everything anew for every pod.
struct Forgetful<S>(S);

impl<S: Scorer> Policy for Forgetful<S> {
    fn arrived(&mut self, fleet: &Fleet, shape: &Shape) {
        self.0.arrived(fleet, shape);
    }

    fn choose(&mut self, fleet: &Fleet, shape: &Shape) -> Option<Choice> {
        let mut best: Option<(Scored, usize)> = None;
        for (node, row) in fleet.rows().iter().enumerate() {
            if row.fits(shape)
                && let Some(scored) = self.0.score(fleet, node, row, shape)
                && best.is_none_or(|(best, _)| scored.key < best.key)
            {
                best = Some((scored, node));
            }
        }
        best.map(|(scored, node)| Choice {
            node,
            devices: scored.devices,
        })
    }

    fn changed(&mut self, node: usize, shape: &Shape, sign: i64) {
        self.0.changed(node, shape, sign);
    }
}

#[test]
fn remembered_scores_are_those_of_the_moment() {
    let demand = || Demand::of(&shapes());
    let pairs: [(Box<dyn Policy>, Box<dyn Policy>); 3] = [
        (
            Box::new(GapPrice::known(demand(), 24)),
            Box::new(Forgetful(ours::GapPrice::scorer(demand(), 24))),
        ),
        (
            Box::new(by_score(Baseline::KubeLeast)),
            Box::new(Forgetful(Baseline::KubeLeast)),
        ),
        (
            Box::new(by_score(Fgd::new(shapes().iter().map(|s| (s, ""))))),
            Box::new(Forgetful(Fgd::new(shapes().iter().map(|s| (s, ""))))),
        ),
    ];
    for (mut remembering, mut forgetful) in pairs {
        let kept = churn(remembering.as_mut(), 11, 1_500);
        assert_eq!(kept, churn(forgetful.as_mut(), 11, 1_500));
    }
}

#[test]
fn gaps_are_priced_at_the_vertex() {
    // Two halves of 500, or 650 with 350: the textbook case where 650 and 350 share a device.
    let demand = BTreeMap::from([(500, 10.0), (650, 4.0), (350, 4.0)]);
    let prices = GapPrices::new(&demand);
    let of = |milli: u16| prices.value(milli);
    assert!((of(1000) - 1.0).abs() < 1e-9);
    assert!((of(500) - 0.5).abs() < 1e-9, "{}", of(500));
    assert!((of(650) + of(350) - 1.0).abs() < 1e-9);
    assert!(
        of(349).abs() < 1e-9,
        "a gap that nobody fits into is worth nothing"
    );
    assert_eq!(GapPrices::new(&BTreeMap::new()).value(999), 0.0);
}

#[test]
fn a_shared_pod_closes_the_gap_that_others_cannot_use() {
    let wanted = [
        shape(1_000, 1, 600),
        shape(1_000, 1, 400),
        shape(1_000, 1, 1000),
    ];
    let mut policy = GapPrice::known(Demand::of(&wanted), 2);
    let mut fleet = Fleet::new(vec![
        NodeRow::empty(96_000, 65_536, 2, model(0)),
        NodeRow::empty(96_000, 65_536, 2, model(0)),
    ]);
    fleet.place(1, &wanted[0], 0b10);
    policy.arrived(&fleet, &wanted[1]);
    let choice = policy.choose(&fleet, &wanted[1]).unwrap();
    assert_eq!((choice.node, choice.devices), (1, 0b10));
}

#[test]
fn scarce_models_are_left_to_those_who_need_them() {
    let any = shape(1_000, 1, 1000);
    let picky = Shape {
        models: ModelSet::NONE.with(model(1)),
        ..any
    };
    let mut policy = GapPrice::known(Demand::of([&any, &any, &any, &picky]), 4);
    // The scarce node comes first in the order of preference.
    let mut rows = vec![NodeRow::empty(96_000, 65_536, 2, model(1))];
    rows.extend((0..3).map(|_| NodeRow::empty(96_000, 65_536, 8, model(0))));
    let fleet = Fleet::new(rows);
    policy.arrived(&fleet, &any);
    assert_ne!(policy.choose(&fleet, &any).unwrap().node, 0);
    policy.arrived(&fleet, &picky);
    assert_eq!(policy.choose(&fleet, &picky).unwrap().node, 0);
}

/// Two nodes of two devices, each with one device taken.
fn halves(policy: &mut dyn Policy) -> (Fleet, Vec<Vec<Resident>>) {
    let small = shape(1_000, 1, 1000);
    let mut fleet = Fleet::new(vec![
        NodeRow::empty(96_000, 65_536, 2, model(0)),
        NodeRow::empty(96_000, 65_536, 2, model(0)),
    ]);
    let mut residents = Vec::new();
    for node in 0..2 {
        fleet.place(node, &small, 0b01);
        policy.changed(node, &small, 1);
        residents.push(vec![Resident {
            id: node as u64,
            shape: small,
            devices: 0b01,
        }]);
    }
    (fleet, residents)
}

#[test]
fn others_are_moved_to_open_a_hole_only_if_each_fits_elsewhere() {
    let mut policy = by_score(Baseline::BestFit);
    let (mut fleet, residents) = halves(&mut policy);
    let pair = shape(1_000, 2, 1000);
    assert_eq!(policy.choose(&fleet, &pair), None);
    let (choice, moves) = make_room(&mut fleet, &mut policy, &residents, &pair, 8).unwrap();
    assert_eq!((choice.node, choice.devices), (0, 0b11));
    assert_eq!(moves.len(), 1);
    assert_eq!(
        (moves[0].from, moves[0].to.node, moves[0].to.devices),
        (0, 1, 0b10)
    );
    assert_eq!(fleet.free_milli_gpu(), 0);

    let untouched = || {
        let mut policy = by_score(Baseline::BestFit);
        let (fleet, residents) = halves(&mut policy);
        (policy, fleet, residents)
    };
    // With the other node full there is nowhere to go, and all is as it was.
    let (mut policy, mut fleet, residents) = untouched();
    fleet.place(1, &shape(1_000, 1, 1000), 0b10);
    let before = fleet.clone();
    assert_eq!(
        make_room(&mut fleet, &mut policy, &residents, &pair, 8),
        None
    );
    assert_eq!(fleet.rows(), before.rows());
    assert_eq!(fleet.free_milli_gpu(), before.free_milli_gpu());
    // No move allowed.
    let (mut policy, mut fleet, residents) = untouched();
    assert_eq!(
        make_room(&mut fleet, &mut policy, &residents, &pair, 0),
        None
    );
    // A model that no node has.
    let picky = Shape {
        models: ModelSet::NONE.with(model(1)),
        ..pair
    };
    assert_eq!(
        make_room(&mut fleet, &mut policy, &residents, &picky, 8),
        None
    );
}
