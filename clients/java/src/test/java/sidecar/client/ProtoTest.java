package sidecar.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.junit.jupiter.api.Test;

/** The bytes are those of docs/reference/own-apis.md. */
class ProtoTest {
    private static final HexFormat HEX = HexFormat.of();

    @Test
    void aClaimIsWrittenAsThePageShows() {
        var claim = new Proto.Writer().message(1, new Proto.Writer().text(1, null).text(3, "leader"));
        var own = new Proto.Writer().message(2, claim).number(3, AccessMode.WAIT_FOR_EXCLUSIVE.number)
            .text(4, "billing-1").bytes(5, HEX.parseHex("5f1c0a9e3b7d4e2188c6f0d2a4b91e37")).number(6, 5000)
            .present(7, -1);
        assertEquals(
            "120a0a081a066c6561646572180322" + "0962696c6c696e672d31" + "2a105f1c0a9e3b7d4e2188c6f0d2a4b91e37"
                + "308827" + "38ffffffffffffffffff01",
            HEX.formatHex(own.toBytes()));
    }

    @Test
    void anAnswerIsReadAsThePageShows() {
        var answer = Answer.read(
            HEX.parseHex(
                "1a33" + "0a081a066c6561646572" + "2001" + "2a0962696c6c696e672d31"
                    + "3211636f6e6e3a312d33663961313763322d37" + "3801" + "4080d0eab6b733" + "220962696c6c696e672d31"),
            false);
        assertEquals(Answer.NONE, answer.error());
        assertEquals(new Answer.Owner(Answer.NONE, "", 1, 1), answer.owner());
    }

    @Test
    void idsOfPartitionsAreReadWhereAZeroIsLeftOut() {
        var ids = new Proto.Writer().message(3, new Proto.Writer().number(2, 9))
            .message(3, new Proto.Writer().number(1, 7));
        assertEquals(Map.of(0, 9L, 7, 0L), Answer.read(ids.toBytes(), true).lastIds());
    }

    @Test
    void negativeNumbersAndFieldsOfOtherKindsAreRead() {
        var reader = new Proto.Reader(HEX.parseHex("38ffffffffffffffffff01" + "4d01020304" + "510102030405060708"));
        reader.next();
        assertEquals(-1, reader.number);
        reader.next();
        assertArrayEquals(new byte[] {1, 2, 3, 4}, reader.bytes);
        reader.next();
        assertEquals(10, reader.field);
    }

    @Test
    void bytesThatAreNoMessageAreRefused() {
        for (var wrong : new String[] {"0a05aa", "08", "0b", "08ffffffffffffffffffff01"}) {
            var reader = new Proto.Reader(HEX.parseHex(wrong));
            assertThrows(IllegalArgumentException.class, reader::next, wrong);
        }
    }

    @Test
    void errorsBecomeExceptionsThatNameThem() {
        var found = Answer.refusal(Answer.DEPOSED, "b owns it", Resource.name("leader"));
        assertEquals(ProducerFencedException.class, found.getClass());
        assertEquals("DEPOSED: b owns it", found.getMessage());
        assertEquals(SidecarException.class, Answer.refusal(99, "", Resource.name("leader")).getClass());
    }
}
