/* The native core of this process. */
package io.forebay;

/**
 * The native core of this process, from {@link Forebay#nativeInfo}.
 *
 * @param crossing how Java calls the native core: {@code jni} or {@code foreign functions}
 * @param reason why Java calls it so
 * @param library the origin of the loaded library
 * @param abiVersion the version of the ABI between Java and the native core
 * @param platform the operating system and architecture, as {@code linux-amd64}
 */
public record NativeInfo(
        String crossing, String reason, String library, int abiVersion, String platform) {}
