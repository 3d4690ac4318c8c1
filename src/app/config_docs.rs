//! The reference of `config.toml`, made from one table that tests hold to what is read.

use std::fmt::Write as _;

/// A setting.
pub struct Setting {
    /// Table it stands in; empty at the top.
    pub table: &'static str,
    /// Key.
    pub key: &'static str,
    /// A line as it may stand in the file.
    pub example: &'static str,
    /// What it does.
    pub doc: &'static str,
}

const fn setting(
    table: &'static str,
    key: &'static str,
    example: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        table,
        key,
        example,
        doc,
    }
}

/// All settings.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting("", "theme", "theme = \"dark\"", "Theme: `dark`, `light`, `high-contrast`, `ansi16`, `mono`, or a file (docs/themes.md). By default the terminal decides."),
    setting("", "keymap", "keymap = \"keys.toml\"", "File with other keys (docs/keys.md); by default `keymap.toml` in the same folder."),
    setting("", "color", "color = \"auto\"", "Colours: `auto` (by NO_COLOR, COLORTERM, TERM), `true`, `256`, `16`, `mono`."),
    setting("", "ascii", "ascii = true", "Draw with ASCII only; by default the locale decides."),
    setting("", "read-only", "read-only = true", "Never write to the cluster: no writer is set up."),
    setting("", "scheduler", "", ""),
    setting("", "telemetry", "", ""),
    setting("", "fabric", "", ""),
    setting("", "tiers", "", ""),
    setting("", "prices", "", ""),
    setting("", "actions", "", ""),
    setting("scheduler", "spot-needs-checkpoint", "spot-needs-checkpoint = true", "GPU pods go to spot nodes only if they state a checkpoint."),
    setting("scheduler", "topology-levels", "topology-levels = [\"example.com/row\", \"example.com/rack\"]", "Node labels that tell the levels of the fabric, the widest first."),
    setting("scheduler", "types", "", ""),
    setting("scheduler.types.NAME", "memory", "memory = \"18Gi\"", "GPU memory that pods of this workload type need."),
    setting("scheduler.types.NAME", "own-device", "own-device = true", "No replica of a shared device will do."),
    setting("scheduler.types.NAME", "latency-sensitive", "latency-sensitive = true", "It stays off nodes that can be taken away."),
    setting("scheduler.types.NAME", "spread", "spread = true", "Replicas of one owner are kept apart."),
    setting("telemetry", "off", "off = true", "Ask nobody for counters of GPUs."),
    setting("telemetry", "prometheus", "prometheus = \"https://prometheus.example.com\"", "Address of a Prometheus, without `/api/v1`; without it the exporters are asked."),
    setting("telemetry", "username", "username = \"gpudeck\"", "User name for it; needs `password-file`."),
    setting("telemetry", "password-file", "password-file = \"/run/secrets/password\"", "File with the password."),
    setting("telemetry", "token-file", "token-file = \"/run/secrets/token\"", "File with a bearer token."),
    setting("telemetry", "ca-file", "ca-file = \"/etc/ssl/ours.pem\"", "PEM file with the authorities to trust."),
    setting("telemetry", "identity-file", "identity-file = \"/run/secrets/client.pem\"", "PEM file with certificate and key, for mTLS."),
    setting("telemetry", "interval", "interval = 60", "Seconds between two questions; 30 unless stated."),
    setting("fabric", "levels", "levels = [\"example.com/row\", \"example.com/rack\"]", "Node labels that tell the levels of the fabric, the widest first."),
    setting("fabric", "place", "", ""),
    setting("[fabric.place]", "nodes", "nodes = \"rack7-*\"", "Names of nodes that no label tells the place of; `*` stands for any text."),
    setting("[fabric.place]", "path", "path = [\"spine-1\", \"leaf-7\"]", "Names of the switches above them, the widest first."),
    setting("tiers", "rules", "rules = [{ label = \"pool\", value = \"dc1\", tier = \"owned\" }]", "Which nodes are of which tier (`owned`, `reserved`, `on-demand`, `spot`, `calendar`), by a label and its value (any, if not stated). The first that fits wins, before what labels of Karpenter, EKS, GKE, AKS, OKE and CoreWeave say; a node's own label `gpudeck.dev/tier` wins over both."),
    setting("prices", "currency", "currency = \"$\"", "Sign before amounts."),
    setting("prices", "rate", "", ""),
    setting("[prices.rate]", "model", "model = \"H100\"", "Begin of the model's name as Nodes shows it; every model, if not stated."),
    setting("[prices.rate]", "tier", "tier = \"spot\"", "Tier; every tier, if not stated."),
    setting("[prices.rate]", "region", "region = \"eu-central-1\"", "Label `topology.kubernetes.io/region`."),
    setting("[prices.rate]", "zone", "zone = \"eu-central-1a\"", "Label `topology.kubernetes.io/zone`."),
    setting("[prices.rate]", "per-gpu-hour", "per-gpu-hour = 2.25", "Price of an hour of one whole GPU. Of several rates that fit, one for a zone wins over one for a region, that over a model, that over a tier; two for the same nodes are refused."),
    setting("[prices.rate]", "source", "source = \"contract 4711\"", "Where the price is from."),
    setting("[prices.rate]", "as-of", "as-of = \"2026-10-01\"", "As of when it is so."),
    setting("[actions]", "name", "name = \"uptime\"", "Its name in palette, help and footer: small letters, digits, `-`."),
    setting("[actions]", "about", "about = \"how long the node is up\"", "What it does; else the program is named."),
    setting("[actions]", "key", "key = \"ctrl-g\"", "A free key that gives it. Only with `danger = \"reads\"`: nothing else is one key away."),
    setting("[actions]", "command", "command = \"ssh\"", "The program, looked for in PATH. It gets no terminal and no input; its output is shown, and leaving that ends it."),
    setting("[actions]", "args", "args = [\"{node}\", \"uptime\"]", "Its arguments, given as they are: no shell reads them. `{name}`, `{namespace}`, `{kind}`, `{node}` are those of the row under the cursor, `{context}` that of the kubeconfig."),
    setting("[actions]", "views", "views = [\"nodes\", \"fleet\"]", "Views in which it can be given (`fleet`, `nodes`, `topology`, `queues`, `jobs`, `timeline`, `tiers`, `browse`); all, if not stated."),
    setting("[actions]", "danger", "danger = \"reads\"", "`reads`: it changes nothing. `safe` starts something, `reversible` changes something: both are asked for. `disruptive` may end work: the name of the thing has to be typed. Not stated is `disruptive`. With `--read-only` only those that read are run."),
    setting("[actions]", "confirm", "confirm = true", "Ask also before one that only reads."),
];

const INTRO: &str = "\
# Configuration

This page is made from the table of settings (`src/app/config_docs.rs`); `UPDATE=1 cargo test --test
console docs` writes it anew.

`~/.config/gpudeck/config.toml` (or `$XDG_CONFIG_HOME/gpudeck/config.toml`, or `--config FILE`). Each
setting may be left out; flags win over the file. With a fault in it the console starts with the
defaults and tells file, line and what was expected. `gpudeck doctor` checks it.

GPUs that no rate fits have no price, drawn `?`: nothing is guessed. A node's annotation
`gpudeck.dev/price-per-gpu-hour` (as `2.41`) wins over the rate card.

`[[actions]]` are programs of your own for the row under the cursor, offered in palette, help and footer:

```toml
[[actions]]
name = \"uptime\"
about = \"how long the node is up\"
key = \"ctrl-g\"
command = \"ssh\"
args = [\"{node}\", \"uptime\"]
views = [\"nodes\", \"fleet\"]
danger = \"reads\"
```
";

/// `docs/config.md`.
pub fn page() -> String {
    let mut out = String::from(INTRO);
    let mut table = None;
    for setting in SETTINGS.iter().filter(|s| !s.example.is_empty()) {
        if table != Some(setting.table) {
            table = Some(setting.table);
            let title = match setting.table {
                "" => "At the top".to_owned(),
                name => format!("`[{name}]`"),
            };
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "\n## {title}\n\n| setting | example | what it does |\n|---|---|---|\n"
            );
        }
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {} |",
            setting.key, setting.example, setting.doc
        );
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::collections::BTreeSet;

    use super::super::config::Config;
    use super::*;

    /// A row with one line and what it cannot be without.
    fn row(table: &str, line: &str, needed: &[&str]) -> String {
        let key = line.split(' ').next();
        let others = needed.iter().filter(|n| n.split(' ').next() != key);
        let lines: Vec<&str> = others.copied().chain([line]).collect();
        format!("[{table}]\n{}\n", lines.join("\n"))
    }

    fn file(table: &str, line: &str) -> String {
        match table {
            "" => format!("{line}\n"),
            // Rows of these tables have settings that cannot be left out.
            "[prices.rate]" => row(table, line, &["per-gpu-hour = 1.0"]),
            "[fabric.place]" => row(table, line, &["nodes = \"x\"", "path = [\"y\"]"]),
            "[actions]" => row(table, line, &["name = \"x\"", "command = \"y\""]),
            name => format!("[{name}]\n{line}\n"),
        }
    }

    #[test]
    fn each_example_is_read() {
        for s in SETTINGS.iter().filter(|s| !s.example.is_empty()) {
            let read = toml::from_str::<Config>(&file(s.table, s.example));
            assert!(
                read.is_ok_and(|c| c != Config::default() || s.key == "currency"),
                "{}",
                s.key
            );
            assert!(
                s.example.starts_with(s.key) && s.doc.ends_with('.'),
                "{}",
                s.key
            );
        }
    }

    /// What is read is told by the message about a key that is not.
    #[test]
    fn the_table_names_what_is_read_and_nothing_else() {
        let tables: BTreeSet<&str> = SETTINGS.iter().map(|s| s.table).collect();
        for table in tables {
            let text = file(table, "no-such-key = 1");
            let e = toml::from_str::<Config>(&text).unwrap_err();
            let named: BTreeSet<&str> = e.message().split('`').skip(3).step_by(2).collect();
            let told: BTreeSet<&str> = SETTINGS
                .iter()
                .filter(|s| s.table == table)
                .map(|s| s.key)
                .collect();
            assert_eq!(named, told, "[{table}]: {}", e.message());
        }
    }
}
