//! Every limit of Forebay, in one place; beyond one, a caller gets `LimitExceeded` with the limit
//! and what it sent.

/// Longest primary key or partition key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Largest single field value, in bytes of its encoded form.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest encoded row, in bytes. A writer cannot see what an upsert adds up to, so a replica skips
/// and counts a change whose result would be larger.
pub const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest entry body as the log holds it, in bytes.
pub const ENTRY_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Most changes in one entry; a place in an entry fits 16 bits.
pub const ENTRY_CHANGES_MAX: usize = 16 * 1024;
/// Most changes in one write request.
pub const REQUEST_CHANGES_MAX: usize = 16 * 1024;
/// Largest gRPC message that any of our services accepts or sends, in bytes.
pub const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX + 4 * 1024 * 1024;
/// Longest store or field name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most fields that a definition may hold, retired ids excluded.
pub const FIELDS_MAX: usize = 2_000;
/// Most earlier names that a field keeps.
pub const ALIASES_MAX: usize = 32;
/// Values that a stream's column may allow.
pub const ALLOWED_VALUES_MAX: usize = 1_000;
/// Most columns of a stream by which its events are found: each adds an entry for each event.
pub const STREAM_INDEXES_MAX: usize = 32;
/// Bytes of a value by which an index of ranges orders events; what is behind them it leaves out.
pub const INDEX_VALUE_BYTES_MAX: usize = 1_024;
/// Events that a select answers, unless it asks for another number.
pub const SELECT_LIMIT: u32 = 1_000;
/// Most events that a select may ask for.
pub const SELECT_LIMIT_MAX: u32 = 10_000;
/// Most bytes of events that a select answers.
pub const SELECT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most entries of an index that a select looks at in one partition.
pub const SELECT_SCANNED_MAX: usize = 1_000_000;
/// Most events of one partition that a select reads and does not answer.
pub const SELECT_READ_MAX: usize = 100_000;
/// Bytes of labels that one training set is made of.
pub const TRAINING_BYTES_MAX: usize = 512 * 1024 * 1024;
/// MiB of memory that statements of SQL may have together, unless configured otherwise.
pub const SQL_MEMORY_MIB: u32 = 256;
/// Bytes of a statement of SQL.
pub const SQL_BYTES_MAX: usize = 64 * 1024;
/// Words and operators of a statement of SQL; items of a list are not counted.
pub const SQL_OPERATORS_MAX: usize = 2_000;
/// Bytes that a function of SQL makes of strings, in one batch of rows.
pub const SQL_JOINED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Highest field id, retired ids included.
pub const FIELD_ID_MAX: u32 = 65_535;
/// Highest schema version of a store: it stands as 16 bits in every row.
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
/// Conditional outcomes that a partition's replicator keeps.
pub const OUTCOMES_KEPT: usize = 65_536;
/// Bytes of a skipped record that its dead letter holds; the rest is in the home log alone.
pub const DEAD_LETTER_BYTES_MAX: usize = ENTRY_BYTES_MAX - 64 * 1024;
/// Bytes of skipped records at which a record of the dead-letter log is closed; one may be larger.
pub const DEAD_LETTERS_BYTES_AIM: usize = 256 * 1024;
/// Letters in one record of the dead-letter log.
pub const DEAD_LETTERS_PER_RECORD_MAX: usize = 256;
/// Records that the dead-letter log of a partition keeps at least; older ones may go.
pub const DEAD_LETTER_RECORDS_KEPT: u64 = 4_096;
/// Skipped records of one store that wait to be copied.
pub const DEAD_LETTERS_WAITING_MAX: usize = 4_096;
/// Bytes of skipped records of one store that wait to be copied, beside one that may be larger.
pub const DEAD_LETTERS_WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Letters in one page of a listing, unless one record of the log holds more.
pub const DEAD_LETTERS_PAGE_MAX: usize = 1_000;
/// Bytes of records in one page of such a listing, unless one record is larger.
pub const DEAD_LETTERS_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// First wait of a dead-letter copier after an error of the log, in milliseconds; it doubles.
pub const DEAD_LETTERS_BACKOFF_MS_MIN: u64 = 50;
/// Longest wait of a dead-letter copier after an error of the log, in milliseconds.
pub const DEAD_LETTERS_BACKOFF_MS_MAX: u64 = 5_000;
/// Requests that wait in one partition's write queue before a writer pushes back.
pub const WRITE_QUEUE_REQUESTS_MAX: usize = 4_096;
/// Bytes that wait in one partition's write queue before a writer pushes back.
pub const WRITE_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Entries that wait for one committer of an embedded log before an append waits.
pub const COMMIT_QUEUE_ENTRIES_MAX: usize = 4_096;
/// Bytes that wait for all committers of an embedded log before an append waits.
pub const COMMIT_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Segment files that an embedded log holds open at once.
pub const LOG_FILES_OPEN_MAX: usize = 256;
/// Longest wait of a reader's `open` for its store to appear in the catalog, unless it is told
/// otherwise, in milliseconds.
pub const READER_OPEN_TIMEOUT_MS: u64 = 10_000;
/// Oldest age at which a reader becomes ready, unless it is told otherwise, in milliseconds.
pub const READER_READY_AGE_MS: u64 = 10_000;
/// How long a reader's age may lie past twice its bound before it is no longer ready, in
/// milliseconds.
pub const READER_READY_GRACE_MS: u64 = 5_000;
/// Most bytes of entries that a reader takes from its log at once.
pub const READER_READ_BYTES_MAX: usize = 1024 * 1024;
/// Memory that a reader leaves to the rest of its process where nobody says how much it may take;
/// see `tools/decisions/0027`.
pub const MEMORY_REST_BYTES: u64 = 56 * 1024 * 1024;
/// Memory that it leaves beside that for each partition: what its tail has in flight.
pub const MEMORY_REST_PARTITION_BYTES: u64 = 8 * 1024 * 1024;
/// Longest wait of a reader at its log's end before it asks again, in milliseconds.
pub const READER_READ_WAIT_MS: u64 = 1_000;
/// Longest wait of a reader for an answer of its log, beside the wait that it asked for, in
/// milliseconds.
pub const READER_LOG_TIMEOUT_MS: u64 = 10_000;
/// Longest wait of a reader for a definition before it looks at its log again, in milliseconds.
pub const READER_DEFINITION_WAIT_MS: u64 = 5_000;
/// Time between two looks at a copy that another reader keeps, in milliseconds: while nobody waits.
pub const READER_COPY_LOOK_MS: u64 = 20;
/// The same while somebody waits, or while it does not answer yet.
pub const READER_COPY_LOOK_SOON_MS: u64 = 1;
/// Longest wait of a reader until a version of the documents has left the memory of the one before,
/// and until what follows a version that is gone has ended, in milliseconds.
pub const READER_LEAVE_WAIT_MS: u64 = 60_000;
/// How long an opening keeps what it found before anybody had answered, in milliseconds: others may
/// have a use for its locks.
pub const READER_AHEAD_MS_MAX: u64 = 1_000;
/// Time between two tries to go on with a copy that another reader keeps, in milliseconds.
pub const READER_TAKE_OVER_MS: u64 = 100;
/// Wait of a reader that was just opened over a copy before it first tries, in milliseconds: what a
/// keeper that was killed has left to do goes behind the first reads.
pub const READER_TAKE_OVER_FIRST_MS: u64 = 5;
/// Time between two looks of a reader at its own readiness, in milliseconds.
pub const READER_READY_CHECK_MS: u64 = 250;
/// How often a reader sends a barrier that fails or whose answers get lost; a second one changes
/// nothing.
pub const READER_BARRIER_TRIES_MAX: u32 = 3;
/// First wait of a reader before it tries a failed step again, in milliseconds; it doubles.
pub const READER_BACKOFF_MS_MIN: u64 = 50;
/// Longest wait of a reader before it tries a failed step again, in milliseconds.
pub const READER_BACKOFF_MS_MAX: u64 = 5_000;
/// Time between two measurements of a reader's clock error, in milliseconds.
pub const READER_CLOCK_CHECK_MS: u64 = 60_000;
/// Length of an exchange above which the clock error that it shows is measured again soon, in
/// microseconds.
pub const READER_CLOCK_EXCHANGE_SLOW_US: i64 = 200_000;
/// Time to that measurement, in milliseconds.
pub const READER_CLOCK_CHECK_SOON_MS: u64 = 2_000;
/// Copies of a partition that a reader poisons in a row before it halts the partition.
pub const READER_POISONED_COPIES_MAX: u32 = 3;
/// Time between two checkpoints of a reader's partition, unless it is told otherwise, in
/// milliseconds.
pub const CHECKPOINT_EVERY_MS: u64 = 10_000;
/// Longest that a reader which closes may take to write its last checkpoint of a partition, in
/// milliseconds; one that takes longer is given up, and the one before stays.
pub const CHECKPOINT_CLOSE_MS: u64 = 5_000;
/// Largest partition that a reader writes checkpoints of, unless it is told otherwise, in bytes of
/// keys and rows.
pub const CHECKPOINT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Checkpoint files of one partition that a reader tries, the newest first.
pub const CHECKPOINT_FILES_MAX: usize = 8;
/// Least memory of the shards of a process, in bytes.
pub const SHARD_MEMORY_BYTES_MIN: usize = 16 * 1024 * 1024;
/// Memory for blocks and unwritten writes of all shards of a process, unless it is told otherwise,
/// in MiB.
pub const SHARD_MEMORY_MIB: u32 = 256;
/// Bytes of documents at which a page of a scan ends; a larger document is a page of its own.
pub const SCAN_PAGE_BYTES: usize = 1024 * 1024;
/// Rows that are looked at for one page, expired ones too.
pub const SCAN_PAGE_ROWS_MAX: usize = 10_000;
/// How long a scan's view is held behind its last page, in milliseconds.
pub const SCAN_VIEW_HELD_MS: u64 = 60_000;
/// Views that are held for scans of one store.
pub const SCAN_VIEWS_MAX: usize = 64;
/// Rows of a get that are in memory at once, beside what is answered.
pub const ORDERED_GET_KEYS: usize = 64;
/// Longest wait that an ordered read may ask for, in milliseconds.
pub const ORDERED_READ_WAIT_MS_MAX: u32 = 60_000;
/// Bytes of writes at which a shard begins a file of them, where the memory allows it.
pub const SHARD_TABLE_BYTES: usize = 64 * 1024 * 1024;
/// Files of documents in no order at which a shard that is loaded merges them.
pub const SHARD_LOAD_FILES_MAX: u64 = 64;
/// Bytes at which a block of a copy's rows ends, behind the row that comes there: both ends go over
/// it several times, and so much stays in a core's own cache meanwhile.
pub const COPY_BLOCK_BYTES: usize = 256 * 1024;
/// Bytes of such a block, whose last row may be a large one.
pub const COPY_BLOCK_BYTES_MAX: usize = ROW_BYTES_MAX + 2 * 1024 * 1024;
/// Largest message of a copy's stream, in bytes: a block and what is said of it.
pub const COPY_MESSAGE_BYTES_MAX: usize = COPY_BLOCK_BYTES_MAX + 64 * 1024;
/// Parts that a copy's bytes are divided into, as far as their sizes allow: what is lost of one
/// that breaks off is part of a part for each stream.
pub const COPY_PARTS: u64 = 256;
/// Least bytes of a part of a copy.
pub const COPY_PART_BYTES_MIN: u64 = 1024 * 1024;
/// Most bytes of a part of a copy.
pub const COPY_PART_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most rows of a part of a copy: its file's filter and index are built in memory.
pub const COPY_PART_ROWS_MAX: u64 = 256 * 1024;
/// Bytes of what is noted of a part.
pub const COPY_PART_RECORD_BYTES_MAX: usize = 1024 * 1024;
/// Ranges that a copy is divided into, at most.
pub const COPY_RANGES_MAX: usize = 64;
/// Files that a copy moves, at most: all of them stand in its plan.
pub const COPY_FILES_MAX: usize = 64 * 1024;
/// Ranges of a copy that are read side by side, at most.
pub const COPY_STREAMS_MAX: usize = 6;
/// Shards that are frozen for copies at once.
pub const COPIES_MAX: usize = 8;
/// How long a shard stays frozen that nobody reads, in milliseconds.
pub const COPY_HELD_MS: u64 = 15 * 60 * 1_000;
/// Bytes of rows on their way, for each stream of a copy.
pub const COPY_STREAM_BYTES: u32 = 4 * 1024 * 1024;
/// Largest frame of such a stream, in bytes: each is a call of the system at both ends.
pub const COPY_FRAME_BYTES: u32 = 256 * 1024;
/// Bytes of a chunk of a snapshot's image, but for its last one.
pub const SNAPSHOT_CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of any chunk of a snapshot: one of a delta may be one large row.
pub const SNAPSHOT_CHUNK_BYTES_MAX: usize = 80 * 1024 * 1024;
/// Bytes of the message in a snapshot's manifest.
pub const SNAPSHOT_MANIFEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Chunks that are fetched, or stored, at once.
pub const SNAPSHOT_CHUNKS_AT_ONCE: usize = 8;
/// Bytes of an image behind which it is put on the disk while the rest is fetched: the wait for the
/// disk at the end is short then.
pub const SNAPSHOT_SYNC_BYTES: u64 = 64 * 1024 * 1024;
/// Longest wait for a connection to the object store of snapshots, in milliseconds.
pub const SNAPSHOT_CONNECT_MS: u64 = 5_000;
/// Longest wait for the whole answer to one try of a request to it, in milliseconds; a chunk is
/// sent or fetched in it.
pub const SNAPSHOT_REQUEST_MS: u64 = 30_000;
/// Time behind the begin of a request after which it is not tried again, in milliseconds.
pub const SNAPSHOT_RETRY_MS: u64 = 10_000;
/// First wait before it is tried again, in milliseconds; it grows.
pub const SNAPSHOT_BACKOFF_MS_MIN: u64 = 100;
/// Longest wait before it is tried again, in milliseconds.
pub const SNAPSHOT_BACKOFF_MS_MAX: u64 = 2_000;
/// Characters of an object store's own words in an error.
pub const SNAPSHOT_REFUSAL_CHARS_MAX: usize = 600;
/// Seconds between two snapshots of a partition, unless it is set.
pub const SNAPSHOT_EVERY_S: u64 = 15 * 60;
/// Snapshots of a partition that are kept, unless it is set.
pub const SNAPSHOTS_KEPT: usize = 8;
/// MiB of memory that the image of one partition may take while it is built, unless it is set.
pub const SNAPSHOT_MEMORY_MIB: u64 = 4 * 1024;
/// Time between two looks at what may go of a partition's snapshots, in milliseconds.
pub const SNAPSHOT_COLLECT_MS: u64 = 60 * 60 * 1_000;
/// Deltas that are laid over an image before a new one is built.
pub const SNAPSHOT_DELTAS_MAX: usize = 64;
/// How long a chunk stays that no snapshot names any more, in milliseconds, unless a store is kept
/// otherwise.
pub const SNAPSHOT_GRACE_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long a version of a store's documents stays that was live before, in seconds, unless it is
/// set.
pub const ROLLBACK_WINDOW_S: u64 = 24 * 60 * 60;
/// How long a reader lets calls wait in all partitions behind a move of the documents to others:
/// they may have asked before where their keys belong. In milliseconds.
pub const READER_MOVED_MS: u64 = 60_000;
/// Entries of one partition within so many microseconds are carried to other partitions as one.
pub const MOVE_TOGETHER_US: i64 = 100_000;
/// How long all writers have to learn that writes to a store are held, in milliseconds.
pub const MOVE_WAIT_MS: u64 = 250;
/// How long a writer holds a write until the documents have come to other logs, in milliseconds.
pub const MOVE_HELD_MS: u64 = 5_000;
/// Versions of one store's documents that are kept at once.
pub const STORE_VERSIONS_MAX: usize = 8;
/// Bytes of rows of one partition that a push writes at once.
pub const PUSH_BLOCK_BYTES: usize = 1024 * 1024;
/// Bytes of rows of all partitions that a push holds in memory before it writes them.
pub const PUSH_BLOCKS_BYTES: usize = 64 * 1024 * 1024;
/// How long the rows stay of a push that broke off and does not go on, in milliseconds.
pub const PUSH_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
/// Records of a log beyond which a reader begins with a shard, where there is no snapshot.
pub const READER_RECORDS_FOLDED_MAX: u64 = 100_000;
/// Partitions that begin with an image at once in a reader: each is fetched while its copy is made.
pub const READER_FETCHES_AT_ONCE: usize = 2;
/// Bytes of an image that are fetched ahead of who makes a copy of it: what is behind it is done
/// when the last byte comes.
pub const READER_FETCHED_AHEAD_BYTES: u64 = 64 * 1024 * 1024;
/// Chunks that are fetched at once of a version beside the one that answers, one partition after
/// the other: nobody waits for it as for a beginning, and what is on its way takes memory.
pub const READER_BESIDE_CHUNKS_AT_ONCE: usize = 4;
/// Times that a reader asks for a snapshot before it begins with a log that has all.
pub const READER_SNAPSHOT_ATTEMPTS: u32 = 5;
/// Ranges of hashes of keys whose documents have a digest each when two copies are compared.
pub const VERIFY_RANGES: usize = 4_096;
/// Bytes of the documents of both copies that are compared one by one.
pub const VERIFY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Documents that the log may change between the positions of two copies that are compared.
pub const VERIFY_CHANGED_MAX: usize = 1 << 20;
/// Documents that are named of those in which two copies differ.
pub const VERIFY_NAMED_MAX: usize = 1_000;
/// Bytes of the text that declares one feature view.
pub const VIEW_DECLARATION_BYTES_MAX: usize = 64 * 1024;
/// How far an event may lie behind its partition's time in a view that does not say so: what clocks
/// and the order in which partitions are derived make of events that came in time.
pub const VIEW_LATENESS_US: i64 = 60_000_000;
/// How far apart a feature view emits the values of one group, where it does not say so.
pub const VIEW_CADENCE_US: i64 = 100_000;
/// Least of what may be said instead: 10 ms.
pub const VIEW_CADENCE_US_MIN: i64 = 10_000;
/// Most of it: an hour.
pub const VIEW_CADENCE_US_MAX: i64 = 60 * 60 * 1_000_000;
/// How long a windowed value that a feature view emits outlives its next change, where the view
/// does not say so.
pub const VIEW_GRACE_US: i64 = 30_000_000;
/// Most that may be said instead: a day.
pub const VIEW_GRACE_US_MAX: i64 = 24 * 60 * 60 * 1_000_000;
/// Operators and words of SQL in the condition of one feature view, as text: each may nest what
/// stands before it, and what is nested is walked by recursion.
pub const VIEW_CONDITION_OPERATORS_MAX: usize = 512;
/// How deep a condition of a feature view is nested.
pub const PREDICATE_DEPTH_MAX: usize = 32;
/// Columns by which one feature view groups.
pub const GROUP_COLUMNS_MAX: usize = 16;
/// Stores in which one feature view looks events up.
pub const LOOKUPS_MAX: usize = 16;
/// Aggregates of one feature view.
pub const AGGREGATES_MAX: usize = 1_024;
/// Windows of one feature view.
pub const WINDOWS_MAX: usize = 32;
/// Tiles that one window is made of: 30 days by hops of 5 minutes are 8,640.
pub const WINDOW_TILES_MAX: i64 = 10_000;
/// Longest window and greatest lateness: ten years, in microseconds.
pub const WINDOW_US_MAX: i64 = 10 * 365 * 24 * 60 * 60 * 1_000_000;
/// How far an event may lie ahead of its partition's time, in microseconds: one day. What is
/// further ahead is a wrong clock, and its tile would stay until then.
pub const EVENT_AHEAD_US_MAX: i64 = 24 * 60 * 60 * 1_000_000;
/// Bytes of a value that an aggregate keeps as it is: a first, a last, a least, a frequent one.
pub const AGGREGATE_ITEM_BYTES_MAX: usize = 1_024;
/// Values that one `last-n` keeps.
pub const AGGREGATE_LAST_MAX: u16 = 1_000;
/// Items that one `top-k` answers.
pub const AGGREGATE_TOP_MAX: u16 = 256;
/// Quantiles that one aggregate answers.
pub const AGGREGATE_QUANTILES_MAX: usize = 64;
/// Files that one shard holds open at once.
pub const SHARD_FILES_OPEN_MAX: i32 = 256;
/// Longest time to live: 100 years, in microseconds; sums with any date stay inside `i64`.
pub const TTL_US_MAX: i64 = 100 * 365 * 24 * 60 * 60 * 1_000_000;
/// Keys of one multi-get or gather.
pub const BATCH_KEYS_MAX: usize = 1 << 20;
/// Time that a client gives a call before it reports what it knows, unless it is told otherwise, in
/// milliseconds.
pub const CLIENT_DEADLINE_MS: u64 = 10_000;
/// Time that a client gives one attempt of a call before it tries again, in milliseconds.
pub const CLIENT_ATTEMPT_MS: u64 = 4_000;
/// First wait of a client before it sends a write again, in milliseconds; it doubles.
pub const CLIENT_BACKOFF_MS_MIN: u64 = 10;
/// Longest wait of a client before it sends a write again, in milliseconds.
pub const CLIENT_BACKOFF_MS_MAX: u64 = 1_000;
/// Age beyond which a client sends no write again, in microseconds: half the time after which its
/// partition may have forgotten it.
pub const CLIENT_RETRY_AGE_US: i64 = DEDUP_IDLE_US / 2;
/// Bytes of changes at which a client closes a request; one change may be larger.
pub const CLIENT_REQUEST_BYTES_AIM: usize = 4 * 1024 * 1024;
/// Requests of one client to one store that are under way before others wait, to go together.
pub const CLIENT_REQUESTS_UNDER_WAY_MAX: usize = 2;
/// Longest that others wait for the answer to a request before they go, too, in milliseconds.
pub const CLIENT_TOGETHER_WAIT_MS: u64 = 50;
/// Bytes of changes above which a request goes by itself, at once.
pub const CLIENT_TOGETHER_ONE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of changes at which a client closes a request that several writes make.
pub const CLIENT_TOGETHER_BYTES_AIM: usize = 1024 * 1024;
/// Unsettled changes of one write stream, unless it is told otherwise.
pub const CLIENT_STREAM_CHANGES_MAX: usize = 16 * 1024;
/// Bytes of unsettled changes of one write stream; one change may be larger.
pub const CLIENT_STREAM_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Changes of definitions whose outcome is unknown that a client remembers; older ones it forgets.
pub const CLIENT_UNSETTLED_DEFINITIONS_MAX: usize = 64;
/// First and longest wait of a catalog follower after an error of the log, in milliseconds.
pub const CATALOG_BACKOFF_MS_MIN: u64 = 20;
/// See [`CATALOG_BACKOFF_MS_MIN`].
pub const CATALOG_BACKOFF_MS_MAX: u64 = 2_000;
/// Bytes of records that a change stream sends in one answer, unless one record is larger.
pub const STREAM_READ_BYTES_MAX: usize = 1024 * 1024;
/// Silence after which a change stream sends an empty answer, in milliseconds.
pub const STREAM_SILENCE_MS: u64 = 1_000;
/// Bytes that a change stream may send ahead of its reader.
pub const REMOTE_STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// Longest wait of a remote log for one answer, and longest time that it keeps a subscription which
/// nobody reads, in milliseconds.
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
// What a kill costs is a tenth of the last quarter, at most.
const _: () = assert!(10 * 4 * COPY_STREAMS_MAX as u64 <= COPY_PARTS);
const _: () = assert!(ENTRY_CHANGES_MAX <= 1 << 16);
const _: () = assert!(REQUEST_CHANGES_MAX <= ENTRY_CHANGES_MAX);
const _: () = assert!(DEAD_LETTERS_BYTES_AIM < DEAD_LETTER_BYTES_MAX);
const _: () = assert!(DEAD_LETTERS_PER_RECORD_MAX <= DEAD_LETTERS_PAGE_MAX);
const _: () = assert!(CLIENT_BACKOFF_MS_MIN <= CLIENT_BACKOFF_MS_MAX);
const _: () = assert!(CLIENT_RETRY_AGE_US < DEDUP_IDLE_US);
const _: () = assert!(CLIENT_REQUEST_BYTES_AIM < ENTRY_BYTES_MAX);
const _: () =
    assert!(CLIENT_TOGETHER_BYTES_AIM + CLIENT_TOGETHER_ONE_BYTES_MAX <= CLIENT_REQUEST_BYTES_AIM);
const _: () = assert!(CLIENT_TOGETHER_WAIT_MS < CLIENT_ATTEMPT_MS);
const _: () = assert!(READER_BACKOFF_MS_MIN <= READER_BACKOFF_MS_MAX);
const _: () =
    assert!(AGGREGATE_LAST_MAX as usize * (AGGREGATE_ITEM_BYTES_MAX + 4) <= VALUE_BYTES_MAX);
const _: () = assert!(FIELDS_MAX <= FIELD_ID_MAX as usize);
