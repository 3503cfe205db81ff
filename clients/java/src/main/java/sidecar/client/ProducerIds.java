package sidecar.client;

import java.lang.reflect.InaccessibleObjectException;
import java.time.Duration;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;

/**
 * The producer id of a KafkaProducer, to which a claim is bound before the first record. Kafka has no public way to it,
 * so it is read from the producer's field {@code transactionManager}, which is the same from 2.5 to 4.1.
 */
final class ProducerIds {
    private static final Duration AGAIN = Duration.ofMillis(5);

    private ProducerIds() {}

    /** Waits for it. Throws TimeoutException, and KafkaException with the reason where the producer failed. */
    static long await(KafkaProducer<?, ?> producer, Duration limit) {
        long until = System.nanoTime() + limit.toNanos();
        try {
            var field = KafkaProducer.class.getDeclaredField("transactionManager");
            field.setAccessible(true);
            var manager = field.get(producer);
            var current = manager.getClass().getDeclaredMethod("producerIdAndEpoch");
            current.setAccessible(true);
            var lastError = manager.getClass().getDeclaredMethod("lastError");
            lastError.setAccessible(true);
            while (true) {
                var found = (ProducerIdAndEpoch) current.invoke(manager);
                if (found.isValid()) {
                    return found.producerId;
                }
                if (lastError.invoke(manager) instanceof RuntimeException error) {
                    throw new KafkaException("a producer id was refused: " + error.getMessage(), error);
                }
                if (System.nanoTime() - until > 0) {
                    throw new TimeoutException("no producer id within " + limit.toMillis() + " ms");
                }
                Thread.sleep(AGAIN.toMillis());
            }
        } catch (ReflectiveOperationException | InaccessibleObjectException error) {
            throw new KafkaException("this version of kafka-clients is unknown to sidecar-client", error);
        } catch (InterruptedException error) {
            throw new InterruptException(error);
        }
    }
}
