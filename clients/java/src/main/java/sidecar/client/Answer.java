package sidecar.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * An answer of the own APIs, all of which have the error first, the message second and what was asked for third
 * (proto/sidecar/v1/control.proto).
 *
 * @param error one of the constants here; a newer node may send others, which are final
 * @param owners of Own, DescribeOwners and Watch
 * @param lastIds of LastSequence: the highest id by partition
 */
record Answer(int error, String message, List<Owner> owners, Map<Integer, Long> lastIds) {
    static final int NONE = 0;
    static final int NOT_SERVING = 2;
    static final int UNAVAILABLE = 3;
    static final int HELD = 4;
    static final int LOWER_GENERATION = 5;
    static final int DEPOSED = 6;
    static final int UNKNOWN_RESOURCE = 7;
    static final int NOT_AUTHORIZED = 8;
    static final int TIMED_OUT = 9;
    static final int QUEUE_FULL = 10;
    private static final String[] NAMES = {
        "NONE", "INVALID_REQUEST", "NOT_SERVING", "UNAVAILABLE", "HELD", "LOWER_GENERATION", "DEPOSED",
        "UNKNOWN_RESOURCE", "NOT_AUTHORIZED", "TIMED_OUT", "QUEUE_FULL"
    };

    /** Who owns a resource; {@code servingNode} is -1 where none serves it. */
    record Owner(int error, String message, long generation, int servingNode) {
        static Owner read(byte[] data) {
            var reader = new Proto.Reader(data);
            int error = NONE;
            var message = "";
            long generation = 0;
            int servingNode = 0;
            while (reader.next()) {
                switch (reader.field) {
                    case 2 -> error = (int) reader.number;
                    case 3 -> message = reader.text();
                    case 4 -> generation = reader.number;
                    case 7 -> servingNode = (int) reader.number;
                    default -> { }
                }
            }
            return new Owner(error, message, generation, servingNode);
        }
    }

    static Answer read(byte[] data, boolean hasIds) {
        var reader = new Proto.Reader(data);
        int error = NONE;
        var message = "";
        var owners = new ArrayList<Owner>();
        var lastIds = new HashMap<Integer, Long>();
        while (reader.next()) {
            switch (reader.field) {
                case 1 -> error = (int) reader.number;
                case 2 -> message = reader.text();
                case 3 -> {
                    if (hasIds) {
                        var entry = new Proto.Reader(reader.bytes);
                        long partition = 0;
                        long id = 0;
                        while (entry.next()) {
                            partition = entry.field == 1 ? entry.number : partition;
                            id = entry.field == 2 ? entry.number : id;
                        }
                        lastIds.put((int) partition, id);
                    } else {
                        owners.add(Owner.read(reader.bytes));
                    }
                }
                default -> { }
            }
        }
        return new Answer(error, message, owners, lastIds);
    }

    /** The first owner named, or one that nothing is known of. */
    Owner owner() {
        return owners.isEmpty() ? new Owner(NONE, "", 0, -1) : owners.get(0);
    }

    /** What this answer's error becomes for an application. */
    ApiException refusal(Resource resource) {
        return refusal(error, message.isEmpty() ? owner().message() : message, resource);
    }

    static ApiException refusal(int error, String message, Resource resource) {
        var text = (error >= 0 && error < NAMES.length ? NAMES[error] : "error " + error) + ": " + message;
        return switch (error) {
            case HELD, LOWER_GENERATION, TIMED_OUT, QUEUE_FULL -> new ProducerBusyException(text);
            case DEPOSED -> new ProducerFencedException(text);
            case NOT_SERVING, UNAVAILABLE -> new TimeoutException(text);
            case UNKNOWN_RESOURCE -> new UnknownTopicOrPartitionException(
                text + "; `sidecar topic create " + resource + "` makes a topic");
            case NOT_AUTHORIZED -> new TopicAuthorizationException(text);
            default -> new SidecarException(text);
        };
    }
}
