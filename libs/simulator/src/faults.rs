//! The faults of a run, one at a time, by the seed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_log::disk::sim::{Loss, SimDisk};
use forebay_log::faulty::FaultRates;

use super::net::NetFaults;
use super::readers::{CHECKPOINTING, ROLES, SimReader};
use super::workload::{WorkloadState, lock};
use super::world::World;

/// Names of all faults.
pub const FAULT_NAMES: [&str; 17] = [
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
    "reader's network silent",
    "reader's power cut",
    "power cut during a checkpoint",
    "checkpoint damaged",
    "reader's disk full",
];

/// Highest rate of each fault of the log, per 10,000 calls.
const LOG_FAULT_RATE_MAX: u64 = 1_500;
/// Attempts to open a reader again; more would mean that a fault is not healed.
const REOPENS_MAX: usize = 10;

/// Fires faults until `stop` is set; each is healed before the next.
///
/// # Errors
/// Returns an error if the node does not recover from a fault.
pub(crate) async fn run(shared: Arc<WorkloadState>, stop: Arc<AtomicBool>) -> Result<u64, String> {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        let wait = 20 + shared.world.draw(130);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let fault = FAULT_NAMES[shared.world.draw(FAULT_NAMES.len() as u64) as usize];
        shared.world.note(format!("fault: {fault}"));
        fire(&shared, fault).await?;
        shared.world.trace.count_event(fault, 1);
        count += 1;
    }
    Ok(count)
}

async fn fire(shared: &WorkloadState, fault: &'static str) -> Result<(), String> {
    let world = &shared.world;
    match fault {
        "power cut, nothing unsynced left" => power_cut(shared, Loss::Everything).await,
        "power cut, torn prefix" => power_cut(shared, Loss::TornPrefix).await,
        "power cut, random sectors" => power_cut(shared, Loss::RandomSectors).await,
        "clean restart" => clean_restart(shared).await,
        "connections cut" => {
            world.net.cut_all();
            Ok(())
        }
        "network unreliable" => {
            network_fault(world).await;
            Ok(())
        }
        "log unreliable" => log_fault(shared).await,
        "clock forward" => {
            world.clock.jump_micros(world.draw(600_000_000) as i64);
            Ok(())
        }
        "clock backward" => {
            world.clock.jump_micros(-(world.draw(600_000_000) as i64));
            Ok(())
        }
        "disk full" => {
            disk_full(world, &world.disk).await;
            Ok(())
        }
        "sync fails" => sync_fault(shared).await,
        "reader restarts" => {
            let reader_place = world.draw(ROLES.len() as u64) as usize;
            restart_reader(shared, reader_place, |_| ()).await
        }
        "reader's network silent" => {
            reader_silence(shared).await;
            Ok(())
        }
        _ => checkpoint_fault(shared, fault).await,
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn clean_restart(shared: &WorkloadState) -> Result<(), String> {
    shared.world.stop().await;
    pause(shared.world.draw(300)).await;
    restart(shared).await
}

async fn network_fault(world: &World) {
    world.net.set_faults(NetFaults {
        cut_per_million: world.draw(20_000),
        stall_per_million: world.draw(200_000),
        stall_ms_max: 1 + world.draw(100),
    });
    pause(200 + world.draw(500)).await;
    world.net.set_faults(NetFaults::CALM);
}

async fn log_fault(shared: &WorkloadState) -> Result<(), String> {
    let world = &shared.world;
    world.set_log_faults(log_faults(world));
    pause(100 + world.draw(250)).await;
    // Duplicates from an unreliable log are before and after a reader's checkpoint.
    if world.draw(2) == 0 {
        restart_reader(shared, CHECKPOINTING, |_| ()).await?;
    }
    pause(100 + world.draw(250)).await;
    world.set_log_faults(FaultRates::default());
    Ok(())
}

/// Lets a sync fail: the log stops permanently, and the process with it; a supervisor starts
/// another process.
async fn sync_fault(shared: &WorkloadState) -> Result<(), String> {
    let world = &shared.world;
    world.disk.fail_syncs(1);
    if world.log_failed(Duration::from_secs(2)).await {
        world.trace.count_event("node started after a failed sync", 1);
    }
    world.disk.fail_syncs(0);
    power_cut(shared, Loss::TornPrefix).await
}

/// Separates a reader from the network for a while.
async fn reader_silence(shared: &WorkloadState) {
    let world = &shared.world;
    let reader_place = world.draw(ROLES.len() as u64) as usize;
    let party = Arc::clone(&lock(&shared.readers)[reader_place].party);
    let silence = 300 + world.draw(700);
    party.part(Duration::from_millis(silence));
    pause(silence).await;
}

/// Fires a fault of the reader that writes checkpoints.
async fn checkpoint_fault(shared: &WorkloadState, fault: &'static str) -> Result<(), String> {
    let world = &shared.world;
    let reader_place = CHECKPOINTING;
    let disk = lock(&shared.readers)[reader_place].disk.clone();
    let losses = [Loss::Everything, Loss::TornPrefix, Loss::RandomSectors];
    let loss = losses[world.draw(3) as usize];
    match fault {
        "reader's disk full" => {
            disk_full(world, &disk).await;
            Ok(())
        }
        "checkpoint damaged" => {
            let (kind, at) = (world.draw(3), world.draw(u64::from(u32::MAX)));
            let damage = move |disk: &SimDisk| damage_checkpoints(disk, kind, at);
            restart_reader(shared, reader_place, damage).await
        }
        "power cut during a checkpoint" => {
            disk.die_after(1 + world.draw(5));
            pause(50 + world.draw(250)).await;
            restart_reader(shared, reader_place, move |disk| disk.power_cut(loss)).await
        }
        _ => restart_reader(shared, reader_place, move |disk| disk.power_cut(loss)).await,
    }
}

/// Damages every checkpoint: one byte is flipped, or the file is cut short or extended.
fn damage_checkpoints(disk: &SimDisk, kind: u64, at: u64) {
    for path in disk.files(Path::new("/")).unwrap_or_default() {
        if path.extension().is_none_or(|ending| ending != "checkpoint") {
            continue;
        }
        let damage = |bytes: &mut Vec<u8>| {
            let place = (at % (bytes.len() as u64).max(1)) as usize;
            match kind {
                0 => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 0x10),
                1 => bytes.truncate(place),
                _ => bytes.push(0),
            }
        };
        // A missing file is damaged enough.
        let _ = disk.damage(&path, damage);
    }
}

async fn disk_full(world: &World, disk: &SimDisk) {
    disk.set_bytes_max(Some(disk.bytes_held() + world.draw(4_096)));
    tokio::time::sleep(Duration::from_millis(100 + world.draw(400))).await;
    disk.set_bytes_max(None);
}

/// Ends a reader, changes its disk by `between`, and opens it again.
async fn restart_reader(
    shared: &WorkloadState,
    reader_place: usize,
    change_disk: impl FnOnce(&SimDisk),
) -> Result<(), String> {
    let world = &shared.world;
    let parts = {
        let reader = &lock(&shared.readers)[reader_place];
        reader.count(world);
        reader.reader.begin_close();
        reader.restart_parts()
    };
    // The reader's tasks end, and release its lock.
    tokio::time::sleep(Duration::from_millis(1)).await;
    change_disk(&parts.1);
    for _ in 0..REOPENS_MAX {
        let acknowledged = lock(&shared.expected).acknowledged();
        match SimReader::reopen(world, &parts).await {
            Ok(reader) => {
                lock(&shared.readers)[reader_place].replace(reader, acknowledged);
                world.trace.count_event("reader opened again", 1);
                return Ok(());
            }
            Err(error) if error.code() == ErrorCode::Unavailable => {
                world.note(format!("a reader does not open: {error}"));
                world.trace.count_event("reader opening refused", 1);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(format!("a reader does not open again: {error}")),
        }
    }
    Err("a reader never opened again".to_owned())
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

async fn power_cut(shared: &WorkloadState, loss: Loss) -> Result<(), String> {
    shared.world.power_cut(loss).await;
    tokio::time::sleep(Duration::from_millis(shared.world.draw(300))).await;
    restart(shared).await
}

async fn restart(shared: &WorkloadState) -> Result<(), String> {
    let result = shared.world.start().await;
    result.map_err(|error| format!("the node does not come back: {error}"))?;
    shared.world.trace.count_event("node started again", 1);
    Ok(())
}
