//! Jobs and tenants of the training traces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most bytes that a trace may unpack to; the published ones have less than 4 MiB.
const MOST_BYTES: u64 = 256 << 20;
/// The most GPUs of one job.
const MOST_GPUS: u32 = 65_536;
/// The latest second, and the longest run: a hundred years.
const MOST_S: f64 = 3.2e9;

/// A training job: a gang of `gpus` that runs for `duration_s` when it has all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// When it is submitted, in seconds after the trace's start.
    pub submit_s: f64,
    /// Its GPUs.
    pub gpus: u32,
    /// How long it runs, in seconds. No policy but an oracle may look.
    pub duration_s: f64,
    /// Index into [`Trace::tenants`].
    pub tenant: usize,
}

/// Jobs in the order of their submission.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Names of the tenants.
    pub tenants: Vec<String>,
}

impl Trace {
    /// The GPU-seconds that its jobs need.
    #[must_use]
    pub fn gpu_seconds(&self) -> f64 {
        let all = self.jobs.iter();
        all.map(|j| f64::from(j.gpus) * j.duration_s).sum()
    }

    /// Only jobs that `keep` takes.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&Job) -> bool) -> Self {
        Trace {
            jobs: self.jobs.iter().filter(|j| keep(j)).cloned().collect(),
            tenants: self.tenants.clone(),
        }
    }
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// It cannot be opened or unpacked.
    #[error("{file} cannot be read: {why}")]
    File {
        /// Its path.
        file: String,
        /// What the system or the unpacker says.
        why: String,
    },
    /// A row makes no sense.
    #[error("{file} line {line}: {why}")]
    Row {
        /// Its path.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A job can never run.
    #[error("a job of {job} GPUs can never run on {pool} GPUs; take more nodes")]
    TooLarge {
        /// GPUs of the job.
        job: u32,
        /// GPUs of the pool.
        pool: u32,
    },
}

#[derive(Deserialize)]
struct PhillyRow {
    submit_s: f64,
    vc: String,
    gpus: u32,
    duration_s: f64,
}

#[derive(Deserialize)]
struct MuriRow {
    submit_s: f64,
    gpus: u32,
    duration_s: f64,
}

#[derive(Deserialize)]
struct TenantRow {
    vc: String,
    nodes: u32,
}

/// Reads `philly_jobs.csv.gz` (Microsoft's Philly traces, CC-BY-4.0, a subset).
///
/// # Errors
/// The file is missing, damaged, or a row makes no sense.
pub fn read_philly(folder: &Path) -> Result<Trace, JobsError> {
    let path = folder.join("philly_jobs.csv.gz");
    let rows: Vec<PhillyRow> = rows(&path)?;
    let mut tenants: BTreeMap<String, usize> = BTreeMap::new();
    for row in &rows {
        tenants.entry(row.vc.clone()).or_default();
    }
    for (n, at) in tenants.values_mut().enumerate() {
        *at = n;
    }
    let jobs = rows.iter().map(|row| Job {
        submit_s: row.submit_s,
        gpus: row.gpus,
        duration_s: row.duration_s,
        tenant: tenants.get(&row.vc).copied().unwrap_or_default(),
    });
    checked(&path, jobs.collect(), tenants.into_keys().collect())
}

/// Reads `muri_testbed_jobs.csv.gz` (Muri, SIGCOMM '22, Apache-2.0).
///
/// # Errors
/// As of [`read_philly`].
pub fn read_muri(folder: &Path) -> Result<Trace, JobsError> {
    let path = folder.join("muri_testbed_jobs.csv.gz");
    let rows: Vec<MuriRow> = rows(&path)?;
    let jobs = rows.iter().map(|row| Job {
        submit_s: row.submit_s,
        gpus: row.gpus,
        duration_s: row.duration_s,
        tenant: 0,
    });
    checked(&path, jobs.collect(), vec!["all".to_owned()])
}

/// Reads `philly_vc_nodes.csv`: tenants and their nodes (Helios artifact, MIT).
///
/// # Errors
/// As of [`read_philly`].
pub fn read_tenants(folder: &Path) -> Result<BTreeMap<String, u32>, JobsError> {
    let path = folder.join("philly_vc_nodes.csv");
    let rows: Vec<TenantRow> = rows(&path)?;
    Ok(rows.into_iter().map(|row| (row.vc, row.nodes)).collect())
}

fn checked(path: &Path, mut jobs: Vec<Job>, tenants: Vec<String>) -> Result<Trace, JobsError> {
    for (n, job) in jobs.iter().enumerate() {
        let sound = |s: f64| s.is_finite() && (0.0..=MOST_S).contains(&s);
        let why = if !(1..=MOST_GPUS).contains(&job.gpus) {
            format!("{} GPUs; a job has 1 to {MOST_GPUS}", job.gpus)
        } else if !sound(job.submit_s) || !sound(job.duration_s) {
            format!("times are seconds from 0 to {MOST_S:e}")
        } else {
            continue;
        };
        let file = path.display().to_string();
        return Err(JobsError::Row {
            file,
            line: n + 2,
            why,
        });
    }
    // A stable sort: jobs of one second keep the order of the file.
    jobs.sort_by(|a, b| a.submit_s.total_cmp(&b.submit_s));
    Ok(Trace { jobs, tenants })
}

fn rows<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, JobsError> {
    let name = path.display().to_string();
    let fail = |why: String| JobsError::File {
        file: name.clone(),
        why,
    };
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let mut text = String::new();
    let read = if path.extension().is_some_and(|e| e == "gz") {
        MultiGzDecoder::new(file)
            .take(MOST_BYTES)
            .read_to_string(&mut text)
    } else {
        file.take(MOST_BYTES).read_to_string(&mut text)
    };
    read.map_err(|e| fail(e.to_string()))?;
    let mut rows = Vec::new();
    for (n, row) in csv::Reader::from_reader(text.as_bytes())
        .deserialize()
        .enumerate()
    {
        rows.push(row.map_err(|e| JobsError::Row {
            file: name.clone(),
            line: n + 2,
            why: e.to_string(),
        })?);
    }
    Ok(rows)
}
