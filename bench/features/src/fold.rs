//! The fold alone: a node that has the views' logs and none of their tiles rebuilds all tiles, in
//! its process and with its usual threads.

use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_report::Unit;

use crate::figures::Figures;
use crate::node::Node;

/// Refolds `events` events for all views; the node is unchanged afterwards.
///
/// # Errors
/// Fails if the fold does not end.
pub async fn again(node: Node, events: u64, figures: &mut Figures) -> Result<Node, Failure> {
    let data = node.stop_without_tiles()?;
    let began = nanos();
    let node = Node::start_again(data)?;
    node.await_folded(events).await?;
    let seconds = (nanos() - began) as f64 / 1e9;
    let usage = node.usage()?;
    figures.add("fold, events", Unit::PerSecond, events as f64 / seconds);
    figures.add("fold, events of one core", Unit::PerSecond, events as f64 / usage.cpu_seconds);
    figures.add("fold, node's own memory at its end", Unit::Bytes, usage.own_bytes);
    figures.add("fold, node's memory at its peak", Unit::Bytes, usage.memory_bytes);
    Ok(node)
}
