//! What an idle console sends to its terminal.

use std::time::Duration;

use gpudeck::sandbox::{Clock, Options};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Runtime;

use crate::report::line;
use crate::term::Term;
use crate::world::{Served, World};

/// How long nothing is done.
const IDLE: Duration = Duration::from_secs(60);
/// Objects are this old: ages of days read the same for an hour.
const AGE: SignedDuration = SignedDuration::from_hours(3 * 24 + 2);

/// Three consoles at the same time, each at a view of its own; the watches go on as ever.
pub fn run(runtime: &Runtime, _: &mut World) {
    let options = Options {
        clock: Clock::from_fn(|| Timestamp::now() - AGE),
        ..Options::default()
    };
    let served = Served::start(runtime, options, 72, 700);
    let kubeconfig = served.kubeconfig();
    let args = ["--kubeconfig", &kubeconfig.to_string_lossy()];
    let mut terms = [("Fleet", "1"), ("Nodes", "2"), ("Jobs", "5")].map(|(view, key)| {
        let mut term = Term::start(&args, 40, 120);
        term.wait_for("a live header", |screen| screen.contains("live"));
        term.send(key);
        (view, term)
    });
    std::thread::scope(|scope| {
        for (view, term) in &mut terms {
            scope.spawn(move || {
                // The frames that answer the key and the last of the sync.
                term.listen(Duration::from_secs(3));
                let bytes = term.listen(IDLE);
                let sent = term.received();
                line(
                    &format!("idle bytes, {view}, 60 s"),
                    &format!("{bytes} B"),
                    &format!("bar: 0; {} B until then", sent - bytes),
                );
            });
        }
    });
}
