/* Netflix Hollow. */
package io.forebay.bench.peers;

import com.netflix.hollow.core.index.HollowPrimaryKeyIndex;
import com.netflix.hollow.core.read.engine.HollowReadStateEngine;
import com.netflix.hollow.core.read.engine.object.HollowObjectTypeReadState;
import com.netflix.hollow.core.util.StateEngineRoundTripper;
import com.netflix.hollow.core.write.HollowObjectTypeWriteState;
import com.netflix.hollow.core.write.HollowObjectWriteRecord;
import com.netflix.hollow.core.write.HollowWriteStateEngine;
import com.netflix.hollow.core.schema.HollowObjectSchema;
import com.netflix.hollow.core.schema.HollowObjectSchema.FieldType;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** A type of a long key and bytes, found by Hollow's index of primary keys. */
final class Hollow implements Subject {
    private static final VarHandle LONGS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private final HollowPrimaryKeyIndex index;
    private final HollowObjectTypeReadState state;
    private final int keyBytes;

    Hollow(Data data) throws IOException {
        HollowObjectSchema schema = new HollowObjectSchema("Document", 2, "key");
        schema.addField("key", FieldType.LONG);
        schema.addField("value", FieldType.BYTES);
        HollowWriteStateEngine writer = new HollowWriteStateEngine();
        writer.addTypeState(new HollowObjectTypeWriteState(schema));
        HollowObjectWriteRecord record = new HollowObjectWriteRecord(schema);
        for (long number = 0; number < data.entries(); number++) {
            record.reset();
            record.setLong("key", number);
            record.setBytes("value", data.value(number));
            writer.add("Document", record);
        }
        HollowReadStateEngine reader = new HollowReadStateEngine();
        StateEngineRoundTripper.roundTripSnapshot(writer, reader);
        index = new HollowPrimaryKeyIndex(reader, "Document", "key");
        state = (HollowObjectTypeReadState) reader.getTypeState("Document");
        keyBytes = data.keyBytes();
    }

    private byte[] get(byte[] key) {
        int ordinal = index.getMatchingOrdinal((long) LONGS.get(key, 0));
        return state.readBytes(ordinal, 1);
    }

    @Override
    public void chain(byte[] key, int steps) {
        for (int step = 0; step < steps; step++) {
            System.arraycopy(get(key), 0, key, 0, keyBytes);
        }
    }

    @Override
    public void loop(byte[][] keys, byte[][] values) {
        for (int place = 0; place < keys.length; place++) {
            values[place] = get(keys[place]);
        }
    }
}
