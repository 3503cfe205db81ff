//go:build node

package client

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Against the node that SIDECAR_BOOTSTRAP names, on topics that nobody else uses: SIDECAR_NUMBERED has deduplication and
// two partitions, SIDECAR_BARE neither a policy nor records.

func config(name string) Config {
	return Config{Bootstrap: []string{os.Getenv("SIDECAR_BOOTSTRAP")}, Name: name}
}

func open(t *testing.T, name, topic string, options ...kgo.Opt) *Producer {
	t.Helper()
	producer, err := Open(t.Context(), config(name), topic, Exclusive, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { producer.Close(context.Background()) })
	return producer
}

func TestARivalIsRefusedAndOneThatWaitsGivesItsPlaceBack(t *testing.T) {
	topic := os.Getenv("SIDECAR_NUMBERED")
	owner := open(t, "owner", topic)
	if _, err := Open(t.Context(), config("rival"), topic, Exclusive); !errors.Is(err, ErrBusy) ||
		!strings.Contains(err.Error(), "owner (generation") {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Open(limited, config("waits"), topic, WaitForExclusive); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	generation := owner.Generation()
	owner.Close(t.Context())
	if !errors.Is(owner.Err(), ErrClosed) {
		t.Fatal(owner.Err())
	}
	if _, err := owner.SendSync(t.Context(), kgo.StringRecord("late"), NextID); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if next := open(t, "next", topic); next.Generation() != generation+1 { // at once: nobody's place is kept
		t.Fatal(next.Generation())
	}
}

func TestMoreThanTheBufferHoldsIsSentAndResumed(t *testing.T) {
	topic := os.Getenv("SIDECAR_NUMBERED")
	first := open(t, "many", topic, kgo.MaxBufferedRecords(10))
	told := make(chan error, 1_000)
	for range 1_000 {
		first.Send(t.Context(), kgo.StringRecord("v"), NextID, func(_ Receipt, err error) { told <- err })
	}
	for range 1_000 {
		if err := <-told; err != nil {
			t.Fatal(err)
		}
	}
	if last := first.LastSequenceID(); last != 998 {
		t.Fatal(last)
	}
	first.Close(t.Context())
	second := open(t, "many", topic)
	if found, err := second.SendSync(t.Context(), kgo.StringRecord("v"), 999); !found.Duplicate || err != nil {
		t.Fatal(found, err)
	}
	found, err := second.SendSync(t.Context(), kgo.StringRecord("v"), 1_000)
	if found.Duplicate || found.Offset < 0 || found.Partition != 0 || err != nil {
		t.Fatal(found, err)
	}
}

func TestATopicWithoutDeduplicationHasNoIDs(t *testing.T) {
	topic := os.Getenv("SIDECAR_BARE")
	producer := open(t, "bare", topic)
	found, err := producer.SendSync(t.Context(), kgo.StringRecord("v"), NextID)
	if found.SequenceID != -1 || err != nil {
		t.Fatal(found, err)
	}
	reserved := &kgo.Record{Headers: []kgo.RecordHeader{{Key: idHeader}}}
	if _, err := producer.SendSync(t.Context(), reserved, NextID); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	if _, err := producer.SendSync(t.Context(), kgo.StringRecord("v"), 0); !errors.Is(err, ErrSequence) {
		t.Fatal(err)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	if _, err := Open(t.Context(), config("x"), "not-there", Exclusive); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "sidecar topic create") {
		t.Fatal(err)
	}
	nowhere := Config{Bootstrap: []string{"127.0.0.1:1"}, Timeout: 300 * time.Millisecond}
	if _, err := Open(t.Context(), nowhere, "orders", Exclusive); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	for _, name := range []string{"a;b", "kgo", "producer-1", strings.Repeat("x", 256)} {
		if _, err := Lead(t.Context(), config(name), NameResource("r"), Exclusive); err == nil {
			t.Error(name)
		}
	}
}

func TestATopicIsLedUnderAGenerationThatNeverFalls(t *testing.T) {
	topic := os.Getenv("SIDECAR_NUMBERED")
	before := int64(0)
	for range 2 {
		found, err := Lead(t.Context(), config("leads"), TopicResource(topic), WaitForExclusive)
		if err != nil || !found.IsLeader() || found.Generation() <= before {
			t.Fatal(found, err)
		}
		before = found.Generation()
		if _, err := Open(t.Context(), config("rival"), topic, Exclusive); !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		found.Release()
		if <-found.Lost(); found.IsLeader() || !errors.Is(found.Err(), ErrClosed) {
			t.Fatal(found.Err())
		}
	}
}
