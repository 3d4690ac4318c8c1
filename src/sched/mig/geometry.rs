//! What a MIG-capable GPU can be cut into: profiles, legal starts and occupancy, per model.
//!
//! Figures are NVIDIA's: `nvidia-smi mig -lgip` and `-lgipp`, the MIG user guide and mig-parted.
//! They are the fallback: what the node reports wins. Occupancy is a mask of memory slices, bit
//! `i` for slice `i`; compute never binds where the slices do not overlap.

/// Occupied memory slices of one GPU, bit `i` for slice `i`.
pub type Mask = u16;

/// A way to cut a slice out of one GPU model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// NVIDIA's name, e.g. `1g.10gb`.
    pub name: &'static str,
    /// Compute slices.
    pub compute: u8,
    /// Memory slices that it occupies in a row.
    pub mem_slices: u8,
    /// Memory slices at which it may start, ascending.
    pub starts: &'static [u8],
    /// The most instances on one GPU.
    pub most: u8,
    /// Memory that an instance offers in MiB; `None` where only the node can say.
    pub mem_mib: Option<u32>,
}

impl Profile {
    /// The slices it occupies when it starts at `start`; `None` when it may not start there.
    #[must_use]
    pub fn window(&self, start: u8) -> Option<Mask> {
        self.starts.contains(&start).then(|| self.bits(start))
    }

    fn bits(&self, start: u8) -> Mask {
        let size = 1u32
            .checked_shl(u32::from(self.mem_slices))
            .unwrap_or(0)
            .wrapping_sub(1);
        u16::try_from(size.checked_shl(u32::from(start)).unwrap_or(0) & 0xffff).unwrap_or(0)
    }

    /// Legal starts that are free under `mask`, ascending, each with its window.
    pub fn free_starts(&self, mask: Mask) -> impl Iterator<Item = (u8, Mask)> + '_ {
        self.starts
            .iter()
            .map(|start| (*start, self.bits(*start)))
            .filter(move |(_, window)| window & mask == 0)
    }

    /// Copies that still fit under `mask`, taking free windows from below.
    #[must_use]
    pub fn copies(&self, mask: Mask) -> u8 {
        let mut taken = mask;
        let mut copies = 0;
        for start in self.starts {
            let window = self.bits(*start);
            if window & taken == 0 {
                taken |= window;
                copies += 1;
            }
        }
        copies
    }

    /// It has the media engines and may exist once on a GPU, beside the plain profile.
    #[must_use]
    pub fn has_media(&self) -> bool {
        self.name.ends_with("+me")
    }
}

/// How one GPU model can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Short name of the model and its memory.
    pub model: &'static str,
    /// Memory slices.
    pub slices: u8,
    /// Compute slices.
    pub compute: u8,
    /// What it can be cut into, small to large; the media variant follows its plain profile.
    pub profiles: &'static [Profile],
}

/// Why a layout cannot exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The model does not know the profile.
    #[error("{model} has no MIG profile {profile:?}; it has {known}")]
    Unknown {
        /// The model.
        model: &'static str,
        /// What was asked for.
        profile: String,
        /// The names it has.
        known: String,
    },
    /// The profile may not start there.
    #[error("{profile} on {model} may start at slices {starts:?}, not at {start}")]
    Start {
        /// The model.
        model: &'static str,
        /// The profile.
        profile: &'static str,
        /// Where it may start.
        starts: &'static [u8],
        /// Where it was to start.
        start: u8,
    },
    /// Two instances want the same memory slice.
    #[error("{profile} at slice {start} overlaps another instance")]
    Overlap {
        /// The profile.
        profile: &'static str,
        /// Its start.
        start: u8,
    },
    /// More instances of a profile than a GPU may have.
    #[error("{model} may have {most} of {profile}, not {count}")]
    Count {
        /// The model.
        model: &'static str,
        /// The profile.
        profile: &'static str,
        /// The most there may be.
        most: u8,
        /// How many there are.
        count: usize,
    },
}

impl Geometry {
    /// The profile with this name; resource keys spell `+me` as `.me`, and both are read.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| {
            profile.name == name
                || (profile.has_media()
                    && name.strip_suffix(".me") == profile.name.strip_suffix("+me"))
        })
    }

    /// Profiles that placement is priced by: the media variant counts as its plain profile.
    pub fn plain(&self) -> impl Iterator<Item = &'static Profile> {
        self.profiles.iter().filter(|profile| !profile.has_media())
    }

    /// The mask with every slice taken.
    #[must_use]
    pub fn full(&self) -> Mask {
        u16::try_from((1u32 << self.slices.min(16)) - 1).unwrap_or(Mask::MAX)
    }

    /// Slices occupied by a layout of (profile, start).
    ///
    /// # Errors
    /// The layout cannot exist on this model; the error says which instance and why.
    pub fn occupancy(&self, layout: &[(&str, u8)]) -> Result<Mask, LayoutError> {
        let mut taken: Mask = 0;
        for (name, start) in layout {
            let profile = self.profile(name).ok_or_else(|| LayoutError::Unknown {
                model: self.model,
                profile: (*name).to_owned(),
                known: self.names(),
            })?;
            let window = profile.window(*start).ok_or(LayoutError::Start {
                model: self.model,
                profile: profile.name,
                starts: profile.starts,
                start: *start,
            })?;
            if window & taken != 0 {
                return Err(LayoutError::Overlap {
                    profile: profile.name,
                    start: *start,
                });
            }
            taken |= window;
            let alike = |other: &&(&str, u8)| self.profile(other.0) == Some(profile);
            let count = layout.iter().filter(alike).count();
            if count > usize::from(profile.most) {
                return Err(LayoutError::Count {
                    model: self.model,
                    profile: profile.name,
                    most: profile.most,
                    count,
                });
            }
        }
        Ok(taken)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.profiles.iter().map(|profile| profile.name).collect();
        names.join(", ")
    }
}
