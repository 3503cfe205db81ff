// Package own is a client of the sidecar's own APIs, made of control.proto and docs/reference/own-apis.md alone.
//
// wire.go: frames on one connection. Answers come in the order of requests: one request is under way at a time, and
// one that is given up takes the connection with it. Knows nothing of claims.
package own

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"
)

const longestAnswer = 64 << 20

// ErrGone says that a connection ended. Whether a request that was under way counted is not known.
var ErrGone = errors.New("the connection ended")

// Conn is one connection to a node.
type Conn struct {
	net.Conn
	address, clientID string
	turn              sync.Mutex
	last              uint32
	answers           chan []byte
	gone              chan struct{}
}

func connect(ctx context.Context, address, clientID string) (*Conn, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	c := &Conn{Conn: socket, address: address, clientID: clientID, answers: make(chan []byte, 1), gone: make(chan struct{})}
	go c.receive()
	return c, nil
}

// Gone is closed once the connection has ended, whoever ended it: a node ends it to sever an owner.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

func (c *Conn) receive() {
	defer close(c.gone)
	defer c.Close()
	for reader := bufio.NewReader(c.Conn); ; {
		var size int32
		if binary.Read(reader, binary.BigEndian, &size) != nil || size < 4 || size > longestAnswer {
			return
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(reader, frame); err != nil {
			return
		}
		select {
		case c.answers <- frame:
		default:
			return // nobody asked for so many
		}
	}
}

// call sends a request with header version 1 and returns the body of its answer, whose header has version 0.
func (c *Conn) call(ctx context.Context, key, version uint16, body []byte) ([]byte, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.last++
	to := binary.BigEndian
	frame := to.AppendUint32(nil, uint32(10+len(c.clientID)+len(body)))
	frame = to.AppendUint32(to.AppendUint16(to.AppendUint16(frame, key), version), c.last)
	frame = append(append(to.AppendUint16(frame, uint16(len(c.clientID))), c.clientID...), body...)
	if _, err := c.Write(frame); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	select {
	case answer := <-c.answers:
		if got := to.Uint32(answer); got != c.last {
			c.Close()
			return nil, fmt.Errorf("%w: answer %d to request %d", ErrGone, got, c.last)
		}
		return answer[4:], nil
	case <-c.gone:
		return nil, ErrGone
	case <-ctx.Done():
		c.Close() // its answer would be taken for the next one's
		return nil, fmt.Errorf("%w: %w", ErrGone, ctx.Err())
	}
}

// ask sends one of the own requests and fills got. An error is the connection's; the node's is in got.
func (c *Conn) ask(ctx context.Context, key uint16, request, got proto.Message) error {
	body, err := proto.Marshal(request)
	if err == nil {
		body, err = c.call(ctx, key, 0, body)
	}
	if err == nil {
		err = proto.Unmarshal(body, got)
	}
	return err
}

// nodes returns the addresses of the live nodes by id: the brokers of Kafka's Metadata (3), version 1. It names no
// topic, as to name one may create it.
func (c *Conn) nodes(ctx context.Context) (map[int32]string, error) {
	body, err := c.call(ctx, 3, 1, make([]byte, 4))
	read := fields(body)
	nodes := map[int32]string{}
	for count := read.int32(); count > 0 && len(read) > 0; count-- {
		id, host, port := read.int32(), read.string(), read.int32()
		read.string() // its rack, null
		nodes[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	return nodes, err
}

// fields is what of an answer is not read yet; behind its end are zeros.
type fields []byte

func (f *fields) take(size int) []byte {
	taken := make([]byte, max(size, 0))
	*f = (*f)[copy(taken, *f):]
	return taken
}

func (f *fields) int32() int32 { return int32(binary.BigEndian.Uint32(f.take(4))) }
func (f *fields) string() string {
	return string(f.take(int(int16(binary.BigEndian.Uint16(f.take(2))))))
}
