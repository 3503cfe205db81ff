package sidecar.client;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.common.config.ConfigException;

/** What owners are called, as nodes take it. */
final class Names {
    private static final int NAME_BYTES = 255;
    private static final Pattern NO_NAMES =
        Pattern.compile("producer-\\d+|rdkafka|sarama|kgo|kafkajs|aiokafka-.*|kafka-python-.*|", Pattern.DOTALL);

    private Names() {}

    /** The {@code client.id} of these settings; one that nobody else has where there is none. */
    static String of(Map<String, ?> configs) {
        var found = configs.get(CommonClientConfigs.CLIENT_ID_CONFIG);
        if (found == null) {
            return "sidecar-" + UUID.randomUUID();
        }
        var name = found.toString();
        int size = name.getBytes(StandardCharsets.UTF_8).length;
        if (size < 1 || size > NAME_BYTES || name.contains(";") || NO_NAMES.matcher(name).matches()
                || name.endsWith("…")) {
            throw new ConfigException(CommonClientConfigs.CLIENT_ID_CONFIG, name,
                "it has 1 to " + NAME_BYTES + " bytes of UTF-8 without ;, and is no library's default");
        }
        return name;
    }
}
