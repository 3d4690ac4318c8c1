//! What the command line answers to a mistake: the exact words, on standard error, and a code
//! that is not zero. (The numbers of system errors differ between systems and are left out.)
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// How a run ended.
struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

/// A folder that is home and current directory of the runs.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    /// A kubeconfig with the contexts lab and prod, for a server at `address`.
    fn kubeconfig(&self, address: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
             clusters: [{{name: c, cluster: {{server: \"https://{address}\"}}}}]\n\
             users: [{{name: u, user: {{token: secret}}}}]\n\
             contexts: [{{name: lab, context: {{cluster: c, user: u}}}}, \
             {{name: prod, context: {{cluster: c, user: u}}}}]\n"
        );
        self.write("kubeconfig", &text);
    }

    /// Runs `gpudeck` with nothing in its environment; the folder's path reads HOME.
    fn gpudeck(&self, args: &[&str]) -> Ended {
        let path = self.0.path();
        let output = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
            .args(args)
            .env_clear()
            .env("HOME", path)
            .env("LANG", "C.UTF-8")
            .current_dir(path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            without_numbers(&text.replace(path.to_str().unwrap(), "HOME"))
        };
        Ended {
            code: output.status.code(),
            output: text(output.stdout),
            errors: text(output.stderr),
        }
    }

    /// Runs it and checks that it fails with exactly these words.
    fn fails(&self, args: &[&str], words: &str) {
        let ended = self.gpudeck(args);
        assert_eq!(ended.errors, format!("gpudeck: {words}\n"), "{args:?}");
        assert_eq!(ended.output, "", "{args:?}");
        assert_eq!(ended.code, Some(1), "{args:?}");
    }

    /// The same for what the command line's grammar refuses.
    fn is_refused(&self, args: &[&str], words: &str) {
        let ended = self.gpudeck(args);
        let first = ended.errors.lines().next().unwrap_or_default();
        assert_eq!(first, format!("error: {words}"), "{args:?}");
        assert_eq!(ended.output, "", "{args:?}");
        assert_eq!(ended.code, Some(2), "{args:?}");
    }
}

fn without_numbers(text: &str) -> String {
    let Some((before, rest)) = text.split_once(" (os error ") else {
        return text.to_owned();
    };
    let after = rest.split_once(')').map_or("", |(_, after)| after);
    format!("{before}{}", without_numbers(after))
}

#[test]
fn without_a_kubeconfig_the_demo_is_named() {
    let words = "no kubeconfig found (looked at HOME/.kube/config) and not inside a cluster: set \
                 KUBECONFIG, or try `gpudeck demo`";
    let home = Home::new();
    home.fails(&[], words);
    home.fails(&["--read-only"], words);
    home.fails(&["snapshot"], words);
    home.fails(
        &["sandbox", "load", "--nodes", "n.csv", "--pods", "p.csv"],
        words,
    );
}

#[test]
fn an_unknown_context_is_told_with_those_that_exist() {
    let home = Home::new();
    home.kubeconfig("127.0.0.1:1");
    home.fails(
        &["--kubeconfig", "kubeconfig", "--context", "production"],
        "the kubeconfig kubeconfig has no context \"production\": it has lab, prod",
    );
    home.fails(
        &["--kubeconfig", "missing"],
        "cannot read the kubeconfig missing: No such file or directory",
    );
}

#[test]
fn a_server_that_cannot_be_reached_is_told() {
    let home = Home::new();
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    home.kubeconfig(&address.to_string());
    home.fails(
        &["snapshot", "--kubeconfig", "kubeconfig", "--timeout", "1"],
        &format!(
            "nodes could not be read within 1 s: cannot reach the API server https://{address}: \
             Connection refused"
        ),
    );
}

#[test]
fn bad_flags_are_refused_with_what_is_right() {
    let home = Home::new();
    for speed in ["0", "fast", "NaN", "-1", "1e9"] {
        home.is_refused(
            &["demo", &format!("--speed={speed}")],
            &format!(
                "invalid value '{speed}' for '--speed <SPEED>': a number from 0.1 to 1000 is needed"
            ),
        );
    }
    home.is_refused(
        &["demo", "--nodes", "0"],
        "invalid value '0' for '--nodes <NODES>': 0 is not in 1..=5000",
    );
    home.is_refused(
        &["snapshot", "--view", "racks"],
        "invalid value 'racks' for '--view <VIEW>'",
    );
    home.is_refused(
        &["sandbox", "--listen", "here"],
        "invalid value 'here' for '--listen <ADDR:PORT>': invalid socket address syntax",
    );
}

#[test]
fn the_sandbox_says_where_it_cannot_listen_or_write() {
    let home = Home::new();
    home.fails(
        &["sandbox", "--nodes", "0", "--listen", "0.0.0.0:0"],
        "cannot listen on 0.0.0.0:0: the embedded cluster serves loopback only, as 127.0.0.1:0",
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    home.fails(
        &["sandbox", "--nodes", "0", "--listen", &address],
        &format!(
            "cannot listen on {address}: Address already in use; choose another \
             port, or 0 for a free one"
        ),
    );
    home.fails(
        &[
            "sandbox",
            "--nodes",
            "0",
            "--kubeconfig",
            "no/such/folder/config",
        ],
        "cannot write no/such/folder/config: No such file or directory",
    );
}

#[test]
fn files_of_a_trace_that_are_missing_or_wrong_are_named() {
    let home = Home::new();
    home.kubeconfig("127.0.0.1:1");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/openb");
    std::fs::copy(data.join("nodes.csv"), home.0.path().join("nodes.csv")).unwrap();
    home.write("wrong.csv", "pod,cpu\np,1\n");
    let load = |nodes: &str, pods: &str, words: &str| {
        let args = ["sandbox", "load", "--kubeconfig", "kubeconfig"];
        let files = ["--nodes", nodes, "--pods", pods];
        home.fails(&[&args[..], &files].concat(), words);
    };
    load(
        "missing.csv.gz",
        "wrong.csv",
        "missing.csv.gz: No such file or directory",
    );
    load(
        "nodes.csv",
        "wrong.csv",
        "wrong.csv, line 1: no column \"name\"; the header has to name \
         name,cpu_milli,memory_mib,num_gpu,gpu_milli",
    );
}

#[test]
fn a_reader_that_has_had_enough_is_no_fault() {
    let args = ["simulate", "mig", "--experiment", "fill", "--gpus", "1"];
    let mut run = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(run.stdout.take());
    let ended = run.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    assert_eq!(ended.status.code(), Some(0));
}

/// A cluster in a process of its own, which ends with this.
struct Sandbox(std::process::Child);

impl Sandbox {
    /// Serves a few nodes; their kubeconfig is the file `kubeconfig` in the home.
    fn of(home: &Home) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
            .args(["sandbox", "--nodes", "8", "--listen", "127.0.0.1:0"])
            .args(["--kubeconfig", "kubeconfig"])
            .current_dir(home.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It says so once the file is there.
        let mut line = String::new();
        let said = BufReader::new(child.stdout.take().unwrap()).read_line(&mut line);
        assert!(said.unwrap() > 0 && line.contains("serving"), "{line}");
        Sandbox(child)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_picture_through_a_lens_that_measures_has_figures() {
    let home = Home::new();
    let _sandbox = Sandbox::of(&home);
    let args = [
        "snapshot",
        "--kubeconfig",
        "kubeconfig",
        "-o",
        "svg",
        "--lens",
        "power",
    ];
    // The exporters are pods that have to start first; each picture takes a moment.
    let watts = (0..60).find_map(|_| {
        let picture = home.gpudeck(&args).output;
        let texts = picture.split('<').filter_map(|part| part.split_once('>'));
        let words: Vec<&str> = texts
            .flat_map(|(_, text)| text.split_whitespace())
            .collect();
        let mut told = words.windows(3).filter(|w| w[0] == "power:" && w[2] == "W");
        told.find_map(|w| w[1].parse::<u32>().ok())
    });
    assert!(watts.is_some_and(|w| w > 0), "{watts:?}");
}
