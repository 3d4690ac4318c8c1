//! Mistakes in TOML files in words for people: serde speaks of `f64`, maps and sequences.

/// A message of the TOML reader about a wrong value, in plain words; any other message as it is.
pub fn plain_words(message: &str) -> String {
    let message = message.trim().replace('\n', " ");
    let wrong = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|start| message.strip_prefix(start))
        .and_then(|rest| rest.rsplit_once(", expected "));
    if let Some((found, expected)) = wrong {
        return format!("found {}, expected {}", what(found), wanted(expected));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown word {rest}");
    }
    if let Some(rest) = message.strip_prefix("wanted ") {
        return format!("expected {}", wanted(rest));
    }
    if let Some((length, expected)) = message
        .strip_prefix("invalid length ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        return format!("found {length} values, expected {}", wanted(expected));
    }
    message
}

/// What stands there.
fn what(found: &str) -> String {
    let tick = |text: &str| text.trim_matches('`').to_owned();
    for (kind, plain) in [
        ("string ", "the text "),
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
        ("character ", "the letter "),
    ] {
        if let Some(value) = found.strip_prefix(kind) {
            return format!("{plain}{}", tick(value));
        }
    }
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        "datetime" => "a date".to_owned(),
        "unit value" | "Option value" => "nothing".to_owned(),
        other => other.to_owned(),
    }
}

/// What would be right.
fn wanted(expected: &str) -> String {
    let plain = match expected {
        "a boolean" | "bool" => "true or false",
        "a string" | "string" | "str" => "a text in quotes",
        "f32" | "f64" => "a number",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "u128" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "a nonzero u8" | "a nonzero u16" | "a nonzero u32" | "a nonzero u64"
        | "a nonzero usize" => "a whole number from 1",
        "char" | "a character" => "one letter in quotes",
        "a sequence" => "a list in [ ]",
        "a map" => "a table",
        "path string" => "a path in quotes",
        other => return compound(other),
    };
    plain.to_owned()
}

/// Words that serde makes of the names of types in the code.
fn compound(expected: &str) -> String {
    let begins = |starts: &[&str]| starts.iter().find_map(|s| expected.strip_prefix(s));
    if begins(&["struct ", "internally tagged enum "]).is_some() {
        return "a table".to_owned();
    }
    if begins(&["enum ", "variant identifier", "string or table"]).is_some() {
        return "one of the words that are allowed here, in quotes".to_owned();
    }
    if let Some(size) = begins(&["a tuple of size ", "an array of length ", "a tuple of "]) {
        return format!("a list of {size}");
    }
    if begins(&["tuple struct "]).is_some() {
        return "a list in [ ]".to_owned();
    }
    expected.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_code_become_words() {
        for (raw, plain) in [
            (
                "invalid type: string \"free\", expected f64",
                "found the text \"free\", expected a number",
            ),
            (
                "invalid type: integer `3`, expected a boolean",
                "found the number 3, expected true or false",
            ),
            (
                "invalid type: boolean `true`, expected a string",
                "found true, expected a text in quotes",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "found the number -1, expected a whole number from 0",
            ),
            (
                "invalid value: integer `70000`, expected u16",
                "found the number 70000, expected a whole number from 0 to 65535",
            ),
            (
                "invalid type: floating point `1.5`, expected i64",
                "found the number 1.5, expected a whole number",
            ),
            (
                "invalid type: map, expected a sequence",
                "found a table, expected a list in [ ]",
            ),
            (
                "invalid type: sequence, expected struct Prices",
                "found a list, expected a table",
            ),
            (
                "invalid length 3, expected a tuple of size 2",
                "found 3 values, expected a list of 2",
            ),
            (
                "unknown variant `blue`, expected `auto` or `true`",
                "unknown word `blue`, expected `auto` or `true`",
            ),
            (
                "invalid type: string \"fast\", expected a number from 0.1 to 1000",
                "found the text \"fast\", expected a number from 0.1 to 1000",
            ),
            (
                "wanted string or table",
                "expected one of the words that are allowed here, in quotes",
            ),
            ("missing field `model`", "missing field `model`"),
        ] {
            assert_eq!(plain_words(raw), plain);
        }
    }
}
