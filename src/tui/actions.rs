//! A person's own actions on a row: programs that the configuration names, run on the thing under the
//! cursor. The rules of danger are those of the console's own commands: only what reads may have a
//! key, what changes something is asked for, what ends work has its name typed, and a console that
//! only reads runs none of these.

use ratatui::text::Line;

use super::app::{App, Cmd, Layer};
use super::command::{Command, Place, When, Where};
use super::key::Key;
use super::messages::Level;
use super::object::{ObjectRef, safe_lines};
use super::palette::Item;
use super::picker::{Choice, Picker};
use super::prompt::Prompt;
use super::text_pane::{Body, TextPane};
use super::view::{Target, ViewId};
use crate::model::Str;
use crate::plan::Danger;

/// Lines of output that are kept; older ones go.
const KEPT: usize = 5_000;
/// Place in the footer, behind the most usual commands.
pub(super) const RANK: u8 = 5;

/// What stands for a part of the thing under the cursor in the arguments, and what it is.
pub const PLACEHOLDERS: [(&str, &str); 5] = [
    ("{name}", "its name"),
    ("{namespace}", "its namespace"),
    ("{kind}", "its kind"),
    ("{node}", "the node that it is on, or is"),
    ("{context}", "the context of the kubeconfig"),
];

/// An action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserAction {
    /// Its name in the palette.
    pub name: String,
    /// What it does, for help and palette; empty: the program's name.
    pub about: String,
    /// The key that gives it; only of one that reads.
    pub key: Option<Key>,
    /// The program.
    pub program: String,
    /// Its arguments, with [`PLACEHOLDERS`].
    pub args: Vec<String>,
    /// Views in which it can be given; empty: all.
    pub views: Vec<ViewId>,
    /// How much it can hurt; `None`: it only reads.
    pub danger: Option<Danger>,
    /// Whether it is asked for although it only reads.
    pub confirm: bool,
}

/// What is wrong with an action.
///
/// # Errors
/// One sentence.
pub fn check(actions: &[UserAction]) -> Result<(), String> {
    for (at, action) in actions.iter().enumerate() {
        let name = &action.name;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!(
                "action {name:?}: a name of small letters, digits and `-` is needed"
            ));
        }
        if Command::by_name(name).is_some() {
            return Err(format!("action {name}: a command of gpudeck has this name"));
        }
        if actions.iter().take(at).any(|a| a.name == *name) {
            return Err(format!("action {name}: there are two of this name"));
        }
        if action.program.trim().is_empty() {
            return Err(format!("action {name}: command is empty"));
        }
        if action.key.is_some() && action.danger.is_some() {
            return Err(format!(
                "action {name}: only an action with danger = \"reads\" may have a key; others are given \
                 in the palette"
            ));
        }
        if let Some(arg) = action.args.iter().find_map(|a| unknown_placeholder(a)) {
            let known = PLACEHOLDERS.map(|(name, _)| name).join(", ");
            return Err(format!("action {name}: no {arg}; expected {known}"));
        }
    }
    Ok(())
}

/// A word in braces that stands for nothing.
fn unknown_placeholder(arg: &str) -> Option<&str> {
    let (at, _) = arg.char_indices().find(|(at, _)| {
        let rest = arg.get(*at..).unwrap_or_default();
        let word = rest.strip_prefix('{').and_then(|r| r.split_once('}'));
        let is_word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphabetic());
        word.is_some_and(|(w, _)| is_word(w))
            && !PLACEHOLDERS.iter().any(|(name, _)| rest.starts_with(name))
    })?;
    let rest = arg.get(at..)?;
    rest.get(..=rest.find('}')?)
}

/// A program to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAsk {
    /// Grows with each; output of an older one is dropped.
    pub turn: u64,
    /// The action's name and the thing.
    pub title: String,
    /// The program.
    pub program: String,
    /// Its arguments as they are given: no shell reads them.
    pub args: Vec<String>,
}

/// Actions and the one that runs.
#[derive(Default)]
pub(super) struct Actions {
    all: Vec<UserAction>,
    turn: u64,
    running: Option<u64>,
}

impl Actions {
    /// None of them runs.
    pub(super) fn new(all: Vec<UserAction>) -> Self {
        Actions {
            all,
            ..Actions::default()
        }
    }
}

/// The thing that an action is about.
struct Subject {
    object: ObjectRef,
    node: Option<Str>,
    context: Str,
}

impl Subject {
    /// The arguments, or what is missing for them.
    fn fill(&self, args: &[String]) -> Result<Vec<String>, &'static str> {
        let node = self.node.as_deref();
        let has = |name: &str| args.iter().any(|a| a.contains(name));
        if has("{namespace}") && self.object.namespace.is_empty() {
            return Err("it has no namespace");
        }
        if has("{node}") && node.is_none() {
            return Err("it is on no node");
        }
        let values = [
            ("{name}", &*self.object.name),
            ("{namespace}", &*self.object.namespace),
            ("{kind}", &*self.object.kind),
            ("{node}", node.unwrap_or_default()),
            ("{context}", &*self.context),
        ];
        Ok(args.iter().map(|arg| filled(arg, &values)).collect())
    }
}

/// Puts values in the place of names, each once: what a value holds is not read again.
fn filled(arg: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(arg.len());
    let mut rest = arg;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        match values.iter().find(|(name, _)| from.starts_with(name)) {
            Some((name, value)) => {
                out.push_str(value);
                rest = from.get(name.len()..).unwrap_or_default();
            }
            None => {
                out.push('{');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

impl App {
    /// The person's own actions.
    pub(super) fn actions(&self) -> &[UserAction] {
        &self.actions.all
    }

    fn subject(&self) -> Option<Subject> {
        let target = self.target()?;
        let cluster = &self.world.cluster;
        let node = match &target {
            Target::Node(name) => Some(name.clone()),
            target => match super::jump::node(target, cluster) {
                Some(Target::Node(name)) => Some(name),
                _ => None,
            },
        };
        Some(Subject {
            object: ObjectRef::of(&target, cluster)?,
            node,
            context: self.world.session.context.clone(),
        })
    }

    /// Whether an action can be given here and now.
    pub(super) fn action_when(&self, action: &UserAction, place: &Where) -> When {
        let here = action.views.is_empty() || action.views.contains(&place.view);
        if !here || place.place == Place::Entry || (place.place == Place::Text && !place.has_object)
        {
            return When::No;
        }
        if !place.has_row {
            return When::Disabled("there is no row under the cursor");
        }
        if !place.has_object {
            return When::Disabled("the server has no single object for this");
        }
        if self.world.session.read_only && action.danger.is_some() {
            return When::Disabled("the console is read-only, and this may change something");
        }
        match self.subject().map(|s| s.fill(&action.args)) {
            Some(Ok(_)) => When::Yes,
            Some(Err(why)) => When::Disabled(why),
            None => When::Disabled("it is gone"),
        }
    }

    /// Gives an action: at once if it only reads, else it is asked for.
    pub(super) fn give_action(&mut self, at: u8) -> Vec<Cmd> {
        let Some(action) = self.actions.all.get(usize::from(at)).cloned() else {
            return Vec::new();
        };
        match self.action_when(&action, &self.place()) {
            When::Yes => {}
            When::Disabled(why) => {
                self.note(Level::Info, format!("{}: {why}", action.name));
                return Vec::new();
            }
            When::No => {
                self.note(Level::Info, format!("{} has no meaning here", action.name));
                return Vec::new();
            }
        }
        let Some(subject) = self.subject() else {
            return Vec::new();
        };
        let Ok(args) = subject.fill(&action.args) else {
            return Vec::new();
        };
        self.actions.turn += 1;
        let ask = RunAsk {
            turn: self.actions.turn,
            title: format!("{} {}", action.name, subject.object.title()),
            program: action.program.clone(),
            args,
        };
        match action.danger {
            Some(Danger::Disruptive) => {
                let word = subject.object.name.to_string();
                let prompt = Prompt::confirming(word, ask);
                self.layers.push(Layer::Prompt(Box::new(prompt)));
                Vec::new()
            }
            None if !action.confirm => self.start(ask),
            _ => {
                let run = shown(&ask);
                let yes = |label: &'static str, note: String, choice| Item {
                    label: label.into(),
                    note: note.into(),
                    key: String::new(),
                    disabled: None,
                    at_once: true,
                    choice,
                };
                let items = vec![
                    yes("no", "leave it".to_owned(), Choice::Nothing),
                    yes("yes", format!("run {run}"), Choice::Run(ask)),
                ];
                self.push_picker(Picker::new("really?", items));
                Vec::new()
            }
        }
    }

    /// Runs a program that was asked for, and shows what it writes.
    pub(super) fn start(&mut self, ask: RunAsk) -> Vec<Cmd> {
        self.close_output();
        self.actions.running = Some(ask.turn);
        let first = vec![Line::from(format!("$ {}", shown(&ask)))];
        let mut pane = TextPane::new(Body::Output(ask.turn), ask.title.clone(), first);
        pane.show_end();
        self.push_text(pane);
        vec![Cmd::Run(ask)]
    }

    /// Takes what the program wrote.
    pub(super) fn output(&mut self, turn: u64, text: &str) {
        if self.actions.running != Some(turn) {
            return;
        }
        for layer in &mut self.layers {
            if let Layer::Text(pane) = layer
                && pane.body == Body::Output(turn)
            {
                pane.append(safe_lines(text), KEPT);
                break;
            }
        }
    }

    fn close_output(&mut self) {
        let is_output =
            |l: &Layer| matches!(l, Layer::Text(p) if matches!(p.body, Body::Output(_)));
        self.layers.retain(|l| !is_output(l));
    }

    /// Ends the program whose output is not looked at any more.
    pub(super) fn stop_output(&mut self) -> Vec<Cmd> {
        self.close_output();
        match self.actions.running.take() {
            Some(_) => vec![Cmd::StopRun],
            None => Vec::new(),
        }
    }
}

/// The command line as a shell would read it.
fn shown(ask: &RunAsk) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    let quoted = ask.args.iter().map(|arg| {
        if !arg.is_empty() && arg.chars().all(plain) {
            arg.clone()
        } else {
            format!("'{}'", arg.replace('\'', "'\\''"))
        }
    });
    let words: Vec<String> = std::iter::once(ask.program.clone()).chain(quoted).collect();
    words.join(" ")
}

/// What an action does, in one sentence.
pub(super) fn about(action: &UserAction) -> String {
    let told = match &*action.about {
        "" => format!("runs {}", action.program),
        about => about.to_owned(),
    };
    match action.danger {
        None => told,
        Some(Danger::Safe) => format!("{told} (starts something)"),
        Some(Danger::Reversible) => format!("{told} (changes something)"),
        Some(Danger::Disruptive) => format!("{told} (may end work)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(name: &str) -> UserAction {
        UserAction {
            name: name.to_owned(),
            about: String::new(),
            key: None,
            program: "ssh".to_owned(),
            args: vec!["{name}".to_owned()],
            views: Vec::new(),
            danger: None,
            confirm: false,
        }
    }

    #[test]
    fn what_is_wrong_with_an_action_is_told() {
        let key: Option<Key> = "ctrl-g".parse().ok();
        assert!(key.is_some());
        for (wrong, told) in [
            (vec![action("Reset it")], "small letters"),
            (vec![action("yaml")], "a command of gpudeck has this name"),
            (vec![action("ssh"), action("ssh")], "two of this name"),
            (
                vec![UserAction {
                    key,
                    danger: Some(Danger::Safe),
                    ..action("x")
                }],
                "may have a key",
            ),
            (
                vec![UserAction {
                    args: vec!["--on={host}".to_owned()],
                    ..action("x")
                }],
                "no {host}; expected {name}",
            ),
            (
                vec![UserAction {
                    program: " ".to_owned(),
                    ..action("x")
                }],
                "command is empty",
            ),
        ] {
            let why = check(&wrong).err().unwrap_or_default();
            assert!(why.contains(told), "{why}");
        }
        let jq = UserAction {
            key,
            args: vec![
                "{ .a }".to_owned(),
                "{}".to_owned(),
                "{node}:{kind}".to_owned(),
            ],
            ..action("x")
        };
        assert_eq!(check(&[jq]), Ok(()));
    }

    #[test]
    fn values_are_put_in_once_and_shown_as_a_shell_reads_them() {
        let values = [("{name}", "a{node}b"), ("{node}", "n1")];
        assert_eq!(filled("x-{name}-{node}{", &values), "x-a{node}b-n1{");
        let ask = RunAsk {
            turn: 1,
            title: String::new(),
            program: "sh".to_owned(),
            args: vec!["-c".to_owned(), "echo 'a'; ls".to_owned(), String::new()],
        };
        assert_eq!(shown(&ask), r"sh -c 'echo '\''a'\''; ls' ''");
    }
}
