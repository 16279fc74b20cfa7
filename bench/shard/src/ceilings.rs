//! Ceilings of a copy, each measured alone and on one core, as each end of a copy has one core
//! here: reading rows, writing the engine's files, bytes through a socket of this machine, bytes to
//! the disk.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::{nanos, seconds};
use forebay_bench_naive_copy::options;
use forebay_testkit::random::SeededRng;
use rocksdb::{DB, DBCompressionType, ReadOptions, SstFileWriter};

/// Bytes of one write to a socket or a file.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of one of the engine's files.
const FILE_BYTES: usize = 64 << 20;
/// Bytes that an iterator reads ahead, as a copy does.
const READAHEAD_BYTES: usize = 2 << 20;
/// Length of one sample of a rate.
const SAMPLE_NANOS: u64 = 1_000_000_000;

/// Returns the rows per second of one iterator over a shard.
///
/// # Errors
/// Fails if the shard fails.
pub fn iterate(shard: &Path) -> Result<f64, Failure> {
    let db = DB::open_for_read_only(&options(), shard, false)?;
    let mut reading = ReadOptions::default();
    reading.fill_cache(false);
    reading.set_readahead_size(READAHEAD_BYTES);
    let (seconds, rows) = seconds(|| {
        let mut rows = db.raw_iterator_opt(reading);
        rows.seek_to_first();
        let (mut count, mut bytes) = (0_u64, 0);
        while let Some((key, value)) = rows.item() {
            count += 1;
            bytes += key.len() + value.len();
            rows.next();
        }
        rows.status().map(|()| (count, bytes))
    });
    match rows? {
        (rows, bytes) if bytes > 0 => Ok(rows as f64 / seconds),
        _ => Err("the shard has no rows".into()),
    }
}

/// Returns the rows per second that become durable files of the engine, one after the other.
///
/// # Errors
/// Fails if the disk or the engine fails.
pub fn write_files(
    folder: &Path,
    rows: u64,
    (key_bytes, value_bytes): (usize, usize),
) -> Result<f64, Failure> {
    let noise = SeededRng::new(rows).noise(PIECE_BYTES + value_bytes);
    let mut options = options();
    // Compression gains nothing with this data.
    options.set_compression_type(DBCompressionType::None);
    options.set_bottommost_compression_type(DBCompressionType::None);
    let rows_per_file = (FILE_BYTES / (key_bytes + value_bytes)) as u64;
    let mut key = vec![0; key_bytes];
    let (seconds, write_result) = seconds(|| -> Result<(), Failure> {
        for first in (0..rows).step_by(rows_per_file as usize) {
            let mut file = SstFileWriter::create(&options);
            let path = folder.join(format!("{first}.sst"));
            file.open(&path)?;
            for number in first..rows.min(first + rows_per_file) {
                // Keys are in order: the first byte is the most significant.
                key[key_bytes - 8..].copy_from_slice(&number.swap_bytes().to_le_bytes());
                let offset = number as usize * 7 % PIECE_BYTES;
                file.put(&key, &noise[offset..offset + value_bytes])?;
            }
            file.finish()?;
            File::open(&path)?.sync_all()?;
        }
        Ok(())
    });
    write_result.map(|()| rows as f64 / seconds)
}

/// Returns the bytes per second through one socket of the loopback device, for about this time, and
/// the bytes of each whole second.
///
/// # Errors
/// Fails if the network fails.
pub fn loopback(time: Duration) -> Result<(f64, Vec<f64>), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sending = thread::spawn(move || -> std::io::Result<()> {
        let (mut socket, piece) =
            (TcpStream::connect(address)?, SeededRng::new(1).noise(PIECE_BYTES));
        let began = nanos();
        while u128::from(nanos() - began) < time.as_nanos() {
            socket.write_all(&piece)?;
        }
        Ok(())
    });
    let (mut socket, _) = listener.accept()?;
    let (mut piece, mut bytes_received) = (vec![0; PIECE_BYTES], 0_u64);
    let (mut samples, began) = (Vec::new(), nanos());
    let (mut sampled, mut sampled_at) = (0, began);
    loop {
        let read = socket.read(&mut piece)?;
        bytes_received += read as u64;
        let now = nanos();
        if now - sampled_at >= SAMPLE_NANOS {
            samples.push((bytes_received - sampled) as f64 * 1e9 / (now - sampled_at) as f64);
            (sampled, sampled_at) = (bytes_received, now);
        }
        if read == 0 {
            let rate = bytes_received as f64 * 1e9 / (now - began).max(1) as f64;
            return match sending.join() {
                Ok(sent) => sent.map(|()| (rate, samples)).map_err(Failure::from),
                Err(_) => Err("the sender has panicked".into()),
            };
        }
    }
}
