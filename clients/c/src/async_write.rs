//! Writes whose caller does not wait: sent at once, or through a stream; the outcome goes to a sink
//! once it is known.

use std::sync::Arc;

use forebay::Error;
use forebay::writes::{Acknowledgement, BatchOutcome, StreamOptions, StreamSummary, Token};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::abi::{FbChange, FbError, FbSink, FbStreamOptions, FbStreamSummary};
use crate::error::{CallError, ffi_call};
use crate::event::Sink;
use crate::handles::OpenStream;
use crate::input::{millis_or, one, put};
use crate::output::{Packer, owned};
use crate::process::{spawn, wait};
use crate::registry::{self, Object};
use crate::write::{batch_of, result_code};

/// Sends changes of one store, and passes the outcome of each to the sink later.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_send(
    store: u64,
    changes: *const FbChange,
    change_count: u64,
    deadline_ms: u64,
    sink: *const FbSink,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let open_store = open.store()?;
        // SAFETY: the caller follows the header's rules.
        let (batch, sink) = unsafe {
            (batch_of(open_store.store()?, changes, change_count, deadline_ms)?, Sink::of(sink)?)
        };
        let room = open_store.in_flight().room(change_count)?;
        spawn(async move {
            let record = match batch.send().await {
                Ok(outcome) => pack_outcome(&outcome),
                Err(write_error) => pack_error(write_error.into()),
            };
            sink.tell(record, Some(room));
        })?;
        Ok(())
    })
}

/// Opens a stream of writes to a store.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_stream_open(
    store: u64,
    options: *const FbStreamOptions,
    stream: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let open_store = open.store()?;
        let (mut stream_options, mut deadline) = (StreamOptions::default(), open_store.deadline());
        if !options.is_null() {
            // SAFETY: the caller follows the header's rules.
            let given_options = unsafe { one(options)? };
            let or = |value: u64, unless: usize| match usize::try_from(value) {
                Ok(0) => unless,
                value => value.unwrap_or(usize::MAX),
            };
            stream_options.changes_max = or(given_options.changes_max, stream_options.changes_max);
            stream_options.bytes_max = or(given_options.bytes_max, stream_options.bytes_max);
            deadline = millis_or(given_options.deadline_ms, deadline);
        }
        let undelivered = stream_options.changes_max.min(Semaphore::MAX_PERMITS);
        let open_stream = OpenStream {
            stream: Mutex::new(
                open_store.store()?.write_stream(stream_options)?.deadline(deadline),
            ),
            client_closed: open_store.client_closed(),
            undelivered: Arc::new(Semaphore::new(undelivered)),
            deadline,
        };
        let id = registry::insert(Object::Stream(Box::new(open_stream)))?;
        // SAFETY: as above.
        unsafe { put(stream, id) };
        Ok(())
    })
}

/// Queues a change once there is space, and passes its outcome to the sink later.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_stream_send(
    stream: u64,
    store: u64,
    change: *const FbChange,
    sink: *const FbSink,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let (open, store) = (registry::open(stream)?, registry::open(store)?);
        let open_stream = open.stream()?;
        // SAFETY: the caller follows the header's rules.
        let (write, sink) =
            unsafe { (one(change)?.write(store.store()?.store()?)?, Sink::of(sink)?) };
        let mut streaming = open_stream.stream()?.lock();
        let (acknowledgement, room) = wait(async {
            let room = open_stream.room().await?;
            Ok::<_, Error>((streaming.send(write).await?, room))
        })??;
        spawn(async move { sink.tell(acknowledged(acknowledgement).await, Some(room)) })?;
        Ok(())
    })
}

async fn acknowledged(acknowledgement: Acknowledgement) -> Vec<u8> {
    match acknowledgement.await {
        Ok(outcome) => {
            let (token, results) = (outcome.token, vec![Ok(outcome.result)]);
            pack_outcome(&BatchOutcome { token, results })
        }
        Err(write_error) => pack_error(write_error.into()),
    }
}

/// Waits until every change that was sent is resolved.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_stream_flush(
    stream: u64,
    summary: *mut FbStreamSummary,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(stream)?;
        // Changes in flight end even if the client is closed during the flush.
        let mut streaming = open.stream()?.stream.lock();
        let StreamSummary { token, resolved, condition_failed, failed, .. } =
            wait(streaming.flush())??;
        let token = owned(Token::encode(&token).to_vec().into());
        // SAFETY: the caller follows the header's rules.
        unsafe { put(summary, FbStreamSummary { resolved, condition_failed, failed, token }) };
        Ok(())
    })
}

/// Packs the outcome of resolved changes.
fn pack_outcome(outcome: &BatchOutcome) -> Vec<u8> {
    let mut packer = Packer::default();
    packer.error(None);
    packer.text(&outcome.token.encode());
    packer.u32(outcome.results.len() as u32);
    for result in &outcome.results {
        let (code, version) = result_code(result);
        packer.u32(code);
        packer.u32(version.is_some().into());
        packer.u64(version.map_or(0, |version| version.0));
        packer.error(result.as_ref().err().map(|error| CallError::from(error.clone())));
    }
    packer.into_bytes()
}

/// Packs the error of changes that are unresolved or were refused.
fn pack_error(error: CallError) -> Vec<u8> {
    let mut packer = Packer::default();
    packer.error(Some(error));
    packer.text(&[]);
    packer.u32(0);
    packer.into_bytes()
}

#[cfg(test)]
mod tests {
    use forebay::writes::WriteResult;

    use super::*;

    #[test]
    fn outcomes_are_packed_with_their_errors() {
        let token = Token::new(forebay::schema::StoreId(1));
        let refusal = Err(Error::limit_exceeded("less", 3, 4).with_store("s"));
        let outcome = BatchOutcome { token, results: vec![Ok(WriteResult::Applied), refusal] };
        let bytes = pack_outcome(&outcome);
        assert!(bytes.windows(4).any(|text| text == b"less"));
        assert!(pack_error(Error::closed("gone").into()).starts_with(&[13, 0, 0, 0]));
    }
}
