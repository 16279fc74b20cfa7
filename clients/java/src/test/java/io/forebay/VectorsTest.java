/* The golden vectors of partitioning, through the native core. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class VectorsTest {
    /** A key of proto/vectors/partitioning.json; its partitions are those at each of COUNTS. */
    private static final Pattern KEY =
            Pattern.compile(
                    "\"key_type\": \"(\\w+)\",.*?\"key_hex\": \"([0-9a-f]*)\",\\s*\"repeat\": "
                            + "(\\d+),.*?\"partitions\": \\[([^]]*)]",
                    Pattern.DOTALL);

    private static final int[] COUNTS = {1, 7, 8, 64, 4096};
    private static final int CHECKED = 1;

    private static ForebayReader reader(KeyType type) {
        StoreSpec spec = StoreSpec.documents(Node.name(), type).partitions(COUNTS[CHECKED]);
        Node.client().createStore(spec.field("a", FieldType.INT64));
        return Node.client().reader(spec.name());
    }

    private static Key key(KeyType type, byte[] bytes) {
        return switch (type) {
            case STRING -> Key.of(new String(bytes, StandardCharsets.UTF_8));
            case BYTES -> Key.of(bytes);
            case INT64 -> Key.ofParts(KeyType.INT64, bytes, null);
        };
    }

    @Test
    void keysMapToTheirPartitions() throws IOException {
        String root = System.getProperty("forebay.root");
        String text = Files.readString(Path.of(root, "proto/vectors/partitioning.json"));
        String counts = text.replaceAll("\\s", "");
        assertTrue(counts.contains("\"counts\":" + Arrays.toString(COUNTS).replace(" ", "")));
        Map<KeyType, ForebayReader> readers = new EnumMap<>(KeyType.class);
        int checked = 0;
        for (MatchResult found : KEY.matcher(text).results().toList()) {
            KeyType type = KeyType.valueOf(found.group(1).toUpperCase(java.util.Locale.ROOT));
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            for (int time = 0; time < Integer.parseInt(found.group(3)); time++) {
                bytes.write(HexFormat.of().parseHex(found.group(2)));
            }
            String[] partitions = found.group(4).trim().split(",\\s*");
            ForebayReader reader = readers.computeIfAbsent(type, VectorsTest::reader);
            Key key = key(type, bytes.toByteArray());
            assertEquals(Integer.parseInt(partitions[CHECKED]), reader.partitionOf(key));
            checked++;
        }
        readers.values().forEach(ForebayReader::close);
        assertEquals(text.split("\"key_type\"", -1).length - 1, checked);
        assertEquals(3, readers.size());
    }
}
