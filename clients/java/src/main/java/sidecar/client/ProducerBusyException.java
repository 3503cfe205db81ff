package sidecar.client;

import org.apache.kafka.common.errors.PolicyViolationException;

/** Another session owns the resource or waits for it, or writes under the same name. Trying later may succeed. */
public final class ProducerBusyException extends PolicyViolationException {
    private static final long serialVersionUID = 1L;

    ProducerBusyException(String message) {
        super(message);
    }
}
