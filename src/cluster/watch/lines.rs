//! Splits a watch's bytes into lines.

/// The longest line that is taken (an object is at most a few MiB in etcd).
const MAX_LINE: usize = 64 << 20;

/// Collects pieces until a line is whole.
#[derive(Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Adds a piece and hands each whole line to `take`. `Err` when a line has no end.
    pub(super) fn push(&mut self, piece: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), ()> {
        let mut at = piece;
        while let Some(end) = at.iter().position(|b| *b == b'\n') {
            let (line, next) = at.split_at(end);
            if self.rest.is_empty() {
                take(line);
            } else {
                self.rest.extend_from_slice(line);
                take(&self.rest);
                self.rest.clear();
            }
            at = next.get(1..).unwrap_or(&[]);
        }
        if self.rest.len() + at.len() > MAX_LINE {
            return Err(());
        }
        self.rest.extend_from_slice(at);
        Ok(())
    }

    /// What came after the last line end: a server may leave the last one out.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_are_whole_however_the_pieces_are_cut() {
        let text = b"one\ntwo\n\nthree\nrest";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut got = Vec::new();
            for piece in text.chunks(size) {
                lines
                    .push(piece, |l| got.push(String::from_utf8_lossy(l).into_owned()))
                    .unwrap();
            }
            assert_eq!(got, ["one", "two", "", "three"]);
            assert_eq!(lines.rest(), b"rest");
        }
    }
}
