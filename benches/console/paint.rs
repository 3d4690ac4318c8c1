//! From the start of the program to its first whole frame.

use std::io::Write;
use std::net::TcpListener;
use std::time::Instant;

use tokio::runtime::Runtime;

use crate::report::{line, spread, time};
use crate::term::Term;
use crate::world::World;

const RUNS: usize = 20;
const BAR: &str = "bar: 150 ms";

/// On the demo, and on a server that takes the connection and never answers.
pub fn run(_: &Runtime, _: &mut World) {
    measure("first paint, demo", &["demo"]);

    let silent = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    let addr = silent.local_addr().expect("a bound port has an address");
    let mut kubeconfig = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    write!(
        kubeconfig,
        "apiVersion: v1\nkind: Config\ncurrent-context: silent\n\
         clusters: [{{name: c, cluster: {{server: 'https://{addr}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: silent, context: {{cluster: c, user: u}}}}]\n"
    )
    .expect("the kubeconfig can be written");
    let path = kubeconfig.path().to_string_lossy();
    measure(
        "first paint, server that never answers",
        &["--kubeconfig", &path],
    );
}

fn measure(what: &str, args: &[&str]) {
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            let mut term = Term::start(args, 40, 120);
            term.wait_frame();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let median = times.get(RUNS / 2).copied().unwrap_or_default();
    line(
        what,
        &time(median),
        &format!("{} of {RUNS} starts; {BAR}", spread(&mut times)),
    );
}
