package sidecar.client;

/**
 * A record that is in the log.
 *
 * @param partition its partition
 * @param offset its offset; -1 where it is not known: of a duplicate, and of a record whose first answer was lost
 * @param sequenceId its sequence id; -1 on a topic without deduplication
 * @param duplicate the log had this id before this producer opened, so nothing was written
 * @param generation the generation under which this producer owns the topic, from 1 on
 */
public record Receipt(int partition, long offset, long sequenceId, boolean duplicate, long generation) {}
