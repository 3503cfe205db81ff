import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;

/**
 * {@code Round NAME BOOTSTRAP...}: at each address an administrator makes a topic, producers write to it, also in
 * transactions, and members of a group read it one after the other. Compiled against kafka-clients 0.11 and run with
 * every later version, so it only uses what all of them have.
 */
public final class Round {
    private static final int RECORDS = 10;
    private static final long PATIENCE_MS = 30_000;

    private final String bootstrap;
    private final String name;

    private Round(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        for (int index = 1; index < arguments.length; index++) {
            new Round(arguments[index], arguments[0] + "-" + index).run();
        }
    }

    private void run() throws Exception {
        administer();
        write(null);
        expect(read(RECORDS), RECORDS);
        write(name + "-transactions");
        expect(read(RECORDS), RECORDS);
        remove();
    }

    private void administer() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            admin.createTopics(List.of(new NewTopic(name, 2, (short) 1))).all().get(30, TimeUnit.SECONDS);
            while (!admin.listTopics().names().get(30, TimeUnit.SECONDS).contains(name)) {
                Thread.sleep(50);
            }
            Set<String> nodes = new TreeSet<>();
            for (Node node : admin.describeCluster().nodes().get(30, TimeUnit.SECONDS)) {
                nodes.add(node.host() + ":" + node.port());
            }
            System.out.println("nodes " + String.join(",", nodes));
        }
    }

    private void remove() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            admin.deleteTopics(List.of(name)).all().get(30, TimeUnit.SECONDS);
        }
    }

    private void write(String transactionalId) throws Exception {
        Map<String, Object> settings = settings();
        settings.put("acks", "all");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            if (transactionalId != null) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(name, "key" + number, "value" + number)).get(30, TimeUnit.SECONDS);
            }
            if (transactionalId != null) {
                producer.commitTransaction();
            }
        }
    }

    /** What a new member of the group reads, and commits: the next member begins after it. */
    private List<String> read(int count) throws Exception {
        Map<String, Object> settings = settings();
        settings.put("group.id", name);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("isolation.level", "read_committed");
        String deserializer = "org.apache.kafka.common.serialization.StringDeserializer";
        settings.put("key.deserializer", deserializer);
        settings.put("value.deserializer", deserializer);
        List<String> found = new ArrayList<>();
        long until = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(name));
            while (found.size() < count && System.currentTimeMillis() < until) {
                for (ConsumerRecord<String, String> record : poll(consumer)) {
                    found.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return found;
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        Method poll;
        Object wait;
        try {
            poll = KafkaConsumer.class.getMethod("poll", Duration.class); // from 2.0 on
            wait = Duration.ofMillis(200);
        } catch (NoSuchMethodException error) {
            poll = KafkaConsumer.class.getMethod("poll", long.class); // until 3.9
            wait = 200L;
        }
        return (ConsumerRecords<String, String>) poll.invoke(consumer, wait);
    }

    private static void expect(List<String> found, int count) {
        Set<String> different = new TreeSet<>(found);
        if (found.size() != count || different.size() != count) {
            throw new IllegalStateException(count + " records were expected, found " + found);
        }
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }
}
