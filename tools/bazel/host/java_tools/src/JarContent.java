/* The content of a jar; equal contents give jars that are equal byte for byte. */
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import java.util.zip.ZipOutputStream;

/** The files of a jar by name, and the lines of its manifest. */
final class JarContent {
    static final String MANIFEST = "META-INF/MANIFEST.MF";

    private static final LocalDateTime TIME = LocalDateTime.of(2010, 1, 1, 0, 0);

    private final Map<String, byte[]> files = new TreeMap<>();
    private final StringBuilder manifest = new StringBuilder("Manifest-Version: 1.0\r\n");

    /** Adds a line such as {@code Main-Class: a.B}, folded to the 72 bytes that a line may have. */
    void addToManifest(String line) {
        String rest = line;
        for (String margin = ""; !rest.isEmpty(); margin = " ") {
            int length = Math.min(rest.length(), 70 - margin.length());
            manifest.append(margin).append(rest, 0, length).append("\r\n");
            rest = rest.substring(length);
        }
    }

    /** Adds a file. The first file of a name wins, except that lists of services are joined. */
    void add(String name, byte[] content) {
        boolean isJoined = name.startsWith("META-INF/services/");
        files.merge(name, content, (first, second) -> isJoined ? joined(first, second) : first);
    }

    private static byte[] joined(byte[] first, byte[] second) {
        return (new String(first) + "\n" + new String(second)).getBytes();
    }

    void addFolder(Path folder) throws IOException {
        try (var found = Files.walk(folder)) {
            for (Path file : found.filter(Files::isRegularFile).toList()) {
                String name = folder.relativize(file).toString();
                add(name, Files.readAllBytes(file));
            }
        }
    }

    /** Adds all files of a jar except its manifest. */
    void addJar(Path jar) throws IOException {
        try (ZipFile zip = new ZipFile(jar.toFile())) {
            for (ZipEntry entry : Collections.list(zip.entries())) {
                if (!entry.isDirectory() && !entry.getName().equals(MANIFEST)) {
                    add(entry.getName(), zip.getInputStream(entry).readAllBytes());
                }
            }
        }
    }

    /** Adds files given as {@code FILE:NAME}. */
    void addResources(List<String> resources) throws IOException {
        for (String resource : resources) {
            int colon = resource.indexOf(':');
            Path file = Path.of(colon < 0 ? resource : resource.substring(0, colon));
            add(resource.substring(colon + 1), Files.readAllBytes(file));
        }
    }

    void write(Path jar) throws IOException {
        try (OutputStream out = Files.newOutputStream(jar);
                ZipOutputStream zip = new ZipOutputStream(out)) {
            put(zip, MANIFEST, manifest.append("\r\n").toString().getBytes());
            // Programs find packages by the entries of their folders.
            Map<String, byte[]> entries = new TreeMap<>(files);
            for (String name : files.keySet()) {
                for (int at = name.indexOf('/'); at >= 0; at = name.indexOf('/', at + 1)) {
                    entries.put(name.substring(0, at + 1), new byte[0]);
                }
            }
            for (Map.Entry<String, byte[]> entry : entries.entrySet()) {
                put(zip, entry.getKey(), entry.getValue());
            }
        }
    }

    private static void put(ZipOutputStream zip, String name, byte[] content) throws IOException {
        ZipEntry entry = new ZipEntry(name);
        entry.setTimeLocal(TIME);
        zip.putNextEntry(entry);
        zip.write(content);
        zip.closeEntry();
    }
}
