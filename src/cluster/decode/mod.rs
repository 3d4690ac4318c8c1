//! From the server's JSON to the slim types of the model: one pass, cleaned, interned, tolerant.
//!
//! A field that has the wrong type or an absurd value is noted in [`Meta::unreadable`] and the
//! rest is read; only an object without a name and UID is refused as a whole.

mod amounts;
mod budget;
mod claim;
mod constraints;
mod gpu_node;
mod group;
mod intern;
mod meta;
mod node;
mod pod;
mod queue;
mod read;
mod repair;
mod small;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _};
use serde_json::Value;

use super::adapt;

use self::constraints::ConstraintsPool;
use self::intern::Interner;
pub(in crate::cluster) use self::queue::READY;
use self::read::{Ctx, Read, Slot};
use crate::model::{
    Change, Delta, DisruptionBudget, Event, Foreign, ForeignKind, Gone, GpuNode, Job, Kind, Meta,
    Namespace, Node, Pod, PriorityClass, Queue, ResourceClaim, Str, VolumeClaim, VolumeTopology,
    clean,
};

/// A decoded object of any watched kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A node.
    Node(Arc<Node>),
    /// A pod.
    Pod(Arc<Pod>),
    /// A namespace.
    Namespace(Arc<Namespace>),
    /// A Job.
    Job(Arc<Job>),
    /// An Event.
    Event(Arc<Event>),
    /// A priority class.
    PriorityClass(Arc<PriorityClass>),
    /// A PersistentVolumeClaim.
    VolumeClaim(Arc<VolumeClaim>),
    /// A PersistentVolume.
    Volume(Arc<VolumeTopology>),
    /// An object of another system.
    Foreign(ForeignKind, Arc<Foreign>),
    /// A ResourceClaim.
    ResourceClaim(Arc<ResourceClaim>),
    /// A GpuQueue.
    Queue(Arc<Queue>),
    /// A PodDisruptionBudget.
    Budget(Arc<DisruptionBudget>),
    /// A GpuNode.
    GpuNode(Arc<GpuNode>),
}

impl Object {
    /// Its identity.
    pub fn meta(&self) -> &Meta {
        match self {
            Object::Node(o) => &o.meta,
            Object::Pod(o) => &o.meta,
            Object::Namespace(o) => &o.meta,
            Object::Job(o) => &o.meta,
            Object::Event(o) => &o.meta,
            Object::PriorityClass(o) => &o.meta,
            Object::VolumeClaim(o) => &o.meta,
            Object::Volume(o) => &o.meta,
            Object::Foreign(_, o) => &o.meta,
            Object::ResourceClaim(o) => &o.meta,
            Object::Queue(o) => &o.meta,
            Object::Budget(o) => &o.meta,
            Object::GpuNode(o) => &o.meta,
        }
    }

    /// The delta that says it exists.
    pub fn into_set(self) -> Delta {
        match self {
            Object::Node(o) => Delta::Node(Change::Set(o)),
            Object::Pod(o) => Delta::Pod(Change::Set(o)),
            Object::Namespace(o) => Delta::Namespace(Change::Set(o)),
            Object::Job(o) => Delta::Job(Change::Set(o)),
            Object::Event(o) => Delta::Event(Change::Set(o)),
            Object::PriorityClass(o) => Delta::PriorityClass(Change::Set(o)),
            Object::VolumeClaim(o) => Delta::VolumeClaim(Change::Set(o)),
            Object::Volume(o) => Delta::Volume(Change::Set(o)),
            Object::Foreign(kind, o) => Delta::Foreign(kind, Change::Set(o)),
            Object::ResourceClaim(o) => Delta::ResourceClaim(Change::Set(o)),
            Object::Queue(o) => Delta::Queue(Change::Set(o)),
            Object::Budget(o) => Delta::Budget(Change::Set(o)),
            Object::GpuNode(o) => Delta::GpuNode(Change::Set(o)),
        }
    }

    /// The delta that says it is gone.
    pub fn to_gone(&self) -> Delta {
        let meta = self.meta();
        let gone = Gone {
            uid: meta.uid.clone(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
        };
        match self {
            Object::Node(_) => Delta::Node(Change::Gone(gone)),
            Object::Pod(_) => Delta::Pod(Change::Gone(gone)),
            Object::Namespace(_) => Delta::Namespace(Change::Gone(gone)),
            Object::Job(_) => Delta::Job(Change::Gone(gone)),
            Object::Event(_) => Delta::Event(Change::Gone(gone)),
            Object::PriorityClass(_) => Delta::PriorityClass(Change::Gone(gone)),
            Object::VolumeClaim(_) => Delta::VolumeClaim(Change::Gone(gone)),
            Object::Volume(_) => Delta::Volume(Change::Gone(gone)),
            Object::Foreign(kind, _) => Delta::Foreign(*kind, Change::Gone(gone)),
            Object::ResourceClaim(_) => Delta::ResourceClaim(Change::Gone(gone)),
            Object::Queue(_) => Delta::Queue(Change::Gone(gone)),
            Object::Budget(_) => Delta::Budget(Change::Gone(gone)),
            Object::GpuNode(_) => Delta::GpuNode(Change::Gone(gone)),
        }
    }
}

/// The identity of an object of any kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowMeta {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// Creation.
    pub created: Option<Timestamp>,
    /// What of its metadata could not be read.
    pub unreadable: Box<[Str]>,
}

/// Decodes objects; holds the texts and constraints that they share.
#[derive(Default)]
pub struct Decoder {
    interner: Interner,
    pool: ConstraintsPool,
}

impl Decoder {
    /// A decoder that knows no texts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one object of `kind` from its JSON text.
    ///
    /// # Errors
    /// In words: the text is no JSON object, or the object has no name or UID.
    pub fn decode(&mut self, kind: Kind, json: &str) -> Result<Object, Str> {
        let read = match self.attempt(kind, json) {
            Ok(read) => read,
            // Sound in structure, but with a number or escape that no strict parser takes.
            Err(_) => match self.attempt(kind, &repair::repair(json)) {
                Ok(read) => read,
                Err(e) => Err(format!("not readable as JSON: {e}")),
            },
        };
        read.map_err(|why| refusal(kind, &why))
    }

    /// Reads the identity of an object of any kind.
    ///
    /// # Errors
    /// In words: the text is no JSON object, or the object has no name.
    pub fn row(&mut self, json: &str) -> Result<RowMeta, Str> {
        let read = match self.attempt_row(json) {
            Ok(read) => read,
            Err(_) => match self.attempt_row(&repair::repair(json)) {
                Ok(read) => read,
                Err(e) => Err(format!("not readable as JSON: {e}")),
            },
        };
        read.map_err(|why| clean(&why, 400).into())
    }

    fn attempt_row(&mut self, json: &str) -> Result<Result<RowMeta, String>, serde_json::Error> {
        let mut ctx = Ctx::new(&mut self.interner);
        Ok(read_one::<meta::AnyRead>(json, &mut ctx)?.and_then(|o| o.meta.row(&mut ctx)))
    }

    fn attempt(
        &mut self,
        kind: Kind,
        json: &str,
    ) -> Result<Result<Object, String>, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(json);
        let read = self.read(kind, &mut json)?;
        json.end()?;
        Ok(read)
    }

    fn read<'de, D: Deserializer<'de>>(
        &mut self,
        kind: Kind,
        json: D,
    ) -> Result<Result<Object, String>, D::Error> {
        let mut ctx = Ctx::new(&mut self.interner);
        let c = &mut ctx;
        Ok(match kind {
            Kind::Node => read_from::<node::NodeRead, D>(json, c)?
                .and_then(|o| Ok(Object::Node(Arc::new(o.finish(c)?)))),
            Kind::Pod => read_from::<pod::PodRead, D>(json, c)?
                .and_then(|o| Ok(Object::Pod(Arc::new(o.finish(c, &mut self.pool)?)))),
            Kind::Namespace => read_from::<small::NamespaceRead, D>(json, c)?
                .and_then(|o| Ok(Object::Namespace(Arc::new(o.finish(c)?)))),
            Kind::Job => read_from::<small::JobRead, D>(json, c)?
                .and_then(|o| Ok(Object::Job(Arc::new(o.finish(c)?)))),
            Kind::Event => read_from::<small::EventRead, D>(json, c)?
                .and_then(|o| Ok(Object::Event(Arc::new(o.finish(c)?)))),
            Kind::PriorityClass => read_from::<small::PriorityClassRead, D>(json, c)?
                .and_then(|o| Ok(Object::PriorityClass(Arc::new(o.finish(c)?)))),
            Kind::VolumeClaim => read_from::<small::ClaimRead, D>(json, c)?
                .and_then(|o| Ok(Object::VolumeClaim(Arc::new(o.finish(c)?)))),
            Kind::Volume => read_from::<small::VolumeRead, D>(json, c)?
                .and_then(|o| Ok(Object::Volume(Arc::new(o.finish(c)?)))),
            Kind::Foreign(kind) => {
                // Few and small beside pods: read as a whole, then by each system's own adapter.
                let value = Value::deserialize(json)?;
                let read = read_from::<meta::AnyRead, _>(&value, c).map_err(D::Error::custom)?;
                read.and_then(|o| {
                    let object = adapt::object(kind, &value, o.meta.finish(c)?);
                    Ok(Object::Foreign(kind, Arc::new(object)))
                })
            }
            Kind::ResourceClaim => read_from::<claim::ResourceClaimRead, D>(json, c)?
                .and_then(|o| Ok(Object::ResourceClaim(Arc::new(o.finish(c)?)))),
            Kind::GpuQueue => read_from::<queue::QueueRead, D>(json, c)?
                .and_then(|o| Ok(Object::Queue(Arc::new(o.finish(c)?)))),
            Kind::Budget => read_from::<budget::BudgetRead, D>(json, c)?
                .and_then(|o| Ok(Object::Budget(Arc::new(o.finish(c)?)))),
            Kind::GpuNode => read_from::<gpu_node::GpuNodeRead, D>(json, c)?
                .and_then(|o| Ok(Object::GpuNode(Arc::new(o.finish(c)?)))),
        })
    }
}

/// Reads an object where it stands in a larger text; like [`Decoder::decode`], but a text that is
/// not sound ends the reading of the whole.
pub(super) struct Standing<'a>(pub(super) Kind, pub(super) &'a mut Decoder);

impl<'de> DeserializeSeed<'de> for Standing<'_> {
    type Value = Result<Object, Str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        let Standing(kind, decoder) = self;
        let read = decoder.read(kind, json)?;
        Ok(read.map_err(|why| refusal(kind, &why)))
    }
}

/// The sentence about an object that is refused as a whole.
fn refusal(kind: Kind, why: &str) -> Str {
    clean(&format!("{kind}: {why}"), 400).into()
}

fn read_from<'de, T: Read<'de>, D: Deserializer<'de>>(
    json: D,
    ctx: &mut Ctx<'_>,
) -> Result<Result<T, String>, D::Error> {
    let mut value = T::default();
    let is_object = Slot(&mut value, ctx).deserialize(json)?;
    Ok(if is_object {
        Ok(value)
    } else {
        Err("expected an object".to_owned())
    })
}

/// Reads the whole text as one `T`; the inner error says that it is no object.
fn read_one<'de, T: Read<'de>>(
    json: &'de str,
    ctx: &mut Ctx<'_>,
) -> Result<Result<T, String>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(json);
    let read = read_from(&mut json, ctx)?;
    json.end()?;
    Ok(read)
}
