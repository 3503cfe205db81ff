import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Kafka Streams, exactly once: counts values, over a repartition topic and with a store. {@code BOOTSTRAP FROM TO APPLICATION
 * DIRECTORY PROTOCOL STOP_AT}: it stands still for ever, its transaction open, as it gets its record number STOP_AT. It ends in
 * good order with its input.
 */
public final class Counting {
    private Counting() {}

    public static void main(String[] words) throws Exception {
        int stopAt = Integer.parseInt(words[6]);
        AtomicInteger got = new AtomicInteger();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(words[1], Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((key, value) -> value)
                .repartition(Repartitioned.<String, String>as("by-value").withNumberOfPartitions(2))
                .peek((key, value) -> {
                    if (got.incrementAndGet() == stopAt) {
                        System.out.println("stands still");
                        sleep();
                    }
                })
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withCachingDisabled())
                .toStream()
                .mapValues(String::valueOf)
                .to(words[2], Produced.with(Serdes.String(), Serdes.String()));
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", words[0],
                "application.id", words[3],
                "state.dir", words[4],
                "group.protocol", words[5],
                "processing.guarantee", "exactly_once_v2",
                "commit.interval.ms", "100",
                "default.key.serde", Serdes.StringSerde.class.getName(),
                "default.value.serde", Serdes.StringSerde.class.getName(),
                "main.consumer.session.timeout.ms", "6000",
                "main.consumer.auto.offset.reset", "earliest"));
        if (words[5].equals("streams")) {
            settings.remove("main.consumer.session.timeout.ms"); // brokers decide it there
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.out.println("failed " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        System.in.transferTo(System.err);
        streams.close(Duration.ofSeconds(30));
        System.out.println("closed " + streams.state());
    }

    private static void sleep() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
