#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::collections::BTreeSet;

use super::*;

/// Shares of arrivals of 1g, 1g with double memory, 2g, 3g, 4g, 7g.
const MIX_B: [f64; 6] = [0.35, 0.08, 0.22, 0.15, 0.08, 0.12];

#[test]
fn free_slices_are_worth_what_the_reference_says() {
    let prices = Prices::new(&A100_80, &MIX_B);
    let golden = [
        (0x00, 1.0),
        (0x40, 0.8237),
        (0x01, 0.8627),
        (0x03, 0.7254),
        (0x0f, 0.4509),
        (0xf0, 0.5491),
        (0x41, 0.6864),
        (0xc0, 0.8237),
        (0xff, 0.0),
    ];
    for (mask, worth) in golden {
        let got = prices.free(mask);
        assert!((got - worth).abs() < 1e-3, "{mask:#04x}: {got} for {worth}");
    }
}

fn place(devices: &mut [Device], slot: Slot, profile: &Profile) {
    let device = &mut devices[slot.device];
    let window = profile.window(slot.start).unwrap();
    assert_eq!(device.mask & window, 0);
    device.mask |= window;
    device.running += 1;
    device.compute += profile.compute;
}

#[test]
fn placements_are_the_references() {
    let prices = Prices::new(&A100_80, &MIX_B);
    let profiles: Vec<&Profile> = A100_80.plain().collect();
    let mut devices = [Device::default(); 4];
    let golden = [
        (0, Some((0, 4))),
        (0, Some((0, 5))),
        (3, Some((1, 4))),
        (2, Some((0, 0))),
        (1, Some((0, 6))),
        (4, Some((1, 0))),
        (0, Some((0, 2))),
        (5, Some((2, 0))),
        (3, Some((3, 4))),
        (2, Some((3, 0))),
        (0, Some((0, 3))),
        (3, None),
        (1, Some((3, 2))),
    ];
    for (step, (q, wanted)) in golden.into_iter().enumerate() {
        let weights = scarcity(&prices, &MIX_B, &devices);
        let slot = choose(&prices, &weights, &devices, profiles[q]);
        assert_eq!(slot.map(|s| (s.device, s.start)), wanted, "arrival {step}");
        if let Some(slot) = slot {
            place(&mut devices, slot, profiles[q]);
        }
    }
}

/// Every mask that a legal layout of plain profiles leads to.
fn reachable(geometry: &Geometry) -> BTreeSet<Mask> {
    let mut seen = BTreeSet::new();
    let mut open = vec![0];
    while let Some(mask) = open.pop() {
        if seen.insert(mask) {
            let next = geometry.plain().flat_map(|p| p.free_starts(mask));
            open.extend(next.map(|(_, window)| mask | window));
        }
    }
    seen
}

#[test]
fn the_eight_slice_family_has_192_occupancies() {
    assert_eq!(reachable(&H200_141).len(), 192);
}

#[test]
fn every_table_is_sound() {
    for geometry in ALL {
        for profile in geometry.profiles {
            let most = if profile.has_media() {
                1
            } else {
                profile.copies(0)
            };
            assert_eq!(profile.most, most, "{} {}", geometry.model, profile.name);
            for start in profile.starts {
                let window = profile.window(*start).unwrap();
                assert_eq!(window & !geometry.full(), 0, "{}", profile.name);
                assert_eq!(window.count_ones(), u32::from(profile.mem_slices));
            }
            let whole = u32::from(profile.compute) * u32::from(profile.most);
            assert!(whole <= u32::from(geometry.compute), "{}", profile.name);
        }
        // Compute never binds: no legal mask holds more than the GPU has.
        let mut open = vec![(0, 0)];
        let mut seen = BTreeSet::new();
        while let Some((mask, compute)) = open.pop() {
            if !seen.insert((mask, compute)) {
                continue;
            }
            assert!(compute <= geometry.compute, "{}", geometry.model);
            for profile in geometry.plain() {
                open.extend(
                    profile
                        .free_starts(mask)
                        .map(|(_, window)| (mask | window, compute + profile.compute)),
                );
            }
        }
    }
}

#[test]
fn what_cannot_exist_says_why() {
    assert_eq!(
        H100_80.occupancy(&[("3g.40gb", 0), ("3g.40gb", 4)]),
        Ok(0xff)
    );
    assert_eq!(
        H100_80.occupancy(&[("3g.40gb", 4), ("2g.20gb", 0), ("2g.20gb", 2)]),
        Ok(0xff)
    );
    let why = |layout: &[(&str, u8)]| H100_80.occupancy(layout).unwrap_err().to_string();
    assert_eq!(
        why(&[("2g.20gb", 6)]),
        "2g.20gb on H100-80 may start at slices [0, 2, 4], not at 6"
    );
    assert_eq!(
        why(&[("4g.40gb", 0), ("3g.40gb", 0)]),
        "3g.40gb at slice 0 overlaps another instance"
    );
    assert!(why(&[("1g.10gb+me", 0), ("1g.10gb.me", 1)]).contains("may have 1 of"));
    assert!(why(&[("2g.12gb", 0)]).starts_with("H100-80 has no MIG profile \"2g.12gb\""));
}

#[test]
fn products_find_their_table() {
    let of = |product: &str, gib: u32| of_product(product, Some(gib * 1024)).map(|g| g.model);
    assert_eq!(of("NVIDIA-A100-SXM4-40GB", 40), Some("A100-40"));
    assert_eq!(of("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 80), Some("A100-80"));
    assert_eq!(of("NVIDIA H100 NVL", 94), Some("H100-94"));
    assert_eq!(of("NVIDIA-H100-80GB-HBM3", 80), Some("H100-80"));
    assert_eq!(of("NVIDIA GH200 480GB", 96), Some("GH200-96"));
    assert_eq!(of("NVIDIA-GH200-144G-HBM3e", 144), Some("GH200-144"));
    assert_eq!(
        of("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96),
        Some("RTX-PRO-6000-96")
    );
    assert_eq!(of("NVIDIA-RTX-6000-Ada-Generation", 48), None);
    assert_eq!(of("Tesla V100-SXM2-32GB", 32), None);
}

#[test]
fn the_baseline_fills_the_hole_that_fits() {
    let half = Device {
        mask: 0x0f,
        running: 1,
        compute: 4,
    };
    let devices = [Device::default(), half];
    let at = |name: &str| {
        let profile = A100_80.profile(name).unwrap();
        let slot = fragmentation_increment(&A100_80, &devices, profile);
        slot.map(|slot| (slot.device, slot.start))
    };
    assert_eq!(at("3g.40gb"), Some((1, 4)));
    assert_eq!(at("7g.80gb"), Some((0, 0)));
    let full = [half, half];
    let whole = A100_80.profile("4g.40gb").unwrap();
    assert_eq!(fragmentation_increment(&A100_80, &full, whole), None);
}
