//! The console: one owner of state, updated by message, drawn from state only.
//!
//! `App` owns everything that is shown; `App::update` takes one `Msg` and gives back the side
//! effects as data (`Cmd`); drawing reads state and nothing else.

pub mod command;
pub mod config_file;
pub mod filter;
pub mod format;
pub mod glyphs;
pub mod key;
pub mod keymap;
pub mod state;
pub mod table;
pub mod theme;
pub mod view;
pub mod views;
