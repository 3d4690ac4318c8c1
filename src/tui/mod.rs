//! The console: one owner of state, updated by message, drawn from state only.
//!
//! `App` owns everything that is shown; `App::update` takes one `Msg` and gives back the side
//! effects as data (`Cmd`); `App::render` draws from state and nothing else; `run` is the loop
//! between a terminal and channels.

pub mod actions;
pub mod app;
mod asking;
pub mod browse;
pub mod command;
pub mod config_file;
pub mod docs;
mod entry;
mod escape;
pub mod explaining;
pub mod filter;
mod following;
mod footer;
pub mod format;
pub mod frame;
pub mod glyphs;
mod header;
mod help;
mod history;
pub mod input;
mod jump;
pub mod keep;
pub mod key;
pub mod keymap;
mod links;
pub mod logs;
pub mod messages;
pub mod object;
mod order;
mod palette;
mod picker;
mod prompt;
pub mod reason;
mod reports;
mod rows;
pub mod run;
pub mod session;
pub mod settings;
pub mod signals;
pub mod snapshot;
pub mod sort_key;
pub mod state;
pub mod table;
pub mod terminal;
#[cfg(test)]
mod tests;
mod text_pane;
pub mod theme;
mod tour;
mod update;
pub mod view;
pub mod views;
mod why;
mod world;
mod wrap;

pub use app::{App, Cmd, Msg};
pub use messages::Level;
pub use object::ObjectRef;
pub use run::{Ports, run};
pub use session::{Leader, Session};
pub use settings::{Choices, Settings};
pub use terminal::TerminalError;
pub use world::World;
