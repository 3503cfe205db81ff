import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * kafka-clients: {@code Leader BOOTSTRAP TOPIC NAME MODE} waits until it leads, then writes each line that it reads as a
 * decision and acts on it. It ends with its input, and with 4 if it is deposed.
 */
public final class Leader {

    static KafkaProducer<String, String> candidate(String bootstrap, String name, String mode) {
        return new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "client.id", name + ";mode=" + mode, // wait_for_exclusive, or exclusive_with_fencing
                "connections.max.idle.ms", "-1",
                "delivery.timeout.ms", "2147483647"), // 24 days: how long it may wait for its turn
            new StringSerializer(),
            new StringSerializer());
    }

    /** Returns the offset, or -1 for a retry that Kafka knew already. Waits while another process leads. */
    static long write(KafkaProducer<String, String> candidate, String topic, String token, String value)
            throws ExecutionException, InterruptedException {
        return candidate.send(new ProducerRecord<>(topic, 0, token, value)).get().offset();
    }

    /** Waits until this process leads. Returns its token, which is higher than that of every leader before. */
    static long lead(KafkaProducer<String, String> candidate, String topic, String name)
            throws ExecutionException, InterruptedException {
        long offset;
        do {
            offset = write(candidate, topic, null, name);
        } while (offset < 0);
        return offset;
    }

    /** Returns true if the work is done, false if another process may have led in between. */
    static boolean work(
            KafkaProducer<String, String> candidate, String topic, long token, BlockingQueue<Optional<String>> work)
            throws ExecutionException, InterruptedException {
        for (var last = token; ; last++) {
            var next = work.poll(1, TimeUnit.SECONDS);
            if (next != null && next.isEmpty()) {
                return true;
            }
            var decision = next == null ? "" : next.get(); // "": a heartbeat
            if (write(candidate, topic, Long.toString(token), decision) != last + 1) {
                return false; // a fence or a record is between the last write and this one
            }
            if (next != null) {
                act(token, decision);
            }
        }
    }

    /** Yours. What it changes refuses a token that is lower than one it has seen. */
    static void act(long token, String decision) {
        System.out.println("did " + decision);
    }

    static void run(
            KafkaProducer<String, String> candidate, String topic, String name, BlockingQueue<Optional<String>> work)
            throws ExecutionException, InterruptedException {
        long token;
        do {
            token = lead(candidate, topic, name);
            System.out.println("leads " + token); // read your state here: the leader before may have changed it
        } while (!work(candidate, topic, token, work));
    }

    static BlockingQueue<Optional<String>> lines() {
        var work = new LinkedBlockingQueue<Optional<String>>();
        var reader = new Thread(() -> {
            try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
                lines.lines().map(Optional::of).forEach(work::add);
            } catch (IOException closed) {
                // as its end
            }
            work.add(Optional.empty());
        });
        reader.setDaemon(true);
        reader.start();
        return work;
    }

    public static void main(String[] words) throws InterruptedException {
        try (var candidate = candidate(words[0], words[2], words[3])) {
            run(candidate, words[1], words[2], lines());
        } catch (ExecutionException | KafkaException lost) {
            System.out.println("lost");
            System.exit(4);
        }
    }

    private Leader() {}
}
