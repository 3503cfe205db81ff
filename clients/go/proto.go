package client

import (
	"encoding/binary"
	"fmt"
)

// As much of protobuf as control.proto needs: varints and length-delimited fields.

type message []byte

func (m message) number(field int, value int64) message {
	if value == 0 {
		return m
	}
	return m.present(field, value)
}

func (m message) present(field int, value int64) message {
	return binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3), uint64(value))
}

func (m message) text(field int, value string) message {
	if value == "" {
		return m
	}
	return m.bytes(field, []byte(value))
}

func (m message) bytes(field int, value []byte) message {
	return append(binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3|2), uint64(len(value))), value...)
}

// fields calls each with every field: number, value of a varint, bytes of everything else.
func fields(data []byte, each func(field int, number int64, data []byte)) error {
	malformed := fmt.Errorf("%w: an answer that is no message", ErrUnavailable)
	for len(data) > 0 {
		tag, size := binary.Uvarint(data)
		if size <= 0 {
			return malformed
		}
		data = data[size:]
		var number uint64
		length := uint64(0)
		switch tag & 7 {
		case 0, 2:
			if number, size = binary.Uvarint(data); size <= 0 {
				return malformed
			}
			data = data[size:]
			if tag&7 == 2 {
				length, number = number, 0
			}
		case 1:
			length = 8
		case 5:
			length = 4
		default:
			return malformed
		}
		if length > uint64(len(data)) {
			return malformed
		}
		each(int(tag>>3), int64(number), data[:length])
		data = data[length:]
	}
	return nil
}

// The errors of control.proto that are treated on their own.
const (
	none            = 0
	notServing      = 2
	unavailable     = 3
	held            = 4
	lowerGeneration = 5
	deposed         = 6
	unknownResource = 7
	timedOut        = 9
	queueFull       = 10
)

var errorNames = []string{
	"NONE", "INVALID_REQUEST", "NOT_SERVING", "UNAVAILABLE", "HELD", "LOWER_GENERATION", "DEPOSED", "UNKNOWN_RESOURCE",
	"NOT_AUTHORIZED", "TIMED_OUT", "QUEUE_FULL",
}

// ownership is who has a resource; node is -1 where none serves it.
type ownership struct {
	code       int64
	message    string
	generation int64
	node       int32
}

// answer of the own APIs, all of which have the error first, the message second and what was asked for third.
type answer struct {
	code    int64
	message string
	owners  []ownership
	lastIDs map[int32]int64
}

func readAnswer(data []byte, hasIDs bool) (answer, error) {
	found := answer{lastIDs: map[int32]int64{}}
	var inner error
	err := fields(data, func(field int, number int64, part []byte) {
		switch field {
		case 1:
			found.code = number
		case 2:
			found.message = string(part)
		case 3:
			var owner ownership
			var partition, id int64
			err := fields(part, func(field int, number int64, part []byte) {
				switch field {
				case 1:
					partition = number
				case 2:
					owner.code, id = number, number
				case 3:
					owner.message = string(part)
				case 4:
					owner.generation = number
				case 7:
					owner.node = int32(number)
				}
			})
			if err != nil {
				inner = err
			} else if hasIDs {
				found.lastIDs[int32(partition)] = id
			} else {
				found.owners = append(found.owners, owner)
			}
		}
	})
	if err == nil {
		err = inner
	}
	return found, err
}

// owner is the first that is named, or one that nothing is known of.
func (a answer) owner() ownership {
	if len(a.owners) == 0 {
		return ownership{node: -1}
	}
	return a.owners[0]
}

func (a answer) refusal() error {
	if a.message == "" {
		a.message = a.owner().message
	}
	return refusal(a.code, a.message)
}

func refusal(code int64, message string) error {
	name := fmt.Sprintf("error %d", code)
	if code >= 0 && code < int64(len(errorNames)) {
		name = errorNames[code]
	}
	kind := ErrRefused
	switch code {
	case held, lowerGeneration, timedOut, queueFull:
		kind = ErrBusy
	case deposed:
		kind = ErrFenced
	case notServing, unavailable:
		kind = ErrUnavailable
	case unknownResource:
		message += "; `sidecar topic create TOPIC` makes one"
	}
	return fmt.Errorf("%w: %s: %s", kind, name, message)
}
