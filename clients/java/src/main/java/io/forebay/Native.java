/* Finds, loads and checks the native library, once per process. */
package io.forebay;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** The native core of this process. */
final class Native {
    /** Names the library's file; without it the library is taken out of the jar. */
    static final String PATH_PROPERTY = "forebay.native.path";

    static final NativeCalls CALLS = load();

    private Native() {}

    private static NativeCalls load() {
        String path = System.getProperty(PATH_PROPERTY);
        System.load(path == null ? unpacked() : Path.of(path).toAbsolutePath().toString());
        NativeCalls calls = new JniCalls();
        if (calls.version() != NativeCalls.VERSION) {
            throw ForebayException.of(
                    ErrorCode.UPGRADE_NEEDED,
                    "the native library speaks ABI "
                            + calls.version()
                            + ", this package "
                            + NativeCalls.VERSION
                            + "; take both from one release");
        }
        return calls;
    }

    private static String unpacked() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        String place = "/io/forebay/native/" + system + "-" + machine + "/libforebay_ffi.so";
        try (InputStream packed = Native.class.getResourceAsStream(place)) {
            if (packed == null) {
                throw ForebayException.of(
                        ErrorCode.UNSUPPORTED,
                        "the jar has no "
                                + place
                                + "; build clients/c and name its library by -D"
                                + PATH_PROPERTY);
            }
            Path file = Files.createTempFile("forebay", ".so");
            Files.copy(packed, file, StandardCopyOption.REPLACE_EXISTING);
            file.toFile().deleteOnExit();
            return file.toString();
        } catch (IOException error) {
            throw ForebayException.of(
                    ErrorCode.UNAVAILABLE,
                    "cannot unpack the native library ("
                            + error.getMessage()
                            + "); name its file by -D"
                            + PATH_PROPERTY);
        }
    }
}
