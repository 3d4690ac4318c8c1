//! The CSV files of the openb trace, read strictly: a row that makes no sense names its file,
//! line and column.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

/// The most bytes that a file may unpack to; the published ones have less than one MiB.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// The most devices a row may have: no machine has more.
const MAX_GPUS: u32 = 16;

/// Columns of a pod list that are kept as they were published.
const PUBLISHED: [&str; 10] = [
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
];

/// Why a trace file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The header lacks a column.
    #[error("{}, line 1: no column {column:?}; the header has to name {expected}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// The column that is missing.
        column: &'static str,
        /// The columns needed.
        expected: &'static str,
    },
    /// A row that cannot be used.
    #[error("{}, line {line}: {what}", file.display())]
    Row {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong, and what would be right.
        what: String,
    },
}

/// A node of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Name.
    pub name: String,
    /// CPUs in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// GPUs.
    pub gpus: u32,
    /// GPU model; empty for a node without GPUs.
    pub model: String,
}

/// A pod of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRow {
    /// Name.
    pub name: String,
    /// CPUs in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// GPUs.
    pub gpus: u32,
    /// Thousandths of each GPU: 1000 is a whole one.
    pub milli_gpu: u32,
    /// GPU models that the pod accepts; empty for any.
    pub models: Vec<String>,
    /// The published columns, as written.
    pub published: Vec<(String, String)>,
}

impl PodRow {
    /// The pod asks for a part of one GPU.
    pub fn is_shared(&self) -> bool {
        self.gpus > 0 && self.milli_gpu < 1000
    }
}

/// Reads a node list.
pub(super) fn nodes(file: &Path) -> Result<Vec<NodeRow>, TraceError> {
    const EXPECTED: &str = "sn,cpu_milli,memory_mib,gpu,model";
    let table = Table::open(
        file,
        &["sn", "cpu_milli", "memory_mib", "gpu", "model"],
        EXPECTED,
    )?;
    let mut names = HashMap::new();
    table.rows(|row| {
        let node = NodeRow {
            name: row.name("sn", &mut names)?,
            cpu_milli: row.number("cpu_milli", u64::MAX)?,
            memory_mib: row.number("memory_mib", u64::MAX)?,
            gpus: row.count("gpu", MAX_GPUS)?,
            model: row.text("model").to_owned(),
        };
        if node.gpus > 0 {
            row.check_model(&node.model)?;
        }
        Ok(node)
    })
}

/// Reads a pod list.
pub(super) fn pods(file: &Path) -> Result<Vec<PodRow>, TraceError> {
    const EXPECTED: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli";
    let columns = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
    let table = Table::open(file, &columns, EXPECTED)?;
    let mut names = HashMap::new();
    table.rows(|row| {
        let spec = row.text("gpu_spec");
        let models: Vec<String> = spec
            .split('|')
            .filter(|model| !model.is_empty())
            .map(str::to_owned)
            .collect();
        for model in &models {
            row.check_model(model)?;
        }
        let pod = PodRow {
            name: row.name("name", &mut names)?,
            cpu_milli: row.number("cpu_milli", u64::MAX)?,
            memory_mib: row.number("memory_mib", u64::MAX)?,
            gpus: row.count("num_gpu", MAX_GPUS)?,
            milli_gpu: row.count("gpu_milli", 1000)?,
            models,
            published: row.all(),
        };
        match (pod.gpus, pod.milli_gpu) {
            (2.., part) if part < 1000 => Err(row.wrong(format!(
                "{} GPUs of {part} thousandths each; only one GPU can be shared",
                pod.gpus
            ))),
            (1, 0) => {
                Err(row.wrong("gpu_milli is 0 for one GPU; 1 to 1000 was expected".to_owned()))
            }
            _ => Ok(pod),
        }
    })
}

struct Table {
    file: PathBuf,
    columns: HashMap<String, usize>,
    header: Vec<String>,
    reader: csv::Reader<Box<dyn Read>>,
}

struct Row<'a> {
    table: &'a TableInfo,
    line: u64,
    record: &'a csv::StringRecord,
}

struct TableInfo {
    file: PathBuf,
    columns: HashMap<String, usize>,
    header: Vec<String>,
}

impl Table {
    fn open(
        file: &Path,
        needed: &[&'static str],
        expected: &'static str,
    ) -> Result<Self, TraceError> {
        let read_error = |source| TraceError::Read {
            file: file.to_owned(),
            source,
        };
        let mut start = Vec::new();
        let mut input = File::open(file).map_err(read_error)?;
        input
            .by_ref()
            .take(2)
            .read_to_end(&mut start)
            .map_err(read_error)?;
        let whole = std::io::Cursor::new(start.clone()).chain(input);
        let bytes: Box<dyn Read> = if start == [0x1f, 0x8b] {
            Box::new(MultiGzDecoder::new(whole).take(MAX_BYTES))
        } else {
            Box::new(whole.take(MAX_BYTES))
        };
        let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
        let header = reader.headers().map_err(|error| row_error(file, &error))?;
        let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        let columns: HashMap<String, usize> = header.iter().cloned().zip(0..).collect();
        for column in needed {
            if !columns.contains_key(*column) {
                return Err(TraceError::Header {
                    file: file.to_owned(),
                    column,
                    expected,
                });
            }
        }
        Ok(Self {
            file: file.to_owned(),
            columns,
            header,
            reader,
        })
    }

    fn rows<T>(
        mut self,
        mut read: impl FnMut(&Row<'_>) -> Result<T, TraceError>,
    ) -> Result<Vec<T>, TraceError> {
        let info = TableInfo {
            file: self.file,
            columns: self.columns,
            header: self.header,
        };
        let mut rows = Vec::new();
        let mut record = csv::StringRecord::new();
        loop {
            match self.reader.read_record(&mut record) {
                Ok(false) => return Ok(rows),
                Ok(true) => {}
                Err(error) => return Err(row_error(&info.file, &error)),
            }
            let line = record.position().map_or(0, csv::Position::line);
            rows.push(read(&Row {
                table: &info,
                line,
                record: &record,
            })?);
        }
    }
}

impl Row<'_> {
    fn wrong(&self, what: String) -> TraceError {
        TraceError::Row {
            file: self.table.file.clone(),
            line: self.line,
            what,
        }
    }

    fn text(&self, column: &str) -> &str {
        let at = self.table.columns.get(column);
        at.and_then(|at| self.record.get(*at))
            .unwrap_or_default()
            .trim()
    }

    fn number(&self, column: &str, most: u64) -> Result<u64, TraceError> {
        let text = self.text(column);
        match text.parse::<u64>() {
            Ok(number) if number <= most => Ok(number),
            Ok(_) => Err(self.wrong(format!("{column} is {text}; at most {most} was expected"))),
            Err(_) => Err(self.wrong(format!(
                "{column} is {:?}; a whole number was expected",
                shortened(text)
            ))),
        }
    }

    fn count(&self, column: &str, most: u32) -> Result<u32, TraceError> {
        let number = self.number(column, u64::from(most))?;
        Ok(u32::try_from(number).unwrap_or(most))
    }

    /// A name that Kubernetes accepts, used once.
    fn name(&self, column: &str, seen: &mut HashMap<String, u64>) -> Result<String, TraceError> {
        let name = self.text(column);
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let valid = !name.is_empty()
            && name.len() <= 253
            && name
                .bytes()
                .all(|byte| inner(byte) || matches!(byte, b'-' | b'.'))
            && name.bytes().next().is_some_and(inner)
            && name.bytes().next_back().is_some_and(inner);
        if !valid {
            return Err(self.wrong(format!(
                "{column} is {:?}; a name of lower-case letters, digits, '-' and '.' was expected",
                shortened(name)
            )));
        }
        if let Some(line) = seen.insert(name.to_owned(), self.line) {
            return Err(self.wrong(format!("{column} {name:?} is taken by line {line}")));
        }
        Ok(name.to_owned())
    }

    /// A GPU model that can be a label value.
    fn check_model(&self, model: &str) -> Result<(), TraceError> {
        let valid = !model.is_empty()
            && model.len() <= 63
            && model
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && model
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && model
                .bytes()
                .next_back()
                .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if valid {
            Ok(())
        } else {
            Err(self.wrong(format!(
                "GPU model is {:?}; at most 63 letters, digits, '-', '_' and '.' were expected",
                shortened(model)
            )))
        }
    }

    fn all(&self) -> Vec<(String, String)> {
        let header = self.table.header.iter();
        header
            .zip(self.record.iter())
            .filter(|(name, _)| PUBLISHED.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.to_owned()))
            .collect()
    }
}

fn row_error(file: &Path, error: &csv::Error) -> TraceError {
    let line = error.position().map_or(1, csv::Position::line);
    let what = match error.kind() {
        csv::ErrorKind::Io(source) => {
            return TraceError::Read {
                file: file.to_owned(),
                source: std::io::Error::new(source.kind(), source.to_string()),
            };
        }
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("{len} fields; the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "text that is not UTF-8".to_owned(),
        _ => "not a CSV row".to_owned(),
    };
    TraceError::Row {
        file: file.to_owned(),
        line,
        what,
    }
}

/// At most 40 characters, for messages.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
