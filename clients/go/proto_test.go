package client

import (
	"encoding/hex"
	"errors"
	"testing"
)

// The bytes are those of docs/reference/own-apis.md.
func TestAClaimIsWrittenAsThePageShows(t *testing.T) {
	token, _ := hex.DecodeString("5f1c0a9e3b7d4e2188c6f0d2a4b91e37")
	claimed := message(nil).bytes(1, message(nil).text(1, "").text(3, "leader"))
	own := message(nil).bytes(2, claimed).number(3, int64(WaitForExclusive)).text(4, "billing-1").bytes(5, token).
		number(6, 5000).present(7, -1)
	want := "120a0a081a066c6561646572180322" + "0962696c6c696e672d31" + "2a105f1c0a9e3b7d4e2188c6f0d2a4b91e37" +
		"308827" + "38ffffffffffffffffff01"
	if found := hex.EncodeToString(own); found != want {
		t.Fatal(found)
	}
}

func TestAnAnswerIsReadAsThePageShows(t *testing.T) {
	data, _ := hex.DecodeString("1a33" + "0a081a066c6561646572" + "2001" + "2a0962696c6c696e672d31" +
		"3211636f6e6e3a312d33663961313763322d37" + "3801" + "4080d0eab6b733" + "220962696c6c696e672d31")
	found, err := readAnswer(data, false)
	if err != nil || found.code != none || found.owner() != (ownership{generation: 1, node: 1}) {
		t.Fatal(found, err)
	}
}

func TestIDsOfPartitionsAreReadWhereAZeroIsLeftOut(t *testing.T) {
	data := message(nil).bytes(3, message(nil).number(2, 9)).bytes(3, message(nil).number(1, 7))
	found, err := readAnswer(data, true)
	if err != nil || len(found.lastIDs) != 2 || found.lastIDs[0] != 9 || found.lastIDs[7] != 0 {
		t.Fatal(found, err)
	}
}

func TestBytesThatAreNoMessageAreRefused(t *testing.T) {
	for _, wrong := range []string{"0a05aa", "08", "0b", "08ffffffffffffffffffff01", "1a020a05"} {
		data, _ := hex.DecodeString(wrong)
		if _, err := readAnswer(data, false); !errors.Is(err, ErrUnavailable) {
			t.Error(wrong, err)
		}
	}
}
