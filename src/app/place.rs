//! Where a session looks: a kubeconfig context, or the embedded cluster.

use super::cli::ClusterArgs;
use crate::cluster::context::{self, ContextError, ContextOptions};
use crate::cluster::source::ClientSource;
use crate::cluster::watch::Scope;
use crate::model::{FabricRules, Str};
use crate::sched::SchedConfig;
use crate::telemetry;

/// A cluster to look at.
pub struct Place {
    /// Its clients.
    pub source: ClientSource,
    /// Context name, or `demo`.
    pub context: Str,
    /// Only this namespace.
    pub namespace: Option<Str>,
    /// The namespace to fall back to where all may not be listed.
    pub fallback: Option<Str>,
    /// Contexts that can be switched to.
    pub contexts: Vec<Str>,
    /// Settings of the scheduler there.
    pub scheduler: SchedConfig,
    /// Who tells what GPUs measure.
    pub telemetry: telemetry::Settings,
    /// What is stated of the fabric.
    pub fabric: FabricRules,
}

impl Place {
    /// Takes what the user's configuration says of all places from another one.
    pub fn settle_as(&mut self, other: &Place) {
        self.scheduler = other.scheduler.clone();
        self.telemetry = other.telemetry.clone();
        self.fabric = other.fabric.clone();
    }
}

impl Place {
    /// The place that flags and kubeconfig name. Login helpers run now; before the screen is taken
    /// over they may use the terminal.
    ///
    /// # Errors
    /// One sentence that says what to do.
    pub async fn connect(args: &ClusterArgs, screen_taken: bool) -> Result<Self, ContextError> {
        let options = ContextOptions {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            namespace: args.namespace.clone(),
            screen_taken,
        };
        let connected = context::connect(&options).await?;
        let contexts = context::contexts(&options)?;
        Ok(Place {
            source: connected.source,
            context: connected.context,
            namespace: connected.namespace,
            fallback: Some(connected.default_namespace),
            contexts: contexts.into_iter().map(|c| c.name).collect(),
            scheduler: SchedConfig::default(),
            telemetry: telemetry::Settings::default(),
            fabric: FabricRules::default(),
        })
    }

    /// A cluster in this process.
    pub fn embedded(client: kube::Client) -> Self {
        Place {
            source: ClientSource::fixed(client, "the embedded cluster"),
            context: "demo".into(),
            namespace: None,
            fallback: None,
            contexts: vec!["demo".into()],
            scheduler: SchedConfig::default(),
            telemetry: telemetry::Settings::default(),
            fabric: FabricRules::default(),
        }
    }

    /// What is watched of it.
    pub fn scope(&self) -> Scope {
        Scope {
            namespace: self.namespace.clone(),
            fallback: self.fallback.clone(),
        }
    }
}
