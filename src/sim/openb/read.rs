//! The trace's files: nodes, pods, ranks and orders.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::error::OpenbError;
use crate::sched::place::{Fleet, MAX_GPUS, ModelId, ModelSet, NodeRow, Shape};

/// Lists with published orders.
pub const LISTS: [&str; 17] = [
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
];

/// CPU in thousandths, or memory in MiB, past which a row is a mistake.
const MOST: i64 = 1 << 40;
/// The most bytes that a list or the nodes may unpack to; the published ones have less than 1 MiB.
const MOST_BYTES: u64 = 256 << 20;
/// The most digits of a number in an order.
const MOST_DIGITS: usize = 20;

/// Where the files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// What ships with gpudeck: the default list.
    BuiltIn,
    /// A folder with the layout of the published files.
    Folder(PathBuf),
}

impl Source {
    /// Lists that it has, in the order of [`LISTS`].
    #[must_use]
    pub fn lists(&self) -> Vec<&'static str> {
        LISTS.into_iter().filter(|list| self.has(list)).collect()
    }

    fn has(&self, list: &str) -> bool {
        match self {
            Self::BuiltIn => list == "default",
            Self::Folder(folder) => folder.join(format!("order_{list}.txt.gz")).is_file(),
        }
    }

    fn open(&self, name: &str) -> Result<(PathBuf, Box<dyn Read>), OpenbError> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                match File::open(&path) {
                    Ok(file) => Ok((path, Box::new(MultiGzDecoder::new(BufReader::new(file))))),
                    Err(source) => Err(OpenbError::Read { file: path, source }),
                }
            }
            Self::BuiltIn => {
                let bytes: &'static [u8] = match name {
                    "nodes_gpu.csv.gz" => include_bytes!("../data/nodes_gpu.csv.gz"),
                    "pods_default.csv.gz" => include_bytes!("../data/pods_default.csv.gz"),
                    "order_default.txt.gz" => include_bytes!("../data/order_default.txt.gz"),
                    "noderank_default.txt.gz" => include_bytes!("../data/noderank_default.txt.gz"),
                    _ => &[],
                };
                Ok((PathBuf::from(name), Box::new(MultiGzDecoder::new(bytes))))
            }
        }
    }
}

/// A pod of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// What it asks for.
    pub shape: Shape,
    /// The models that it accepts, as the list states them; empty for any.
    pub models: String,
    /// From its creation to its deletion, in seconds, where the list has both.
    pub life_secs: Option<u64>,
}

/// A list of pods and the nodes they go to.
#[derive(Debug, Clone)]
pub struct Trace {
    list: String,
    source: Source,
    rows: Vec<NodeRow>,
    pods: Vec<Pod>,
}

impl Trace {
    /// Reads the nodes and a list.
    ///
    /// # Errors
    /// The list is not there, a file cannot be read, or a row makes no sense.
    pub fn read(source: &Source, list: &str) -> Result<Self, OpenbError> {
        if !source.has(list) {
            return Err(OpenbError::List {
                list: list.to_owned(),
                known: source.lists().join(", "),
                hint: match source {
                    Source::BuiltIn => ", which ships with gpudeck; --data DIR names the others",
                    Source::Folder(_) => "",
                },
            });
        }
        let (rows, models) = read_nodes(source)?;
        let pods = read_pods(source, list, &models)?;
        Ok(Self {
            list: list.to_owned(),
            source: source.clone(),
            rows,
            pods,
        })
    }

    /// Name of the list.
    #[must_use]
    pub fn list(&self) -> &str {
        &self.list
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.rows.len()
    }

    /// The pods of the list, in its order.
    #[must_use]
    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// Every `stride`th node, empty, in the order of the file.
    #[must_use]
    pub fn thinned_fleet(&self, stride: usize) -> Fleet {
        Fleet::new(self.rows.iter().step_by(stride.max(1)).cloned().collect())
    }

    /// The empty fleet, in the order of preference among equals that was published for `seed`.
    ///
    /// # Errors
    /// The ranks cannot be read, or are not one for each node.
    pub fn fleet(&self, seed: u64) -> Result<Fleet, OpenbError> {
        let name = format!("noderank_{}.txt.gz", self.list);
        let mut ranks = Numbers::of_seed(&self.source, &name, seed)?;
        let mut ranked: Vec<(u64, &NodeRow)> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            match ranks.next()? {
                Some(rank) => ranked.push((rank, row)),
                None => return Err(ranks.fault("fewer ranks than nodes")),
            }
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        Ok(Fleet::new(
            ranked.into_iter().map(|(_, row)| row.clone()).collect(),
        ))
    }

    /// The arrivals that were published for `seed`.
    ///
    /// # Errors
    /// The order cannot be read or has no such seed.
    pub fn order(&self, seed: u64) -> Result<Order<'_>, OpenbError> {
        let name = format!("order_{}.txt.gz", self.list);
        Ok(Order {
            numbers: Numbers::of_seed(&self.source, &name, seed)?,
            pods: &self.pods,
        })
    }
}

/// Arrivals, read as they are needed.
pub struct Order<'a> {
    numbers: Numbers,
    pods: &'a [Pod],
}

impl<'a> Order<'a> {
    /// The next pod to arrive.
    ///
    /// # Errors
    /// The order cannot be read on, or names a row that the list does not have.
    pub fn next_pod(&mut self) -> Result<Option<&'a Pod>, OpenbError> {
        let Some(row) = self.numbers.next()? else {
            return Ok(None);
        };
        let pod = usize::try_from(row).ok().and_then(|row| self.pods.get(row));
        match pod {
            Some(pod) => Ok(Some(pod)),
            None => Err(self.numbers.fault(&format!(
                "row {row} of a list that has {} pods",
                self.pods.len()
            ))),
        }
    }
}

/// The numbers of one line, read as they are needed.
struct Numbers {
    file: PathBuf,
    text: BufReader<Box<dyn Read>>,
    line: u64,
    ended: bool,
}

impl Numbers {
    /// The numbers after `seed` on the line that starts with it.
    fn of_seed(source: &Source, name: &str, seed: u64) -> Result<Self, OpenbError> {
        let (file, text) = source.open(name)?;
        let mut numbers = Self {
            file,
            text: BufReader::new(text),
            line: 1,
            ended: false,
        };
        let mut known = Vec::new();
        while let Some(first) = numbers.next()? {
            if first == seed {
                return Ok(numbers);
            }
            known.push(first.to_string());
            while numbers.next()?.is_some() {}
            numbers.ended = false;
            numbers.line += 1;
        }
        Err(OpenbError::Seed {
            file: numbers.file,
            seed,
            known: known.join(", "),
        })
    }

    fn fault(&self, what: &str) -> OpenbError {
        OpenbError::Line {
            file: self.file.clone(),
            line: self.line,
            what: what.to_owned(),
        }
    }

    /// The next number; `None` at the line's end.
    fn next(&mut self) -> Result<Option<u64>, OpenbError> {
        let mut digits = String::new();
        while !self.ended {
            let buffer = self.text.fill_buf().map_err(|source| OpenbError::Read {
                file: self.file.clone(),
                source,
            })?;
            let Some(byte) = buffer.first().copied() else {
                self.ended = true;
                break;
            };
            self.text.consume(1);
            match byte {
                b'\n' => self.ended = true,
                b' ' | b'\r' if digits.is_empty() => {}
                b' ' | b'\r' => break,
                _ if digits.len() < MOST_DIGITS => digits.push(char::from(byte)),
                _ => return Err(self.fault(&format!("{digits}… is no number"))),
            }
        }
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.fault(&format!("{digits:?} is no number"))),
        }
    }
}

type Models = BTreeMap<String, ModelId>;

fn read_nodes(source: &Source) -> Result<(Vec<NodeRow>, Models), OpenbError> {
    let mut table = Table::open(source, "nodes_gpu.csv.gz")?;
    let columns = [
        table.column("cpu_milli")?,
        table.column("memory_mib")?,
        table.column("gpu")?,
        table.column("model")?,
    ];
    let [cpu, mem, gpu, model] = columns;
    let mut models = Models::new();
    let mut rows = Vec::new();
    while table.advance()? {
        let name = table.text(model).to_owned();
        let known = models.len();
        let id = match models.get(&name) {
            Some(id) => *id,
            None => {
                let id = ModelId::new(known)
                    .ok_or_else(|| table.fault("more than 64 GPU models".to_owned()))?;
                models.insert(name, id);
                id
            }
        };
        let gpus = table.number(gpu, MAX_GPUS as i64)?;
        rows.push(NodeRow::empty(
            table.number(cpu, MOST)?,
            table.number(mem, MOST)?,
            u8::try_from(gpus).unwrap_or(u8::MAX),
            id,
        ));
    }
    Ok((rows, models))
}

fn read_pods(source: &Source, list: &str, models: &Models) -> Result<Vec<Pod>, OpenbError> {
    let mut table = Table::open(source, &format!("pods_{list}.csv.gz"))?;
    let columns = [
        table.column("cpu_milli")?,
        table.column("memory_mib")?,
        table.column("num_gpu")?,
        table.column("gpu_milli")?,
    ];
    let [cpu, mem, gpus, milli] = columns;
    // The multigpu lists name no models.
    let spec = table.column("gpu_spec").ok();
    let created = table.column("creation_time").ok();
    let deleted = table.column("deletion_time").ok();
    let mut pods = Vec::new();
    while table.advance()? {
        let gpus = table.number(gpus, MAX_GPUS as i64)?;
        let milli = table.number(milli, 1000)?;
        if (gpus == 0) != (milli == 0) || (gpus > 1 && milli < 1000) {
            return Err(table.fault(format!(
                "{gpus} GPUs of {milli} thousandths; right are 0 of 0, 1 of 1 to 1000, or more of 1000"
            )));
        }
        let named = spec.map_or("", |spec| table.text(spec));
        let accepted = if named.is_empty() {
            ModelSet::ANY
        } else {
            let known = named.split('|').filter_map(|name| models.get(name));
            known.fold(ModelSet::NONE, |set, id| set.with(*id))
        };
        pods.push(Pod {
            shape: Shape {
                cpu_milli: table.number(cpu, MOST)?,
                mem_mib: table.number(mem, MOST)?,
                gpus: u8::try_from(gpus).unwrap_or(u8::MAX),
                milli_gpu: u16::try_from(milli).unwrap_or(u16::MAX),
                models: accepted,
            },
            models: named.to_owned(),
            life_secs: life_secs(&table, created, deleted),
        });
    }
    Ok(pods)
}

/// From creation to deletion; `None` where either is not stated or makes no sense.
fn life_secs(table: &Table, created: Option<usize>, deleted: Option<usize>) -> Option<u64> {
    let time = |column: usize| table.text(column).parse::<u64>().ok();
    time(deleted?)?.checked_sub(time(created?)?)
}

/// A table with a header.
struct Table {
    file: PathBuf,
    rows: csv::Reader<std::io::Take<Box<dyn Read>>>,
    header: csv::StringRecord,
    record: csv::StringRecord,
}

impl Table {
    fn open(source: &Source, name: &str) -> Result<Self, OpenbError> {
        let (file, text) = source.open(name)?;
        let mut rows = csv::Reader::from_reader(text.take(MOST_BYTES));
        let header = rows.headers().cloned();
        let header = header.map_err(|e| unreadable(&file, &e))?;
        Ok(Self {
            file,
            rows,
            header,
            record: csv::StringRecord::new(),
        })
    }

    fn column(&self, name: &str) -> Result<usize, OpenbError> {
        let at = self.header.iter().position(|column| column == name);
        at.ok_or_else(|| OpenbError::Line {
            file: self.file.clone(),
            line: 1,
            what: format!("no column {name:?} in the header"),
        })
    }

    fn advance(&mut self) -> Result<bool, OpenbError> {
        let read = self.rows.read_record(&mut self.record);
        read.map_err(|e| unreadable(&self.file, &e))
    }

    fn text(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or("")
    }

    fn number(&self, column: usize, most: i64) -> Result<i64, OpenbError> {
        let text = self.text(column);
        match text.parse() {
            Ok(number) if (0..=most).contains(&number) => Ok(number),
            _ => Err(self.fault(format!(
                "{} is {text:?}; a whole number from 0 to {most} is needed",
                self.header.get(column).unwrap_or("a column")
            ))),
        }
    }

    fn fault(&self, what: String) -> OpenbError {
        OpenbError::Line {
            file: self.file.clone(),
            line: self.record.position().map_or(0, csv::Position::line),
            what,
        }
    }
}

fn unreadable(file: &Path, error: &csv::Error) -> OpenbError {
    OpenbError::Line {
        file: file.to_owned(),
        line: error.position().map_or(1, csv::Position::line),
        what: error.to_string(),
    }
}
