package sidecar.client;

import org.apache.kafka.common.errors.ApiException;

/** A node refused a request of the sidecar's own APIs for good; the message begins with the error's name. */
public final class SidecarException extends ApiException {
    private static final long serialVersionUID = 1L;

    SidecarException(String message) {
        super(message);
    }
}
