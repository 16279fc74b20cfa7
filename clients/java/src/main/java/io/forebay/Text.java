/* Text to UTF-8, strictly: what is no text is refused, never replaced. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Conversions of text. */
final class Text {
    static final byte[] NO_BYTES = {};

    private Text() {}

    static byte[] utf8(String text) {
        for (int place = 0; place < text.length(); place++) {
            if (Character.isSurrogate(text.charAt(place))) {
                return strict(text);
            }
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] strict(String text) {
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the text holds a lone surrogate, which is no text; give it as bytes");
        }
    }
}
