import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Flink, exactly once: copies what a topic has to another one, in a cluster of its own within this process. {@code BOOTSTRAP FROM
 * TO NAME NAMING FAIL_AT}: the first time that it gets its record number FAIL_AT it fails, and begins again at its last checkpoint.
 */
public final class Copying {
    private Copying() {}

    /** Takes 10 ms for each record, so that several checkpoints fall into a job. */
    private record Failing(int at) implements MapFunction<String, String> {
        private static final AtomicInteger GOT = new AtomicInteger();

        @Override
        public String map(String value) throws Exception {
            Thread.sleep(10);
            if (GOT.incrementAndGet() == at) {
                System.out.println("fails");
                throw new IllegalStateException("as it was told to");
            }
            return value;
        }
    }

    public static void main(String[] words) throws Exception {
        Configuration settings = new Configuration();
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 1);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(100));
        StreamExecutionEnvironment job = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        job.setParallelism(2);
        job.enableCheckpointing(200, CheckpointingMode.EXACTLY_ONCE);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(words[0])
                .setTopics(words[1])
                .setGroupId(words[3])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("isolation.level", "read_committed")
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(words[0])
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(words[2])
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(words[3])
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(words[4]))
                .setProperty("transaction.timeout.ms", "60000")
                .build();
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .map(new Failing(Integer.parseInt(words[5])))
                .sinkTo(sink);
        job.execute();
        System.out.println("done");
    }
}
