//! How close together the pods of a gang have to be, and want to be.

use super::fabric::Level;
use crate::model::{Meta, Reason, Str};

/// Annotation: `required=LEVEL`, `preferred=LEVEL`, or both parted by a comma.
pub(super) const TOPOLOGY: &str = "gpudeck.dev/topology";
/// Annotation: pods of a gang with the same value are a group that lies closer together.
pub(super) const SUBGROUP: &str = "gpudeck.dev/subgroup";
/// Annotation: the level that the pods of a sub-group share, like [`TOPOLOGY`].
pub(super) const SUBGROUP_TOPOLOGY: &str = "gpudeck.dev/subgroup-topology";

/// What a gang wishes. It always lies as close together as it can; `preferred` only tells whether
/// that is close enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Wish {
    /// All its pods share a domain of this level, or it waits.
    pub(super) required: Option<Level>,
    /// It would like them to.
    pub(super) preferred: Option<Level>,
}

impl Wish {
    /// What an annotation of a pod or Job says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_meta(meta: &Meta, key: &str, own: &[Str]) -> Result<Self, Reason> {
        let Some(text) = meta.annotation(key) else {
            return Ok(Self::default());
        };
        let wrong = || Reason::Unsupported {
            what: format!(
                "annotation {key}: {text:?} is not like required=leaf,preferred=clique; levels \
                 are node, clique, leaf, spine, core, tier-N, zone, region or a topology label"
            )
            .into(),
        };
        let mut wish = Self::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (kind, name) = part.split_once('=').unwrap_or(("required", part));
            let level = Level::from_name(name.trim(), own).ok_or_else(wrong)?;
            match kind.trim() {
                "required" => wish.required = Some(level),
                "preferred" => wish.preferred = Some(level),
                _ => return Err(wrong()),
            }
        }
        if wish == Self::default() {
            return Err(wrong());
        }
        Ok(wish)
    }
}
