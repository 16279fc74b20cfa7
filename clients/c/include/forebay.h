/*
 * forebay.h: the C ABI of Forebay's native core.
 *
 * 1. Ids. Every opened object has an id, which is never 0 and never reused. fb_close ends the id; a
 *    second close, and any later use, return FB_CLOSED. Ids may be used from any thread at the same
 *    time; a scan, a stream and a pending write belong to one thread at a time.
 * 2. Status. Every function that can fail returns 0 or a code of fb_status, the same table in every
 *    language. If the fb_error is not NULL, the function writes the details there; it overwrites
 *    the previous error, so free that first. fb_error_free frees the texts of an error, not the
 *    pending write that the error names.
 * 3. Ownership. The memory that fb_text, fb_value, fb_key, ... point to is the caller's and is read
 *    only during the call. The contents of an fb_bytes or fb_packed are the library's until the
 *    caller frees them once, with fb_bytes_free or fb_packed_free; freeing empties the struct, and
 *    freeing an empty struct does nothing. A call that fails writes no out-parameters. Every
 *    out-parameter may be NULL.
 * 4. Pointers are aligned for their type. A length of 0 allows any pointer. Text is UTF-8.
 * 5. Calls over the network block until a deadline in milliseconds. Reads without an
 *    fb_read_options wait for nothing except the disk, if the document is spilled: they take no
 *    lock and start no thread.
 * 6. No call unwinds, exits, prints or installs a signal handler; a broken invariant of the library
 *    is FB_INTERNAL.
 * 7. Later events go to an fb_sink: a callback, or an inbox that the caller fetches from. A
 *    callback runs on a thread of the library, which waits for it. The callback must be quick, must
 *    not call this library, and must not throw or longjmp out; the callback and its context must
 *    stay usable until the source of the events has ended. The sends of a stream and fb_store_send
 *    cause one event for each call that returned FB_OK, and no other events.
 * 8. After a fork, a child must not use anything that was opened before the fork.
 *
 * Numbers are little-endian. The encoding of values is that of proto/spec/row.md.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes of proto/forebay/v1/error.proto. */
typedef enum fb_status {
    FB_OK = 0,
    FB_INVALID_ARGUMENT = 1,
    FB_NOT_FOUND = 2,
    FB_CONFLICT = 3,
    FB_UNAVAILABLE = 4,
    FB_DEADLINE_EXCEEDED = 5,
    FB_UNKNOWN_OUTCOME = 6,
    FB_LIMIT_EXCEEDED = 7,
    FB_STALE = 8,
    FB_TOKEN_LOST = 9,
    FB_CORRUPT = 10,
    FB_UNSUPPORTED = 11,
    FB_UPGRADE_NEEDED = 12,
    FB_CLOSED = 13,
    FB_UNAUTHENTICATED = 14,
    FB_PERMISSION_DENIED = 15,
    FB_INTERNAL = 16
} fb_status;

/* Types of keys. */
enum { FB_KEY_STRING = 1, FB_KEY_BYTES = 2, FB_KEY_INT64 = 3 };

/* Types of fields: a scalar, a list of scalars, or a vector of a fixed length. */
enum {
    FB_TYPE_NONE = 0,
    FB_TYPE_BOOL = 1,
    FB_TYPE_INT32 = 2,
    FB_TYPE_INT64 = 3,
    FB_TYPE_FLOAT32 = 4,
    FB_TYPE_FLOAT64 = 5,
    FB_TYPE_STRING = 6,
    FB_TYPE_BYTES = 7,
    FB_TYPE_TIMESTAMP = 8
};
#define FB_TYPE_LIST(scalar) (0x100u | (uint32_t)(scalar))
#define FB_TYPE_VECTOR_F32(length) (0x201u | ((uint32_t)(length) << 16))
#define FB_TYPE_VECTOR_F16(length) (0x202u | ((uint32_t)(length) << 16))
#define FB_TYPE_VECTOR_I8(length) (0x203u | ((uint32_t)(length) << 16))

/* Presence of a field. Absent, null and empty are three results. */
enum { FB_ABSENT = 0, FB_NULL = 1, FB_VALUE = 2 };

/* Status of one key of many. */
enum {
    FB_KEY_ABSENT = 0,
    FB_KEY_FOUND = 1,
    FB_KEY_UNAVAILABLE = 2,
    FB_KEY_STALE = 3,
    FB_KEY_NOT_FOLLOWED = 4
};

/* Cell types of a gathered matrix. */
enum { FB_CELL_F32 = 0, FB_CELL_F64 = 1, FB_CELL_I64 = 2 };

/*
 * Wait of a read. FB_WAIT_NO_DISK is FB_WAIT_NOTHING for callers that must not wait for a disk
 * either: the read returns FB_UNAVAILABLE if the document is spilled. FB_WAIT_NO_DISK takes no
 * max_staleness_ms.
 */
enum { FB_WAIT_NOTHING = 0, FB_WAIT_TOKEN = 1, FB_WAIT_LATEST = 2, FB_WAIT_NO_DISK = 3 };

/* Verbs. An insert adds an event to a stream; the others change a document. */
enum { FB_VERB_UPSERT = 1, FB_VERB_PUT = 2, FB_VERB_DELETE = 3, FB_VERB_INSERT = 4 };

enum { FB_IF_ALWAYS = 0, FB_IF_ABSENT = 1, FB_IF_VERSION = 2, FB_IF_NEWER = 3 };

/* Operation of a change on a field. The list operations take a list, and the first two a bound. */
enum {
    FB_OP_SET = 1,
    FB_OP_REMOVE = 2,
    FB_OP_INCREMENT = 3,
    FB_OP_MIN = 4,
    FB_OP_MAX = 5,
    FB_OP_LIST_APPEND = 6,
    FB_OP_SET_ADD = 7,
    FB_OP_SET_REMOVE = 8
};

/* Result of a change: refused (see its error), in the log, condition held or failed. */
enum { FB_REFUSED = 0, FB_APPENDED = 1, FB_APPLIED = 2, FB_CONDITION_FAILED = 3 };

enum {
    FB_ALTER_ADD_FIELD = 1,
    FB_ALTER_DROP_FIELD = 2,
    FB_ALTER_DROP_FIELDS_BY_PREFIX = 3,
    FB_ALTER_RENAME_FIELD = 4,
    FB_ALTER_WIDEN_FIELD = 5,
    FB_ALTER_DROP_ALL = 6,
    FB_ALTER_SET_OPTIONS = 7,
    FB_ALTER_SET_RULES = 8
};

/* Index of a stream's column: none, by one value, or also between two values. */
enum { FB_INDEX_NONE = 0, FB_INDEX_EXACT = 1, FB_INDEX_RANGE = 2 };

/* Criteria and options of an fb_event_query. At most one of the first three may be set. */
enum {
    FB_SELECT_KEY = 1,
    FB_SELECT_EQUAL = 2,
    FB_SELECT_BETWEEN = 4,
    FB_SELECT_START = 8,
    FB_SELECT_END = 16,
    FB_SELECT_ORDER_BY = 32,
    FB_SELECT_DESCENDING = 64
};

/* Simulated states of an in-memory reader. */
enum {
    FB_SIMULATE_NONE = 0,
    FB_SIMULATE_NOT_READY = 1,
    FB_SIMULATE_STALE = 2,
    FB_SIMULATE_CLOSED = 3
};

/* Flags of the numbers of an fb_error that apply. */
enum { FB_HAS_PARTITION = 1, FB_HAS_KEY_DIGEST = 2, FB_HAS_LIMIT = 4, FB_HAS_ACTUAL = 8 };

/* Severity of a log record. */
enum {
    FB_LOG_OFF = 0,
    FB_LOG_ERROR = 1,
    FB_LOG_WARN = 2,
    FB_LOG_INFO = 3,
    FB_LOG_DEBUG = 4,
    FB_LOG_TRACE = 5
};

/* "None" in packed times, versions and durations. */
#define FB_NONE INT64_MIN

/* Bytes of the caller. */
typedef struct fb_text {
    const uint8_t *data;
    uint64_t length;
} fb_text;

/* Bytes of the library; free them with fb_bytes_free. */
typedef struct fb_bytes {
    uint8_t *data;
    uint64_t length;
} fb_bytes;

typedef struct fb_error {
    int32_t code;
    uint32_t applies;    /* FB_HAS_* */
    uint32_t partition;
    uint32_t reserved;
    uint64_t key_digest; /* xxh3_64 of the key; a key itself is never shown */
    uint64_t limit;
    uint64_t actual;
    uint64_t pending;    /* id of a write with an unknown outcome, or 0 */
    fb_bytes message;    /* the failure, and what to do next */
    fb_bytes store;
    fb_bytes field;
} fb_error;

/* A value and its type; FB_TYPE_NONE is null, or no value. */
typedef struct fb_value {
    uint32_t type;
    uint32_t reserved;
    fb_text data;
} fb_value;

/* A key; partition_key_type is 0 if the store declares no partition key. */
typedef struct fb_key {
    uint32_t key_type;
    uint32_t partition_key_type;
    fb_text key; /* the 8 bytes of an int64 */
    fb_text partition_key;
} fb_key;

/* Many keys, concatenated; key n ends at ends[n]. int64 keys have 8 bytes and no ends. */
typedef struct fb_keys {
    uint32_t key_type;
    uint32_t partition_key_type;
    uint64_t count;
    fb_text keys;
    const uint64_t *ends;
    fb_text partition_keys;
    const uint64_t *partition_ends;
} fb_keys;

typedef struct fb_read_options {
    uint32_t wait;             /* FB_WAIT_* */
    uint32_t reserved;
    uint64_t timeout_ms;       /* limit of the wait */
    uint64_t max_staleness_ms; /* older data is FB_STALE; 0 for no bound */
    fb_text token;             /* for FB_WAIT_TOKEN */
} fb_read_options;

typedef struct fb_field_spec {
    fb_text name;
    uint32_t type;
    uint32_t required; /* 1: a stream refuses events without a value */
    fb_value fallback; /* default of gathers for absent and null, and of events without the field */
    int64_t ttl_us;    /* default of writes that set none; below 0 for no default */
    const fb_value *allowed; /* the values that a stream accepts */
    uint64_t allowed_count;  /* 0 for all */
    uint32_t index;          /* FB_INDEX_*, of a stream's scalar column */
    uint32_t reserved;
} fb_field_spec;

/* Setting the options replaces all of them: to change one, take the others from the definition. */
typedef struct fb_store_options {
    int64_t ttl_us;        /* below 0 for none */
    uint32_t heartbeat_ms; /* 0 for 1,000 */
    uint32_t versioned;
    /*
     * Span of the store's logs that is retained after its newest snapshot, in microseconds; older
     * entries are trimmed. Below 0, or if no service creates snapshots, all entries are retained. 0
     * retains only the entries after the snapshot, so set the field to -1 in a struct that is
     * otherwise zero. Above 100 years: FB_INVALID_ARGUMENT. For a stream, which has no snapshots,
     * the field is the time for which events are retained.
     */
    int64_t log_retention_us;
    /* About, of a stream's retained events, per partition; 0 for all. */
    uint64_t log_retention_bytes;
} fb_store_options;

typedef struct fb_store_spec {
    fb_text name;
    uint32_t key_type;
    uint32_t partitions;
    fb_text partition_key; /* a field's name; empty for the primary key */
    const fb_field_spec *fields;
    uint64_t field_count;
    fb_store_options options;
    uint32_t key_value; /* 1: one bytes field named "value"; give no fields */
    uint32_t stream;    /* 1: a stream of events; its fields are their columns */
    fb_text event_time; /* a stream's column with the event time; or empty */
} fb_store_spec;

typedef struct fb_alteration {
    uint32_t kind; /* FB_ALTER_* */
    uint32_t reserved;
    fb_field_spec field; /* the field, or the name of one with its rules, or a prefix */
    fb_text to;          /* the new name */
    fb_store_options options;
} fb_alteration;

typedef struct fb_op {
    uint32_t op; /* FB_OP_* */
    uint32_t bound;
    fb_text field;
    fb_value value;
    int64_t ttl_us; /* time to live of this field; below 0 for none */
} fb_op;

typedef struct fb_change {
    uint32_t verb;      /* FB_VERB_* */
    uint32_t condition; /* FB_IF_* */
    fb_key key;
    const fb_op *ops;
    uint64_t op_count;
    int64_t ttl_us; /* time to live of the document; below 0 for none */
    uint64_t if_version;
    fb_text if_newer;
} fb_change;

typedef struct fb_outcome {
    uint32_t result; /* FB_REFUSED, FB_APPENDED, FB_APPLIED, FB_CONDITION_FAILED */
    uint32_t has_version;
    uint64_t version; /* the document's, if the condition failed and has_version is 1 */
    fb_error error;   /* reason of FB_REFUSED; free it */
} fb_outcome;

typedef struct fb_reader_options {
    fb_text store;
    const uint32_t *partitions; /* partitions to follow; NULL for all */
    uint64_t partition_count;
    uint64_t ready_max_staleness_ms; /* 0 for 10,000 */
    uint64_t open_timeout_ms;        /* 0 for 10,000 */
    uint32_t allow_incomplete_reads;
    uint32_t reserved;
    fb_text checkpoint_dir;          /* readers of a directory share a copy; empty for none */
    uint64_t checkpoint_interval_ms; /* 0 for 10,000 */
    uint64_t checkpoint_bytes_max;   /* larger partitions are not written; 0 for 4 GiB */
    /*
     * Most bytes of the documents and their index; 0 for half of the control group's limit or of
     * the host's memory, and for less if half would leave less than 56 MiB and 8 MiB for each
     * partition. If an entry needs more memory, the reader spills documents, if it may. Otherwise
     * the reader stops applying entries, and its metrics say why; it still answers reads, which
     * turn stale by their bounds.
     */
    uint64_t memory_limit;
    /*
     * Most bytes of disk, in checkpoint_dir, for documents that exceed the memory limit; 0 spills
     * nothing. The reader spills the least recently written documents; a read of a spilled document
     * waits for the disk. The index stays in memory. FB_INVALID_ARGUMENT without checkpoint_dir.
     */
    uint64_t spill_limit;
    /*
     * URL of the folder of snapshots from which a reader without a checkpoint starts:
     * file:///folder, s3://bucket/folder, az://container/folder or gs://bucket/folder; empty to
     * start from the log. A snapshot avoids reading the whole log, and replaces the trimmed part of
     * the log. Images are fetched into checkpoint_dir. Credentials come from the environment, by
     * the names that the object stores' own tools use. FB_INVALID_ARGUMENT for a URL that names no
     * such folder.
     */
    fb_text snapshots;
} fb_reader_options;

/*
 * Destination of the caller's events: a callback, or, without a callback, an inbox, under a ticket.
 */
typedef struct fb_sink {
    void (*callback)(void *context, fb_text event);
    void *context;
    uint64_t inbox;
    uint64_t ticket;
} fb_sink;

/* Limits of a stream's unresolved changes; 0 is the default of each. */
typedef struct fb_stream_options {
    uint64_t changes_max; /* 0 for 16,384 */
    uint64_t bytes_max;   /* 0 for 64 MiB */
    uint64_t deadline_ms; /* limit of each call of the stream; 0 for the client's */
} fb_stream_options;

typedef struct fb_stream_summary {
    uint64_t resolved;         /* changes whose outcome is known */
    uint64_t condition_failed; /* resolved changes whose condition did not hold */
    uint64_t failed;           /* resolved changes that were refused or stay unknown */
    fb_bytes token;            /* covers all changes that are in the log; free it */
} fb_stream_summary;

/* A select: which events of a stream, and which columns; a struct of zeros selects all events. */
typedef struct fb_event_query {
    uint32_t flags; /* FB_SELECT_*: fields below that it does not name are ignored */
    uint32_t limit; /* most events in the result, up to 10,000; 0 for 1,000 */
    fb_key key;     /* FB_SELECT_KEY: events of this key */
    fb_text column; /* FB_SELECT_EQUAL: an indexed column; _BETWEEN: with FB_INDEX_RANGE */
    fb_value start; /* the value (exactly convertible to the column's type), or the least */
    fb_value end;   /* _BETWEEN: the end, exclusive. Both may be FB_TYPE_NONE: no bound */
    int64_t start_us; /* FB_SELECT_START: event time at or after this, in microseconds */
    int64_t end_us;   /* FB_SELECT_END: event time before this */
    const fb_text *columns; /* names of the returned columns */
    uint64_t column_count;  /* 0 for all */
    fb_text order_by; /* FB_SELECT_ORDER_BY: a scalar column; events without a value last */
} fb_event_query;

typedef struct fb_scalar {
    uint32_t presence; /* FB_ABSENT, FB_NULL, FB_VALUE */
    uint32_t reserved;
    int64_t integer; /* bools, integers, timestamps */
    double real;     /* floats */
} fb_scalar;

typedef struct fb_gather_field {
    fb_text name;
    fb_value fallback; /* FB_TYPE_NONE: the schema's default, or 0 */
} fb_gather_field;

/*
 * Values of many keys: value n ends at ends[n], a u64; statuses and presences have a byte per key.
 */
typedef struct fb_packed {
    fb_bytes values;
    fb_bytes ends;
    fb_bytes statuses;
    fb_bytes presences;
} fb_packed;

/*
 * Closing a reader with checkpoints waits until the last checkpoints are written, up to 10 s.
 * FB_DEADLINE_EXCEEDED means that the reader is closed and the previous checkpoints remain.
 */
int32_t fb_close(uint64_t id, fb_error *error);
void fb_bytes_free(fb_bytes *bytes);
void fb_packed_free(fb_packed *packed);
void fb_error_free(fb_error *error);

/* Events. */

/*
 * An inbox stores events until the caller fetches them. The events in an inbox are bounded: changes
 * in flight by their client or stream, log records by 4,096. Later records are dropped, and one
 * more record states their number.
 */
int32_t fb_inbox_open(uint64_t *inbox, fb_error *error);
/*
 * Waits for events and takes up to events_max of them; a count of 0 means that no event came in
 * time. Packed, per event: ticket u64 | event TEXT. fb_close ends the wait with FB_CLOSED.
 */
int32_t fb_inbox_next(
    uint64_t inbox, uint64_t timeout_ms, uint64_t events_max, fb_bytes *events, uint64_t *count,
    fb_error *error);
/*
 * Sends log records of this level or a more severe one to a sink, which replaces the previous sink;
 * FB_LOG_OFF stops the records. Records of other levels cost nothing. Records of libraries below
 * this one start at INFO. Packed: level u32 | target TEXT | message TEXT
 */
int32_t fb_log_to(uint32_t level, const fb_sink *sink, fb_error *error);

/*
 * Clients. A client has one random id and numbers its writes: create one client per process and
 * share it.
 */

/* deadline_ms of 0 is 10,000. */
int32_t fb_client_connect(
    fb_text endpoint, uint64_t deadline_ms, uint64_t *client, fb_error *error);
int32_t fb_store_open(uint64_t client, fb_text name, uint64_t *store, fb_error *error);
int32_t fb_store_create(
    uint64_t client, const fb_store_spec *spec, uint64_t *store, fb_error *error);
/* from_version of 0 alters the current version. */
int32_t fb_store_alter(
    uint64_t client, fb_text name, uint32_t from_version, const fb_alteration *alterations,
    uint64_t alteration_count, fb_bytes *definition, fb_error *error);
int32_t fb_store_delete(uint64_t client, fb_text name, fb_error *error);
/* version 0 is the newest. */
int32_t fb_store_describe(
    uint64_t client, fb_text name, uint32_t version, fb_bytes *definition, fb_error *error);
/* Packed: number of definitions u32, and each definition. */
int32_t fb_store_list(uint64_t client, fb_bytes *definitions, fb_error *error);

/*
 * A definition, packed; TEXT is a length u32 and bytes, VALUE a type u32 and a TEXT:
 * id u64 | name TEXT | version u32 | key type u32 | partition key field TEXT, or empty |
 * partitions u32 | ttl i64 | heartbeat ms u32 | versioned u8 | log retention i64 | log retention
 * bytes u64, 0 for none | key-value u8 | stream u8 | event time field TEXT, or empty | fields u32,
 * and per field: id u32 | name TEXT | type u32 | default VALUE | ttl i64 | aliases u32, each a TEXT
 * | required u8 | allowed u32, each a VALUE | index u8
 */
int32_t fb_store_definition(uint64_t store, fb_bytes *definition, fb_error *error);
/*
 * Fetches the newest definition from the writer and returns it, packed; fb_store_definition returns
 * it from then on. FB_NOT_FOUND if the store was deleted, also if another store has taken its name.
 */
int32_t fb_store_refresh(uint64_t store, fb_bytes *definition, fb_error *error);

/*
 * Sends changes together. Changes of one partition are atomic (up to 1,024) and in order. outcomes
 * has space for change_count. After FB_UNKNOWN_OUTCOME, error->pending is the write, to be retried
 * or closed. deadline_ms of 0 is the client's.
 */
int32_t fb_store_write(
    uint64_t store, const fb_change *changes, uint64_t change_count, uint64_t deadline_ms,
    fb_outcome *outcomes, fb_bytes *token, fb_error *error);
/* Sends the same write again and closes pending; the error may name a new pending write. */
int32_t fb_pending_retry(
    uint64_t pending, uint64_t deadline_ms, uint64_t outcome_count, fb_outcome *outcomes,
    fb_bytes *token, fb_error *error);

/*
 * Sends changes as fb_store_write does, but returns before the changes are sent; the sink receives
 * their outcome. FB_LIMIT_EXCEEDED if 16,384 changes of the client are in flight. Two calls may
 * overtake each other: to preserve their order, wait for the first, or use a stream.
 *
 * Packed: ERROR | token TEXT | changes u32, and per change: result u32 | has version u32 | version
 * u64 | ERROR. An ERROR is code u32, 0 for none | applies u32 | partition u32 | key digest u64 |
 * limit u64 | actual u64 | pending u64 | message TEXT | store TEXT | field TEXT.
 */
int32_t fb_store_send(
    uint64_t store, const fb_change *changes, uint64_t change_count, uint64_t deadline_ms,
    const fb_sink *sink, fb_error *error);

/*
 * Opens a stream of writes to one store: many in flight, each partition in the order of the sends.
 * The options may be NULL. A close gives up the unresolved changes, so flush first.
 */
int32_t fb_stream_open(
    uint64_t store, const fb_stream_options *options, uint64_t *stream, fb_error *error);
/*
 * Queues one change, of the stream's store; waits while the stream is full, which includes changes
 * whose outcome the sinks have not received yet. FB_UNAVAILABLE if the stream stays full: send
 * again. The sink receives the same event as for fb_store_send.
 */
int32_t fb_stream_send(
    uint64_t stream, uint64_t store, const fb_change *change, const fb_sink *sink,
    fb_error *error);
/*
 * Waits until all sent changes are resolved. Returns the first error of a change since the last
 * flush; flush again for the summary. FB_UNKNOWN_OUTCOME: flush again to continue the wait.
 */
int32_t fb_stream_flush(uint64_t stream, fb_stream_summary *summary, fb_error *error);

/*
 * Selects retained events of a stream, on the node that stores them. The events are ordered by
 * event time, unless query names a column; FB_SELECT_DESCENDING reverses the order. query may be
 * NULL, and read too: its timeout_ms is the node's limit for the wait, in addition to the client's
 * deadline.
 *
 * - FB_INVALID_ARGUMENT: the read is FB_WAIT_NO_DISK; the store is a store of documents; a key or
 *   value has another type; a column does not have the index that the select needs; or the select
 *   has two criteria.
 * - FB_NOT_FOUND: the stream does not have a column.
 * - FB_LIMIT_EXCEEDED: the result would have too many events or bytes, or the node would have to
 *   look at too many events.
 * - FB_UNSUPPORTED: the store is in memory.
 *
 * Packed: token TEXT, of the positions that were read | columns u32, and per column: id u32 | name
 * TEXT | type u32 | events u32, and per event: key type u32, key TEXT, 0 u32 | time i64 | append
 * time i64 (microseconds) | partition u32 | offset of its entry u64 | index in the entry u32 |
 * values u32, and per value: id of its column u32 | VALUE. A column that an event does not have is
 * left out.
 */
int32_t fb_store_select(
    uint64_t store, const fb_event_query *query, const fb_read_options *read, fb_bytes *result,
    fb_error *error);

/* Readers. */

int32_t fb_reader_open(
    uint64_t client, const fb_reader_options *options, uint64_t *reader, fb_error *error);
int32_t fb_reader_await_ready(uint64_t reader, uint64_t timeout_ms, fb_error *error);
int32_t fb_reader_await_token(
    uint64_t reader, fb_text token, uint64_t timeout_ms, fb_error *error);
/* A type of FB_TYPE_NONE in asked is the field's own type. A field needs no close. */
int32_t fb_reader_field(
    uint64_t reader, fb_text name, uint32_t asked, uint64_t *field, uint32_t *type,
    fb_error *error);
int32_t fb_reader_partition_of(
    uint64_t reader, const fb_key *key, uint32_t *partition, fb_error *error);
int32_t fb_reader_definition(uint64_t reader, fb_bytes *definition, fb_error *error);
/* Returns the newest version that any partition of the reader has seen; 0 before the first. */
int32_t fb_reader_schema_version(uint64_t reader, uint32_t *version, fb_error *error);
/*
 * Sends each version that the reader reaches from now on to the sink, in order, while the reader is
 * open: a definition.
 */
int32_t fb_reader_on_schema_change(uint64_t reader, const fb_sink *sink, fb_error *error);

/* Reads of one document; read may be NULL. An absent key is no error. */

int32_t fb_reader_get_scalar(
    uint64_t reader, uint64_t field, uint32_t wanted, const fb_key *key,
    const fb_read_options *read, fb_scalar *scalar, fb_error *error);
/* Copies nothing if the value is longer than capacity; length returns the value's length. */
int32_t fb_reader_get_bytes(
    uint64_t reader, uint64_t field, const fb_key *key, const fb_read_options *read,
    uint8_t *buffer, uint64_t capacity, uint64_t *length, uint32_t *presence, fb_error *error);
int32_t fb_reader_get_value(
    uint64_t reader, uint64_t field, const fb_key *key, const fb_read_options *read,
    fb_bytes *value, uint32_t *presence, fb_error *error);
int32_t fb_reader_presence(
    uint64_t reader, uint64_t field, const fb_key *key, const fb_read_options *read,
    uint32_t *presence, fb_error *error);
/*
 * A document, packed: expiry i64 (microseconds) | version i64 | fields u32, and per field: name
 * TEXT | expiry i64 | VALUE. A missing document has no bytes.
 */
int32_t fb_reader_get_document(
    uint64_t reader, const fb_key *key, const fb_read_options *read, fb_bytes *document,
    fb_error *error);

/* Reads of many documents; results are in the order of the keys. */

int32_t fb_reader_get_many(
    uint64_t reader, uint64_t field, const fb_keys *keys, const fb_read_options *read,
    fb_packed *packed, fb_error *error);
/*
 * Reads as fb_reader_get_many does, into the caller's memory: values has space for capacity bytes,
 * ends for a uint64_t per key, statuses and presences for a byte per key; none of these three is
 * NULL. length returns the bytes of all values; if they are more than capacity, nothing else is
 * written.
 */
int32_t fb_reader_get_many_into(
    uint64_t reader, uint64_t field, const fb_keys *keys, const fb_read_options *read,
    uint8_t *values, uint64_t capacity, uint64_t *ends, uint8_t *statuses, uint8_t *presences,
    uint64_t *length, fb_error *error);
/* Packed, per key: status u8, and the document if it was found. */
int32_t fb_reader_get_documents(
    uint64_t reader, const fb_keys *keys, const fb_read_options *read, fb_bytes *documents,
    fb_error *error);
/* cell is FB_CELL_*; lossy 1 allows rounding. width returns the number of columns. */
int32_t fb_gather_plan_open(
    uint64_t reader, const fb_gather_field *fields, uint64_t field_count, uint32_t cell,
    uint32_t lossy, uint64_t *plan, uint64_t *width, fb_error *error);
/*
 * values has space for capacity cells, statuses (or NULL) for a byte per key, cells (or NULL) for a
 * byte per cell. If statuses is NULL, a key that cannot be answered is an error.
 */
int32_t fb_reader_gather_f32(
    uint64_t reader, uint64_t plan, const fb_keys *keys, const fb_read_options *read, float *values,
    uint64_t capacity, uint8_t *statuses, uint8_t *cells, fb_error *error);
int32_t fb_reader_gather_f64(
    uint64_t reader, uint64_t plan, const fb_keys *keys, const fb_read_options *read,
    double *values, uint64_t capacity, uint8_t *statuses, uint8_t *cells, fb_error *error);
int32_t fb_reader_gather_i64(
    uint64_t reader, uint64_t plan, const fb_keys *keys, const fb_read_options *read,
    int64_t *values, uint64_t capacity, uint8_t *statuses, uint8_t *cells, fb_error *error);
/*
 * Packed: fields u32, and per field: name TEXT | index of its first column u32 | number of its
 * columns u32
 */
int32_t fb_gather_plan_columns(uint64_t plan, fb_bytes *columns, fb_error *error);

int32_t fb_scan_open(uint64_t reader, uint64_t *scan, fb_error *error);
/*
 * Returns up to documents_max more documents: key type u32, key TEXT | partition key type u32, or
 * only 0, partition key TEXT | the document, packed. A count of 0 is the end.
 */
int32_t fb_scan_next(
    uint64_t scan, uint64_t max_staleness_ms, uint64_t documents_max, fb_bytes *documents,
    uint64_t *count, fb_error *error);

/*
 * Counts and status, packed. First the counts, each u64:
 * - reads: hits, misses;
 * - memory bytes, of all documents;
 * - memory, of the partitions that the reader maintains: used, limit (all bits set for none),
 *   spilled, spill limit;
 * - counts of all partitions together: records applied, log bytes read, records skipped, duplicates
 *   skipped, oversized skipped, log errors, rebuilds, bootstraps (copies started from a snapshot),
 *   bootstraps failed (snapshots that were unavailable or unusable);
 * - checkpoints: written, failed, restored, damaged, ignored, blocks repaired.
 * Then the status: store TEXT | is ready u8 | phase u8 (1 bootstrapping, 2 serving, 3 poisoned) |
 * bootstrap percent u8 | bootstrap remaining i64 (microseconds, as each age) | age i64 | schema
 * version u32 | partitions u32, and per partition: partition u32 | phase u8 | generation u32 |
 * offset applied u64 | end offset u64 | lag records u64 | age i64 | schema version u32 | documents
 * u64 | document bytes u64 | snapshot download: bytes u64, bytes in all u64, 0 if no snapshot is
 * downloaded | last error TEXT, empty while entries are applied
 */
int32_t fb_reader_metrics(uint64_t reader, fb_bytes *metrics, fb_error *error);
/*
 * Compares the reader's copy of a partition with the shard of the connected node, at one position.
 * Waits at most timeout_ms for the shard, and then until the reader has reached the same position.
 * Reads both completely, the shard over the network; while the reader's copy is read, the partition
 * applies no entries but still answers reads. FB_UNSUPPORTED without a node, and if another reader
 * of the directory maintains the copy.
 *
 * Packed: documents here u64 | there u64 | differences beyond those named u64 | ranges of 4,096 in
 * which too many documents differ to be named u64 | differences u32, and per difference: kind u8 (1
 * only here, 2 only there, 3 contents) | key type u32, key TEXT | partition key type u32, or only
 * 0, partition key TEXT
 */
int32_t fb_reader_verify(
    uint64_t reader, uint32_t partition, uint64_t timeout_ms, fb_bytes *verified, fb_error *error);

/*
 * In-memory readers, for tests of programs that read: the index and the fold of any reader, over a
 * store of their own without a file, thread, port or server. The readers are ready at once. The
 * reader's id is valid in every call for readers, and the store's id in every call for stores
 * except streams; a write is visible when the call returns. Close both.
 */

/* The rows are written together, before the reader is opened. */
int32_t fb_test_reader_open(
    const fb_store_spec *spec, const fb_change *rows, uint64_t row_count, uint64_t *reader,
    uint64_t *store, fb_error *error);
/*
 * Microseconds since the Unix epoch. The clock starts at the host's time, and stands still until
 * set.
 */
int32_t fb_test_reader_clock(uint64_t reader, int64_t *now_us, fb_error *error);
/*
 * Moves the clock forward only. Expired documents become absent; no read becomes stale by the move.
 */
int32_t fb_test_reader_set_clock(uint64_t reader, int64_t now_us, fb_error *error);
/* Sets an FB_SIMULATE_* state until the next call; age_ms is the age for FB_SIMULATE_STALE. */
int32_t fb_test_reader_simulate(uint64_t reader, uint32_t state, uint64_t age_ms, fb_error *error);
int32_t fb_test_reader_alter(
    uint64_t reader, const fb_alteration *alterations, uint64_t alteration_count,
    fb_bytes *definition, fb_error *error);

#ifdef __cplusplus
}
#endif

#endif
