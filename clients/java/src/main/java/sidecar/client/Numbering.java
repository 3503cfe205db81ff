package sidecar.client;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;

/**
 * The sequence ids of one producer, as sidecar/client/numbering.py has them: they count up by themselves until one is
 * given, and rise in each partition (PIP-6). May be used by many threads.
 */
final class Numbering {
    static final long NONE = -1;

    private final String topic;
    private final boolean counts;
    private final Map<Integer, Long> before;
    private final Map<Integer, Long> last;
    private final Map<Integer, TreeSet<Long>> underWay = new HashMap<>();
    /** The highest that arrived, of those sent here. */
    private final Map<Integer, Long> done = new HashMap<>();
    private final int partitions;
    private long next;
    private boolean given;

    /** {@code last}: the highest ids in the log by partition, null for a topic without deduplication. */
    Numbering(String topic, Map<Integer, Long> last, int partitions) {
        this.topic = topic;
        this.counts = last != null;
        this.before = counts ? Map.copyOf(last) : Map.of();
        this.last = new HashMap<>(before);
        this.partitions = partitions;
        this.next = lastId() + 1;
    }

    /** The least of the highest ids over all partitions, -1 where any has none. */
    synchronized long lastId() {
        long least = Long.MAX_VALUE;
        for (int partition = 0; partition < partitions; partition++) {
            least = Math.min(least, last.getOrDefault(partition, NONE));
        }
        return partitions == 0 ? NONE : least;
    }

    synchronized Map<Integer, Long> lastIds() {
        return Map.copyOf(last);
    }

    /** Whether the log had this id before this producer began. */
    synchronized boolean isDuplicate(int partition, long id) {
        return id != NONE && id <= before.getOrDefault(partition, NONE);
    }

    /** The id of the next record, {@link #NONE} where it bears none; takes nothing yet. */
    synchronized long choose(Long asked) {
        if (asked != null) {
            if (!counts) {
                throw new SequenceException(
                    "topic " + topic + " has no deduplication; `sidecar topic set " + topic + " --dedup` begins it");
            }
            if (asked < 0) {
                throw new SequenceException(asked + " is none: sequence ids go from 0 to 2^63-1");
            }
            return asked;
        }
        if (given) {
            throw new SequenceException("sequence ids were given before: once given, always given");
        }
        if (counts && next < 0) {
            throw new SequenceException("there is no sequence id left");
        }
        return counts ? next : NONE;
    }

    /** A record with the id that {@code choose} named goes out now. */
    synchronized void take(int partition, long id, boolean wasGiven) {
        if (id == NONE) {
            return;
        }
        var sent = underWay.computeIfAbsent(partition, key -> new TreeSet<>());
        long highest = Math.max(done.getOrDefault(partition, NONE), sent.isEmpty() ? NONE : sent.last());
        if (id <= highest) {
            throw new SequenceException(
                id + " is not above " + highest + ", which this producer sent to partition " + partition + " before");
        }
        sent.add(id);
        given |= wasGiven;
        next = wasGiven ? next : id + 1;
    }

    /** The log has it. {@code partition} counts only where there is an id, here and below. */
    synchronized void arrived(Integer partition, long id) {
        if (id != NONE) {
            failed(partition, id);
            last.merge(partition, id, Math::max);
            done.merge(partition, id, Math::max);
        }
    }

    /** It is not in the log, or nobody knows: it may be given again unless a higher one went out. */
    synchronized void failed(Integer partition, long id) {
        if (id != NONE) {
            underWay.get(partition).remove(id);
        }
    }
}
