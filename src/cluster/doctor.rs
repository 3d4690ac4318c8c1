//! Whether a cluster can be looked at: each check with what was found and what to do.

use std::time::{Duration, Instant};

use futures::StreamExt;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::access::{Right, check};
use super::http::{Api, ApiError};
use super::source::ClientSource;
use crate::model::{Admitter, GpuResource, Str, clean};
use crate::plan::Verb;

/// Longest that one check may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Nodes that are looked at.
const NODES: usize = 500;
/// A clock that differs by more than this spoils ages and leases.
const SKEW_SECS: i64 = 5;
/// An answer that takes longer makes the console slow.
const SLOW: Duration = Duration::from_millis(500);

/// How a check went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// All is well.
    Ok,
    /// Not there, which is no fault.
    None,
    /// The console works, with less to show.
    Warn,
    /// Nothing can be shown.
    Fail,
}

/// A check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it went.
    pub verdict: Verdict,
    /// What was found.
    pub found: Str,
    /// What to do; empty when all is well.
    pub advice: Str,
}

/// Makes a finding.
pub fn finding(
    name: &'static str,
    verdict: Verdict,
    found: impl AsRef<str>,
    advice: impl AsRef<str>,
) -> Finding {
    Finding {
        name,
        verdict,
        found: clean(found.as_ref(), 400).into(),
        advice: clean(advice.as_ref(), 400).into(),
    }
}

/// The rights that the views are made of.
const RIGHTS: [(&str, &str, &str); 8] = [
    ("", "nodes", "Fleet, Nodes, Topology and Tiers show nothing"),
    ("", "pods", "nobody's use is known, and Jobs is empty"),
    ("", "namespaces", "names of namespaces have to be typed"),
    ("batch", "jobs", "suspended Jobs are not shown"),
    ("", "events", "Timeline shows only our own decisions"),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        "priorities of classes are not known",
    ),
    ("", "resourcequotas", "Queues shows no quotas"),
    (
        "",
        "persistentvolumeclaims",
        "our scheduler does not start here",
    ),
];

/// Checks a cluster. `namespace`: the one to fall back to where all may not be listed.
pub async fn examine(source: &ClientSource, namespace: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (api, _) = source.current();
    let begun = Instant::now();
    match reach(&api).await {
        Err(e) => {
            findings.push(finding("server", Verdict::Fail, e.to_string(), advice(&e)));
            return findings;
        }
        Ok((version, date)) => {
            let took = begun.elapsed();
            let found = format!(
                "{} answers as {version} in {} ms",
                api.server(),
                took.as_millis()
            );
            findings.push(if took > SLOW {
                let text = "the way is slow: keys stay quick, news come late";
                finding("server", Verdict::Warn, found, text)
            } else {
                finding("server", Verdict::Ok, found, "")
            });
            findings.push(clock(date, source.now()));
        }
    }
    findings.extend(rights(source, namespace).await);
    findings.extend(nodes(&api).await);
    findings.extend(systems(&api).await);
    findings
}

/// What helps against an error.
fn advice(error: &ApiError) -> &'static str {
    match error {
        ApiError::Unreachable { .. } | ApiError::Timeout { .. } | ApiError::Silent { .. } => {
            "check VPN, proxy and the server's address in the kubeconfig"
        }
        ApiError::Tls { .. } => "check certificate-authority-data of the kubeconfig",
        ApiError::Login { .. } | ApiError::Unauthorized { .. } => {
            "log in again with the tool that made the kubeconfig"
        }
        ApiError::Status { .. } => "ask who runs the cluster",
        ApiError::Garbage { .. } => "is there a proxy or login page before the API server?",
    }
}

/// Version of the server, and its time of day.
async fn reach(api: &Api) -> Result<(String, Option<String>), ApiError> {
    let response = api.open(Method::GET, "/version", None, LIMIT).await?;
    let date = response.headers().get(http::header::DATE);
    let date = date.and_then(|d| d.to_str().ok()).map(str::to_owned);
    drop(response);
    let version = api.get("/version", LIMIT).await?;
    let version = version
        .get("gitVersion")
        .and_then(Value::as_str)
        .unwrap_or("unknown version");
    Ok((clean(version, 60).into_owned(), date))
}

fn clock(date: Option<String>, now: Timestamp) -> Finding {
    let server = date.as_deref().and_then(|text| {
        let parsed = jiff::fmt::rfc2822::parse(text).ok()?;
        Some(parsed.timestamp())
    });
    let Some(server) = server else {
        return finding(
            "clock",
            Verdict::None,
            "the server does not tell its time",
            "",
        );
    };
    let skew = now.as_second() - server.as_second();
    if skew.abs() <= SKEW_SECS {
        return finding(
            "clock",
            Verdict::Ok,
            format!("{skew} s from the server's"),
            "",
        );
    }
    let side = if skew > 0 { "ahead of" } else { "behind" };
    finding(
        "clock",
        Verdict::Warn,
        format!("{} s {side} the server's", skew.abs()),
        "ages are wrong by that much, and a scheduler here may lose its lease: set the clock (NTP)",
    )
}

async fn rights(source: &ClientSource, namespace: Option<&str>) -> Vec<Finding> {
    let verb = |verb, (group, resource, _): (&'static str, &'static str, _)| Verb {
        group,
        resource,
        verb,
    };
    let wanted: Vec<Verb> = RIGHTS
        .iter()
        .flat_map(|r| [verb("list", *r), verb("watch", *r)])
        .collect();
    let everywhere = check(source, &wanted, None).await;
    let mut findings = Vec::new();
    for (right, pair) in RIGHTS.iter().zip(everywhere.chunks(2)) {
        let (_, resource, lost) = *right;
        let obstacle = pair.iter().find_map(|(_, r)| match r {
            Right::Allowed => None,
            Right::Denied { why } | Right::Unknown { why } => Some(why.clone()),
        });
        let Some(why) = obstacle else {
            findings.push(finding(
                "right",
                Verdict::Ok,
                format!("list and watch {resource} everywhere"),
                "",
            ));
            continue;
        };
        let verbs: Vec<Verb> = pair.iter().map(|(v, _)| *v).collect();
        let there = match namespace {
            Some(ns) => check(source, &verbs, Some(ns)).await,
            None => Vec::new(),
        };
        let in_one = !there.is_empty() && there.iter().all(|(_, r)| *r == Right::Allowed);
        let namespaced = !matches!(resource, "nodes" | "namespaces" | "priorityclasses");
        findings.push(if in_one && namespaced {
            let ns = namespace.unwrap_or_default();
            let found = format!("list and watch {resource} in namespace {ns} only");
            finding(
                "right",
                Verdict::Warn,
                found,
                "other namespaces are not shown",
            )
        } else {
            let text = format!("{lost}; ask for a role with list and watch on {resource}");
            finding("right", Verdict::Warn, &*why, text)
        });
    }
    findings
}

/// What the nodes say of their GPUs.
async fn nodes(api: &Api) -> Vec<Finding> {
    let list = match api
        .get(&format!("/api/v1/nodes?limit={NODES}"), LIMIT)
        .await
    {
        Ok(list) => list,
        Err(e) => {
            return vec![finding(
                "GPUs",
                Verdict::Warn,
                e.to_string(),
                "nodes cannot be read",
            )];
        }
    };
    let items = list.get("items").and_then(Value::as_array);
    let (mut with, mut unlabelled, mut failed, mut sick) = (0, 0, 0, 0);
    for node in items.into_iter().flatten() {
        let label = |key: &str| node.pointer("/metadata/labels")?.get(key)?.as_str();
        let amounts = |part: &str| {
            let all = node
                .pointer(&format!("/status/{part}"))
                .and_then(Value::as_object);
            let devices = all.into_iter().flatten().filter_map(|(key, n)| {
                GpuResource::from_key(key)?;
                n.as_str()?.parse::<i64>().ok()
            });
            devices.sum::<i64>()
        };
        let (there, given) = (amounts("capacity"), amounts("allocatable"));
        let signs = label("nvidia.com/gpu.present") == Some("true")
            || label("feature.node.kubernetes.io/pci-10de.present") == Some("true");
        if there == 0 && !signs {
            continue;
        }
        with += 1;
        unlabelled += u32::from(
            label("nvidia.com/gpu.product").is_none()
                && label("cloud.google.com/gke-accelerator").is_none(),
        );
        failed += u32::from(label("nvidia.com/mig.config.state") == Some("failed"));
        sick += u32::from(given < there || (there == 0 && signs));
    }
    let mut findings = vec![if with == 0 {
        finding(
            "GPUs",
            Verdict::Warn,
            "no node offers a GPU",
            "install NVIDIA's GPU operator or device plugin, or choose another context",
        )
    } else {
        finding("GPUs", Verdict::Ok, format!("{with} nodes with GPUs"), "")
    }];
    if unlabelled > 0 {
        findings.push(finding(
            "GPU labels",
            Verdict::Warn,
            format!("{unlabelled} of {with} nodes do not tell their model"),
            "run GPU Feature Discovery (part of the GPU operator) there",
        ));
    } else if with > 0 {
        findings.push(finding(
            "GPU labels",
            Verdict::Ok,
            "each node tells its model",
            "",
        ));
    }
    if failed > 0 {
        findings.push(finding(
            "MIG",
            Verdict::Warn,
            format!("{failed} nodes: mig.config.state is failed"),
            "read the log of nvidia-mig-manager there; the old layout is in force",
        ));
    }
    if sick > 0 {
        findings.push(finding(
            "devices",
            Verdict::Warn,
            format!("{sick} nodes give out fewer devices than they have"),
            "Nodes shows them; the device plugin's log says why",
        ));
    }
    findings
}

/// Which other systems there are.
async fn systems(api: &Api) -> Vec<Finding> {
    let groups = [
        ("Kueue", "kueue.x-k8s.io", Some(Admitter::Kueue)),
        ("Volcano", "scheduling.volcano.sh", Some(Admitter::Volcano)),
        ("KAI", "scheduling.run.ai", Some(Admitter::Kai)),
        ("JobSet", "jobset.x-k8s.io", None),
        ("Kubeflow", "kubeflow.org", None),
        ("Kubeflow Trainer", "trainer.kubeflow.org", None),
        ("KubeRay", "ray.io", None),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io", None),
        ("DRA", "resource.k8s.io", None),
        ("GPU operator", "nvidia.com", None),
    ];
    futures::stream::iter(groups)
        .map(|(name, group, admitter)| async move {
            let answer = api.get(&format!("/apis/{group}"), LIMIT).await;
            system(name, group, admitter, answer)
        })
        .buffered(4)
        .collect()
        .await
}

fn system(
    name: &'static str,
    group: &str,
    admitter: Option<Admitter>,
    answer: Result<Value, ApiError>,
) -> Finding {
    let answer = match answer {
        Ok(answer) => answer,
        Err(e) if e.code() == Some(404) => {
            return finding(name, Verdict::None, "not installed", "");
        }
        Err(e) => return finding(name, Verdict::Warn, e.to_string(), advice(&e)),
    };
    let versions = answer.get("versions").and_then(Value::as_array);
    let served: Vec<&str> = versions
        .into_iter()
        .flatten()
        .filter_map(|v| v.get("version")?.as_str())
        .collect();
    let found = format!("{group} {}", served.join(", "));
    let kinds = admitter.map_or(&[][..], Admitter::kinds);
    let unread = kinds
        .iter()
        .map(|k| k.api())
        .find(|api| api.group == group && !api.versions.iter().any(|v| served.contains(v)));
    match unread {
        Some(api) if !api.versions.is_empty() && admitter != Some(Admitter::Kai) => finding(
            name,
            Verdict::Warn,
            found,
            format!(
                "this gpudeck reads {} of {}",
                api.versions.join(", "),
                api.plural
            ),
        ),
        _ => finding(name, Verdict::Ok, found, ""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::fake;
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn each_check_says_what_was_found_and_what_to_do() {
        let client = fake::client(|request| async move {
            let body = match request.uri().path() {
                "/version" => json!({"gitVersion": "v1.37.2"}),
                "/api/v1/nodes" => json!({"kind": "NodeList", "items": [
                    {"metadata": {"labels": {"nvidia.com/mig.config.state": "failed"}},
                     "status": {"capacity": {"nvidia.com/gpu": "8"},
                                "allocatable": {"nvidia.com/gpu": "7"}}},
                    {"metadata": {}}, null]}),
                "/apis/kueue.x-k8s.io" => json!({"versions": [{"version": "v9"}]}),
                "/apis/scheduling.run.ai" => {
                    json!({"versions": [{"version": "v2"}, {"version": "v2alpha2"}]})
                }
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                    json!({"status": {"allowed": false, "reason": "no role"}})
                }
                _ => {
                    return Ok(fake::reply(
                        404,
                        fake::status(404, "NotFound", "nothing here"),
                    ));
                }
            };
            Ok(fake::reply(200, body.to_string()))
        });
        let source = ClientSource::fixed(client, "https://fake");
        let findings = examine(&source, Some("ns")).await;
        let of = |name: &str| {
            findings
                .iter()
                .filter(|f| f.name == name)
                .cloned()
                .collect::<Vec<_>>()
        };
        let one = |name: &str| of(name).into_iter().next().unwrap();
        assert_eq!(one("server").verdict, Verdict::Ok);
        assert_eq!(one("clock").verdict, Verdict::None);
        let rights = of("right");
        assert_eq!(rights.len(), RIGHTS.len());
        assert!(
            rights
                .iter()
                .all(|r| r.verdict == Verdict::Warn && r.found.contains("no role"))
        );
        assert_eq!(
            &*one("GPU labels").found,
            "1 of 1 nodes do not tell their model"
        );
        assert_eq!(one("MIG").verdict, Verdict::Warn);
        assert_eq!(one("devices").verdict, Verdict::Warn);
        assert!(
            one("Kueue").advice.contains("v1beta2"),
            "{:?}",
            one("Kueue")
        );
        assert_eq!(one("KAI").verdict, Verdict::Ok);
        assert_eq!(one("Volcano").verdict, Verdict::None);
    }

    #[test]
    fn a_clock_that_is_off_is_told() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let said = |date: &str| clock(Some(date.to_owned()), now);
        assert_eq!(said("Mon, 30 Nov 2026 12:00:03 GMT").verdict, Verdict::Ok);
        let off = said("Mon, 30 Nov 2026 11:58:00 GMT");
        assert_eq!(
            (off.verdict, &*off.found),
            (Verdict::Warn, "120 s ahead of the server's")
        );
        assert_eq!(said("yesterday").verdict, Verdict::None);
    }
}
