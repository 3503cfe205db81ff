package sidecar.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A process of its own for tests that kill or stop it. {@code write BOOTSTRAP NAME TOPIC MODE} sends a record for each
 * line that it reads, {@code VALUE} or {@code ID VALUE}; {@code lead BOOTSTRAP NAME RESOURCE MODE SILENCE_MS} runs for
 * a string, and says for each line whether it leads. Both print what happens, a line each, and end with their input.
 */
public final class Peer {
    private Peer() {}

    public static void main(String[] arguments) throws IOException {
        var input = new BufferedReader(new InputStreamReader(System.in));
        var more = new Properties();
        more.load(new StringReader(System.getenv().getOrDefault("PEER_SETTINGS", "")));
        var configs = new HashMap<String, Object>(Map.of("bootstrap.servers", arguments[1], "client.id", arguments[2]));
        more.forEach((name, value) -> configs.put((String) name, value));
        try {
            if (arguments[0].equals("write")) {
                write(configs, arguments[3], AccessMode.valueOf(arguments[4]), input);
            } else {
                var silence = Duration.ofMillis(Long.parseLong(arguments[5]));
                lead(configs, Resource.name(arguments[3]), AccessMode.valueOf(arguments[4]), silence, input);
            }
            say("closed");
        } catch (KafkaException error) {
            say(refused(error));
        }
    }

    private static void write(Map<String, ?> configs, String topic, AccessMode mode, BufferedReader input)
            throws IOException {
        var text = new StringSerializer();
        try (var producer = ExclusiveProducer.open(configs, topic, mode, text, text)) {
            say("open " + producer.generation() + " " + producer.lastSequenceId());
            producer.lost().thenRun(() -> {
                if (producer.error() != null) {
                    say("lost " + nameOf(producer.error()));
                }
            });
            for (var line = input.readLine(); line != null; line = input.readLine()) {
                var parts = line.split(" ", 2);
                var record = new ProducerRecord<String, String>(topic, parts[parts.length - 1]);
                var sent = parts.length == 1 ? producer.send(record) : producer.send(record, Long.parseLong(parts[0]));
                sent.whenComplete((receipt, error) -> say(error != null ? refused(error)
                    : "ok " + receipt.partition() + " " + receipt.offset() + " " + receipt.sequenceId() + " "
                        + receipt.duplicate() + " " + receipt.generation()));
            }
        }
    }

    private static void lead(
            Map<String, ?> configs, Resource resource, AccessMode mode, Duration silence, BufferedReader input)
            throws IOException {
        var listener = new LeaderElection.Listener() {
            @Override
            public void elected(long generation) {
                say("elected " + generation);
            }

            @Override
            public void lost(KafkaException why) {
                say("lost " + nameOf(why));
            }

            @Override
            public void failed(KafkaException why) {
                say("failed " + nameOf(why));
            }
        };
        try (var election = LeaderElection.campaign(configs, resource, mode, silence, listener)) {
            for (var line = input.readLine(); line != null; line = input.readLine()) {
                say("leads " + election.isLeader());
            }
        }
    }

    private static String refused(Throwable error) {
        return "error " + nameOf(error) + ": " + error.getMessage();
    }

    private static String nameOf(Throwable error) {
        if (error instanceof ProducerFencedException) {
            return "fenced";
        }
        if (error instanceof ProducerBusyException) {
            return "busy";
        }
        return error instanceof TimeoutException ? "away" : "refused";
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}
