//! Reads of many documents: packed values, gathers into the caller's matrix, scans.

use forebay::reads::{
    Conversion, Element, FieldHandle, GatherField, GatherOut, GatherPlan, KeyAnswer, KeyStatus,
    PackedValues, Presence,
};
use forebay::{Error, Result};

use crate::abi::{FbBytes, FbError, FbGatherField, FbKeys, FbPacked, FbReadOptions};
use crate::error::ffi_call;
use crate::handles::{OpenPlan, OpenReader, OpenScan};
use crate::input::{ReadArguments, put, read_arguments, slice, slice_mut};
use crate::keys::{GivenKeys, keys};
use crate::output::{Packer, owned, presence_code};
use crate::registry::{self, Object};

impl OpenReader {
    /// Waits as a read of these keys requests.
    fn wait_for(&self, options: &ReadArguments, keys: &GivenKeys<'_>) -> Result<()> {
        if options.waits {
            self.wait(self.reader.wait(&options.read, &self.reader.partitions_of(keys)?))??;
        }
        Ok(())
    }

    /// # Safety
    /// Pointers satisfy the header's rules.
    unsafe fn packed(
        &self,
        handle: &FieldHandle,
        given: *const FbKeys,
        read: *const FbReadOptions,
    ) -> Result<PackedValues> {
        // SAFETY: the caller vouches for them.
        let (requested_keys, options) = unsafe { (keys(given)?, read_arguments(read)?) };
        self.wait_for(&options, &requested_keys)?;
        let mut values = PackedValues::default();
        self.read_here(&options, |view| view.get_packed(&requested_keys, handle, &mut values))?;
        Ok(values)
    }
}

/// Reads a string or bytes field of many documents.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_many(
    reader: u64,
    field: u64,
    given: *const FbKeys,
    read: *const FbReadOptions,
    packed: *mut FbPacked,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller follows the header's rules.
        let values = unsafe { found.packed(handle, given, read)? };
        let mut ends = Vec::with_capacity(8 * values.ends.len());
        values.ends.iter().for_each(|end| ends.extend_from_slice(&end.to_le_bytes()));
        let statuses: Vec<u8> = values.statuses.iter().map(|status| *status as u8).collect();
        let presences: Vec<u8> = values.presences.iter().copied().map(presence_code).collect();
        let answer = FbPacked {
            values: owned(values.bytes.into()),
            ends: owned(ends.into()),
            statuses: owned(statuses.into()),
            presences: owned(presences.into()),
        };
        // SAFETY: as above.
        unsafe { put(packed, answer) };
        Ok(())
    })
}

/// Reads as `fb_reader_get_many` does, into the caller's memory; copies nothing if the values are
/// longer than `capacity`, and returns their length.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_many_into(
    reader: u64,
    field: u64,
    given: *const FbKeys,
    read: *const FbReadOptions,
    values: *mut u8,
    capacity: u64,
    ends: *mut u64,
    statuses: *mut u8,
    presences: *mut u8,
    length: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller follows the header's rules.
        let packed = unsafe { found.packed(handle, given, read)? };
        let (keys, bytes) = (packed.ends.len() as u64, packed.bytes.len() as u64);
        // SAFETY: as above; each slice is checked before the first is written, and none of them is
        // alive when the next one is created for writing.
        unsafe {
            slice_mut(ends, keys)?;
            slice_mut(statuses, keys)?;
            slice_mut(presences, keys)?;
            if bytes <= capacity {
                slice_mut(values, bytes)?.copy_from_slice(&packed.bytes);
                slice_mut(ends, keys)?.copy_from_slice(&packed.ends);
                let codes = packed.statuses.iter().map(|status| *status as u8);
                slice_mut(statuses, keys)?
                    .iter_mut()
                    .zip(codes)
                    .for_each(|(place, code)| *place = code);
                let codes = packed.presences.iter().copied().map(presence_code);
                slice_mut(presences, keys)?
                    .iter_mut()
                    .zip(codes)
                    .for_each(|(place, code)| *place = code);
            }
            put(length, bytes);
        }
        Ok(())
    })
}

/// Reads many whole documents: per key its status u8, and the document if it was found.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_documents(
    reader: u64,
    given: *const FbKeys,
    read: *const FbReadOptions,
    documents: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        // SAFETY: the caller follows the header's rules.
        let (requested_keys, options) = unsafe { (keys(given)?, read_arguments(read)?) };
        found.wait_for(&options, &requested_keys)?;
        let mut packer = Packer::default();
        found.read_here(&options, |view| {
            view.get_many(&requested_keys, |_, answer| {
                packer.u8(answer.status() as u8);
                match answer {
                    KeyAnswer::Found(row) => packer.document(&row),
                    KeyAnswer::None(_) => Ok(()),
                }
            })
        })?;
        // SAFETY: as above.
        unsafe { put(documents, packer.finish()) };
        Ok(())
    })
}

/// Plans a gather into a matrix of one type of cells, `FB_CELL_*`.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_gather_plan_open(
    reader: u64,
    fields: *const FbGatherField,
    field_count: u64,
    cell: u32,
    lossy: u32,
    plan: *mut u64,
    width: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let reader = &open.reader()?.reader;
        // SAFETY: the caller follows the header's rules.
        let given_fields = unsafe { slice(fields, field_count)? };
        let field = |field: &FbGatherField| {
            // SAFETY: as above.
            let (name, default) = unsafe { (field.name.text()?, field.fallback.value()?) };
            Ok(GatherField { name, default })
        };
        let fields = given_fields.iter().map(field).collect::<Result<Vec<_>>>()?;
        let conversion = if lossy == 0 { Conversion::Exact } else { Conversion::Lossy };
        let planned = match cell {
            0 => OpenPlan::F32(reader.plan_gather(&fields, conversion)?),
            1 => OpenPlan::F64(reader.plan_gather(&fields, conversion)?),
            2 => OpenPlan::I64(reader.plan_gather(&fields, conversion)?),
            _ => {
                let message = "no such type of cells; see FB_CELL in forebay.h";
                return Err(Error::invalid_argument(message).into());
            }
        };
        let columns = planned.width();
        let id = registry::insert(Object::Plan(planned))?;
        // SAFETY: as above.
        unsafe {
            put(plan, id);
            put(width, columns as u64);
        }
        Ok(())
    })
}

/// Returns the columns of a plan, packed: each field's name, first column and number of columns.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_gather_plan_columns(
    plan: u64,
    columns: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(plan)?;
        let planned = open.plan()?.columns();
        let mut packer = Packer::default();
        packer.u32(planned.len() as u32);
        for field in &planned {
            packer.text(field.field.as_bytes());
            packer.u32(field.first as u32);
            packer.u32(field.count as u32);
        }
        // SAFETY: the caller follows the header's rules.
        unsafe { put(columns, packer.finish()) };
        Ok(())
    })
}

/// The output of a gather, as the caller passes it.
struct Matrix<E> {
    values: *mut E,
    capacity: u64,
    statuses: *mut u8,
    cells: *mut u8,
}

/// # Safety
/// The header's rules for a gather's pointers apply.
unsafe fn gather<E: Element>(
    found: &OpenReader,
    plan: &GatherPlan<E>,
    given: *const FbKeys,
    read: *const FbReadOptions,
    matrix: &Matrix<E>,
) -> Result<()> {
    // SAFETY: the caller follows the header's rules.
    let (requested_keys, options) = unsafe { (keys(given)?, read_arguments(read)?) };
    found.wait_for(&options, &requested_keys)?;
    let rows = forebay::reads::KeyList::count(&requested_keys);
    let cells = rows * plan.width();
    if matrix.capacity < cells as u64 {
        let message = format!("the matrix needs room for {cells}, and has {}", matrix.capacity);
        return Err(Error::invalid_argument(message));
    }
    let mut statuses = (!matrix.statuses.is_null()).then(|| vec![KeyStatus::Absent; rows]);
    let mut presences = (!matrix.cells.is_null()).then(|| vec![Presence::Absent; cells]);
    // SAFETY: as above; until this slice's last use, this call has no other slice of the caller's
    // memory.
    let values = unsafe { slice_mut(matrix.values, cells as u64)? };
    let mut out =
        GatherOut { values, statuses: statuses.as_deref_mut(), cells: presences.as_deref_mut() };
    found.read_here(&options, |view| view.gather(plan, &requested_keys, &mut out))?;
    if let Some(statuses) = statuses {
        // SAFETY: as above; the header requires space for a byte per key.
        let places = unsafe { slice_mut(matrix.statuses, rows as u64)? };
        places.iter_mut().zip(statuses).for_each(|(place, status)| *place = status as u8);
    }
    if let Some(presences) = presences {
        // SAFETY: as above; the header requires space for a byte per cell.
        let places = unsafe { slice_mut(matrix.cells, cells as u64)? };
        let codes = presences.into_iter().map(presence_code);
        places.iter_mut().zip(codes).for_each(|(place, code)| *place = code);
    }
    Ok(())
}

fn another_type() -> Error {
    Error::invalid_argument("the plan is for a matrix of another type; plan a gather for this type")
}

/// Fills a matrix of floats: a row per key, the plan's columns.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_gather_f32(
    reader: u64,
    plan: u64,
    given: *const FbKeys,
    read: *const FbReadOptions,
    values: *mut f32,
    capacity: u64,
    statuses: *mut u8,
    cells: *mut u8,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let (open, planned) = (registry::open(reader)?, registry::open(plan)?);
        let OpenPlan::F32(planned) = planned.plan()? else { return Err(another_type().into()) };
        let matrix = Matrix { values, capacity, statuses, cells };
        // SAFETY: the caller follows the header's rules.
        unsafe { gather(open.reader()?, planned, given, read, &matrix)? };
        Ok(())
    })
}

/// Fills a matrix of doubles: a row per key, the plan's columns.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_gather_f64(
    reader: u64,
    plan: u64,
    given: *const FbKeys,
    read: *const FbReadOptions,
    values: *mut f64,
    capacity: u64,
    statuses: *mut u8,
    cells: *mut u8,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let (open, planned) = (registry::open(reader)?, registry::open(plan)?);
        let OpenPlan::F64(planned) = planned.plan()? else { return Err(another_type().into()) };
        let matrix = Matrix { values, capacity, statuses, cells };
        // SAFETY: the caller follows the header's rules.
        unsafe { gather(open.reader()?, planned, given, read, &matrix)? };
        Ok(())
    })
}

/// Fills a matrix of 64-bit integers: a row per key, the plan's columns.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_gather_i64(
    reader: u64,
    plan: u64,
    given: *const FbKeys,
    read: *const FbReadOptions,
    values: *mut i64,
    capacity: u64,
    statuses: *mut u8,
    cells: *mut u8,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let (open, planned) = (registry::open(reader)?, registry::open(plan)?);
        let OpenPlan::I64(planned) = planned.plan()? else { return Err(another_type().into()) };
        let matrix = Matrix { values, capacity, statuses, cells };
        // SAFETY: the caller follows the header's rules.
        unsafe { gather(open.reader()?, planned, given, read, &matrix)? };
        Ok(())
    })
}

/// Starts a scan of every document of the reader.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_scan_open(reader: u64, scan: *mut u64, error: *mut FbError) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let open_scan = OpenScan { reader, scan: open.reader()?.reader.scan() };
        let id = registry::insert(Object::Scan(open_scan.into()))?;
        // SAFETY: the caller follows the header's rules.
        unsafe { put(scan, id) };
        Ok(())
    })
}

/// Visits more documents of a scan: per document its key, its partition key if the store declares
/// one, and the document, packed. A count of 0 is the end.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_scan_next(
    scan: u64,
    max_staleness_ms: u64,
    documents_max: u64,
    documents: *mut FbBytes,
    count: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(scan)?;
        let mut scanning = open.scan()?.lock();
        let reader = registry::open(scanning.reader)?;
        let max_staleness =
            (max_staleness_ms > 0).then(|| std::time::Duration::from_millis(max_staleness_ms));
        let max = usize::try_from(documents_max).unwrap_or(usize::MAX);
        let mut packer = Packer::default();
        let visited = reader.reader()?.reader.scan_next(
            &mut scanning.scan,
            max_staleness,
            max,
            |document| {
                packer.key(document.key.primary());
                match document.key.partition_key() {
                    Some(partition_key) => packer.key(partition_key),
                    None => packer.u32(0),
                }
                packer.document(&document.row)
            },
        )?;
        // SAFETY: the caller follows the header's rules.
        unsafe {
            put(count, visited as u64);
            put(documents, packer.finish());
        }
        Ok(())
    })
}
