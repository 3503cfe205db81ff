import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Members of a share group (KIP-932): {@code acknowledge|together|refused BOOTSTRAP TOPIC GROUP}. It prints what came of it, in
 * an order that does not depend on which partition was read first.
 */
public final class Shares {
    private static final long PATIENCE_NS = 60_000_000_000L;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final long deadline = System.nanoTime() + PATIENCE_NS;

    private Shares(String bootstrap, String topic, String group) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
    }

    public static void main(String[] words) throws Exception {
        Shares shares = new Shares(words[1], words[2], words[3]);
        switch (words[0]) {
            case "acknowledge" -> shares.acknowledge();
            case "together" -> shares.together();
            case "refused" -> shares.refused();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /**
     * Of each four records one is accepted, one renewed and then accepted, one rejected, and one released and accepted when it
     * comes again. What is written later has to be all that comes later, to this member and the next.
     */
    private void acknowledge() throws Exception {
        fromTheBeginning();
        write(0, 16, 8);
        Map<Integer, List<String>> found = new TreeMap<>();
        try (KafkaShareConsumer<String, String> member = member("explicit")) {
            while (!(found.size() == 16 && found.values().stream().allMatch(Shares::settled))) {
                for (ConsumerRecord<String, String> record : poll(member)) {
                    int number = Integer.parseInt(record.value());
                    List<String> history = found.computeIfAbsent(number, any -> new ArrayList<>());
                    AcknowledgeType type = answer(number, history.isEmpty());
                    history.add(type + " " + record.deliveryCount().get());
                    member.acknowledge(record, type);
                }
                commit(member);
            }
            found.forEach((number, history) -> System.out.println(number + ": " + String.join(", ", history)));
            write(16, 4, 1);
            later(member, "later", 4);
        }
        write(20, 4, 1);
        try (KafkaShareConsumer<String, String> next = member("explicit")) {
            later(next, "the next member", 4);
        }
    }

    private static AcknowledgeType answer(int number, boolean first) {
        if (number % 4 == 2) {
            return AcknowledgeType.REJECT;
        }
        if (first && number % 4 == 1) {
            return AcknowledgeType.RENEW;
        }
        return first && number % 4 == 3 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
    }

    private static boolean settled(List<String> history) {
        String last = history.get(history.size() - 1);
        return last.startsWith("accept") || last.startsWith("reject");
    }

    private void later(KafkaShareConsumer<String, String> member, String who, int count) {
        List<Integer> values = new ArrayList<>();
        while (values.size() < count) {
            for (ConsumerRecord<String, String> record : poll(member)) {
                values.add(Integer.parseInt(record.value()));
                member.acknowledge(record);
            }
            commit(member);
        }
        values.sort(null);
        System.out.println(who + ": " + values);
    }

    /** Two members that poll in turns: each record reaches one of them once, and both get some. */
    private void together() throws Exception {
        fromTheBeginning();
        write(0, 200, 5);
        List<KafkaShareConsumer<String, String>> members = List.of(member("implicit"), member("implicit"));
        List<Integer> values = new ArrayList<>();
        int[] took = {0, 0};
        while (values.size() < 200) {
            for (int index : new int[] {0, 1}) {
                for (ConsumerRecord<String, String> record : poll(members.get(index))) {
                    values.add(Integer.parseInt(record.value()));
                    took[index]++;
                }
                commit(members.get(index));
            }
        }
        members.forEach(KafkaShareConsumer::close);
        System.out.println(values.size() + " records, " + new TreeSet<>(values).size() + " different ones");
        System.out.println("both members took some: " + (took[0] > 0 && took[1] > 0));
    }

    private void refused() {
        try (KafkaShareConsumer<String, String> member = member("implicit")) {
            while (true) {
                poll(member);
            }
        } catch (KafkaException refusal) {
            System.out.println(refusal.getClass().getSimpleName() + ": " + refusal.getMessage());
        }
    }

    private void fromTheBeginning() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
    }

    private KafkaShareConsumer<String, String> member(String acknowledgement) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "share.acknowledgement.mode", acknowledgement,
                "max.poll.records", 20);
        var member = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(topic));
        return member;
    }

    private Iterable<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> member) {
        if (System.nanoTime() > deadline) {
            throw new AssertionError("not done within a minute");
        }
        return member.poll(Duration.ofMillis(200));
    }

    private static void commit(KafkaShareConsumer<String, String> member) {
        for (Map.Entry<?, Optional<KafkaException>> each : member.commitSync().entrySet()) {
            each.getValue().ifPresent(error -> {
                throw error;
            });
        }
    }

    /** The numbers from {@code first} on as values, in batches of {@code together}. */
    private void write(int first, int count, int together) {
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "linger.ms", 1000);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < first + count; number++) {
                producer.send(new ProducerRecord<>(topic, number / together % 2, null, "" + number));
                if ((number + 1) % together == 0) {
                    producer.flush();
                }
            }
        }
    }
}
