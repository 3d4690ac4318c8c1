//! The one table of commands: it drives keys, palette, footer and help.
