/* What the client runs on in this process. */
package io.forebay;

/**
 * The native core of this process, from {@link Forebay#nativeInfo}.
 *
 * @param crossing how Java calls it: {@code jni} or {@code foreign functions}
 * @param reason why it crosses so
 * @param library where the library was loaded from
 * @param abiVersion the version of the interface between the two
 * @param platform the operating system and architecture, as {@code linux-amd64}
 */
public record NativeInfo(
        String crossing, String reason, String library, int abiVersion, String platform) {}
