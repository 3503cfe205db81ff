package sidecar.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;

class NumberingTest {
    private static Numbering after(long first, long second) {
        return new Numbering("orders", Map.of(0, first, 1, second), 2);
    }

    private static void send(Numbering numbering, int partition, long id) {
        numbering.take(partition, numbering.choose(id), true);
    }

    @Test
    void itResumesBehindTheLeastOfThePartitions() {
        assertEquals(4, after(4, 9).lastId());
        assertEquals(5, after(4, 9).choose(null));
        assertEquals(-1, new Numbering("orders", Map.of(0, 4L), 2).lastId());
    }

    @Test
    void withoutDeduplicationRecordsBearNoId() {
        var numbering = new Numbering("orders", null, 2);
        assertEquals(Numbering.NONE, numbering.choose(null));
        assertEquals(-1, numbering.lastId());
        assertThrows(SequenceException.class, () -> numbering.choose(0L));
    }

    @Test
    void onceGivenAlwaysGiven() {
        var numbering = after(4, 4);
        send(numbering, 0, 7);
        assertThrows(SequenceException.class, () -> numbering.choose(null));
    }

    @Test
    void idsRiseInEachPartition() {
        var numbering = after(-1, -1);
        send(numbering, 0, 7);
        send(numbering, 1, 3);
        assertThrows(SequenceException.class, () -> send(numbering, 0, 7));
        numbering.arrived(0, 7);
        assertThrows(SequenceException.class, () -> send(numbering, 0, 6));
        assertThrows(SequenceException.class, () -> send(numbering, 0, -1));
    }

    @Test
    void anIdThatFailedMayBeGivenAgainUnlessAHigherOneWent() {
        var numbering = after(-1, -1);
        send(numbering, 0, 0);
        numbering.failed(0, 0L);
        send(numbering, 0, 0);
        send(numbering, 0, 1);
        numbering.failed(0, 0L);
        assertThrows(SequenceException.class, () -> send(numbering, 0, 0));
    }

    @Test
    void aDuplicateIsWhatTheLogHadBefore() {
        var numbering = after(4, -1);
        assertTrue(numbering.isDuplicate(0, 4));
        assertFalse(numbering.isDuplicate(0, 5));
        assertFalse(numbering.isDuplicate(1, 0));
        send(numbering, 1, 0);
        numbering.arrived(1, 0L);
        assertEquals(Map.of(0, 4L, 1, 0L), numbering.lastIds());
        assertFalse(numbering.isDuplicate(1, 0));
    }

    @Test
    void afterTheLastIdThereIsNone() {
        var numbering = new Numbering("orders", Map.of(0, Long.MAX_VALUE), 1);
        assertThrows(SequenceException.class, () -> numbering.choose(null));
    }
}
