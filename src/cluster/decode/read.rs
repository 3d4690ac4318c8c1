//! Reading JSON into slim types in one pass, leniently: a field of the wrong type becomes a note
//! and the rest of the object is read.

use std::fmt;

use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::intern::Interner;
use crate::model::{Str, clean};

/// Longest name, in characters (a DNS subdomain's limit, which all names of Kubernetes keep).
pub(super) const NAME_CHARS: usize = 253;
/// Longest message, in characters.
pub(super) const MESSAGE_CHARS: usize = 1_024;
/// Notes kept of one object; a broken one would otherwise hold thousands.
const MAX_NOTES: usize = 16;

/// A step of the path to a field.
enum Step {
    Key(&'static str),
    Index(usize),
    /// A key of a map, such as a resource name.
    Entry(Str),
}

/// What is carried along while one object is read.
pub(super) struct Ctx<'i> {
    pub(super) interner: &'i mut Interner,
    path: Vec<Step>,
    notes: Vec<Str>,
    more: usize,
}

impl<'i> Ctx<'i> {
    pub(super) fn new(interner: &'i mut Interner) -> Self {
        Ctx {
            interner,
            path: Vec::new(),
            notes: Vec::new(),
            more: 0,
        }
    }

    /// Notes that the field at the current path cannot be read.
    pub(super) fn note(&mut self, what: impl fmt::Display) {
        if self.notes.len() >= MAX_NOTES {
            self.more += 1;
            return;
        }
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(key);
                }
                Step::Index(i) => text.push_str(&format!("[{i}]")),
                Step::Entry(key) => {
                    text.push(' ');
                    text.push_str(key);
                }
            }
        }
        text.push_str(&format!(": {what}"));
        self.notes.push(clean(&text, MESSAGE_CHARS).into());
    }

    /// Notes about a field, given from outside of it.
    pub(super) fn note_at(&mut self, key: &'static str, what: impl fmt::Display) {
        self.path.push(Step::Key(key));
        self.note(what);
        self.path.pop();
    }

    /// The notes, taken out.
    pub(super) fn take_notes(&mut self) -> Box<[Str]> {
        if self.more > 0 {
            self.notes
                .push(format!("and {} more fields", self.more).into());
        }
        std::mem::take(&mut self.notes).into()
    }

    /// The first note about a field below `root`.
    pub(super) fn first_note_below(&self, root: &str) -> Option<&Str> {
        self.notes.iter().find(|n| n.starts_with(root))
    }

    pub(super) fn word(&mut self, raw: &str) -> Str {
        self.interner.get(raw, NAME_CHARS)
    }

    /// Reads the value of entry `key` of a map into `slot`; whether it was of the right type.
    pub(super) fn entry<'de, A: MapAccess<'de>, T: Read<'de>>(
        &mut self,
        key: &Str,
        slot: &mut T,
        access: &mut A,
    ) -> Result<bool, A::Error> {
        self.path.push(Step::Entry(key.clone()));
        let accepted = access.next_value_seed(Slot(slot, self))?;
        self.path.pop();
        Ok(accepted)
    }
}

/// A shortened, quoted form of a refused text.
pub(super) fn quoted(raw: &str) -> String {
    format!("{:?}", &*clean(raw, 40))
}

/// A JSON number.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Signed(n) => write!(f, "{n}"),
            Number::Unsigned(n) => write!(f, "{n}"),
            Number::Float(n) => write!(f, "{n}"),
        }
    }
}

impl Number {
    fn whole(self) -> Option<i128> {
        match self {
            Number::Signed(n) => Some(n.into()),
            Number::Unsigned(n) => Some(n.into()),
            #[allow(clippy::cast_possible_truncation)]
            Number::Float(n) if n.fract() == 0.0 && n.abs() < 1e30 => Some(n as i128),
            Number::Float(_) => None,
        }
    }
}

/// A type that is read in place. Each method takes one JSON type and says whether it fits; what
/// is not implemented does not fit. `null` leaves the default, as Kubernetes means it.
pub(super) trait Read<'de>: Default {
    /// What is expected, for the note.
    const WANTED: &'static str;

    fn text(&mut self, _raw: &str, _ctx: &mut Ctx<'_>) -> bool {
        false
    }
    fn number(&mut self, _n: Number, _ctx: &mut Ctx<'_>) -> bool {
        false
    }
    fn boolean(&mut self, _value: bool) -> bool {
        false
    }
    fn list<A: SeqAccess<'de>>(
        &mut self,
        mut access: A,
        _ctx: &mut Ctx<'_>,
    ) -> Result<bool, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(false)
    }
    fn map<A: MapAccess<'de>>(
        &mut self,
        mut access: A,
        _ctx: &mut Ctx<'_>,
    ) -> Result<bool, A::Error> {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(false)
    }
}

/// Where a value goes.
pub(super) struct Slot<'a, 'i, T>(pub(super) &'a mut T, pub(super) &'a mut Ctx<'i>);

impl<'de, T: Read<'de>> DeserializeSeed<'de> for Slot<'_, '_, T> {
    /// Whether there was a value of the right type.
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Read<'de>> Slot<'_, '_, T> {
    fn checked(self, accepted: bool, found: impl fmt::Display) -> bool {
        if !accepted {
            self.1
                .note(format_args!("expected {}, found {found}", T::WANTED));
        }
        accepted
    }

    fn take_number(self, n: Number) -> bool {
        let accepted = self.0.number(n, self.1);
        self.checked(accepted, n)
    }
}

impl<'de, T: Read<'de>> Visitor<'de> for Slot<'_, '_, T> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WANTED)
    }
    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        let accepted = self.0.boolean(value);
        Ok(self.checked(accepted, value))
    }
    fn visit_i64<E>(self, n: i64) -> Result<bool, E> {
        Ok(self.take_number(Number::Signed(n)))
    }
    fn visit_u64<E>(self, n: u64) -> Result<bool, E> {
        Ok(self.take_number(Number::Unsigned(n)))
    }
    fn visit_f64<E>(self, n: f64) -> Result<bool, E> {
        Ok(self.take_number(Number::Float(n)))
    }
    fn visit_str<E>(self, raw: &str) -> Result<bool, E> {
        if self.0.text(raw, self.1) {
            return Ok(true);
        }
        Ok(self.checked(false, quoted(raw)))
    }
    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<bool, A::Error> {
        let accepted = self.0.list(access, self.1)?;
        Ok(self.checked(accepted, "a list"))
    }
    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<bool, A::Error> {
        let accepted = self.0.map(access, self.1)?;
        Ok(self.checked(accepted, "an object"))
    }
}

/// Looks a key up among those that are read.
pub(super) struct KeySeed(pub(super) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Option<(usize, &'static str)>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Option<(usize, &'static str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, raw: &str) -> Result<Self::Value, E> {
        Ok(self
            .0
            .iter()
            .enumerate()
            .find(|(_, k)| **k == raw)
            .map(|(at, k)| (at, *k)))
    }
}

/// Reads the fields of an object; `object!` generates the call.
pub(super) trait Fields<'de>: Default {
    const KEYS: &'static [&'static str];
    /// Reads the value of the key at this place of `KEYS`; `again` when it was read before.
    fn field<A: MapAccess<'de>>(
        &mut self,
        at: usize,
        again: bool,
        access: &mut A,
        ctx: &mut Ctx<'_>,
    ) -> Result<(), A::Error>;
}

/// Reads an object field by field: unknown keys are skipped, of a key stated twice the last
/// counts (as in the API server) and a note says so.
pub(super) fn read_object<'de, T: Fields<'de>, A: MapAccess<'de>>(
    slot: &mut T,
    mut access: A,
    ctx: &mut Ctx<'_>,
) -> Result<bool, A::Error> {
    let mut seen = 0_u64;
    while let Some(key) = access.next_key_seed(KeySeed(T::KEYS))? {
        let Some((at, key)) = key else {
            access.next_value::<IgnoredAny>()?;
            continue;
        };
        ctx.path.push(Step::Key(key));
        let bit = 1_u64 << (at % 64);
        let again = seen & bit != 0;
        if again {
            ctx.note("stated twice, the last one counts");
        }
        seen |= bit;
        slot.field(at, again, &mut access, ctx)?;
        ctx.path.pop();
    }
    Ok(true)
}

/// Declares a slim struct and how it is read: `field: Type = "jsonKey"`.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident { $($field:ident : $ty:ty = $key:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Default)]
        pub(super) struct $name { $(pub(super) $field: $ty),* }

        impl<'de> $crate::cluster::decode::read::Fields<'de> for $name {
            const KEYS: &'static [&'static str] = &[$($key),*];
            fn field<A: serde::de::MapAccess<'de>>(
                &mut self,
                at: usize,
                again: bool,
                access: &mut A,
                ctx: &mut $crate::cluster::decode::read::Ctx<'_>,
            ) -> Result<(), A::Error> {
                use $crate::cluster::decode::read::Slot;
                // Fields stand in the order of their keys.
                #[allow(non_camel_case_types)]
                enum At { $($field),* }
                match at {
                    $(at if at == At::$field as usize => {
                        // A fresh slot holds its default already.
                        if again {
                            self.$field = Default::default();
                        }
                        access.next_value_seed(Slot(&mut self.$field, ctx))?;
                    })*
                    _ => { access.next_value::<serde::de::IgnoredAny>()?; }
                }
                Ok(())
            }
        }

        impl<'de> $crate::cluster::decode::read::Read<'de> for $name {
            const WANTED: &'static str = "an object";
            fn map<A: serde::de::MapAccess<'de>>(
                &mut self,
                access: A,
                ctx: &mut $crate::cluster::decode::read::Ctx<'_>,
            ) -> Result<bool, A::Error> {
                $crate::cluster::decode::read::read_object(self, access, ctx)
            }
        }
    };
}
pub(super) use object;

impl<'de, T: Read<'de>> Read<'de> for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn text(&mut self, raw: &str, ctx: &mut Ctx<'_>) -> bool {
        let mut value = T::default();
        let accepted = value.text(raw, ctx);
        *self = accepted.then_some(value);
        accepted
    }
    fn number(&mut self, n: Number, ctx: &mut Ctx<'_>) -> bool {
        let mut value = T::default();
        let accepted = value.number(n, ctx);
        *self = accepted.then_some(value);
        accepted
    }
    fn boolean(&mut self, b: bool) -> bool {
        let mut value = T::default();
        let accepted = value.boolean(b);
        *self = accepted.then_some(value);
        accepted
    }
    fn list<A: SeqAccess<'de>>(&mut self, access: A, ctx: &mut Ctx<'_>) -> Result<bool, A::Error> {
        let mut value = T::default();
        let accepted = value.list(access, ctx)?;
        *self = accepted.then_some(value);
        Ok(accepted)
    }
    fn map<A: MapAccess<'de>>(&mut self, access: A, ctx: &mut Ctx<'_>) -> Result<bool, A::Error> {
        let mut value = T::default();
        let accepted = value.map(access, ctx)?;
        *self = accepted.then_some(value);
        Ok(accepted)
    }
}

impl<'de, T: Read<'de>> Read<'de> for Vec<T> {
    const WANTED: &'static str = "a list";

    fn list<A: SeqAccess<'de>>(
        &mut self,
        mut access: A,
        ctx: &mut Ctx<'_>,
    ) -> Result<bool, A::Error> {
        self.clear();
        for at in 0.. {
            let mut value = T::default();
            let before = ctx.notes.len() + ctx.more;
            ctx.path.push(Step::Index(at));
            let read = access.next_element_seed(Slot(&mut value, ctx))?;
            match read {
                Some(true) => self.push(value),
                Some(false) if ctx.notes.len() + ctx.more == before => {
                    ctx.note("null in a list");
                }
                _ => {}
            }
            ctx.path.pop();
            if read.is_none() {
                break;
            }
        }
        Ok(true)
    }
}

/// A text that repeats among objects: cleaned, at most 253 characters, shared.
#[derive(Default, Clone, PartialEq, Eq)]
pub(super) struct Word(pub(super) Str);

impl Word {
    pub(super) fn filled(self) -> Option<Str> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

impl Read<'_> for Word {
    const WANTED: &'static str = "a text";
    fn text(&mut self, raw: &str, ctx: &mut Ctx<'_>) -> bool {
        self.0 = ctx.word(raw);
        true
    }
}

/// A text of its own for each object: cleaned, at most 253 characters, not shared.
#[derive(Default)]
pub(super) struct Unique(pub(super) Str);

impl Read<'_> for Unique {
    const WANTED: &'static str = "a text";
    fn text(&mut self, raw: &str, _ctx: &mut Ctx<'_>) -> bool {
        self.0 = clean(raw, NAME_CHARS).into();
        true
    }
}

/// A message: cleaned, at most 1,024 characters, not shared.
#[derive(Default)]
pub(super) struct Message(pub(super) Str);

impl Read<'_> for Message {
    const WANTED: &'static str = "a text";
    fn text(&mut self, raw: &str, _ctx: &mut Ctx<'_>) -> bool {
        self.0 = clean(raw, MESSAGE_CHARS).into();
        true
    }
}

impl Read<'_> for bool {
    const WANTED: &'static str = "true or false";
    fn boolean(&mut self, value: bool) -> bool {
        *self = value;
        true
    }
}

macro_rules! integers {
    ($($ty:ty = $wanted:literal),*) => {$(
        impl Read<'_> for $ty {
            const WANTED: &'static str = $wanted;
            fn number(&mut self, n: Number, _ctx: &mut Ctx<'_>) -> bool {
                match n.whole().and_then(|n| <$ty>::try_from(n).ok()) {
                    Some(n) => { *self = n; true }
                    None => false,
                }
            }
        }
    )*};
}
integers!(
    i32 = "a whole number",
    u32 = "a whole number, not negative",
    u16 = "a port number"
);

impl Read<'_> for Timestamp {
    const WANTED: &'static str = "a date (like 2026-11-30T12:00:00Z)";
    fn text(&mut self, raw: &str, _ctx: &mut Ctx<'_>) -> bool {
        // A leap second is refused as Kubernetes' own parser refuses it.
        match raw.parse() {
            Ok(at) if !raw.contains(":60") => {
                *self = at;
                true
            }
            _ => false,
        }
    }
}

/// Labels, sorted by key; of a key stated twice the last counts.
#[derive(Default)]
pub(super) struct Pairs(pub(super) Box<[(Str, Str)]>);

impl<'de> Read<'de> for Pairs {
    const WANTED: &'static str = "an object of texts";
    fn map<A: MapAccess<'de>>(&mut self, access: A, ctx: &mut Ctx<'_>) -> Result<bool, A::Error> {
        self.0 = read_pairs(access, ctx, |_| true)?;
        Ok(true)
    }
}

/// Reads the text entries of a map whose key `keep` wants.
pub(super) fn read_pairs<'de, A: MapAccess<'de>>(
    mut access: A,
    ctx: &mut Ctx<'_>,
    keep: fn(&str) -> bool,
) -> Result<Box<[(Str, Str)]>, A::Error> {
    let mut pairs: Vec<(Str, Str)> = Vec::new();
    while let Some(key) = access.next_key_seed(EntryKey(ctx, keep))? {
        let Some(key) = key else {
            access.next_value::<IgnoredAny>()?;
            continue;
        };
        let mut value = LabelValue::default();
        if ctx.entry(&key, &mut value, &mut access)? {
            pairs.push((key, value.0));
        }
    }
    sort_last_wins(&mut pairs);
    Ok(pairs.into())
}

/// Sorts by key and keeps the last of each.
pub(super) fn sort_last_wins<V>(pairs: &mut Vec<(Str, V)>) {
    // Servers send maps sorted: nothing is to be done then.
    if pairs
        .iter()
        .zip(pairs.iter().skip(1))
        .all(|(a, b)| a.0 < b.0)
    {
        return;
    }
    pairs.reverse();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs.dedup_by(|a, b| a.0 == b.0);
}

/// The value of a label or kept annotation: shared, as long as a message may be.
#[derive(Default)]
struct LabelValue(Str);

impl Read<'_> for LabelValue {
    const WANTED: &'static str = "a text";
    fn text(&mut self, raw: &str, ctx: &mut Ctx<'_>) -> bool {
        self.0 = ctx.interner.get(raw, MESSAGE_CHARS);
        true
    }
}

/// The shared key of a map entry, `None` for one that is not wanted.
pub(super) struct EntryKey<'a, 'i>(pub(super) &'a mut Ctx<'i>, pub(super) fn(&str) -> bool);

impl<'de> DeserializeSeed<'de> for EntryKey<'_, '_> {
    type Value = Option<Str>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for EntryKey<'_, '_> {
    type Value = Option<Str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, raw: &str) -> Result<Self::Value, E> {
        Ok((self.1)(raw).then(|| self.0.word(raw)))
    }
}
