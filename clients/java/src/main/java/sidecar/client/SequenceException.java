package sidecar.client;

import org.apache.kafka.common.InvalidRecordException;

/**
 * A sequence id that cannot be: given to one record and not to the next, not above the last one, out of range, or for a
 * topic without deduplication. Final.
 */
public final class SequenceException extends InvalidRecordException {
    private static final long serialVersionUID = 1L;

    SequenceException(String message) {
        super(message);
    }
}
