package sidecar.client;

/**
 * What is claimed: a string that the clients agree on, or a topic for writing. Exactly one of the two is not null.
 *
 * @param name any string of 1 to 1,024 bytes of UTF-8
 * @param topic a topic of Kafka's; it may stay empty. Its generation never falls, so it is a fencing token
 */
public record Resource(String name, String topic) {

    /** Throws IllegalArgumentException unless exactly one is given. */
    public Resource {
        if ((name == null) == (topic == null) || "".equals(name) || "".equals(topic)) {
            throw new IllegalArgumentException("name either a string or a topic, not empty");
        }
    }

    /** A string; its generation begins again with 1 once nobody owned it. */
    public static Resource name(String name) {
        return new Resource(name, null);
    }

    /** A whole topic: while it is owned no other producer writes there. */
    public static Resource topic(String topic) {
        return new Resource(null, topic);
    }

    @Override
    public String toString() {
        return name == null ? topic : name;
    }
}
