//! A snapshot as CSV: the rows, a column a field, lists as JSON.

use serde_json::Value;

use super::{Request, json};
use crate::tui::view::FilterError;

/// The rows as CSV with a header line; what is not known is an empty cell.
///
/// # Errors
/// What is wrong with the filter.
pub fn csv(request: &Request<'_>) -> Result<String, FilterError> {
    let whole = json(request)?;
    let rows = whole.get("rows").and_then(Value::as_array);
    let rows = rows.map_or(&[][..], Vec::as_slice);
    let mut out = String::new();
    let Some(Value::Object(first)) = rows.first() else {
        return Ok(out);
    };
    let columns: Vec<&String> = first.keys().collect();
    let header: Vec<String> = columns.iter().map(|c| quoted(c)).collect();
    out.push_str(&header.join(","));
    out.push('\n');
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|c| cell(row.get(c.as_str()))).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    Ok(out)
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => quoted(&harmless(text)),
        Some(Value::Number(n)) => n.to_string(),
        Some(other) => quoted(&other.to_string()),
    }
}

/// A text from the cluster that a spreadsheet would take for a formula gets a sign before it.
fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_safe_for_spreadsheets() {
        assert_eq!(cell(Some(&json!("a,\"b\""))), "\"a,\"\"b\"\"\"");
        assert_eq!(cell(Some(&json!("=1+1"))), "'=1+1");
        assert_eq!(cell(Some(&json!(-2.5))), "-2.5");
        assert_eq!(cell(Some(&Value::Null)), "");
        assert_eq!(cell(Some(&json!([{"a": 1}]))), "\"[{\"\"a\"\":1}]\"");
    }
}
