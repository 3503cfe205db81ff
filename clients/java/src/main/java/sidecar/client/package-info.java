/**
 * A client library of the sidecar, on kafka-clients: {@link sidecar.client.ExclusiveProducer} owns a topic and numbers
 * its records, {@link sidecar.client.LeaderElection} elects one of many processes.
 *
 * <p>Errors are Kafka's exceptions wherever Kafka has one for the case; all are {@code KafkaException}s.
 */
package sidecar.client;
