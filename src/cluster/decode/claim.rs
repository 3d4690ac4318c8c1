//! resource.k8s.io ResourceClaim: what is allocated, and for whom.

use super::meta::MetaRead;
use super::read::{Ctx, Word, object};
use crate::model::{ClaimedDevice, ResourceClaim};

object! { ResultRead {
    driver: Word = "driver",
    pool: Word = "pool",
    device: Word = "device",
    looked_at: bool = "adminAccess",
}}
object! { DevicesRead { results: Vec<ResultRead> = "results" }}
object! { AllocationRead { devices: DevicesRead = "devices" }}
object! { ConsumerRead {
    resource: Word = "resource",
    name: Word = "name",
}}
object! { StatusRead {
    allocation: Option<AllocationRead> = "allocation",
    reserved: Vec<ConsumerRead> = "reservedFor",
}}
object! { ResourceClaimRead {
    meta: MetaRead = "metadata",
    status: StatusRead = "status",
}}

impl ResourceClaimRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<ResourceClaim, String> {
        let allocation = self.status.allocation.unwrap_or_default();
        let devices = allocation.devices.results.into_iter();
        let devices = devices.map(|r| ClaimedDevice {
            driver: r.driver.0,
            pool: r.pool.0,
            device: r.device.0,
            looked_at: r.looked_at,
        });
        let pods = self.status.reserved.into_iter();
        let pods = pods.filter(|c| &*c.resource.0 == "pods");
        Ok(ResourceClaim {
            devices: devices.collect(),
            pods: pods.map(|c| c.name.0).collect(),
            meta: self.meta.finish(ctx)?,
        })
    }
}
