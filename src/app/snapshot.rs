//! `gpudeck snapshot`: a view's figures and rows, once.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Result, eyre};
use jiff::Timestamp;
use tokio::sync::watch;

use super::cli::{LookArgs, SnapshotArgs, SnapshotOutput, SnapshotView};
use super::console::{Rights, engine_at};
use super::engine::Feed;
use super::place::Place;
use super::telemetry::telling_nodes;
use crate::model::{Cluster, Kind, Pricing, SourceState, Str};
use crate::tui::glyphs::Glyphs;
use crate::tui::snapshot::{self, Picture, Request};
use crate::tui::theme::{Depth, Theme};
use crate::tui::view::{View, ViewId};
use crate::tui::views::lens::Lens;
use crate::tui::{App, Msg, Session, Settings};

/// Longest wait for what GPUs measure.
const FIGURES: Duration = Duration::from_secs(20);

/// Reads the place until every kind is known, denied or failed, and prints the view.
///
/// # Errors
/// Nothing could be read in time; standard output is closed.
pub async fn print(
    place: &Place,
    args: &SnapshotArgs,
    look: &LookArgs,
    pricing: Pricing,
) -> Result<()> {
    let rights = Rights {
        read_only: true,
        schedule: false,
    };
    let measured = shows_figures(args);
    let shown = watch::Sender::default();
    let (engine, mut feed) = engine_at(place, rights, measured.then(|| shown.subscribe()));
    let mut cluster = Cluster::with_pricing(Arc::new(pricing));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(args.timeout);
    while let Some(pending) = unsettled(&cluster) {
        match tokio::time::timeout_at(deadline, feed.deltas.recv()).await {
            Ok(Some(batch)) => {
                batch.iter().for_each(|delta| cluster.apply(delta));
                // Waiting helps against a server that does not answer, not against this.
                if place.source.login_is_in_vain()
                    && let Some(why) = trouble(&cluster, pending)
                {
                    return Err(eyre!("{pending} could not be read: {why}"));
                }
            }
            Ok(None) => break,
            Err(_) => {
                return Err(eyre!(
                    "{pending} could not be read within {} s: {}",
                    args.timeout,
                    trouble(&cluster, pending).unwrap_or_else(|| format!(
                        "{} has not answered to the end",
                        place.source.server()
                    )),
                ));
            }
        }
    }
    if let Some(why) = nothing_known(&cluster) {
        return Err(eyre!("{why}"));
    }
    let request = Request {
        view: view_of(args.view),
        cluster: &cluster,
        namespace: place.namespace.as_ref(),
        filter: &args.filter,
        ascii: look.ascii,
        now: Timestamp::now(),
    };
    let light = look.theme.as_deref() == Some("light");
    let bytes = match args.output {
        SnapshotOutput::Text => snapshot::text(&request)?.into_bytes(),
        SnapshotOutput::Csv => snapshot::csv(&request)?.into_bytes(),
        SnapshotOutput::Json => {
            let mut text = serde_json::to_string_pretty(&snapshot::json(&request)?)?;
            text.push('\n');
            text.into_bytes()
        }
        SnapshotOutput::Svg => {
            let mut app = picture(place, args, cluster, look)?;
            if measured {
                read_figures(&mut app, place, args, &mut feed, &shown).await;
            }
            snapshot::svg(&snapshot::drawn(&mut app, args.size), light).into_bytes()
        }
        SnapshotOutput::Png => {
            let mut app = picture(place, args, cluster, look)?;
            if measured {
                read_figures(&mut app, place, args, &mut feed, &shown).await;
            }
            snapshot::png(&snapshot::drawn(&mut app, args.size), light)?
        }
    };
    let mut out = std::io::stdout().lock();
    if args.output == SnapshotOutput::Png && out.is_terminal() {
        return Err(eyre!(
            "a PNG is nothing for a terminal: send it to a file, as `-o png >fleet.png`"
        ));
    }
    out.write_all(&bytes)?;
    out.flush()?;
    // What nobody reads would hold up the engine's end.
    drop(feed);
    engine.stop().await;
    Ok(())
}

/// Whether what GPUs measure is in the picture.
fn shows_figures(args: &SnapshotArgs) -> bool {
    let picture = matches!(args.output, SnapshotOutput::Svg | SnapshotOutput::Png);
    let of_lens = |name: &String| {
        Lens::ALL
            .iter()
            .any(|l| l.name() == name && l.is_measured())
    };
    picture
        && match args.view {
            SnapshotView::Fleet => args.lens.as_ref().is_some_and(of_lens),
            SnapshotView::Nodes => true,
            _ => false,
        }
}

/// Waits until what GPUs measure is told, once, of each node in the picture that can tell it; not
/// for long, since an exporter may be down.
async fn read_figures(
    app: &mut App,
    place: &Place,
    args: &SnapshotArgs,
    feed: &mut Feed,
    shown: &watch::Sender<Vec<Str>>,
) {
    let until = tokio::time::Instant::now() + FIGURES.min(Duration::from_secs(args.timeout));
    snapshot::drawn(app, args.size);
    let visible = app.view().map(View::visible_nodes).unwrap_or_default();
    let mut awaited = telling_nodes(&place.telemetry, &app.world().cluster);
    // Farther away the fleet's view tells of no single nodes: then all of them count.
    if !visible.is_empty() {
        awaited.retain(|node| visible.contains(node));
    }
    shown.send_replace(visible);
    loop {
        let cluster = &app.world().cluster;
        if awaited.iter().all(|node| cluster.telemetry(node).is_some()) {
            return;
        }
        let Ok(Some(batch)) = tokio::time::timeout_at(until, feed.deltas.recv()).await else {
            return;
        };
        let deltas = batch.to_vec();
        let told = Msg::Deltas {
            generation: 0,
            deltas,
        };
        app.update(told, Timestamp::now());
    }
}

/// A console that shows what is asked for.
fn picture(place: &Place, args: &SnapshotArgs, cluster: Cluster, look: &LookArgs) -> Result<App> {
    let glyphs = Glyphs { ascii: look.ascii };
    let depth = look.color.and_then(super::depth).unwrap_or(Depth::True);
    let mut settings = Settings::built_in(depth, glyphs);
    let name = look.theme.as_deref();
    if let Some(name) = name {
        settings.theme = Theme::built_in(name, depth)
            .ok_or_else(|| eyre!("no theme {name:?} is built in for a picture"))?;
    }
    if let Some(name) = &args.lens
        && !Lens::ALL.iter().any(|l| l.name() == name)
    {
        let names = Lens::ALL.map(Lens::name).join(", ");
        return Err(eyre!("no lens {name:?}; expected {names}"));
    }
    let picture = Picture {
        view: view_of(args.view),
        filter: &args.filter,
        settings,
        session: Session {
            context: place.context.clone(),
            namespace: place.namespace.clone(),
            read_only: true,
            ..Session::default()
        },
        size: args.size,
        lens: args.lens.as_deref(),
        now: Timestamp::now(),
    };
    Ok(picture.console(cluster)?)
}

fn view_of(view: SnapshotView) -> ViewId {
    match view {
        SnapshotView::Fleet => ViewId::Fleet,
        SnapshotView::Nodes => ViewId::Nodes,
        SnapshotView::Topology => ViewId::Topology,
        SnapshotView::Queues => ViewId::Queues,
        SnapshotView::Jobs => ViewId::Jobs,
        SnapshotView::Tiers => ViewId::Tiers,
        SnapshotView::Timeline => ViewId::Timeline,
    }
}

/// A kind of which it is not settled yet whether it can be read.
fn unsettled(cluster: &Cluster) -> Option<Kind> {
    Kind::ALL.into_iter().chain(Kind::foreign()).find(|kind| {
        match cluster.source(*kind).map(|r| &r.state) {
            Some(
                SourceState::Live
                | SourceState::Denied { .. }
                | SourceState::Absent { .. }
                | SourceState::Stale { .. },
            ) => false,
            // A server that does not answer may do so in a moment; the deadline decides.
            Some(SourceState::Loading { .. } | SourceState::Failed { .. }) | None => true,
        }
    })
}

/// What a source says is wrong.
fn trouble(cluster: &Cluster, kind: Kind) -> Option<String> {
    match &cluster.source(kind)?.state {
        SourceState::Failed { why }
        | SourceState::Denied { why }
        | SourceState::Absent { why }
        | SourceState::Stale { why, .. } => Some(why.to_string()),
        SourceState::Live | SourceState::Loading { .. } => None,
    }
}

/// Why nothing at all can be shown, if so.
fn nothing_known(cluster: &Cluster) -> Option<String> {
    let any = [Kind::Node, Kind::Pod, Kind::Job]
        .into_iter()
        .any(|k| cluster.is_known(k));
    if any {
        None
    } else {
        trouble(cluster, Kind::Pod)
    }
}
