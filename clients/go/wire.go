package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	longestAnswer = 64 << 20
	metadataKey   = 3
	handshakeKey  = 17
	loginKey      = 36
	// A login is renewed when this much of its time is over (KIP-368).
	renewAfter = 0.85
)

// conn is one connection to a node. Answers come in the order of requests: one is under way at a time, and one that is
// given up takes the connection with it.
type conn struct {
	net.Conn
	config  *Config
	address string
	turn    sync.Mutex
	last    uint32
	answers chan []byte
	gone    chan struct{}
	renewAt time.Time // zero: never
}

func (c *Config) connect(ctx context.Context, address string) (*conn, error) {
	socket, err := c.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	made := &conn{
		Conn: socket, config: c, address: address, answers: make(chan []byte, 1), gone: make(chan struct{}),
	}
	go made.receive()
	if err := made.login(ctx); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// isOpen is about what is known so far; a nil one is not.
func (c *conn) isOpen() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

func (c *conn) receive() {
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
func (c *conn) call(ctx context.Context, key, version uint16, body []byte) ([]byte, error) {
	if !c.renewAt.IsZero() && time.Now().After(c.renewAt) {
		if err := c.login(ctx); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c.ask(ctx, key, version, body)
}

func (c *conn) ask(ctx context.Context, key, version uint16, body []byte) ([]byte, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.last++
	to, name := binary.BigEndian, c.config.Name
	frame := to.AppendUint32(nil, uint32(10+len(name)+len(body)))
	frame = to.AppendUint32(to.AppendUint16(to.AppendUint16(frame, key), version), c.last)
	frame = append(append(to.AppendUint16(frame, uint16(len(name))), name...), body...)
	if _, err := c.Write(frame); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	select {
	case found := <-c.answers:
		return c.checked(found)
	case <-ctx.Done():
		c.Close() // its answer would be taken for the next one's
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, c.address, ctx.Err())
	case <-c.gone:
	}
	select {
	case found := <-c.answers: // its last words
		return c.checked(found)
	default:
		return nil, fmt.Errorf("%w: %s ended the connection", ErrUnavailable, c.address)
	}
}

func (c *conn) checked(frame []byte) ([]byte, error) {
	if got := binary.BigEndian.Uint32(frame); got != c.last {
		c.Close()
		return nil, fmt.Errorf("%w: answer %d to request %d", ErrUnavailable, got, c.last)
	}
	return frame[4:], nil
}

// login logs in, and again before the login ends. What a node refuses is final.
func (c *conn) login(ctx context.Context) error {
	mechanism := c.config.SASL
	if mechanism == nil {
		return nil
	}
	name := mechanism.Name()
	body, err := c.ask(ctx, handshakeKey, 1, append(binary.BigEndian.AppendUint16(nil, uint16(len(name))), name...))
	read := values(body)
	if err != nil {
		return err
	}
	if code := read.int16(); code != 0 {
		return fmt.Errorf("%w: the node does not know %s (error %d)", ErrRefused, name, code)
	}
	host, _, _ := net.SplitHostPort(c.address)
	session, next, err := mechanism.Authenticate(ctx, host)
	for done := false; err == nil && !done; {
		began := time.Now()
		body, err = c.ask(ctx, loginKey, 1, append(binary.BigEndian.AppendUint32(nil, uint32(len(next))), next...))
		if err != nil {
			return err
		}
		read = values(body)
		code, why := read.int16(), read.string()
		data := read.take(int(read.int32()))
		if code != 0 {
			return fmt.Errorf("%w: the login failed (error %d): %s", ErrRefused, code, why)
		}
		if lifetime := time.Duration(read.int64()) * time.Millisecond; lifetime > 0 {
			c.renewAt = began.Add(time.Duration(renewAfter * float64(lifetime)))
		}
		if done, next, err = session.Challenge(data); done {
			break
		}
	}
	return err
}

// nodes returns the addresses of the live nodes by id: the brokers of Metadata version 1. It names no topic, as to name
// one may create it.
func (c *conn) nodes(ctx context.Context) (map[int32]string, error) {
	body, err := c.call(ctx, metadataKey, 1, make([]byte, 4))
	read, nodes := values(body), map[int32]string{}
	for count := read.int32(); count > 0 && len(read) > 0; count-- {
		id, host, port := read.int32(), read.string(), read.int32()
		read.string() // its rack
		nodes[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	return nodes, err
}

// values is what of an answer of Kafka's is not read yet; behind its end are zeros.
type values []byte

func (v *values) take(size int) []byte {
	taken := make([]byte, min(max(size, 0), longestAnswer))
	*v = (*v)[copy(taken, *v):]
	return taken
}

func (v *values) int16() int16   { return int16(binary.BigEndian.Uint16(v.take(2))) }
func (v *values) int32() int32   { return int32(binary.BigEndian.Uint32(v.take(4))) }
func (v *values) int64() int64   { return int64(binary.BigEndian.Uint64(v.take(8))) }
func (v *values) string() string { return string(v.take(int(v.int16()))) }
