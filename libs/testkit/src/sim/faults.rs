//! The faults of a run, one after the other, by the seed.

use std::sync::Arc;
use std::time::Duration;

use forebay_log::disk::sim::Loss;
use forebay_log::faulty::FaultRates;

use super::net::NetFaults;
use super::readers::SimReader;
use super::workload::{Shared, lock};
use super::world::World;

/// Everything that can go wrong.
pub const FAULT_NAMES: [&str; 12] = [
    "power cut, nothing unsynced left",
    "power cut, torn prefix",
    "power cut, random sectors",
    "clean restart",
    "connections cut",
    "network unreliable",
    "log unreliable",
    "clock forward",
    "clock backward",
    "disk full",
    "sync fails",
    "reader restarts",
];

/// Highest rate of each fault of the log, out of 10,000 calls.
const LOG_FAULT_RATE_MAX: u64 = 1_500;

/// Fires faults until it is told to stop; each is healed before the next.
///
/// # Errors
/// The node does not come back after one.
pub(crate) async fn run(
    shared: Arc<Shared>,
    stop: Arc<std::sync::atomic::AtomicBool>,
) -> Result<u64, String> {
    let mut fired = 0;
    while !stop.load(std::sync::atomic::Ordering::SeqCst) {
        let wait = 20 + shared.world.draw(180);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let fault = FAULT_NAMES[shared.world.draw(FAULT_NAMES.len() as u64) as usize];
        shared.world.note(format!("fault: {fault}"));
        fire(&shared, fault).await?;
        shared.world.trace.fired(fault, 1);
        fired += 1;
    }
    Ok(fired)
}

async fn fire(shared: &Shared, fault: &'static str) -> Result<(), String> {
    let world = &shared.world;
    let pause = |ms: u64| tokio::time::sleep(Duration::from_millis(ms));
    match fault {
        "power cut, nothing unsynced left" => power_cut(shared, Loss::Everything).await,
        "power cut, torn prefix" => power_cut(shared, Loss::TornPrefix).await,
        "power cut, random sectors" => power_cut(shared, Loss::RandomSectors).await,
        "clean restart" => {
            world.stop().await;
            pause(world.draw(300)).await;
            restart(shared).await
        }
        "connections cut" => {
            world.net.cut_all();
            Ok(())
        }
        "network unreliable" => {
            world.net.set_faults(NetFaults {
                cut_per_million: world.draw(20_000),
                stall_per_million: world.draw(200_000),
                stall_ms_max: 1 + world.draw(100),
            });
            pause(200 + world.draw(800)).await;
            world.net.set_faults(NetFaults::default());
            Ok(())
        }
        "log unreliable" => {
            world.set_log_faults(log_faults(world));
            pause(200 + world.draw(800)).await;
            world.set_log_faults(FaultRates::default());
            Ok(())
        }
        "clock forward" => {
            world.clock.jump_micros(world.draw(600_000_000) as i64);
            Ok(())
        }
        "clock backward" => {
            world.clock.jump_micros(-(world.draw(600_000_000) as i64));
            Ok(())
        }
        "disk full" => {
            world.disk.set_bytes_max(Some(world.disk.bytes_held() + world.draw(4_096)));
            pause(100 + world.draw(400)).await;
            world.disk.set_bytes_max(None);
            Ok(())
        }
        "sync fails" => {
            world.disk.fail_syncs(1);
            // The log stops for good and with it the process; a supervisor starts another.
            if world.log_failed(Duration::from_secs(2)).await {
                world.trace.fired("log stopped after a failed sync", 1);
            }
            world.disk.fail_syncs(0);
            power_cut(shared, Loss::TornPrefix).await
        }
        _ => {
            let opened = SimReader::open(world).await;
            match opened {
                Ok(opened) => {
                    let mut readers = lock(&shared.readers);
                    let chosen = world.draw(readers.len() as u64) as usize;
                    readers[chosen] = opened;
                }
                Err(error) => world.note(format!("a reader does not open: {error}")),
            }
            Ok(())
        }
    }
}

fn log_faults(world: &World) -> FaultRates {
    let rate = || world.draw(LOG_FAULT_RATE_MAX) as u32;
    FaultRates {
        append_refused: rate(),
        append_in_doubt_appended: rate(),
        append_in_doubt_lost: rate(),
        append_in_doubt_late: rate(),
        append_delayed: rate(),
        answer_delayed: rate(),
        read_refused: rate(),
        read_delayed: rate(),
        bounds_refused: rate(),
        delay_max: Duration::from_millis(1 + world.draw(60)),
    }
}

async fn power_cut(shared: &Shared, loss: Loss) -> Result<(), String> {
    shared.world.power_cut(loss).await;
    tokio::time::sleep(Duration::from_millis(shared.world.draw(300))).await;
    restart(shared).await
}

async fn restart(shared: &Shared) -> Result<(), String> {
    let started = shared.world.start().await;
    started.map_err(|error| format!("the node does not come back: {error}"))?;
    shared.world.trace.fired("node started again", 1);
    Ok(())
}
