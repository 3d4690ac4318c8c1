//! A line of text that is typed: editing keys of shells and editors.

use tui_input::{Input, InputRequest};

use super::key::{Code, Key, Named};
use crate::model::clean;

/// Longest text that a paste may bring.
const PASTE_LIMIT: usize = 512;

/// Gives a key to the line; true if its text has changed.
pub(super) fn edit(input: &mut Input, key: Key) -> bool {
    let request = match (key.code, key.ctrl, key.alt) {
        (Code::Char(c), false, false) => InputRequest::InsertChar(c),
        (Code::Char('a'), true, false) | (Code::Named(Named::Home), ..) => InputRequest::GoToStart,
        (Code::Char('e'), true, false) | (Code::Named(Named::End), ..) => InputRequest::GoToEnd,
        (Code::Char('b'), false, true) => InputRequest::GoToPrevWord,
        (Code::Char('f'), false, true) => InputRequest::GoToNextWord,
        (Code::Char('u'), true, false) => InputRequest::DeleteFromStart,
        (Code::Char('k'), true, false) => InputRequest::DeleteTillEnd,
        (Code::Char('w'), true, false) | (Code::Named(Named::Backspace), _, true) => {
            InputRequest::DeletePrevWord
        }
        (Code::Char('h'), true, false) | (Code::Named(Named::Backspace), ..) => {
            InputRequest::DeletePrevChar
        }
        (Code::Named(Named::Delete), ..) => InputRequest::DeleteNextChar,
        (Code::Named(Named::Left), ..) => InputRequest::GoToPrevChar,
        (Code::Named(Named::Right), ..) => InputRequest::GoToNextChar,
        _ => return false,
    };
    input.handle(request).is_some_and(|change| change.value)
}

/// Puts pasted text in, as one line and cleaned.
pub(super) fn paste(input: &mut Input, text: &str) -> bool {
    let line = clean(text.trim_end(), PASTE_LIMIT);
    for c in line.chars() {
        input.handle(InputRequest::InsertChar(c));
    }
    !line.is_empty()
}
