//! What the console sends over the wire while the demo lives at the speed of the day.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::report::line;
use crate::term::Term;
use crate::world::World;

/// How long each view is listened to.
const LISTEN: Duration = Duration::from_secs(20);
/// The frames that answer the key.
const ANSWER: Duration = Duration::from_secs(2);

/// One console at 120x40 in truecolour, view after view.
pub fn run(_: &Runtime, _: &mut World) {
    let args = ["demo", "--scenario", "tour", "--speed", "1"];
    let mut term = Term::start(&args, 40, 120);
    term.wait_for("a live header", |screen| screen.contains("live"));
    term.listen(Duration::from_secs(5));
    for (view, key) in [
        ("Fleet", "1"),
        ("Nodes", "2"),
        ("Jobs", "5"),
        ("Timeline", "6"),
    ] {
        term.send(key);
        term.listen(ANSWER);
        let bytes = term.listen(LISTEN);
        #[allow(clippy::cast_precision_loss)]
        let rate = bytes as f64 / LISTEN.as_secs_f64() / 1_024.0;
        line(
            &format!("wire, {view}, tour at speed 1"),
            &format!("{rate:.1} KiB/s"),
            "bar: 20 KB/s",
        );
    }
}
