//! Lists of any resource: asked of the server, and what it offers.

use super::app::{App, Cmd, Layer};
use super::browse::ResourceRef;
use super::messages::Level;
use super::palette;
use super::text_pane::Body;
use super::view::ViewId;
use crate::model::Str;

impl App {
    /// Opens the list of a collection.
    pub(super) fn browse(&mut self, resource: ResourceRef) -> Vec<Cmd> {
        self.go(ViewId::Browse, None);
        if self.world.browse.resource() != Some(&resource)
            && let Some(view) = self.view_mut()
        {
            view.clear_marks();
            let _ = view.set_filter("");
        }
        self.ask(resource)
    }

    pub(super) fn ask(&mut self, resource: ResourceRef) -> Vec<Cmd> {
        let session = &self.world.session;
        let (generation, namespace) = (session.generation, session.namespace.clone());
        self.world.browse.ask(generation, resource, namespace);
        self.world
            .browse
            .ask
            .clone()
            .map(Cmd::Browse)
            .into_iter()
            .collect()
    }

    /// Takes what the cluster offers, also into a palette that is open.
    pub(super) fn offered(&mut self, result: Result<(Vec<ResourceRef>, Vec<Str>), String>) {
        match result {
            Ok((resources, notes)) => {
                let items = palette::resources(&resources);
                self.world.browse.resources = resources;
                for layer in &mut self.layers {
                    if let Layer::Picker(picker) = layer
                        && picker.is_palette()
                    {
                        picker.add(items.clone());
                    }
                }
                if let Some(first) = notes.first() {
                    let more = match notes.len() - 1 {
                        0 => String::new(),
                        n => format!(" (and {n} more groups)"),
                    };
                    let text = format!("not all resources are offered: {first}{more}");
                    self.note(Level::Warn, text);
                }
            }
            Err(why) => {
                let why = crate::model::clean(&why, 1_000);
                self.note(Level::Warn, format!("resources cannot be offered: {why}"));
            }
        }
    }

    /// Asks the server again for what is shown.
    pub(super) fn ask_again(&mut self) -> Vec<Cmd> {
        if let Some(Layer::Text(pane)) = self.layers.last() {
            return match &pane.body {
                Body::Yaml(object) => vec![Cmd::FetchObject(object.clone())],
                _ => Vec::new(),
            };
        }
        match self.world.browse.resource().cloned() {
            Some(resource) => self.ask(resource),
            None => Vec::new(),
        }
    }
}
