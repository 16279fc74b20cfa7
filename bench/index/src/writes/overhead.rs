//! Memory of documents beyond their keys and values: resident bytes, counted by the kernel, of a
//! store without a size hint.

use forebay_bench_report::Values;

use super::{Copy, DocumentForm, ENTRY, words};
use crate::data::{Data, Keys};
use crate::memory::Resident;

/// Documents between two samples of the memory.
const GLANCE: u64 = 100_000;

/// Bytes per entry beyond key and value: at the end, and the worst from half of it on.
struct Overhead {
    last: f64,
    worst: f64,
    counted: f64,
}

/// Measures all forms, one after another; each ends before the next starts.
///
/// # Errors
/// Fails if there is no memory, or the kernel does not count it.
pub fn bytes_per_entry(data: Data) -> Result<Values, String> {
    let plain_overhead = measure(data, DocumentForm::default())?;
    let expiry = measure(data, DocumentForm { expires: true, version: false })?;
    let version = measure(data, DocumentForm { expires: false, version: true })?;
    let small = Data { keys: Keys::Bytes4, value_bytes: 32, ..data };
    let small_bytes = measure(small, DocumentForm::default())?.last + 36.0;
    let values = [
        ("plain", plain_overhead.last),
        ("plain, worst", plain_overhead.worst),
        ("plain, as counted by the index", plain_overhead.counted),
        ("expiry more", expiry.last - plain_overhead.last),
        ("version more", version.last - plain_overhead.last),
        ("4 + 32 B, all bytes", small_bytes),
    ];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

fn measure(data: Data, form: DocumentForm) -> Result<Overhead, String> {
    let before = Resident::now()?.bytes;
    let mut copy = Copy::empty(data).map_err(words)?;
    let entry_bytes = (data.key_bytes() + data.value_bytes) as u64;
    let overhead_of = |documents: u64| -> Result<f64, String> {
        let resident_bytes = Resident::now()?.bytes.saturating_sub(before);
        Ok((resident_bytes as f64 - (documents * entry_bytes) as f64) / documents as f64)
    };
    let (mut last, mut worst) = (0.0, 0.0_f64);
    for first in (0..data.entries).step_by(ENTRY as usize) {
        let till = data.entries.min(first + ENTRY);
        let effect = copy.effect(first..till, form).map_err(words)?;
        copy.take(&effect).map_err(words)?;
        if till * 2 >= data.entries && (till.is_multiple_of(GLANCE) || till == data.entries) {
            last = overhead_of(till)?;
            worst = worst.max(last);
        }
    }
    let counted_overhead = copy.memory_bytes() as f64 / data.entries as f64 - entry_bytes as f64;
    Ok(Overhead { last, worst, counted: counted_overhead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_measures_every_form() {
        let data = Data { entries: 20_000, keys: Keys::Bytes16, value_bytes: 50 };
        let values = bytes_per_entry(data).unwrap();
        assert_eq!(values.len(), 6);
        let counted_overhead = values.iter().find(|(name, _)| name.contains("counted")).unwrap().1;
        assert!(counted_overhead > 8.0, "{counted_overhead}");
    }
}
