//! All limits of Forebay in one file. A caller that exceeds a limit gets `LimitExceeded` with the
//! limit and the actual value.

/// Longest primary key or partition key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Largest single field value, in bytes of its encoded form.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest encoded row, in bytes. A writer cannot know the size of an upsert's result, so a replica
/// skips and counts a change whose result would be larger.
pub const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest entry body as the log holds it, in bytes.
pub const ENTRY_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Most changes in one entry; the index of a change in its entry fits 16 bits.
pub const ENTRY_CHANGES_MAX: usize = 16 * 1024;
/// Most changes in one write request.
pub const REQUEST_CHANGES_MAX: usize = 16 * 1024;
/// Largest gRPC message that any of our services accepts or sends, in bytes.
pub const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX + 4 * 1024 * 1024;
/// Longest store or field name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most fields that a definition may hold, retired ids excluded.
pub const FIELDS_MAX: usize = 2_000;
/// Most earlier names (aliases) of a field.
pub const ALIASES_MAX: usize = 32;
/// Most values that a stream's column may allow.
pub const ALLOWED_VALUES_MAX: usize = 1_000;
/// Most indexed columns of a stream; each adds an index entry for each event.
pub const STREAM_INDEXES_MAX: usize = 32;
/// Bytes of a value by which a range index orders events; the index leaves out the rest of the
/// value.
pub const INDEX_VALUE_BYTES_MAX: usize = 1_024;
/// Events that a select returns by default.
pub const SELECT_LIMIT: u32 = 1_000;
/// Most events that a select may request.
pub const SELECT_LIMIT_MAX: u32 = 10_000;
/// Most bytes of events that a select returns.
pub const SELECT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most index entries that a select scans in one partition.
pub const SELECT_SCANNED_MAX: usize = 1_000_000;
/// Most events of one partition that a select reads without returning them.
pub const SELECT_READ_MAX: usize = 100_000;
/// Most bytes of labels for one training set.
pub const TRAINING_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Default memory limit of all SQL statements together, in MiB.
pub const SQL_MEMORY_MIB: u32 = 256;
/// Most bytes of a SQL statement.
pub const SQL_BYTES_MAX: usize = 64 * 1024;
/// Most words and operators of a SQL statement; items of a list do not count.
pub const SQL_OPERATORS_MAX: usize = 2_000;
/// Most tables that a SQL statement names. A named query counts as its tables wherever the
/// statement names it.
pub const SQL_TABLES_MAX: usize = 512;
/// Most nodes, columns and expressions of the plan of a SQL statement. The plan repeats a named
/// query wherever the statement names it.
pub const SQL_PLAN_PARTS_MAX: usize = 50_000;
/// Most bytes of strings that a SQL function builds for one batch of rows.
pub const SQL_JOINED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Highest field id, retired ids included.
pub const FIELD_ID_MAX: u32 = 65_535;
/// Highest schema version of a store; rows store it in 16 bits.
pub const SCHEMA_VERSION_MAX: u32 = 65_535;
/// Most partitions of a store.
pub const PARTITIONS_MAX: u32 = 4_096;
/// Longest fixed-length vector, in components.
pub const VECTOR_COMPONENTS_MAX: usize = 65_535;
/// Most components of a list, also the largest bound of a list append.
pub const LIST_COMPONENTS_MAX: usize = 65_535;
/// Sequences below a client's highest that de-duplication remembers, per partition.
pub const DEDUP_WINDOW: u64 = 1_024;
/// Partition time after which an idle client is forgotten, in microseconds: 24 h.
pub const DEDUP_IDLE_US: i64 = 24 * 60 * 60 * 1_000_000;
/// Outcomes of conditional changes that a partition's replicator stores.
pub const OUTCOMES_KEPT: usize = 65_536;
/// Bytes of a skipped record that its dead letter holds; only the home log has the rest.
pub const DEAD_LETTER_BYTES_MAX: usize = ENTRY_BYTES_MAX - 64 * 1024;
/// Target size in bytes at which the copier closes a record of the dead-letter log; a single letter
/// may be larger.
pub const DEAD_LETTERS_BYTES_TARGET: usize = 256 * 1024;
/// Letters in one record of the dead-letter log.
pub const DEAD_LETTERS_PER_RECORD_MAX: usize = 256;
/// Records that the dead-letter log of a partition retains at least; older records may be trimmed.
pub const DEAD_LETTER_RECORDS_KEPT: u64 = 4_096;
/// Most skipped records of one store that wait to be copied.
pub const DEAD_LETTERS_WAITING_MAX: usize = 4_096;
/// Most bytes of skipped records of one store that wait to be copied; one further record may exceed
/// this limit.
pub const DEAD_LETTERS_WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Letters in one page of a listing, unless one record of the log holds more.
pub const DEAD_LETTERS_PAGE_MAX: usize = 1_000;
/// Bytes of records in one page of a listing, unless one record is larger.
pub const DEAD_LETTERS_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// First wait of a dead-letter copier after a log error, in milliseconds; it doubles.
pub const DEAD_LETTERS_BACKOFF_MS_MIN: u64 = 50;
/// Longest wait of a dead-letter copier after a log error, in milliseconds.
pub const DEAD_LETTERS_BACKOFF_MS_MAX: u64 = 5_000;
/// Requests in one partition's write queue above which the writer applies back-pressure.
pub const WRITE_QUEUE_REQUESTS_MAX: usize = 4_096;
/// Bytes in one partition's write queue above which the writer applies back-pressure.
pub const WRITE_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Entries in the queue of one committer of an embedded log above which an append waits.
pub const COMMIT_QUEUE_ENTRIES_MAX: usize = 4_096;
/// Bytes in the queues of all committers of an embedded log above which an append waits.
pub const COMMIT_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most segment files that an embedded log holds open at once.
pub const LOG_FILES_OPEN_MAX: usize = 256;
/// Default of the longest wait of a reader's `open` for its store to appear in the catalog, in
/// milliseconds.
pub const READER_OPEN_TIMEOUT_MS: u64 = 10_000;
/// Default of the greatest age at which a reader becomes ready, in milliseconds.
pub const READER_READY_AGE_MS: u64 = 10_000;
/// Time for which a reader stays ready although its age exceeds twice its bound, in milliseconds.
pub const READER_READY_GRACE_MS: u64 = 5_000;
/// Most bytes of entries that a reader reads from its log at once.
pub const READER_READ_BYTES_MAX: usize = 1024 * 1024;
/// Memory that a reader reserves for the other parts of its process if no memory limit is
/// configured; see `tools/decisions/0027`.
pub const PROCESS_RESERVED_BYTES: u64 = 56 * 1024 * 1024;
/// Additional memory that the reader reserves for each partition: the data that its tail has in
/// flight.
pub const PROCESS_RESERVED_PARTITION_BYTES: u64 = 8 * 1024 * 1024;
/// Longest wait of a reader at its log's end before it reads again, in milliseconds.
pub const READER_READ_WAIT_MS: u64 = 1_000;
/// Longest wait of a reader for a response of its log, in addition to the wait that it requested,
/// in milliseconds.
pub const READER_LOG_TIMEOUT_MS: u64 = 10_000;
/// Longest wait of a reader for a definition before it reads its log again, in milliseconds.
pub const READER_DEFINITION_WAIT_MS: u64 = 5_000;
/// Poll interval on a shared copy that another reader owns, in milliseconds, while no call waits.
pub const READER_COPY_POLL_INTERVAL_MS: u64 = 20;
/// Poll interval on a shared copy, in milliseconds, while a call waits or while the copy does not
/// serve yet.
pub const READER_COPY_POLL_INTERVAL_ACTIVE_MS: u64 = 1;
/// Interval between two attempts to copy the records that a version of the documents shares with
/// its predecessor, in milliseconds.
pub const VERSION_DETACH_RETRY_MS: u64 = 60_000;
/// Longest time for which the next version waits until the live version is detached from shared
/// records, in milliseconds.
pub const VERSION_DETACH_WAIT_MS: u64 = 60_000;
/// Longest wait for the tasks of a dropped version to end, in milliseconds.
pub const VERSION_CLOSE_WAIT_MS: u64 = 60_000;
/// Time after which an opening reader releases local files that it opened speculatively before the
/// catalog answered, in milliseconds: another process may need their locks.
pub const SPECULATIVE_OPEN_MS_MAX: u64 = 1_000;
/// Interval at which a standby reader tries to take over the shared copy that another reader owns,
/// in milliseconds.
pub const READER_TAKE_OVER_MS: u64 = 100;
/// Wait of a newly opened reader before its first attempt to take over a shared copy, in
/// milliseconds: the work that a killed owner left runs after the first reads.
pub const READER_TAKE_OVER_FIRST_MS: u64 = 5;
/// Interval at which a reader checks its readiness, in milliseconds.
pub const READER_READY_CHECK_MS: u64 = 250;
/// Attempts to append a barrier if the append fails or its response is lost; a second barrier
/// changes nothing.
pub const READER_BARRIER_TRIES_MAX: u32 = 3;
/// First wait of a reader before it tries a failed step again, in milliseconds; it doubles.
pub const READER_BACKOFF_MS_MIN: u64 = 50;
/// Longest wait of a reader before it tries a failed step again, in milliseconds.
pub const READER_BACKOFF_MS_MAX: u64 = 5_000;
/// Interval at which a reader measures its clock error, in milliseconds.
pub const READER_CLOCK_CHECK_MS: u64 = 60_000;
/// Round-trip time above which the reader soon repeats the measurement of its clock error, in
/// microseconds.
pub const READER_CLOCK_EXCHANGE_SLOW_US: i64 = 200_000;
/// Time until the repeated measurement, in milliseconds.
pub const READER_CLOCK_CHECK_SOON_MS: u64 = 2_000;
/// Consecutive poisoned replicas of a partition after which a reader halts the partition.
pub const READER_POISONED_COPIES_MAX: u32 = 3;
/// Default interval between two checkpoints of a reader's partition, in milliseconds.
pub const CHECKPOINT_INTERVAL_MS: u64 = 10_000;
/// Longest time that a closing reader takes to write its last checkpoint of a partition, in
/// milliseconds. A slower checkpoint is abandoned, and the previous one stays.
pub const CHECKPOINT_CLOSE_MS: u64 = 5_000;
/// Default of the largest partition for which a reader writes checkpoints, in bytes of keys and
/// rows.
pub const CHECKPOINT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Most checkpoint files of one partition that a reader tries, newest first.
pub const CHECKPOINT_FILES_MAX: usize = 8;
/// Least memory for the shards of a process, in bytes.
pub const SHARD_MEMORY_BYTES_MIN: usize = 16 * 1024 * 1024;
/// Default memory for block cache and write buffers of all shards of a process, in MiB.
pub const SHARD_MEMORY_MIB: u32 = 256;
/// Bytes of documents at which a scan page ends; a larger document has a page of its own.
pub const SCAN_PAGE_BYTES: usize = 1024 * 1024;
/// Rows that a scan reads for one page, expired rows included.
pub const SCAN_PAGE_ROWS_MAX: usize = 10_000;
/// Time for which a scan's snapshot stays open after the last page, in milliseconds.
pub const SCAN_SNAPSHOT_TTL_MS: u64 = 60_000;
/// Most open snapshots for the scans of one store.
pub const SCAN_SNAPSHOTS_MAX: usize = 64;
/// Rows of a get that are in memory at once, in addition to the response.
pub const ORDERED_GET_KEYS: usize = 64;
/// Longest wait that an ordered read may request, in milliseconds.
pub const ORDERED_READ_WAIT_MS_MAX: u32 = 60_000;
/// Write-buffer size at which a shard flushes to a file, if the memory limit allows it, in bytes.
pub const SHARD_TABLE_BYTES: usize = 64 * 1024 * 1024;
/// Number of overlapping files at which a bulk load compacts the shard.
pub const SHARD_LOAD_FILES_MAX: u64 = 64;
/// Bytes at which a block of a copy's rows ends, after the row that crosses the limit. Both ends
/// pass over a block several times, and a block of this size stays in a core's own cache.
pub const COPY_BLOCK_BYTES: usize = 256 * 1024;
/// Largest block of a copy's rows, in bytes: its last row may be a large one.
pub const COPY_BLOCK_BYTES_MAX: usize = ROW_BYTES_MAX + 2 * 1024 * 1024;
/// Largest message of a copy's stream, in bytes: a block and its metadata.
pub const COPY_MESSAGE_BYTES_MAX: usize = COPY_BLOCK_BYTES_MAX + 64 * 1024;
/// Parts into which a copy is divided, as far as their sizes allow. If the copy breaks off, each
/// stream loses at most the part in progress.
pub const COPY_PARTS: u64 = 256;
/// Least bytes of a part of a copy.
pub const COPY_PART_BYTES_MIN: u64 = 1024 * 1024;
/// Most bytes of a part of a copy.
pub const COPY_PART_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most rows of a part of a copy: the filter and the index of its file are built in memory.
pub const COPY_PART_ROWS_MAX: u64 = 256 * 1024;
/// Largest record of a copied part, in bytes.
pub const COPY_PART_RECORD_BYTES_MAX: usize = 1024 * 1024;
/// Most ranges into which a copy is divided.
pub const COPY_RANGES_MAX: usize = 64;
/// Most files of a copy; its plan lists all of them.
pub const COPY_FILES_MAX: usize = 64 * 1024;
/// Most ranges of a copy that are read in parallel.
pub const COPY_PARALLELISM_MAX: usize = 6;
/// Most shards that are frozen for copies at once.
pub const COPIES_MAX: usize = 8;
/// Time for which a shard stays frozen without a read, in milliseconds.
pub const COPY_LEASE_MS: u64 = 15 * 60 * 1_000;
/// Bytes of rows in flight for each stream of a copy.
pub const COPY_STREAM_BYTES: u32 = 4 * 1024 * 1024;
/// Largest frame of a copy's stream, in bytes; each frame is one system call at both ends.
pub const COPY_FRAME_BYTES: u32 = 256 * 1024;
/// Size of a chunk of a snapshot's image, in bytes; the last chunk may be smaller.
pub const SNAPSHOT_CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// Largest chunk of a snapshot, in bytes: a chunk of a delta may be one large row.
pub const SNAPSHOT_CHUNK_BYTES_MAX: usize = 80 * 1024 * 1024;
/// Largest message of a snapshot's manifest, in bytes.
pub const SNAPSHOT_MANIFEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Chunks that are downloaded or uploaded in parallel.
pub const SNAPSHOT_CHUNKS_AT_ONCE: usize = 8;
/// Bytes of an image after which the reader syncs it to disk during the download, so that the sync
/// at the end is short.
pub const SNAPSHOT_SYNC_BYTES: u64 = 64 * 1024 * 1024;
/// Longest wait for a connection to the object store of snapshots, in milliseconds.
pub const SNAPSHOT_CONNECT_MS: u64 = 5_000;
/// Longest wait for the whole response to one attempt of an object-store request, in milliseconds;
/// one attempt uploads or downloads a chunk.
pub const SNAPSHOT_REQUEST_MS: u64 = 30_000;
/// Time after the start of an object-store request beyond which it is not retried, in milliseconds.
pub const SNAPSHOT_RETRY_MS: u64 = 10_000;
/// First wait before an object-store request is retried, in milliseconds; the wait grows.
pub const SNAPSHOT_BACKOFF_MS_MIN: u64 = 100;
/// Longest wait before an object-store request is retried, in milliseconds.
pub const SNAPSHOT_BACKOFF_MS_MAX: u64 = 2_000;
/// Most characters of an object store's own message in an error.
pub const SNAPSHOT_REFUSAL_CHARS_MAX: usize = 600;
/// Default interval between two snapshots of a partition, in seconds.
pub const SNAPSHOT_EVERY_S: u64 = 15 * 60;
/// Default number of retained snapshots of a partition.
pub const SNAPSHOTS_KEPT: usize = 8;
/// Default memory limit for building the image of one partition, in MiB.
pub const SNAPSHOT_MEMORY_MIB: u64 = 4 * 1024;
/// Interval of the garbage collection of a partition's snapshots, in milliseconds.
pub const SNAPSHOT_COLLECT_MS: u64 = 60 * 60 * 1_000;
/// Deltas on one image after which a new image is built.
pub const SNAPSHOT_DELTAS_MAX: usize = 64;
/// Default time for which a chunk stays after the last snapshot that names it is gone, in
/// milliseconds.
pub const SNAPSHOT_GRACE_MS: u64 = 24 * 60 * 60 * 1_000;
/// Default rollback window, in seconds: the time for which the previously live version of a store's
/// documents is retained.
pub const ROLLBACK_WINDOW_S: u64 = 24 * 60 * 60;
/// Time after a repartition for which a reader lets calls wait in all partitions, in milliseconds:
/// a call may have looked up the partition of its keys before the repartition.
pub const READER_REPARTITIONED_MS: u64 = 60_000;
/// Span of append times, in microseconds, in which entries of one partition are forwarded to other
/// partitions as one entry.
pub const FORWARD_GROUP_US: i64 = 100_000;
/// Time that all writers have to learn that writes to a store are paused, in milliseconds.
pub const REPARTITION_PAUSE_MS: u64 = 250;
/// Longest time that a writer holds a write while the documents are repartitioned, in milliseconds.
pub const REPARTITION_WRITE_WAIT_MS: u64 = 5_000;
/// Most versions of one store's documents at once.
pub const STORE_VERSIONS_MAX: usize = 8;
/// Bytes of rows of one partition that a push writes at once.
pub const PUSH_BLOCK_BYTES: usize = 1024 * 1024;
/// Bytes of rows of all partitions that a push holds in memory before it writes them.
pub const PUSH_BLOCKS_BYTES: usize = 64 * 1024 * 1024;
/// Time for which the rows of an interrupted push stay if it does not resume, in milliseconds.
pub const PUSH_WORKSPACE_TTL_MS: u64 = 24 * 60 * 60 * 1_000;
/// Number of log records above which a reader bootstraps from a shard if there is no snapshot.
pub const READER_RECORDS_FOLDED_MAX: u64 = 100_000;
/// Partitions of a reader that bootstrap from an image at once; each downloads its image while it
/// builds the replica.
pub const READER_FETCHES_AT_ONCE: usize = 2;
/// Bytes of an image that are downloaded ahead of the replica that is built from it, so that little
/// is left to do when the last byte arrives.
pub const READER_FETCHED_AHEAD_BYTES: u64 = 64 * 1024 * 1024;
/// Chunks of a new version's image that are downloaded in parallel, one partition after the other,
/// while another version serves. No call waits for the new version, and chunks in flight take
/// memory.
pub const READER_BESIDE_CHUNKS_AT_ONCE: usize = 4;
/// Attempts to get a snapshot before a reader replays a log that has all entries.
pub const READER_SNAPSHOT_ATTEMPTS: u32 = 5;
/// Key-hash ranges that have a digest each when two replicas are compared.
pub const VERIFY_RANGES: usize = 4_096;
/// Most bytes of documents of both replicas that are compared one by one.
pub const VERIFY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most documents that the log may change between the positions of two compared replicas.
pub const VERIFY_CHANGED_MAX: usize = 1 << 20;
/// Most differing documents that a comparison names.
pub const VERIFY_NAMED_MAX: usize = 1_000;
/// Largest text that declares one feature view, in bytes.
pub const VIEW_DECLARATION_BYTES_MAX: usize = 64 * 1024;
/// Largest file that declares feature views, in bytes.
pub const VIEW_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Most documents of a file that declares feature views.
pub const VIEW_FILE_DOCUMENTS_MAX: usize = 256;
/// Default allowed lateness of a view: how far an event's time may be before its partition's time.
/// The default covers clock differences and the order in which partitions are derived.
pub const VIEW_ALLOWED_LATENESS_US: i64 = 60_000_000;
/// Default interval between two materializations of one group of a feature view.
pub const VIEW_MATERIALIZATION_INTERVAL_US: i64 = 100_000;
/// Least materialization interval: 10 ms.
pub const VIEW_MATERIALIZATION_INTERVAL_US_MIN: i64 = 10_000;
/// Greatest materialization interval: an hour.
pub const VIEW_MATERIALIZATION_INTERVAL_US_MAX: i64 = 60 * 60 * 1_000_000;
/// Default expiry grace of a feature view: how long a materialized windowed value outlives its next
/// change.
pub const VIEW_EXPIRY_GRACE_US: i64 = 30_000_000;
/// Greatest expiry grace: a day.
pub const VIEW_EXPIRY_GRACE_US_MAX: i64 = 24 * 60 * 60 * 1_000_000;
/// Most SQL operators and words in the condition of one feature view. Each may nest the expression
/// before it, and nested expressions are walked by recursion.
pub const VIEW_CONDITION_OPERATORS_MAX: usize = 512;
/// Greatest nesting depth of a feature view's condition.
pub const PREDICATE_DEPTH_MAX: usize = 32;
/// Most columns of the entity of one feature view.
pub const GROUP_COLUMNS_MAX: usize = 16;
/// Most joins of one feature view.
pub const JOINS_MAX: usize = 16;
/// Most aggregates of one feature view.
pub const AGGREGATES_MAX: usize = 1_024;
/// Most windows of one feature view.
pub const WINDOWS_MAX: usize = 32;
/// Most tiles of one window; 30 days with slides of 5 minutes are 8,640.
pub const WINDOW_TILES_MAX: i64 = 10_000;
/// Longest window and greatest allowed lateness: ten years, in microseconds.
pub const WINDOW_US_MAX: i64 = 10 * 365 * 24 * 60 * 60 * 1_000_000;
/// Greatest skew of an event's time into the future of its partition's time, in microseconds: one
/// day. A greater skew indicates a wrong clock, and the event's tile would stay until then.
pub const EVENT_FUTURE_SKEW_US_MAX: i64 = 24 * 60 * 60 * 1_000_000;
/// Largest value that an aggregate stores as it is (first, last, least, frequent), in bytes.
pub const AGGREGATE_ITEM_BYTES_MAX: usize = 1_024;
/// Most values of one `last-n`.
pub const AGGREGATE_LAST_MAX: u16 = 1_000;
/// Most items of one `top-k`.
pub const AGGREGATE_TOP_MAX: u16 = 256;
/// Most quantiles of one aggregate.
pub const AGGREGATE_QUANTILES_MAX: usize = 64;
/// Most files that one shard holds open at once.
pub const SHARD_FILES_OPEN_MAX: i32 = 256;
/// Longest time to live: 100 years, in microseconds; sums with any date stay inside `i64`.
pub const TTL_US_MAX: i64 = 100 * 365 * 24 * 60 * 60 * 1_000_000;
/// Most keys of one batch of gets or gather.
pub const BATCH_KEYS_MAX: usize = 1 << 20;
/// Default deadline of a client's call, in milliseconds; the client then reports the outcome as far
/// as it knows it.
pub const CLIENT_DEADLINE_MS: u64 = 10_000;
/// Timeout of one attempt of a client's call before the client retries, in milliseconds.
pub const CLIENT_ATTEMPT_MS: u64 = 4_000;
/// First wait of a client before it retries a write, in milliseconds; it doubles.
pub const CLIENT_BACKOFF_MS_MIN: u64 = 10;
/// Longest wait of a client before it retries a write, in milliseconds.
pub const CLIENT_BACKOFF_MS_MAX: u64 = 1_000;
/// Age beyond which a client does not retry a write, in microseconds: half the time after which the
/// partition may have forgotten the client.
pub const CLIENT_RETRY_AGE_US: i64 = DEDUP_IDLE_US / 2;
/// Target size at which a client closes a request, in bytes; a single change may be larger.
pub const CLIENT_REQUEST_BYTES_TARGET: usize = 4 * 1024 * 1024;
/// Longest time that a write waits to be coalesced before the client sends it, in milliseconds.
pub const CLIENT_COALESCE_WAIT_MS: u64 = 50;
/// Bytes of changes above which the client sends a request alone and at once.
pub const CLIENT_COALESCE_ONE_BYTES_MAX: usize = 64 * 1024;
/// Target size at which a client closes a coalesced request, in bytes.
pub const CLIENT_COALESCE_BYTES_TARGET: usize = 1024 * 1024;
/// Default limit of unresolved changes of one write stream.
pub const CLIENT_STREAM_CHANGES_MAX: usize = 16 * 1024;
/// Bytes of unresolved changes of one write stream; one change may be larger.
pub const CLIENT_STREAM_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Definition changes with unknown outcome that a client remembers; it forgets the oldest.
pub const CLIENT_UNRESOLVED_DEFINITIONS_MAX: usize = 64;
/// First wait of a catalog follower after a log error, in milliseconds.
pub const CATALOG_BACKOFF_MS_MIN: u64 = 20;
/// Longest wait of a catalog follower after a log error, in milliseconds.
pub const CATALOG_BACKOFF_MS_MAX: u64 = 2_000;
/// Bytes of records that a change stream sends in one response, unless one record is larger.
pub const STREAM_READ_BYTES_MAX: usize = 1024 * 1024;
/// Silence after which a change stream sends an empty response, in milliseconds.
pub const STREAM_SILENCE_MS: u64 = 1_000;
/// Bytes that a change stream may send ahead of its reader.
pub const REMOTE_STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// Longest wait of a remote log for one response, and longest time that it keeps a subscription
/// without reads, in milliseconds.
pub const REMOTE_CALL_TIMEOUT_MS: u64 = 10_000;

const _: () = assert!(VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + 1024 * 1024 < ENTRY_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < ROW_BYTES_MAX);
const _: () = assert!(SNAPSHOT_CHUNK_BYTES <= SNAPSHOT_CHUNK_BYTES_MAX);
const _: () = assert!(READER_BESIDE_CHUNKS_AT_ONCE <= SNAPSHOT_CHUNKS_AT_ONCE);
const _: () = assert!(SNAPSHOT_CONNECT_MS < SNAPSHOT_REQUEST_MS);
const _: () = assert!(SNAPSHOT_BACKOFF_MS_MIN <= SNAPSHOT_BACKOFF_MS_MAX);
const _: () = assert!(ROW_BYTES_MAX + KEY_BYTES_MAX < SNAPSHOT_CHUNK_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(2 * ENTRY_BYTES_MAX < COMMIT_QUEUE_BYTES_MAX);
const _: () = assert!(ROW_BYTES_MAX + 2 * KEY_BYTES_MAX + COPY_BLOCK_BYTES < COPY_BLOCK_BYTES_MAX);
// A kill costs at most a tenth of the last quarter of a copy.
const _: () = assert!(10 * 4 * COPY_PARALLELISM_MAX as u64 <= COPY_PARTS);
const _: () = assert!(ENTRY_CHANGES_MAX <= 1 << 16);
const _: () = assert!(REQUEST_CHANGES_MAX <= ENTRY_CHANGES_MAX);
const _: () = assert!(DEAD_LETTERS_BYTES_TARGET < DEAD_LETTER_BYTES_MAX);
const _: () = assert!(DEAD_LETTERS_PER_RECORD_MAX <= DEAD_LETTERS_PAGE_MAX);
const _: () = assert!(CLIENT_BACKOFF_MS_MIN <= CLIENT_BACKOFF_MS_MAX);
const _: () = assert!(CLIENT_RETRY_AGE_US < DEDUP_IDLE_US);
const _: () = assert!(CLIENT_REQUEST_BYTES_TARGET < ENTRY_BYTES_MAX);
const _: () = assert!(
    CLIENT_COALESCE_BYTES_TARGET + CLIENT_COALESCE_ONE_BYTES_MAX <= CLIENT_REQUEST_BYTES_TARGET
);
const _: () = assert!(CLIENT_COALESCE_WAIT_MS < CLIENT_ATTEMPT_MS);
const _: () = assert!(READER_BACKOFF_MS_MIN <= READER_BACKOFF_MS_MAX);
const _: () =
    assert!(AGGREGATE_LAST_MAX as usize * (AGGREGATE_ITEM_BYTES_MAX + 4) <= VALUE_BYTES_MAX);
const _: () = assert!(FIELDS_MAX <= FIELD_ID_MAX as usize);
