/* Generated from forebay.h by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The constants of {@code forebay.h}, without the prefix, and the sizes of its structs. */
final class HeaderConstants {
    private HeaderConstants() {}

    /** Types of keys. */
    static final int KEY_STRING = 1;
    static final int KEY_BYTES = 2;
    static final int KEY_INT64 = 3;

    /** Types of fields: a scalar, a list of scalars, or a vector of a fixed length. */
    static final int TYPE_NONE = 0;
    static final int TYPE_BOOL = 1;
    static final int TYPE_INT32 = 2;
    static final int TYPE_INT64 = 3;
    static final int TYPE_FLOAT32 = 4;
    static final int TYPE_FLOAT64 = 5;
    static final int TYPE_STRING = 6;
    static final int TYPE_BYTES = 7;
    static final int TYPE_TIMESTAMP = 8;

    /** Presence of a field. Absent, null and empty are three results. */
    static final int ABSENT = 0;
    static final int NULL = 1;
    static final int VALUE = 2;

    /** Status of one key of many. */
    static final int KEY_ABSENT = 0;
    static final int KEY_FOUND = 1;
    static final int KEY_UNAVAILABLE = 2;
    static final int KEY_STALE = 3;
    static final int KEY_NOT_FOLLOWED = 4;

    /** Cell types of a gathered matrix. */
    static final int CELL_F32 = 0;
    static final int CELL_F64 = 1;
    static final int CELL_I64 = 2;

    static final int WAIT_NOTHING = 0;
    static final int WAIT_TOKEN = 1;
    static final int WAIT_LATEST = 2;
    static final int WAIT_NO_DISK = 3;

    /** Verbs. An insert adds an event to a stream; the others change a document. */
    static final int VERB_UPSERT = 1;
    static final int VERB_PUT = 2;
    static final int VERB_DELETE = 3;
    static final int VERB_INSERT = 4;

    static final int IF_ALWAYS = 0;
    static final int IF_ABSENT = 1;
    static final int IF_VERSION = 2;
    static final int IF_NEWER = 3;

    /**
     * Operation of a change on a field. The list operations take a list, and the first two a bound.
     */
    static final int OP_SET = 1;
    static final int OP_REMOVE = 2;
    static final int OP_INCREMENT = 3;
    static final int OP_MIN = 4;
    static final int OP_MAX = 5;
    static final int OP_LIST_APPEND = 6;
    static final int OP_SET_ADD = 7;
    static final int OP_SET_REMOVE = 8;

    /** Result of a change: refused (see its error), in the log, condition held or failed. */
    static final int REFUSED = 0;
    static final int APPENDED = 1;
    static final int APPLIED = 2;
    static final int CONDITION_FAILED = 3;

    static final int ALTER_ADD_FIELD = 1;
    static final int ALTER_DROP_FIELD = 2;
    static final int ALTER_DROP_FIELDS_BY_PREFIX = 3;
    static final int ALTER_RENAME_FIELD = 4;
    static final int ALTER_WIDEN_FIELD = 5;
    static final int ALTER_DROP_ALL = 6;
    static final int ALTER_SET_OPTIONS = 7;
    static final int ALTER_SET_RULES = 8;

    /** Index of a stream's column: none, by one value, or also between two values. */
    static final int INDEX_NONE = 0;
    static final int INDEX_EXACT = 1;
    static final int INDEX_RANGE = 2;

    /** Criteria and options of an fb_event_query. At most one of the first three may be set. */
    static final int SELECT_KEY = 1;
    static final int SELECT_EQUAL = 2;
    static final int SELECT_BETWEEN = 4;
    static final int SELECT_START = 8;
    static final int SELECT_END = 16;
    static final int SELECT_ORDER_BY = 32;
    static final int SELECT_DESCENDING = 64;

    /** Simulated states of an in-memory reader. */
    static final int SIMULATE_NONE = 0;
    static final int SIMULATE_NOT_READY = 1;
    static final int SIMULATE_STALE = 2;
    static final int SIMULATE_CLOSED = 3;

    /** Flags of the numbers of an fb_error that apply. */
    static final int HAS_PARTITION = 1;
    static final int HAS_KEY_DIGEST = 2;
    static final int HAS_LIMIT = 4;
    static final int HAS_ACTUAL = 8;

    /** Severity of a log record. */
    static final int LOG_OFF = 0;
    static final int LOG_ERROR = 1;
    static final int LOG_WARN = 2;
    static final int LOG_INFO = 3;
    static final int LOG_DEBUG = 4;
    static final int LOG_TRACE = 5;

    /** Sizes of the structs. */
    static final int TEXT_STRUCT_BYTES = 16;
    static final int BYTES_STRUCT_BYTES = 16;
    static final int ERROR_STRUCT_BYTES = 96;
    static final int VALUE_STRUCT_BYTES = 24;
    static final int KEY_STRUCT_BYTES = 40;
    static final int KEYS_STRUCT_BYTES = 64;
    static final int READ_OPTIONS_STRUCT_BYTES = 40;
    static final int FIELD_SPEC_STRUCT_BYTES = 80;
    static final int STORE_OPTIONS_STRUCT_BYTES = 32;
    static final int STORE_SPEC_STRUCT_BYTES = 112;
    static final int ALTERATION_STRUCT_BYTES = 136;
    static final int OP_STRUCT_BYTES = 56;
    static final int CHANGE_STRUCT_BYTES = 96;
    static final int OUTCOME_STRUCT_BYTES = 112;
    static final int READER_OPTIONS_STRUCT_BYTES = 120;
    static final int SINK_STRUCT_BYTES = 32;
    static final int STREAM_OPTIONS_STRUCT_BYTES = 24;
    static final int STREAM_SUMMARY_STRUCT_BYTES = 40;
    static final int EVENT_QUERY_STRUCT_BYTES = 160;
    static final int SCALAR_STRUCT_BYTES = 24;
    static final int GATHER_FIELD_STRUCT_BYTES = 40;
    static final int PACKED_STRUCT_BYTES = 64;
}
