//! Output arrays of the caller: checked completely before anything is written.

use forebay::Error;
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;

use crate::error::CallError;

/// Returns a buffer as elements of `T`; `None` if they have another type or the other byte order
/// (which PyO3 does not check), or are not aligned.
pub(crate) fn typed<T: Element>(buffer: PyUntypedBuffer) -> Option<PyBuffer<T>> {
    let swapped = matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'));
    if swapped { None } else { buffer.into_typed().ok() }
}

/// Refuses a buffer that is not writable from its start to its end.
fn check_writable(buffer: &PyUntypedBuffer, array_name: &str) -> Result<(), Error> {
    let reason = if buffer.readonly() {
        "is read-only; give one that can be written to"
    } else if !buffer.is_c_contiguous() {
        "is not C-contiguous; give numpy.ascontiguousarray of it, or no slice"
    } else {
        return Ok(());
    };
    Err(Error::invalid_argument(format!("{array_name} {reason}")))
}

/// A writable, C-contiguous array of `T` that is large enough for the output.
pub(crate) struct OutArray<T> {
    buffer: PyBuffer<T>,
    /// Number of elements that are written, from the start.
    length: usize,
}

impl<T: Element> OutArray<T> {
    /// Checks an array of `rows` or more rows, and for a matrix of exactly `width` columns.
    /// Messages name the array by `array_name` and `dtype`.
    ///
    /// # Errors
    /// `InvalidArgument`, which states the requirement.
    pub(crate) fn check(
        object: &Bound<'_, PyAny>,
        array_name: &str,
        dtype: &str,
        rows: usize,
        width: Option<usize>,
    ) -> Result<Self, CallError> {
        let invalid_array =
            |reason: String| Error::invalid_argument(format!("{array_name} {reason}"));
        let untyped = PyUntypedBuffer::get(object).map_err(|_| {
            invalid_array(format!("is not an array; give a NumPy array of {dtype}"))
        })?;
        check_writable(&untyped, array_name)?;
        let shape = untyped.shape().to_vec();
        let is_large_enough = match (shape.as_slice(), width) {
            ([length], None) => *length >= rows,
            ([length, columns], Some(width)) => *length >= rows && *columns == width,
            _ => false,
        };
        if !is_large_enough {
            let expected_shape = match width {
                Some(width) => format!("({rows}, {width})"),
                None => format!("({rows},)"),
            };
            let reason = format!("has shape {shape:?}; give {expected_shape}, or more rows");
            return Err(invalid_array(reason).into());
        }
        let of_another =
            || invalid_array(format!("has another type; give an aligned array of {dtype}"));
        let buffer = typed(untyped).ok_or_else(of_another)?;
        Ok(Self { buffer, length: rows * width.unwrap_or(1) })
    }

    /// Returns the elements to write.
    ///
    /// # Safety
    /// While the slice lives, no other code reads or writes the array: no other slice of it exists,
    /// and the caller's threads do not use it, which the documentation of `out` requires, as NumPy
    /// does for its own.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        let Some(mut elements) = self.buffer.as_slice_ptr() else { return &mut [] };
        // SAFETY: the exporter does not move the memory while the buffer is held; `check` found it
        // writable, contiguous, aligned and of T's format; any bytes are a T, because T is a
        // number. The caller promises that the memory is not aliased.
        let all = unsafe { elements.as_mut() };
        &mut all[..self.length]
    }
}

impl OutArray<u8> {
    /// Checks an output buffer for a value's bytes: `bytearray`, `memoryview`, an array of uint8.
    ///
    /// # Errors
    /// `InvalidArgument`, which states the requirement.
    pub(crate) fn check_bytes(object: &Bound<'_, PyAny>) -> Result<Self, CallError> {
        let advice = "give a bytearray, a memoryview or an array of uint8";
        let invalid_buffer =
            |reason: &str| Error::invalid_argument(format!("buffer {reason}; {advice}"));
        let untyped =
            PyUntypedBuffer::get(object).map_err(|_| invalid_buffer("is not a buffer"))?;
        check_writable(&untyped, "buffer")?;
        let length = untyped.len_bytes();
        let buffer = typed(untyped).ok_or_else(|| invalid_buffer("has another type"))?;
        Ok(Self { buffer, length })
    }

    /// Writes codes to the start of the array.
    pub(crate) fn fill(&mut self, codes: impl Iterator<Item = u8>) {
        // SAFETY: this code holds the interpreter and calls nothing of it, and the slice ends here.
        #[allow(unsafe_code)]
        let cells = unsafe { self.as_mut_slice() };
        cells.iter_mut().zip(codes).for_each(|(cell, code)| *cell = code);
    }
}
