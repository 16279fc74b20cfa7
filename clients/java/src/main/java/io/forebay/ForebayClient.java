/* The client: one connection to a writer, to write to stores and to administer them. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Writes to stores, administers them, and opens readers. A client has one random id for its whole
 * life and numbers its writes, so that a write that is sent twice happens once: create one client
 * per process and share it between threads.
 *
 * <pre>{@code
 * try (ForebayClient client = ForebayClient.connect("127.0.0.1:7070")) {
 *     Store users = client.createStore(
 *             StoreSpec.documents("users", KeyType.STRING)
 *                     .partitions(8)
 *                     .field("age", FieldType.INT64));
 *     WriteOutcome written = users.upsert(Key.of("u1")).set("age", 41).send();
 *     try (ForebayReader reader = client.reader("users")) {
 *         reader.awaitReady(Duration.ofSeconds(30));
 *         FieldHandle age = reader.field("age");
 *         ReadOptions mine = ReadOptions.after(written.token(), Duration.ofSeconds(5));
 *         System.out.println(reader.with(mine).getLong(age, Key.of("u1"), -1));
 *     }
 * }
 * }</pre>
 */
public final class ForebayClient implements AutoCloseable {
    private final NativeId id;

    private ForebayClient(long id) {
        this.id = NativeId.explicit(id);
    }

    /**
     * Connects to a node, for example {@code forebayd dev}, with deadlines of 10 seconds.
     *
     * @param endpoint {@code host:port}
     * @return the client
     * @throws InvalidArgumentException for an invalid address
     * @throws UnavailableException if no node answers there
     */
    public static ForebayClient connect(String endpoint) {
        return connect(endpoint, Duration.ZERO);
    }

    /**
     * Connects to a node. The native core's log records go to SLF4J from now on, from the current
     * level of the logger {@code io.forebay.core} up.
     *
     * @param endpoint {@code host:port}
     * @param deadline deadline of each call, retries included; zero for 10 seconds
     * @return the client
     * @throws InvalidArgumentException for an invalid address
     * @throws UnavailableException if no node answers there
     */
    public static ForebayClient connect(String endpoint, Duration deadline) {
        NativeLog.refresh();
        CallBuffer call = CallBuffer.take();
        try {
            byte[] address = Text.utf8(endpoint);
            call.check(
                    Native.CALLS.clientConnect(
                            call.put(address),
                            address.length,
                            ReadOptions.millis(deadline),
                            call.out(0),
                            call.error()));
            return new ForebayClient(call.outLong(0));
        } finally {
            call.release();
        }
    }

    /**
     * Opens a store.
     *
     * @param name the store's name
     * @return the store
     * @throws NotFoundException if there is no such store
     */
    public Store store(String name) {
        CallBuffer call = CallBuffer.take();
        try {
            byte[] text = Text.utf8(name);
            call.check(
                    Native.CALLS.storeOpen(
                            id.id(), call.put(text), text.length, call.out(0), call.error()));
            return new Store(name, call.outLong(0));
        } finally {
            call.release();
        }
    }

    /**
     * Creates a store and opens it.
     *
     * @param spec the specification
     * @return the store
     * @throws ConflictException if the name is taken
     * @throws UnknownOutcomeException if the store may have been created: open the store to find
     *     out
     */
    public Store createStore(StoreSpec spec) {
        CallBuffer call = CallBuffer.take();
        try {
            long address = spec.encode(call);
            call.check(Native.CALLS.storeCreate(id.id(), address, call.out(0), call.error()));
            return new Store(spec.name(), call.outLong(0));
        } finally {
            call.release();
        }
    }

    /**
     * Alters a store, which gives the store its next version. All alterations happen, or none.
     *
     * @param name the store's name
     * @param fromVersion the version that the caller has seen; 0 alters the current version
     * @param alterations the alterations
     * @return the new definition
     * @throws ConflictException if another alteration came first
     * @throws InvalidArgumentException if old data would become unreadable, with the reason
     */
    public Definition alterStore(String name, int fromVersion, List<Alteration> alterations) {
        CallBuffer call = CallBuffer.take();
        try {
            byte[] text = Text.utf8(name);
            long address = Alteration.encode(call, alterations);
            call.check(
                    Native.CALLS.storeAlter(
                            id.id(),
                            call.put(text),
                            text.length,
                            fromVersion,
                            address,
                            alterations.size(),
                            call.out(0),
                            call.error()));
            return Definition.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Deletes a store and all its data.
     *
     * @param name the store's name
     * @throws NotFoundException if there is no such store
     */
    public void deleteStore(String name) {
        CallBuffer call = CallBuffer.take();
        try {
            byte[] text = Text.utf8(name);
            call.check(
                    Native.CALLS.storeDelete(id.id(), call.put(text), text.length, call.error()));
        } finally {
            call.release();
        }
    }

    /**
     * Returns the newest definition of a store.
     *
     * @param name the store's name
     * @return the definition
     * @throws NotFoundException if there is no such store
     */
    public Definition describeStore(String name) {
        return describeStore(name, 0);
    }

    /**
     * Returns the definition of a store at a version.
     *
     * @param name the store's name
     * @param version the version, from 1; 0 for the newest
     * @return the definition
     * @throws NotFoundException if there is no such store, or the store has no such version
     */
    public Definition describeStore(String name, int version) {
        CallBuffer call = CallBuffer.take();
        try {
            byte[] text = Text.utf8(name);
            call.check(
                    Native.CALLS.storeDescribe(
                            id.id(),
                            call.put(text),
                            text.length,
                            version,
                            call.out(0),
                            call.error()));
            return Definition.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Returns the newest definitions of all stores.
     *
     * @return the definitions, sorted by name
     */
    public List<Definition> listStores() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.storeList(id.id(), call.out(0), call.error()));
            Unpacker packed = new Unpacker(call.takeBytes(0));
            int count = packed.i32();
            List<Definition> definitions = new ArrayList<>(count);
            for (int place = 0; place < count; place++) {
                definitions.add(Definition.unpack(packed));
            }
            return List.copyOf(definitions);
        } finally {
            call.release();
        }
    }

    /**
     * Opens a reader of all partitions of a store. Returns before anything is read.
     *
     * @param store the store's name
     * @return the reader; wait with {@link ForebayReader#awaitReady}
     * @throws NotFoundException if there is no such store
     */
    public ForebayReader reader(String store) {
        return reader(ReaderOptions.builder(store).build());
    }

    /**
     * Opens a reader, which outlives this client.
     *
     * @param options the reader's options
     * @return the reader; wait with {@link ForebayReader#awaitReady}
     * @throws NotFoundException if there is no such store
     */
    public ForebayReader reader(ReaderOptions options) {
        CallBuffer call = CallBuffer.take();
        try {
            long address = options.encode(call);
            call.check(Native.CALLS.readerOpen(id.id(), address, call.out(0), call.error()));
            return new ForebayReader(options.store(), call.outLong(0));
        } finally {
            call.release();
        }
    }

    /** Closes the client and its stores. Writes in flight end; a second close changes nothing. */
    @Override
    public void close() {
        id.close();
    }
}
