/* Strict conversion of text to UTF-8: invalid text is refused, never replaced. */
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

    /** Returns whether the UTF-8 of a text certainly fits into {@code bytes} bytes. */
    static boolean fits(String text, int bytes) {
        return text.length() <= bytes / 3;
    }

    /** Writes the UTF-8 of a text that {@link #fits}, from an offset on; returns the end. */
    static int utf8(String text, ByteBuffer out, int from) {
        int at = from;
        for (int place = 0; place < text.length(); place++) {
            int unit = text.charAt(place);
            if (unit < 0x80) {
                out.put(at++, (byte) unit);
            } else if (unit < 0x800) {
                out.put(at++, (byte) (0xc0 | unit >> 6));
                out.put(at++, (byte) (0x80 | unit & 0x3f));
            } else if (!Character.isSurrogate((char) unit)) {
                out.put(at++, (byte) (0xe0 | unit >> 12));
                out.put(at++, (byte) (0x80 | unit >> 6 & 0x3f));
                out.put(at++, (byte) (0x80 | unit & 0x3f));
            } else {
                int point = text.codePointAt(place++);
                if (!Character.isSupplementaryCodePoint(point)) {
                    throw loneSurrogate();
                }
                out.put(at++, (byte) (0xf0 | point >> 18));
                out.put(at++, (byte) (0x80 | point >> 12 & 0x3f));
                out.put(at++, (byte) (0x80 | point >> 6 & 0x3f));
                out.put(at++, (byte) (0x80 | point & 0x3f));
            }
        }
        return at;
    }

    private static ForebayException loneSurrogate() {
        return ForebayException.of(
                ErrorCode.INVALID_ARGUMENT,
                "the text holds a lone surrogate, which is no text; give it as bytes");
    }

    private static byte[] strict(String text) {
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw loneSurrogate();
        }
    }
}
