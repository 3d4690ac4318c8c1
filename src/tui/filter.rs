//! The filter language: `model=h100 free>0 ns:team-a !cordoned "two words"`.
//!
//! Terms are separated by blanks and all must hold.
//!
//! | term | holds when |
//! |---|---|
//! | `word` | the row's searchable text contains it, ignoring case |
//! | `col=value` | the column begins with it, ignoring case; a number is equal |
//! | `col!=value` | it does not |
//! | `col:value` | the column contains it, ignoring case |
//! | `col>2` `>=` `<` `<=` | a number compares so; ages take `2h`, sizes `80Gi` |
//! | `!term`, `-term` | the term does not hold |
//!
//! `"…"` keeps blanks and operators together. `col=""` holds where the value is not known. A value
//! that is not known is neither above nor below anything.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;

use super::format;

/// The value of a column in one row.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Several texts, such as the profiles of a node: a term holds when it holds for one.
    List(Vec<Cow<'a, str>>),
    /// A number in the column's unit.
    Number(f64),
    /// Not known.
    Unknown,
}

impl<'a> Value<'a> {
    /// A borrowed text.
    pub fn text(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }

    /// A number that may not be known.
    pub fn number(n: Option<f64>) -> Self {
        n.map_or(Value::Unknown, Value::Number)
    }
}

/// What a column holds and how its values are typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Text.
    Text,
    /// A plain number.
    Count,
    /// Seconds, typed as `2h`.
    Secs,
    /// Bytes, typed as `80Gi`.
    Bytes,
}

impl Unit {
    fn parse(self, text: &str) -> Option<f64> {
        match self {
            Unit::Text => None,
            Unit::Count => format::plain_number(text.strip_suffix('%').unwrap_or(text)),
            Unit::Secs => format::parse_duration(text),
            Unit::Bytes => format::parse_bytes(text),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Unit::Text => "text",
            Unit::Count => "a number such as 2",
            Unit::Secs => "an age such as 45s, 12m, 3h or 5d",
            Unit::Bytes => "a size such as 512Mi or 80Gi",
        }
    }
}

/// A column that terms can name.
pub struct FilterColumn<R> {
    /// Name as typed, lower case.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it holds.
    pub unit: Unit,
    /// What it means, for the help.
    pub about: &'static str,
    /// Its value in a row at a time (only ages look at the time).
    pub value: for<'a> fn(&'a R, Timestamp) -> Value<'a>,
}

/// Names of columns with what each holds.
pub fn names<R>(columns: &[FilterColumn<R>]) -> Vec<(&'static str, &'static str)> {
    columns.iter().map(|c| (c.name, c.about)).collect()
}

/// What is wrong with a filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem} (at character {})", at + 1)]
pub struct FilterError {
    /// Character position of the term, from 0.
    pub at: usize,
    /// What is wrong and what would be right.
    pub problem: FilterProblem,
}

/// The kinds of mistakes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FilterProblem {
    /// No such column.
    UnknownColumn {
        /// As typed.
        name: String,
        /// The one that was probably meant.
        meant: Option<&'static str>,
        /// What there is.
        allowed: Vec<&'static str>,
    },
    /// `<` or `>` on a text column.
    NotANumberColumn {
        /// The column.
        column: &'static str,
    },
    /// A value that is no number in the column's unit.
    NotANumber {
        /// The column.
        column: &'static str,
        /// As typed.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// Nothing after the operator or the negation (it may still be typed).
    MissingValue,
    /// A quote that is not closed (it may still be typed).
    OpenQuote,
}

impl From<FilterError> for super::view::FilterError {
    fn from(error: FilterError) -> Self {
        super::view::FilterError {
            at: error.at,
            message: error.to_string(),
        }
    }
}

impl FilterProblem {
    /// The text may become right by typing on.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, FilterProblem::MissingValue | FilterProblem::OpenQuote)
    }
}

impl fmt::Display for FilterProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterProblem::UnknownColumn {
                name,
                meant,
                allowed,
            } => {
                write!(f, "unknown column `{name}`")?;
                if let Some(meant) = meant {
                    write!(f, ", did you mean `{meant}`?")?;
                }
                write!(f, " Allowed are {}", allowed.join(", "))
            }
            FilterProblem::NotANumberColumn { column } => {
                write!(f, "`{column}` is text: use =, != or : with it")
            }
            FilterProblem::NotANumber {
                column,
                value,
                expected,
            } => write!(f, "`{column}` takes {expected}, not `{value}`"),
            FilterProblem::MissingValue => f.write_str("a value is missing here"),
            FilterProblem::OpenQuote => f.write_str("the quote is not closed"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Is,
    IsNot,
    Contains,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

enum Test<R> {
    Word(String),
    Text {
        value: for<'a> fn(&'a R, Timestamp) -> Value<'a>,
        op: Op,
        wanted: String,
    },
    Number {
        value: for<'a> fn(&'a R, Timestamp) -> Value<'a>,
        op: Op,
        wanted: f64,
    },
}

struct Term<R> {
    negated: bool,
    by_time: bool,
    test: Test<R>,
}

/// A parsed filter over rows of type `R`.
pub struct Filter<R> {
    terms: Vec<Term<R>>,
}

impl<R> Default for Filter<R> {
    fn default() -> Self {
        Filter { terms: Vec::new() }
    }
}

impl<R> fmt::Debug for Filter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter of {} terms", self.terms.len())
    }
}

/// A piece of the text between blanks.
struct Piece {
    /// Character position.
    at: usize,
    /// Each character, and whether it was quoted.
    chars: Vec<(char, bool)>,
    /// It contains quotes, so that an empty value is meant.
    quoted: bool,
}

fn pieces(text: &str) -> Result<Vec<Piece>, FilterError> {
    let mut found: Vec<Piece> = Vec::new();
    let mut current: Option<Piece> = None;
    let mut open_quote: Option<usize> = None;
    for (at, c) in text.chars().enumerate() {
        if c == '"' {
            open_quote = match open_quote {
                Some(_) => None,
                None => Some(at),
            };
            let piece = current.get_or_insert_with(|| Piece {
                at,
                chars: Vec::new(),
                quoted: false,
            });
            piece.quoted = true;
        } else if c.is_whitespace() && open_quote.is_none() {
            found.extend(current.take());
        } else {
            let piece = current.get_or_insert_with(|| Piece {
                at,
                chars: Vec::new(),
                quoted: false,
            });
            piece.chars.push((c, open_quote.is_some()));
        }
    }
    if let Some(at) = open_quote {
        return Err(FilterError {
            at,
            problem: FilterProblem::OpenQuote,
        });
    }
    found.extend(current);
    Ok(found)
}

fn text_of(chars: &[(char, bool)]) -> String {
    chars.iter().map(|(c, _)| *c).collect()
}

/// Splits `name op value`; `None` when the piece is a word.
fn split(chars: &[(char, bool)]) -> Option<(String, Op, usize)> {
    let plain = |i: usize| match chars.get(i) {
        Some((c, false)) => Some(*c),
        _ => None,
    };
    let at = (0..chars.len()).find(|i| {
        matches!(plain(*i), Some('=' | ':' | '<' | '>'))
            || (plain(*i) == Some('!') && plain(i + 1) == Some('='))
    })?;
    let name = text_of(chars.get(..at)?);
    if name.is_empty() {
        return None;
    }
    let equals_next = plain(at + 1) == Some('=');
    let (op, width) = match plain(at)? {
        '!' => (Op::IsNot, 2),
        ':' => (Op::Contains, 1),
        '<' if equals_next => (Op::LessOrEqual, 2),
        '<' => (Op::Less, 1),
        '>' if equals_next => (Op::GreaterOrEqual, 2),
        '>' => (Op::Greater, 1),
        // `==` is what programmers type.
        _ if equals_next => (Op::Is, 2),
        _ => (Op::Is, 1),
    };
    Some((name, op, at + width))
}

impl<R> Filter<R> {
    /// Reads a filter.
    ///
    /// # Errors
    /// The first mistake, with its position and what is allowed.
    pub fn parse(text: &str, columns: &[FilterColumn<R>]) -> Result<Self, FilterError> {
        let mut terms = Vec::new();
        for piece in pieces(text)? {
            terms.push(parse_term(&piece, columns)?);
        }
        Ok(Filter { terms })
    }

    /// It holds for each row.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether rows may begin or cease to pass by time alone.
    pub fn by_time(&self) -> bool {
        self.terms.iter().any(|t| t.by_time)
    }

    /// Whether a row passes at this time. `search` says whether the row's searchable text contains a word
    /// (given in lower case); see [`contains`].
    pub fn matches(&self, row: &R, now: Timestamp, search: impl Fn(&R, &str) -> bool) -> bool {
        self.terms.iter().all(|term| {
            let holds = match &term.test {
                Test::Word(word) => search(row, word),
                Test::Text { value, op, wanted } => text_holds(&value(row, now), *op, wanted),
                Test::Number { value, op, wanted } => number_holds(&value(row, now), *op, *wanted),
            };
            holds != term.negated
        })
    }
}

fn parse_term<R>(piece: &Piece, columns: &[FilterColumn<R>]) -> Result<Term<R>, FilterError> {
    let fail = |problem| FilterError {
        at: piece.at,
        problem,
    };
    let negated = matches!(piece.chars.first(), Some(('!' | '-', false)));
    let chars = piece.chars.get(usize::from(negated)..).unwrap_or_default();
    if chars.is_empty() && !piece.quoted {
        return Err(fail(FilterProblem::MissingValue));
    }
    let Some((name, op, value_at)) = split(chars) else {
        let word = text_of(chars).to_lowercase();
        return Ok(Term {
            negated,
            by_time: false,
            test: Test::Word(word),
        });
    };
    let name = name.to_lowercase();
    let column = columns
        .iter()
        .find(|c| c.name == name || c.aliases.contains(&&*name))
        .ok_or_else(|| {
            fail(FilterProblem::UnknownColumn {
                meant: nearest(&name, columns),
                name: crate::model::clean(&name, 40).into_owned(),
                allowed: columns.iter().map(|c| c.name).collect(),
            })
        })?;
    let wanted = text_of(chars.get(value_at..).unwrap_or_default());
    if wanted.is_empty() && !piece.quoted {
        return Err(fail(FilterProblem::MissingValue));
    }
    let compares = !matches!(op, Op::Is | Op::IsNot | Op::Contains);
    if column.unit == Unit::Text && compares {
        return Err(fail(FilterProblem::NotANumberColumn {
            column: column.name,
        }));
    }
    // An empty quoted value asks for what is not known, in columns of any unit.
    let test = if column.unit == Unit::Text || wanted.is_empty() {
        Test::Text {
            value: column.value,
            op,
            wanted: wanted.to_lowercase(),
        }
    } else {
        let number = column.unit.parse(&wanted).ok_or_else(|| {
            fail(FilterProblem::NotANumber {
                column: column.name,
                value: crate::model::clean(&wanted, 40).into_owned(),
                expected: column.unit.example(),
            })
        })?;
        Test::Number {
            value: column.value,
            op,
            wanted: number,
        }
    };
    Ok(Term {
        negated,
        by_time: column.unit == Unit::Secs,
        test,
    })
}

/// The column whose name differs from `name` in the fewest letters, if in at most two.
fn nearest<R>(name: &str, columns: &[FilterColumn<R>]) -> Option<&'static str> {
    columns
        .iter()
        .map(|c| (letters_apart(name, c.name), c.name))
        .min()
        .filter(|(apart, candidate)| *apart <= 2 && *apart < candidate.len())
        .map(|(_, name)| name)
}

/// Edits between two short words (Levenshtein).
fn letters_apart(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(40).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, y) in row.iter_mut().skip(1).zip(&b) {
            let next = (*slot + 1)
                .min(left + 1)
                .min(diagonal + usize::from(x != *y));
            diagonal = *slot;
            *slot = next;
            left = next;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

/// Whether `text` contains `word` (already in lower case), ignoring case.
pub fn contains(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return true;
    }
    if !(text.is_ascii() && word.is_ascii()) {
        return text.to_lowercase().contains(word);
    }
    let (Some(last), Some((first, rest))) = (
        text.len().checked_sub(word.len()),
        word.as_bytes().split_first(),
    ) else {
        return false;
    };
    // The first letter tells nearly all places apart: a filter looks at every text there is.
    let starts = text.as_bytes().get(..=last).unwrap_or_default();
    starts.iter().enumerate().any(|(at, c)| {
        c.to_ascii_lowercase() == *first
            && text
                .as_bytes()
                .get(at + 1..at + word.len())
                .is_some_and(|t| t.eq_ignore_ascii_case(rest))
    })
}

fn begins(text: &str, word: &str) -> bool {
    match text.get(..word.len()) {
        Some(head) if word.is_ascii() => head.eq_ignore_ascii_case(word),
        _ => text.to_lowercase().starts_with(word),
    }
}

fn text_holds(value: &Value<'_>, op: Op, wanted: &str) -> bool {
    let one = |text: &str| match op {
        Op::Contains => contains(text, wanted),
        // Asking for the empty text means asking for nothing known.
        _ if wanted.is_empty() => text.is_empty(),
        _ => begins(text, wanted),
    };
    let holds = match value {
        Value::Text(text) => one(text),
        Value::List(texts) if texts.is_empty() => wanted.is_empty(),
        Value::List(texts) => texts.iter().any(|t| one(t)),
        Value::Number(_) => false,
        Value::Unknown => wanted.is_empty(),
    };
    holds != (op == Op::IsNot)
}

fn number_holds(value: &Value<'_>, op: Op, wanted: f64) -> bool {
    let Value::Number(n) = value else {
        return op == Op::IsNot;
    };
    let equal = (n - wanted).abs() < 1e-9;
    match op {
        Op::Is | Op::Contains => equal,
        Op::IsNot => !equal,
        Op::Less => *n < wanted && !equal,
        Op::LessOrEqual => *n < wanted || equal,
        Op::Greater => *n > wanted && !equal,
        Op::GreaterOrEqual => *n > wanted || equal,
    }
}

#[cfg(test)]
mod tests;
