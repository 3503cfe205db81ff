import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * kafka-clients: {@code write BOOTSTRAP CLIENT_ID TOPIC} sends the sequence ids that it reads, one per line, and prints
 * what became of each; {@code read BOOTSTRAP TOPIC GROUP COUNT} prints that many values of a topic or shadow.
 */
public final class Recipe {

    static KafkaProducer<String, String> producer(String bootstrap, String clientId) {
        return new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "client.id", clientId,
                "connections.max.idle.ms", "-1",
                "delivery.timeout.ms", "2147483647"), // 24 days: how long a record may wait for the topic
            new StringSerializer(),
            new StringSerializer());
    }

    static String send(KafkaProducer<String, String> producer, String topic, String number)
            throws InterruptedException {
        var record = new ProducerRecord<String, String>(topic, number);
        record.headers().add("sidecar-sequence-id", number.getBytes());
        try {
            producer.send(record).get();
            return "ok";
        } catch (ExecutionException failed) {
            return "error " + failed.getCause().getClass().getSimpleName();
        } catch (KafkaException dead) { // the producer itself failed before
            return "error " + dead.getClass().getSimpleName();
        }
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        return new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false"),
            new StringDeserializer(),
            new StringDeserializer());
    }

    static void write(String bootstrap, String clientId, String topic) throws IOException, InterruptedException {
        try (var producer = producer(bootstrap, clientId)) {
            var lines = new BufferedReader(new InputStreamReader(System.in));
            for (var number = lines.readLine(); number != null; number = lines.readLine()) {
                System.out.println(number + " " + send(producer, topic, number));
            }
        }
    }

    static void read(String bootstrap, String topic, String group, int count) {
        try (var consumer = consumer(bootstrap, group)) {
            consumer.subscribe(List.of(topic));
            for (var left = count; left > 0; ) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.value());
                    left--;
                }
            }
            consumer.commitSync();
        }
    }

    public static void main(String[] words) throws IOException, InterruptedException {
        if (words[0].equals("write")) {
            write(words[1], words[2], words[3]);
        } else {
            read(words[1], words[2], words[3], Integer.parseInt(words[4]));
        }
    }

    private Recipe() {}
}
