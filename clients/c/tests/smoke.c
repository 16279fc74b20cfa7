/*
 * The whole path in C: create a store, upsert, follow, read typed, gather, close twice. The
 * arguments are the address of a node, a folder for checkpoints, without which the program tests
 * neither checkpoints nor spilling, and the URL of the node's snapshots, without which no reader
 * starts from a snapshot. With no arguments the program prints the layouts of forebay.h.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#include "forebay.h"

#define WAIT_MS 60000

static fb_error failure;

static void check(int32_t status, const char *what)
{
    if (status == FB_OK) return;
    fprintf(stderr, "%s: status %d: %.*s\n", what, status, (int)failure.message.length,
            (const char *)failure.message.data);
    exit(1);
}

static void expect(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

static fb_text text(const char *words)
{
    fb_text made = {(const uint8_t *)words, strlen(words)};
    return made;
}

static fb_key key(const char *words)
{
    fb_key made = {FB_KEY_STRING, 0, text(words), {NULL, 0}};
    return made;
}

static uint64_t create(uint64_t client)
{
    fb_field_spec fields[2] = {
        {text("age"), FB_TYPE_INT64, 0, {0, 0, {NULL, 0}}, -1, NULL, 0, 0, 0},
        {text("city"), FB_TYPE_STRING, 0, {0, 0, {NULL, 0}}, -1, NULL, 0, 0, 0},
    };
    fb_store_spec spec = {text("c-users"), FB_KEY_STRING, 4, {NULL, 0}, fields, 2,
                          {-1, 0, 0, -1, 0}, 0, 0, {NULL, 0}};
    uint64_t store = 0;
    check(fb_store_create(client, &spec, &store, &failure), "create");
    expect(fb_store_create(client, &spec, &store, &failure) == FB_CONFLICT, "a name is taken once");
    expect(failure.code == FB_CONFLICT && failure.store.length == 7, "the error names its store");
    fb_error_free(&failure);
    return store;
}

static fb_bytes upsert(uint64_t store)
{
    int64_t age = 41;
    fb_op ops[2] = {
        {FB_OP_SET, 0, text("age"), {FB_TYPE_INT64, 0, {(const uint8_t *)&age, 8}}, -1},
        {FB_OP_SET, 0, text("city"), {FB_TYPE_STRING, 0, text("Bern")}, -1},
    };
    fb_change change = {FB_VERB_UPSERT, FB_IF_ALWAYS, key("u1"), ops, 2, -1, 0, {NULL, 0}};
    fb_outcome outcome;
    fb_bytes token;
    check(fb_store_write(store, &change, 1, 0, &outcome, &token, &failure), "upsert");
    expect(outcome.result == FB_APPENDED && outcome.error.code == FB_OK, "it is in the log");
    expect(token.length > 0, "a write answers a token");
    return token;
}

static void read_one(uint64_t reader, fb_bytes token)
{
    uint64_t age = 0, length = 0;
    uint32_t type = 0, presence = 0;
    fb_read_options mine = {FB_WAIT_TOKEN, 0, WAIT_MS, 0, {token.data, token.length}};
    fb_key u1 = key("u1"), u2 = key("u2");
    fb_scalar scalar;
    uint8_t buffer[16];

    check(fb_reader_field(reader, text("age"), 0, &age, &type, &failure), "field");
    expect(type == FB_TYPE_INT64, "the field's own type");
    check(fb_reader_get_scalar(reader, age, type, &u1, &mine, &scalar, &failure), "get");
    expect(scalar.presence == FB_VALUE && scalar.integer == 41, "the value that was written");
    check(fb_reader_get_scalar(reader, age, type, &u2, NULL, &scalar, &failure), "get none");
    expect(scalar.presence == FB_ABSENT, "an absent key is no error");
    expect(fb_reader_get_scalar(reader, age, FB_TYPE_BOOL, &u1, NULL, &scalar, NULL)
               == FB_INVALID_ARGUMENT, "a type is not converted");
    check(fb_reader_field(reader, text("city"), 0, &age, &type, &failure), "field");
    check(fb_reader_get_bytes(reader, age, &u1, NULL, buffer, 2, &length, &presence, &failure),
          "get into too small a buffer");
    expect(presence == FB_VALUE && length == 4, "it tells what it needs");
    check(fb_reader_get_bytes(reader, age, &u1, NULL, buffer, 16, &length, &presence, &failure),
          "get bytes");
    expect(length == 4 && memcmp(buffer, "Bern", 4) == 0, "the text");
}

static void gather(uint64_t reader)
{
    int64_t fallback = -1;
    fb_gather_field field = {text("age"), {FB_TYPE_INT64, 0, {(const uint8_t *)&fallback, 8}}};
    uint64_t ends[3] = {2, 4, 6};
    fb_keys keys = {FB_KEY_STRING, 0, 3, text("u2u1u1"), ends, {NULL, 0}, NULL};
    uint64_t plan = 0, width = 0;
    double values[3];
    uint8_t statuses[3], cells[3];

    check(fb_gather_plan_open(reader, &field, 1, FB_CELL_F64, 1, &plan, &width, &failure), "plan");
    expect(width == 1, "one column");
    check(fb_reader_gather_f64(reader, plan, &keys, NULL, values, 3, statuses, cells, &failure),
          "gather");
    expect(values[0] == -1 && values[1] == 41 && values[2] == 41, "rows in the keys' order");
    expect(statuses[0] == FB_KEY_ABSENT && statuses[1] == FB_KEY_FOUND, "a status per key");
    expect(cells[0] == FB_ABSENT && cells[1] == FB_VALUE, "a presence per cell");
    expect(fb_reader_gather_f64(reader, plan, &keys, NULL, values, 2, NULL, NULL, NULL)
               == FB_INVALID_ARGUMENT, "too small a matrix is refused");
    check(fb_close(plan, &failure), "close the plan");
}

static void get_many(uint64_t reader)
{
    uint64_t ends[3] = {2, 4, 6}, into[3] = {9, 9, 9}, city = 0, length = 0;
    fb_keys keys = {FB_KEY_STRING, 0, 3, text("u2u1u1"), ends, {NULL, 0}, NULL};
    uint8_t values[8], statuses[3] = {9, 9, 9}, presences[3];

    check(fb_reader_field(reader, text("city"), 0, &city, NULL, &failure), "field");
    check(fb_reader_get_many_into(reader, city, &keys, NULL, values, 7, into, statuses, presences,
                                  &length, &failure), "get many into too small a buffer");
    expect(length == 8 && into[0] == 9 && statuses[0] == 9, "it tells what it needs, and no more");
    check(fb_reader_get_many_into(reader, city, &keys, NULL, values, 8, into, statuses, presences,
                                  &length, &failure), "get many");
    expect(length == 8 && memcmp(values, "BernBern", 8) == 0, "the texts");
    expect(into[0] == 0 && into[1] == 4 && into[2] == 8, "where each ends");
    expect(statuses[0] == FB_KEY_ABSENT && statuses[2] == FB_KEY_FOUND, "a status per key");
    expect(presences[0] == FB_ABSENT && presences[2] == FB_VALUE, "a presence per key");
    expect(fb_reader_get_many_into(reader, city, &keys, NULL, values, 8, NULL, statuses, presences,
                                   &length, NULL) == FB_INVALID_ARGUMENT, "ends have a place");
}

/* Number of calls of the callback; its thread is the library's. */
static atomic_int told;

static void count(void *context, fb_text event)
{
    uint32_t code;
    expect(context == &told && event.length >= 4, "the context comes back with an event");
    memcpy(&code, event.data, 4);
    if (code == FB_OK) atomic_fetch_add(&told, 1);
}

static fb_bytes stream(uint64_t store)
{
    uint64_t open = 0, sent = 0, inbox = 0, fetched = 0;
    int64_t one = 1;
    fb_stream_options options = {8, 0, WAIT_MS};
    fb_value by = {FB_TYPE_INT64, 0, {(const uint8_t *)&one, 8}};
    fb_op op = {FB_OP_INCREMENT, 0, text("age"), by, -1};
    fb_change change = {FB_VERB_UPSERT, FB_IF_ALWAYS, key("u3"), &op, 1, -1, 0, {NULL, 0}};
    fb_sink sink = {count, &told, 0, 0}, apart = {NULL, NULL, 0, 7};
    fb_stream_summary summary;
    fb_bytes events;

    check(fb_stream_open(store, &options, &open, &failure), "open a stream");
    for (sent = 0; sent < 100; sent++)
        check(fb_stream_send(open, store, &change, &sink, &failure), "send into the stream");
    check(fb_stream_flush(open, &summary, &failure), "flush");
    expect(summary.resolved == 100 && summary.failed == 0, "all are resolved");
    check(fb_close(open, &failure), "close the stream");

    expect(fb_store_send(store, &change, 1, 0, &apart, NULL) == FB_INVALID_ARGUMENT,
           "a sink has a callback or an inbox");
    check(fb_inbox_open(&inbox, &failure), "open an inbox");
    apart.inbox = inbox;
    check(fb_store_send(store, &change, 1, 0, &apart, &failure), "send without waiting");
    check(fb_inbox_next(inbox, WAIT_MS, 16, &events, &fetched, &failure), "fetch the outcome");
    expect(fetched == 1 && events.length > 16 && events.data[0] == 7, "it has its ticket");
    fb_bytes_free(&events);
    check(fb_inbox_next(inbox, 0, 16, &events, &fetched, &failure), "fetch nothing");
    expect(fetched == 0 && events.length == 0, "it is told once");
    check(fb_close(inbox, &failure), "close the inbox");
    while (atomic_load(&told) < 100) thrd_yield();
    return summary.token;
}

/*
 * The same documents under the same memory limit, with disk space for the documents that exceed the
 * memory.
 */
static void spill(uint64_t client, fb_text name, fb_text last, const char *folder)
{
    fb_reader_options options;
    fb_read_options no_disk = {FB_WAIT_NO_DISK, 0, 0, 0, {NULL, 0}}, bounded = no_disk;
    fb_bytes metrics;
    uint64_t reader = 0, raw = 0, length = 0, used, spilled, most;
    uint32_t presence = 0;
    uint8_t buffer[1024];
    int64_t number;
    int on_disk = 0;

    memset(&options, 0, sizeof options);
    options.store = name;
    options.memory_limit = 512 << 10;
    options.spill_limit = 64 << 20;
    expect(fb_reader_open(client, &options, &reader, NULL) == FB_INVALID_ARGUMENT,
           "spilling needs a directory");
    options.checkpoint_dir = text(folder);
    check(fb_reader_open(client, &options, &reader, &failure), "open with room on disk");
    check(fb_reader_await_ready(reader, WAIT_MS, &failure), "await ready with room on disk");
    check(fb_reader_await_token(reader, last, WAIT_MS, &failure), "it applies all");
    check(fb_reader_field(reader, text("raw"), 0, &raw, NULL, &failure), "field");
    for (number = 0; number < 1000; number++) {
        fb_key large = {FB_KEY_INT64, 0, {(const uint8_t *)&number, 8}, {NULL, 0}};
        int32_t status = fb_reader_get_bytes(reader, raw, &large, &no_disk, buffer, 1024, &length,
                                             &presence, NULL);
        expect(status == FB_OK || status == FB_UNAVAILABLE, "in memory, or on disk");
        on_disk += status == FB_UNAVAILABLE;
        check(fb_reader_get_bytes(reader, raw, &large, NULL, buffer, 1024, &length, &presence,
                                  &failure), "get from memory or disk");
        expect(presence == FB_VALUE && length == 1024, "each is there");
        bounded.max_staleness_ms = WAIT_MS;
        expect(fb_reader_presence(reader, raw, &large, &bounded, &presence, NULL)
                   == FB_INVALID_ARGUMENT, "a read that waits for no disk has no bound of age");
    }
    expect(on_disk > 0 && on_disk < 1000, "some are on disk alone");
    check(fb_reader_metrics(reader, &metrics, &failure), "metrics");
    memcpy(&used, metrics.data + 24, 8);
    memcpy(&spilled, metrics.data + 40, 8);
    memcpy(&most, metrics.data + 48, 8);
    fb_bytes_free(&metrics);
    expect(used <= 512 << 10 && spilled > 0, "memory within its limit, the rest on disk");
    expect(spilled <= most && most == 64 << 20, "and that within its own");
    check(fb_close(reader, &failure), "close the reader with room on disk");
}

/* Documents of a KiB each; the reader's memory limit holds some of them. */
static void over_memory_limit(uint64_t client, const char *folder)
{
    static uint8_t kibibyte[1024];
    fb_field_spec field = {text("raw"), FB_TYPE_BYTES, 0, {0, 0, {NULL, 0}}, -1, NULL, 0, 0, 0};
    fb_store_spec spec = {text("c-large"), FB_KEY_INT64, 1, {NULL, 0}, &field, 1,
                          {-1, 0, 0, -1, 0}, 0, 0, {NULL, 0}};
    fb_op op = {FB_OP_SET, 0, text("raw"), {FB_TYPE_BYTES, 0, {kibibyte, 1024}}, -1};
    fb_reader_options options;
    fb_bytes token = {NULL, 0}, metrics;
    fb_text last;
    uint64_t store = 0, reader = 0, raw = 0, length = 0, used, limit, at;
    uint32_t presence = 0;
    uint8_t buffer[1024];
    int64_t number;
    int is_said = 0;

    check(fb_store_create(client, &spec, &store, &failure), "create a large store");
    memset(&options, 0, sizeof options);
    options.store = spec.name;
    options.memory_limit = 512 << 10;
    check(fb_reader_open(client, &options, &reader, &failure), "open with a memory limit");
    check(fb_reader_await_ready(reader, WAIT_MS, &failure), "await ready within a memory limit");
    for (number = 0; number < 1000; number++) {
        fb_key large = {FB_KEY_INT64, 0, {(const uint8_t *)&number, 8}, {NULL, 0}};
        fb_change change = {FB_VERB_PUT, FB_IF_ALWAYS, large, &op, 1, -1, 0, {NULL, 0}};
        fb_bytes_free(&token);
        check(fb_store_write(store, &change, 1, 0, NULL, &token, &failure), "write more");
    }
    last.data = token.data;
    last.length = token.length;
    expect(fb_reader_await_token(reader, last, 1000, NULL) == FB_DEADLINE_EXCEEDED,
           "it stops applying");
    while (!is_said) {
        check(fb_reader_metrics(reader, &metrics, &failure), "metrics");
        memcpy(&used, metrics.data + 24, 8);
        memcpy(&limit, metrics.data + 32, 8);
        expect(used <= limit && limit == 512 << 10, "it keeps its limit");
        for (at = 0; at + 12 <= metrics.length; at++)
            is_said |= memcmp(metrics.data + at, "memory limit", 12) == 0;
        fb_bytes_free(&metrics);
        thrd_yield();
    }
    check(fb_reader_field(reader, text("raw"), 0, &raw, NULL, &failure), "field");
    number = 0;
    {
        fb_key first = {FB_KEY_INT64, 0, {(const uint8_t *)&number, 8}, {NULL, 0}};
        check(fb_reader_get_bytes(reader, raw, &first, NULL, buffer, 1024, &length, &presence,
                                  &failure), "get what was applied");
    }
    expect(presence == FB_VALUE && length == 1024, "it answers on");
    check(fb_close(reader, &failure), "close the reader with a memory limit");
    if (folder != NULL) spill(client, spec.name, last, folder);
    fb_bytes_free(&token);
    check(fb_close(store, &failure), "close the large store");
}

/* Returns the options in a packed definition. */
static fb_store_options options_of(fb_bytes definition)
{
    fb_store_options options;
    const uint8_t *at = definition.data + 8;
    uint32_t length;

    memcpy(&length, at, 4);
    at += 4 + length + 8;
    memcpy(&length, at, 4);
    at += 4 + length + 4;
    memcpy(&options.ttl_us, at, 8);
    memcpy(&options.heartbeat_ms, at + 8, 4);
    options.versioned = at[12];
    memcpy(&options.log_retention_us, at + 13, 8);
    memcpy(&options.log_retention_bytes, at + 21, 8);
    return options;
}

/* Options that are read and set again, all but one, are unchanged. */
static void set_options(uint64_t client)
{
    fb_store_options given = {60000000, 500, 1, 7000001, 0}, found;
    fb_store_spec spec = {text("c-options"), FB_KEY_STRING, 1, {NULL, 0}, NULL, 0, given, 1, 0,
                          {NULL, 0}};
    fb_alteration alteration;
    fb_bytes definition;
    uint64_t store = 0;

    check(fb_store_create(client, &spec, &store, &failure), "create with options");
    check(fb_store_definition(store, &definition, &failure), "definition");
    found = options_of(definition);
    fb_bytes_free(&definition);
    expect(memcmp(&found, &given, sizeof given) == 0, "the options that were given");
    memset(&alteration, 0, sizeof alteration);
    alteration.kind = FB_ALTER_SET_OPTIONS;
    alteration.options = found;
    alteration.options.heartbeat_ms = given.heartbeat_ms = 750;
    check(fb_store_alter(client, spec.name, 1, &alteration, 1, &definition, &failure), "set one");
    found = options_of(definition);
    fb_bytes_free(&definition);
    expect(memcmp(&found, &given, sizeof given) == 0, "the others stay");
    alteration.options.log_retention_us = -1;
    check(fb_store_alter(client, spec.name, 2, &alteration, 1, &definition, &failure), "unset");
    found = options_of(definition);
    fb_bytes_free(&definition);
    expect(found.log_retention_us == FB_NONE, "all of its logs is kept");
    check(fb_close(store, &failure), "close the store with options");
}

/*
 * A stream returns the index of its one column, and its limit of retained bytes, as they were
 * given.
 */
static void indexed_stream(uint64_t client)
{
    fb_field_spec city = {text("city"), FB_TYPE_STRING, 1, {0, 0, {NULL, 0}}, -1, NULL, 0,
                          FB_INDEX_EXACT, 0};
    fb_store_spec spec = {text("c-orders"), FB_KEY_STRING, 1, {NULL, 0}, &city, 1,
                          {-1, 0, 0, -1, 1 << 30}, 0, 1, {NULL, 0}};
    fb_alteration alterations[2];
    fb_bytes definition;
    uint64_t store = 0;

    check(fb_store_create(client, &spec, &store, &failure), "create a stream");
    check(fb_store_definition(store, &definition, &failure), "definition of a stream");
    expect(options_of(definition).log_retention_bytes == 1 << 30, "the bytes that were given");
    expect(definition.data[definition.length - 1] == FB_INDEX_EXACT, "the index that was given");
    fb_bytes_free(&definition);
    memset(alterations, 0, sizeof alterations);
    alterations[0].kind = FB_ALTER_SET_OPTIONS;
    alterations[0].options.ttl_us = alterations[0].options.log_retention_us = -1;
    alterations[1].kind = FB_ALTER_SET_RULES;
    alterations[1].field = city;
    alterations[1].field.index = FB_INDEX_RANGE;
    check(fb_store_alter(client, spec.name, 1, alterations, 2, &definition, &failure), "index");
    expect(options_of(definition).log_retention_bytes == 0, "no bound of bytes");
    expect(definition.data[definition.length - 1] == FB_INDEX_RANGE, "another index");
    fb_bytes_free(&definition);
    alterations[1].field.index = 3;
    expect(fb_store_alter(client, spec.name, 2, alterations, 2, NULL, NULL) == FB_INVALID_ARGUMENT,
           "there are two indexes");
    check(fb_close(store, &failure), "close the stream");
}

/* Take a number or a text from the front of packed bytes. */
static uint32_t take_u32(const uint8_t **at)
{
    uint32_t number;
    memcpy(&number, *at, 4);
    *at += 4;
    return number;
}

static int64_t take_i64(const uint8_t **at)
{
    int64_t number;
    memcpy(&number, *at, 8);
    *at += 8;
    return number;
}

static fb_text take_text(const uint8_t **at)
{
    fb_text taken = {NULL, take_u32(at)};
    taken.data = *at;
    *at += taken.length;
    return taken;
}

static int is_text(fb_text found, const char *words)
{
    return found.length == strlen(words) && memcmp(found.data, words, found.length) == 0;
}

/* Asserts that the one event of a select of one column has this key, this time and this value. */
static void expect_event(fb_bytes selected, const char *user, int64_t time, int64_t price)
{
    const uint8_t *at = selected.data;
    uint32_t column;

    expect(take_text(&at).length > 0, "a select answers a token");
    expect(take_u32(&at) == 1, "the column that was asked for");
    column = take_u32(&at);
    expect(is_text(take_text(&at), "price") && take_u32(&at) == FB_TYPE_INT64, "by name and type");
    expect(take_u32(&at) == 1, "one event");
    expect(take_u32(&at) == FB_KEY_STRING && is_text(take_text(&at), user), "its key");
    expect(take_u32(&at) == 0, "which has one part");
    expect(take_i64(&at) == time && take_i64(&at) > time, "when it happened, and came");
    expect(take_u32(&at) == 0, "its partition");
    take_i64(&at);
    take_u32(&at);
    expect(take_u32(&at) == 1 && take_u32(&at) == column, "one value, of the column");
    expect(take_u32(&at) == FB_TYPE_INT64 && take_u32(&at) == 8, "an integer");
    expect(take_i64(&at) == price && at == selected.data + selected.length, "and nothing else");
}

/* Creates a stream with three events; returns the token of their insert. */
static uint64_t bought(uint64_t client, fb_bytes *token)
{
    static const int64_t times[3] = {1000, 2000, 3000}, prices[3] = {30, 10, 20};
    static const char *users[3] = {"u1", "u2", "u1"}, *cities[3] = {"Rome", "Oslo", "Oslo"};
    fb_value none = {0, 0, {NULL, 0}};
    fb_field_spec columns[3] = {
        {text("at"), FB_TYPE_TIMESTAMP, 1, none, -1, NULL, 0, 0, 0},
        {text("city"), FB_TYPE_STRING, 0, none, -1, NULL, 0, FB_INDEX_EXACT, 0},
        {text("price"), FB_TYPE_INT64, 0, none, -1, NULL, 0, FB_INDEX_RANGE, 0},
    };
    fb_store_spec spec = {text("c-bought"), FB_KEY_STRING, 1, {NULL, 0}, columns, 3,
                          {-1, 0, 0, -1, 0}, 0, 1, text("at")};
    fb_change changes[3];
    fb_op ops[3][3];
    uint64_t store = 0;
    int n;

    check(fb_store_create(client, &spec, &store, &failure), "create a stream to select of");
    memset(changes, 0, sizeof changes);
    for (n = 0; n < 3; n++) {
        fb_value at = {FB_TYPE_TIMESTAMP, 0, {(const uint8_t *)&times[n], 8}};
        fb_value city = {FB_TYPE_STRING, 0, text(cities[n])};
        fb_value price = {FB_TYPE_INT64, 0, {(const uint8_t *)&prices[n], 8}};
        ops[n][0] = (fb_op){FB_OP_SET, 0, text("at"), at, -1};
        ops[n][1] = (fb_op){FB_OP_SET, 0, text("city"), city, -1};
        ops[n][2] = (fb_op){FB_OP_SET, 0, text("price"), price, -1};
        changes[n].verb = FB_VERB_INSERT;
        changes[n].key = key(users[n]);
        changes[n].ops = ops[n];
        changes[n].op_count = 3;
        changes[n].ttl_us = -1;
    }
    check(fb_store_write(store, changes, 3, 0, NULL, token, &failure), "insert");
    return store;
}

/* Selects one event, and asserts its contents. */
static void select_one(uint64_t store, const fb_event_query *select, const fb_read_options *read,
                       const char *user, int64_t time, int64_t price)
{
    fb_bytes selected;

    check(fb_store_select(store, select, read, &selected, &failure), "select");
    expect_event(selected, user, time, price);
    fb_bytes_free(&selected);
}

/* Finds events by their key, by columns and by event time. */
static void select_events(uint64_t client)
{
    static const int64_t least = 15, behind = 25;
    fb_text price = text("price");
    fb_event_query select;
    fb_bytes token;
    uint64_t store = bought(client, &token);
    fb_read_options after = {FB_WAIT_TOKEN, 0, WAIT_MS, 0, {token.data, token.length}};

    memset(&select, 0, sizeof select);
    select.columns = &price;
    select.column_count = select.limit = 1;
    select.flags = FB_SELECT_KEY | FB_SELECT_DESCENDING;
    select.key = key("u1");
    select_one(store, &select, &after, "u1", 3000, 20);
    select.flags = FB_SELECT_EQUAL | FB_SELECT_ORDER_BY;
    select.column = text("city");
    select.start = (fb_value){FB_TYPE_STRING, 0, text("Oslo")};
    select.order_by = price;
    select_one(store, &select, NULL, "u2", 2000, 10);
    select.flags = FB_SELECT_BETWEEN;
    expect(fb_store_select(store, &select, NULL, NULL, &failure) == FB_INVALID_ARGUMENT,
           "an exact index finds one value");
    expect(failure.field.length == 4, "the error names its column");
    fb_error_free(&failure);
    select.column = price;
    select.start = (fb_value){FB_TYPE_INT64, 0, {(const uint8_t *)&least, 8}};
    select.end = (fb_value){FB_TYPE_INT64, 0, {(const uint8_t *)&behind, 8}};
    select_one(store, &select, NULL, "u1", 3000, 20);
    select.flags = FB_SELECT_START | FB_SELECT_END;
    select.start_us = 1000;
    select.end_us = 2000;
    select_one(store, &select, NULL, "u1", 1000, 30);
    fb_bytes_free(&token);
    check(fb_close(store, &failure), "close the stream to select of");
}

/* Returns the version in a packed definition, and frees the definition. */
static uint32_t take_version(fb_bytes definition)
{
    const uint8_t *at = definition.data + 8;
    uint32_t version;

    take_text(&at);
    version = take_u32(&at);
    fb_bytes_free(&definition);
    return version;
}

/* A refresh returns the definition that another client has made, and none of a deleted store. */
static void refresh(uint64_t client, const char *address)
{
    fb_store_spec spec = {text("c-altered"), FB_KEY_STRING, 1, {NULL, 0}, NULL, 0,
                          {-1, 0, 0, -1, 0}, 1, 0, {NULL, 0}};
    fb_alteration drop_all;
    fb_bytes definition;
    uint64_t other = 0, store = 0;

    check(fb_store_create(client, &spec, &store, &failure), "create a store to refresh");
    check(fb_client_connect(text(address), WAIT_MS, &other, &failure), "connect another client");
    memset(&drop_all, 0, sizeof drop_all);
    drop_all.kind = FB_ALTER_DROP_ALL;
    check(fb_store_alter(other, spec.name, 1, &drop_all, 1, &definition, &failure), "drop all");
    expect(take_version(definition) == 2, "the next version");
    check(fb_store_definition(store, &definition, &failure), "definition before a refresh");
    expect(take_version(definition) == 1, "the version that its client has seen");
    check(fb_store_refresh(store, &definition, &failure), "refresh");
    expect(take_version(definition) == 2, "the newest version");
    check(fb_store_definition(store, &definition, &failure), "definition after a refresh");
    expect(take_version(definition) == 2, "the version of the refresh");
    check(fb_store_delete(other, spec.name, &failure), "delete the store to refresh");
    expect(fb_store_refresh(store, &definition, NULL) == FB_NOT_FOUND, "a deleted store is gone");
    check(fb_close(other, &failure), "close the other client");
    check(fb_close(store, &failure), "close the store to refresh");
}

/*
 * Returns whether the reader's one copy has started from a snapshot, and has applied fewer records.
 */
static int has_begun(uint64_t reader, uint64_t records)
{
    fb_bytes metrics;
    uint64_t applied, bootstraps;

    check(fb_reader_metrics(reader, &metrics, &failure), "metrics");
    memcpy(&applied, metrics.data + 56, 8);
    memcpy(&bootstraps, metrics.data + 112, 8);
    fb_bytes_free(&metrics);
    return bootstraps > 0 && applied < records;
}

/* Reopens readers of a store that has snapshots until a reader starts from a snapshot. */
static void begin_with_snapshot(uint64_t client, const char *url)
{
    fb_store_options window = {-1, 0, 0, 0, 0};
    fb_store_spec spec = {text("c-kept"), FB_KEY_INT64, 1, {NULL, 0}, NULL, 0, window, 1, 0,
                          {NULL, 0}};
    fb_reader_options options;
    fb_bytes token = {NULL, 0};
    fb_text last;
    struct timespec pause = {0, 20000000};
    time_t end = time(NULL) + WAIT_MS / 1000;
    uint64_t store = 0, reader = 0, value = 0, length = 0;
    uint32_t presence = 0;
    int64_t number, found;
    int begun = 0;

    check(fb_store_create(client, &spec, &store, &failure), "create a store with snapshots");
    for (number = 0; number < 100; number++) {
        fb_text bytes = {(const uint8_t *)&number, 8};
        fb_op op = {FB_OP_SET, 0, text("value"), {FB_TYPE_BYTES, 0, bytes}, -1};
        fb_key numbered = {FB_KEY_INT64, 0, bytes, {NULL, 0}};
        fb_change change = {FB_VERB_PUT, FB_IF_ALWAYS, numbered, &op, 1, -1, 0, {NULL, 0}};
        fb_bytes_free(&token);
        check(fb_store_write(store, &change, 1, 0, NULL, &token, &failure), "write");
    }
    last.data = token.data;
    last.length = token.length;
    memset(&options, 0, sizeof options);
    options.store = spec.name;
    options.snapshots = text("nowhere");
    expect(fb_reader_open(client, &options, &reader, NULL) == FB_INVALID_ARGUMENT,
           "a URL names a folder");
    options.snapshots = text(url);
    while (!begun) {
        expect(time(NULL) < end, "a reader begins with a snapshot in time");
        thrd_sleep(&pause, NULL);
        check(fb_reader_open(client, &options, &reader, &failure), "open with snapshots");
        check(fb_reader_await_ready(reader, WAIT_MS, &failure), "await ready with snapshots");
        check(fb_reader_await_token(reader, last, WAIT_MS, &failure), "await what was written");
        check(fb_reader_field(reader, text("value"), 0, &value, NULL, &failure), "field");
        for (number = 0; number < 100; number++) {
            fb_key numbered = {FB_KEY_INT64, 0, {(const uint8_t *)&number, 8}, {NULL, 0}};
            check(fb_reader_get_bytes(reader, value, &numbered, NULL, (uint8_t *)&found, 8, &length,
                                      &presence, &failure), "get what a snapshot has");
            expect(presence == FB_VALUE && length == 8 && found == number, "each is right");
        }
        begun = has_begun(reader, 100);
        check(fb_close(reader, &failure), "close the reader with snapshots");
    }
    fb_bytes_free(&token);
    check(fb_close(store, &failure), "close the store with snapshots");
}

static void print_layouts(void)
{
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define SIZE(type) printf(#type " %zu\n", sizeof(type))
    SIZE(fb_text); SIZE(fb_bytes); SIZE(fb_error); SIZE(fb_value); SIZE(fb_key); SIZE(fb_keys);
    SIZE(fb_read_options); SIZE(fb_field_spec); SIZE(fb_store_options); SIZE(fb_store_spec);
    SIZE(fb_alteration); SIZE(fb_op); SIZE(fb_change); SIZE(fb_outcome); SIZE(fb_reader_options);
    SIZE(fb_scalar); SIZE(fb_gather_field); SIZE(fb_packed); SIZE(fb_sink);
    SIZE(fb_stream_options); SIZE(fb_stream_summary); SIZE(fb_event_query);
    FIELD(fb_error, pending); FIELD(fb_error, field); FIELD(fb_keys, partition_ends);
    FIELD(fb_read_options, token); FIELD(fb_field_spec, fallback); FIELD(fb_field_spec, index);
    FIELD(fb_store_spec, options); FIELD(fb_alteration, options); FIELD(fb_op, value);
    FIELD(fb_change, if_newer);
    FIELD(fb_outcome, error); FIELD(fb_reader_options, allow_incomplete_reads);
    FIELD(fb_reader_options, checkpoint_interval_ms); FIELD(fb_reader_options, memory_limit);
    FIELD(fb_reader_options, spill_limit); FIELD(fb_reader_options, snapshots);
    FIELD(fb_store_options, log_retention_us); FIELD(fb_store_options, log_retention_bytes);
    FIELD(fb_sink, ticket);
    FIELD(fb_stream_summary, token); FIELD(fb_event_query, column); FIELD(fb_event_query, start_us);
    FIELD(fb_event_query, order_by); FIELD(fb_scalar, real);
}

int main(int arguments_count, char **arguments)
{
    uint64_t client = 0, reader = 0, store;
    fb_reader_options options;
    fb_bytes token, streamed, metrics;
    fb_sink sink = {count, &told, 0, 0};
    fb_text written;
    uint32_t version = 0;

    if (arguments_count < 2) {
        print_layouts();
        return 0;
    }
    check(fb_client_connect(text(arguments[1]), WAIT_MS, &client, &failure), "connect");
    store = create(client);
    token = upsert(store);
    memset(&options, 0, sizeof options);
    options.store = text("c-users");
    if (arguments_count > 2) options.checkpoint_dir = text(arguments[2]);
    check(fb_reader_open(client, &options, &reader, &failure), "open the reader");
    check(fb_reader_await_ready(reader, WAIT_MS, &failure), "await ready");
    read_one(reader, token);
    gather(reader);
    get_many(reader);
    check(fb_reader_schema_version(reader, &version, &failure), "schema version");
    expect(version == 1, "the first version");
    check(fb_reader_on_schema_change(reader, &sink, &failure), "ask for changes");
    check(fb_log_to(FB_LOG_DEBUG, &sink, &failure), "ask for records");
    check(fb_log_to(FB_LOG_OFF, NULL, &failure), "ask for none");
    expect(fb_log_to(FB_LOG_TRACE + 1, &sink, NULL) == FB_INVALID_ARGUMENT, "there are six");
    streamed = stream(store);
    written.data = streamed.data;
    written.length = streamed.length;
    check(fb_reader_await_token(reader, written, WAIT_MS, &failure), "await the stream");
    fb_bytes_free(&streamed);
    check(fb_reader_metrics(reader, &metrics, &failure), "metrics");
    fb_bytes_free(&metrics);
    fb_bytes_free(&metrics);
    fb_bytes_free(&token);
    check(fb_close(reader, &failure), "close the reader");
    expect(fb_close(reader, NULL) == FB_CLOSED, "a second close says so");
    expect(fb_reader_await_ready(reader, 1, NULL) == FB_CLOSED, "and so does a use");
    over_memory_limit(client, arguments_count > 2 ? arguments[2] : NULL);
    set_options(client);
    indexed_stream(client);
    select_events(client);
    refresh(client, arguments[1]);
    if (arguments_count > 3) begin_with_snapshot(client, arguments[3]);
    check(fb_close(client, &failure), "close the client");
    expect(fb_store_write(store, NULL, 0, 0, NULL, NULL, NULL) == FB_CLOSED,
           "a store ends with its client");
    check(fb_close(store, &failure), "close the store");
    expect(atomic_load(&told) == 100, "each change of the stream was told of once");
    puts("smoke: OK");
    return 0;
}
