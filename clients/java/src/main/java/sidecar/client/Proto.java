package sidecar.client;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** As much of protobuf's wire format as control.proto needs: varints and length-delimited fields. */
final class Proto {
    private Proto() {}

    /** A message that grows. Fields with proto3's default are left out, save by {@link #present}. */
    static final class Writer {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream();

        Writer number(int field, long value) {
            return value == 0 ? this : present(field, value);
        }

        Writer present(int field, long value) {
            varint((long) field << 3);
            varint(value);
            return this;
        }

        Writer text(int field, String value) {
            return value == null || value.isEmpty() ? this : bytes(field, value.getBytes(StandardCharsets.UTF_8));
        }

        Writer message(int field, Writer value) {
            return bytes(field, value.toBytes());
        }

        Writer bytes(int field, byte[] value) {
            varint((long) field << 3 | 2);
            varint(value.length);
            out.writeBytes(value);
            return this;
        }

        byte[] toBytes() {
            return out.toByteArray();
        }

        private void varint(long value) {
            long rest = value;
            for (; (rest & ~0x7FL) != 0; rest >>>= 7) {
                out.write((int) (rest & 0x7F | 0x80));
            }
            out.write((int) rest);
        }
    }

    /** A message field by field: {@link #next}, then {@code field} and either {@code number} or {@code bytes}. */
    static final class Reader {
        int field;
        long number;
        byte[] bytes;
        private final byte[] data;
        private int at;

        Reader(byte[] data) {
            this.data = data;
        }

        /** Whether there is another field. Throws IllegalArgumentException for bytes that are no message. */
        boolean next() {
            if (at == data.length) {
                return false;
            }
            long tag = varint();
            field = (int) (tag >>> 3);
            number = 0;
            bytes = new byte[0];
            switch ((int) (tag & 7)) {
                case 0 -> number = varint();
                case 1 -> bytes = take(8);
                case 2 -> bytes = take(varint());
                case 5 -> bytes = take(4);
                default -> throw new IllegalArgumentException("wire type " + (tag & 7));
            }
            return true;
        }

        String text() {
            return new String(bytes, StandardCharsets.UTF_8);
        }

        private byte[] take(long size) {
            if (size < 0 || size > data.length - at) {
                throw new IllegalArgumentException("a field of " + size + " bytes");
            }
            var taken = new byte[(int) size];
            System.arraycopy(data, at, taken, 0, taken.length);
            at += taken.length;
            return taken;
        }

        private long varint() {
            long value = 0;
            for (int shift = 0; shift < 64; shift += 7) {
                if (at == data.length) {
                    throw new IllegalArgumentException("the message ends in a number");
                }
                byte next = data[at++];
                value |= (long) (next & 0x7F) << shift;
                if (next >= 0) {
                    return value;
                }
            }
            throw new IllegalArgumentException("a number of more than 64 bits");
        }
    }
}
