package sidecar.client;

/** What happens where another session owns the resource or waits for it (PIP-68). */
public enum AccessMode {
    /** Fails with {@link ProducerBusyException}. */
    EXCLUSIVE(2),
    /** Waits without a limit, in the order in which they came. */
    WAIT_FOR_EXCLUSIVE(3),
    /** Takes it: the owner and all that wait are deposed. */
    EXCLUSIVE_WITH_FENCING(4);

    /** Its number in control.proto. */
    final int number;

    AccessMode(int number) {
        this.number = number;
    }
}
