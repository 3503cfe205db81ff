package client

import (
	"errors"
	"math"
	"testing"
)

func numbered(first, second int64) *numbering {
	return newNumbering("orders", map[int32]int64{0: first, 1: second}, 2)
}

func TestItResumesBehindTheLeastOfThePartitions(t *testing.T) {
	if id, err := numbered(4, 9).choose(NextID); id != 5 || err != nil {
		t.Fatal(id, err)
	}
	if id := newNumbering("orders", map[int32]int64{0: 4}, 2).lastID(); id != -1 {
		t.Fatal(id)
	}
}

func TestIDsThatCannotBeAreRefused(t *testing.T) {
	bare, last := newNumbering("orders", nil, 1), newNumbering("orders", map[int32]int64{0: math.MaxInt64}, 1)
	given, sent := numbered(-1, -1), numbered(-1, -1)
	if given.take(0, 7, true) != nil || sent.take(0, 7, true) != nil || sent.take(1, 3, true) != nil {
		t.Fatal("these can be")
	}
	_, none := bare.choose(0)
	_, negative := numbered(4, 4).choose(-2)
	_, after := last.choose(NextID)
	_, once := given.choose(NextID)
	for name, err := range map[string]error{
		"no deduplication": none, "negative": negative, "after the last": after, "once given": once,
		"again": sent.take(0, 7, true), "lower": sent.take(0, 6, true),
	} {
		if !errors.Is(err, ErrSequence) {
			t.Error(name, err)
		}
	}
}

func TestAnIDThatFailedMayBeGivenAgainUnlessAHigherOneWent(t *testing.T) {
	n := numbered(-1, -1)
	_ = n.take(0, 0, true)
	n.failed(0, 0)
	if err := n.take(0, 0, true); err != nil {
		t.Fatal(err)
	}
	_ = n.take(0, 1, true)
	n.failed(0, 0)
	if err := n.take(0, 0, true); err == nil {
		t.Fatal("a higher one went")
	}
}

func TestADuplicateIsWhatTheLogHadBefore(t *testing.T) {
	n := numbered(4, -1)
	_ = n.take(1, 0, true)
	n.arrived(1, 0, 10)
	if !n.isDuplicate(0, 4) || n.isDuplicate(0, 5) || n.isDuplicate(1, 0) || n.last[1] != 0 {
		t.Fatal(n)
	}
}

// In a batch whose offset is not known kgo counts up from -1.
func TestOffsetsOfABatchWithoutOneAreNotBelieved(t *testing.T) {
	n := numbered(-1, -1)
	for index, offsets := range [][2]int64{{7, 7}, {-1, -1}, {0, -1}, {1, -1}, {12, 12}, {13, 13}, {-1, -1}, {14, 14}} {
		if found := n.arrived(0, int64(index), offsets[0]); found != offsets[1] {
			t.Error(index, found)
		}
	}
}
