import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads requests with Kafka's generated parsers, as a broker does, and writes each again in Kafka's own form.
 *
 * <p>Standard input: frames, each after its length of four bytes. Standard output: for each frame the length of what was
 * read, written again, and these bytes; -1 where Kafka refuses the frame, -2 where it does not have the version, -3 where it
 * reads what it would not write, as tagged fields that are not in order.
 */
public final class ReadRequests {
    private static final int REFUSED = -1;
    private static final int NOT_SERVED = -2;
    private static final int NOT_WRITTEN = -3;

    private ReadRequests() {
    }

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            byte[] frame;
            try {
                frame = new byte[in.readInt()];
            } catch (EOFException end) {
                break;
            }
            in.readFully(frame);
            answer(frame, out);
            if (in.available() == 0) {
                out.flush();
            }
        }
        out.flush();
    }

    private static void answer(byte[] frame, DataOutputStream out) throws IOException {
        ByteBuffer buffer = ByteBuffer.wrap(frame);
        ApiMessageType type;
        short version = buffer.getShort(2);
        try {
            type = ApiMessageType.fromApiKey(buffer.getShort(0));
        } catch (RuntimeException unknown) {
            out.writeInt(NOT_SERVED);
            return;
        }
        if (version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(true)) {
            out.writeInt(NOT_SERVED);
            return;
        }
        short headerVersion = type.requestHeaderVersion(version);
        RequestHeaderData header;
        ApiMessage body = type.newRequest();
        try {
            ByteBufferAccessor accessor = new ByteBufferAccessor(buffer);
            header = new RequestHeaderData(accessor, headerVersion);
            body.read(accessor, version);
        } catch (RuntimeException malformed) {
            out.writeInt(REFUSED);
            return;
        }
        byte[] head;
        byte[] rest;
        try {
            head = written(header, headerVersion);
            rest = written(body, version);
        } catch (RuntimeException notCanonical) {
            out.writeInt(NOT_WRITTEN);
            return;
        }
        out.writeInt(head.length + rest.length);
        out.write(head);
        out.write(rest);
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer into = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(into), cache, version);
        return into.array();
    }
}
