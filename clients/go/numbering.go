package client

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

const noID = -1

// numbering is the sequence ids of one producer, as sidecar/client/numbering.py has them: they count up by themselves
// until one is given, and rise in each partition (PIP-6).
type numbering struct {
	sync.Mutex
	topic    string
	counts   bool // whether records bear ids at all
	before   map[int32]int64
	last     map[int32]int64
	underWay map[int32][]int64
	done     map[int32]int64 // the highest that arrived, of those sent here
	unknown  map[int32]int64 // what kgo calls the offset of the next record in a batch whose offset is not known
	count    int32           // partitions
	next     int64
	given    bool
}

// last are the highest ids in the log by partition; nil for a topic without deduplication.
func newNumbering(topic string, last map[int32]int64, count int32) *numbering {
	n := &numbering{
		topic: topic, counts: last != nil, before: last, last: map[int32]int64{}, underWay: map[int32][]int64{},
		done: map[int32]int64{}, unknown: map[int32]int64{}, count: count,
	}
	maps.Copy(n.last, last)
	n.next = n.lastID() + 1
	return n
}

// lastID is the least of the highest ids over all partitions, -1 where any has none.
func (n *numbering) lastID() int64 {
	least := int64(math.MaxInt64)
	for partition := range n.count {
		least = min(least, at(n.last, partition))
	}
	if n.count == 0 {
		return noID
	}
	return least
}

func (n *numbering) isDuplicate(partition int32, id int64) bool {
	return id != noID && id <= at(n.before, partition)
}

// choose returns the id of the next record, noID where it bears none; takes nothing yet.
func (n *numbering) choose(asked int64) (int64, error) {
	switch {
	case asked != NextID && !n.counts:
		return 0, fmt.Errorf("%w: topic %s has no deduplication; `sidecar topic set %[2]s --dedup` begins it",
			ErrSequence, n.topic)
	case asked < NextID:
		return 0, fmt.Errorf("%w: %d is none: they go from 0 to 2^63-1", ErrSequence, asked)
	case asked != NextID:
		return asked, nil
	case n.given:
		return 0, fmt.Errorf("%w: they were given before: once given, always given", ErrSequence)
	case n.counts && n.next < 0:
		return 0, fmt.Errorf("%w: there is none left", ErrSequence)
	case n.counts:
		return n.next, nil
	}
	return noID, nil
}

// take is for a record that goes out now, under the id that choose returned.
func (n *numbering) take(partition int32, id int64, given bool) error {
	if id == noID {
		return nil
	}
	highest := at(n.done, partition)
	if sent := n.underWay[partition]; len(sent) > 0 {
		highest = max(highest, slices.Max(sent))
	}
	if id <= highest {
		return fmt.Errorf("%w: %d is not above %d, which this producer sent to partition %d before",
			ErrSequence, id, highest, partition)
	}
	n.underWay[partition] = append(n.underWay[partition], id)
	if given {
		n.given = true
	} else {
		n.next = id + 1
	}
	return nil
}

// arrived: the log has it. Returns its offset, -1 where it is not known: in such a batch kgo counts up from -1.
func (n *numbering) arrived(partition int32, id, offset int64) int64 {
	if id != noID {
		n.failed(partition, id)
		n.last[partition] = max(id, at(n.last, partition))
		n.done[partition] = max(id, at(n.done, partition))
	}
	if next, ok := n.unknown[partition]; offset == -1 || ok && offset == next {
		n.unknown[partition] = offset + 1
		return -1
	}
	delete(n.unknown, partition)
	return offset
}

// failed: it is not in the log, or nobody knows. It may be given again unless a higher one went out.
func (n *numbering) failed(partition int32, id int64) {
	n.underWay[partition] = slices.DeleteFunc(n.underWay[partition], func(each int64) bool { return each == id })
}

func at(ids map[int32]int64, partition int32) int64 {
	if id, ok := ids[partition]; ok {
		return id
	}
	return noID
}
