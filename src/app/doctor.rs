//! `gpudeck doctor`: each check with what was found and what to do.

use std::io::{IsTerminal, Write};

use color_eyre::eyre::{Result, eyre};

use super::cli::Cli;
use super::config;
use super::keep;
use super::place::Place;
use crate::cluster::doctor::{Finding, Verdict, examine, finding};
use crate::tui::glyphs::Glyphs;
use crate::tui::theme::Depth;

/// Columns of a check's name.
const NAME: usize = 17;

/// Checks files, terminal and cluster, and prints a line each.
///
/// # Errors
/// A check failed; standard output is closed.
pub async fn run(cli: &Cli) -> Result<()> {
    let mut findings = files(cli);
    findings.extend(terminal(|key| std::env::var(key).ok()));
    match Place::connect(&cli.cluster, false).await {
        Err(e) => findings.push(finding("kubeconfig", Verdict::Fail, e.to_string(), "")),
        Ok(place) => {
            let found = format!(
                "context {}, server {}",
                place.context,
                place.source.server()
            );
            findings.push(finding("kubeconfig", Verdict::Ok, found, ""));
            let namespace = place.namespace.as_deref().or(place.fallback.as_deref());
            findings.extend(examine(&place.source, namespace).await);
        }
    }
    let text: String = findings.iter().map(line).collect();
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let failed = findings
        .iter()
        .filter(|f| f.verdict == Verdict::Fail)
        .count();
    if failed > 0 {
        return Err(eyre!("{failed} of {} checks failed", findings.len()));
    }
    Ok(())
}

fn line(f: &Finding) -> String {
    let word = match f.verdict {
        Verdict::Ok => "ok",
        Verdict::None => "-",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    let mut text = format!("{word:<4} {:<NAME$} {}\n", f.name, f.found);
    if !f.advice.is_empty() {
        text.push_str(&format!(
            "{:>width$} {}\n",
            "->",
            f.advice,
            width = NAME + 5
        ));
    }
    text
}

/// The user's files.
fn files(cli: &Cli) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(match config::load(cli.look.config.as_deref()) {
        Ok(config) => {
            let pricing = config.pricing();
            let found = format!(
                "{} rules for tiers, {} rates",
                pricing.rules.len(),
                pricing.rates.len()
            );
            finding("configuration", Verdict::Ok, found, "")
        }
        Err(e) => finding(
            "configuration",
            Verdict::Warn,
            e.to_string(),
            "the console starts with the defaults; docs/config.md lists all settings",
        ),
    });
    findings.push(match keep::file() {
        None => finding(
            "state",
            Verdict::Warn,
            "the system tells no folder for it",
            "set HOME: view and filters are not kept from one session to the next",
        ),
        Some(path) => match crate::tui::keep::Kept::load(&path) {
            (_, Some(why)) => finding("state", Verdict::Warn, why, "delete the file"),
            (kept, None) => {
                let found = format!("{} contexts in {}", kept.contexts.len(), path.display());
                finding("state", Verdict::Ok, found, "")
            }
        },
    });
    findings
}

/// What the terminal can do, by its environment.
fn terminal(env: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let term = env("TERM").unwrap_or_default();
    findings.push(
        if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
            match crossterm::terminal::size() {
                Ok((columns, rows)) if columns < 80 || rows < 24 => finding(
                    "terminal",
                    Verdict::Warn,
                    format!("{term}, {columns}x{rows}"),
                    "views are made for 80x24 and more: columns are left out",
                ),
                Ok((columns, rows)) => finding(
                    "terminal",
                    Verdict::Ok,
                    format!("{term}, {columns}x{rows}"),
                    "",
                ),
                Err(e) => finding(
                    "terminal",
                    Verdict::Warn,
                    e.to_string(),
                    "its size is not known",
                ),
            }
        } else {
            finding(
                "terminal",
                Verdict::None,
                "standard input or output is none",
                "the console needs one; `gpudeck snapshot` does not",
            )
        },
    );
    let depth = Depth::from_env(&env);
    let colours = match depth {
        Depth::True => "24 bit",
        Depth::Ansi256 => "256",
        Depth::Ansi16 => "16",
        Depth::Mono => "none",
    };
    findings.push(match depth {
        Depth::True => finding("colours", Verdict::Ok, colours, ""),
        _ => finding(
            "colours",
            Verdict::Ok,
            colours,
            "if the terminal has more, set COLORTERM=truecolor or --color true",
        ),
    });
    findings.push(if Glyphs::from_locale(&env).ascii {
        finding(
            "signs",
            Verdict::Warn,
            "ASCII, the locale is not UTF-8",
            "set LANG=C.UTF-8 if the terminal draws it",
        )
    } else {
        finding("signs", Verdict::Ok, "UTF-8", "")
    });
    if env("TMUX").is_some() {
        findings.push(finding(
            "tmux",
            Verdict::Ok,
            "inside tmux",
            "copying needs `set -g set-clipboard on`",
        ));
    }
    if env("SSH_CONNECTION").is_some() {
        findings.push(finding(
            "ssh",
            Verdict::Ok,
            "over SSH: escape waits 100 ms",
            "",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_poor_terminal_is_told_with_what_helps() {
        let env = |key: &str| (key == "TERM").then(|| "vt100".to_owned());
        let findings = terminal(env);
        let of = |name: &str| findings.iter().find(|f| f.name == name).unwrap();
        assert_eq!(&*of("colours").found, "none");
        assert!(of("signs").advice.contains("LANG=C.UTF-8"));
        let text = line(of("signs"));
        assert!(text.starts_with("warn signs "), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
