package own

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "sidecar.example/own/controlpb"
)

const (
	ownKey = 1000 + iota
	releaseKey
	describeOwnersKey
	lastSequenceKey
	watchKey
)

const (
	connectWithin  = 5 * time.Second
	answeredWithin = 20 * time.Second // besides what the request itself waits
	shortestPause  = 100 * time.Millisecond
	longestPause   = 2 * time.Second
)

// Refusal is a node's error that no repetition mends.
type Refusal struct {
	Code    pb.Error
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Moved tells whether a Watch was refused because another node serves now, or may do so.
func Moved(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && (refusal.Code == pb.Error_NOT_SERVING || refusal.Code == pb.Error_UNKNOWN_RESOURCE)
}

// Client asks nodes, each question on a connection of its own; the first is one of Bootstrap.
type Client struct {
	Bootstrap []string // host:port
	ClientID  string
	Session   int64 // the producer id that claims are bound to; -1: the connection that asks
}

// Claim is an Own that was granted or has a place in the queue, with its connection. Request.Token names it.
type Claim struct {
	*Conn
	Request *pb.OwnRequest
	Answer  *pb.OwnResponse
}

// About says what a request is about that names no resources itself: its claims' node is the one to ask.
type About struct {
	Group     string
	Resources []*pb.Resource
}

// Own claims what the request names. With stay it waits until it is granted where the mode says so, else it returns as
// soon as it has a place: the answer is TIMED_OUT, and Watch tells of the promotion. placed hears each TIMED_OUT.
func (c *Client) Own(ctx context.Context, request *pb.OwnRequest, stay bool, placed func(*pb.OwnResponse)) (*Claim, error) {
	request.ProducerId = c.Session
	if len(request.Token) == 0 {
		request.Token = NewToken()
	}
	if !stay {
		request.WaitMs = 0
	}
	got := &pb.OwnResponse{}
	q := &question{key: ownKey, request: request, got: got, waitMs: request.WaitMs, about: AboutClaims(request)}
	q.again = func() bool {
		placed(got)
		return stay
	}
	q.lost = func() {
		if c.Session < 0 { // what was bound to that connection has ended with it, and its token with both
			request.Token = NewToken()
		}
	}
	conn, err := c.put(ctx, nil, q)
	if err == nil && got.Error != pb.Error_NONE && got.Error != pb.Error_TIMED_OUT {
		conn.Close()
		err = &Refusal{got.Error, got.Message}
	}
	return &Claim{conn, request, got}, err
}

// Address is the node that granted it.
func (c *Claim) Address() string { return c.address }

// Fetch asks for a claim once more by its token, on its connection: a promotion that nobody fetches passes on.
func (c *Claim) Fetch(ctx context.Context) error { return c.ask(ctx, ownKey, c.Request, c.Answer) }

// Watch hands every change of what a token has to changed until that returns an error, which it returns. A Watch parks
// its connection, so this has one of its own: to the node at `at`, which granted the claim and alone knows its token, or
// to any where that is empty.
func (c *Client) Watch(ctx context.Context, request *pb.WatchRequest, at string, about About, changed func(*pb.Ownership) error) error {
	got := &pb.WatchResponse{}
	q := &question{key: watchKey, request: request, got: got, waitMs: request.WaitMs, about: about}
	var conn *Conn
	if at != "" {
		limited, cancel := context.WithTimeout(ctx, connectWithin)
		conn, _ = connect(limited, at, c.ClientID) // where it is gone another one is asked
		cancel()
	}
	var err error
	for err == nil {
		conn, err = c.put(ctx, conn, q)
		if err == nil && got.Error != pb.Error_NONE {
			err = &Refusal{got.Error, got.Message}
		}
		for index := 0; err == nil && index < len(got.Changed); index++ {
			err = changed(got.Changed[index])
		}
	}
	if conn != nil {
		conn.Close()
	}
	return err
}

// Release gives back what a request was granted, or its places. It names them all: a node that does not serve them
// knows no token, and could not say where to go.
func (c *Client) Release(ctx context.Context, of *pb.OwnRequest) error {
	about := AboutClaims(of)
	return c.ReleaseSome(ctx, &pb.ReleaseRequest{Group: of.Group, Resources: about.Resources, Token: of.Token})
}

// ReleaseSome gives back the resources that are named, or where none is and the node is the right one, all.
func (c *Client) ReleaseSome(ctx context.Context, request *pb.ReleaseRequest) error {
	about := About{Group: request.Group, Resources: request.Resources}
	return c.once(ctx, &question{key: releaseKey, request: request, got: &pb.ReleaseResponse{}, about: about})
}

// Describe tells who owns the resources, or all there are, and who waits for them. Every node knows.
func (c *Client) Describe(ctx context.Context, request *pb.DescribeOwnersRequest) (*pb.DescribeOwnersResponse, error) {
	got := &pb.DescribeOwnersResponse{}
	return got, c.once(ctx, &question{key: describeOwnersKey, request: request, got: got})
}

// LastSequence tells the highest sequence ids of a producer name that are in the log.
func (c *Client) LastSequence(ctx context.Context, request *pb.LastSequenceRequest) (*pb.LastSequenceResponse, error) {
	got := &pb.LastSequenceResponse{}
	topic := About{Resources: []*pb.Resource{{Topic: request.Topic}}}
	return got, c.once(ctx, &question{key: lastSequenceKey, request: request, got: got, about: topic})
}

type question struct {
	key     uint16
	request proto.Message
	got     interface {
		proto.Message
		GetError() pb.Error
		GetMessage() string
	}
	waitMs int32
	about  About
	again  func() bool // TIMED_OUT: whether to keep the place
	lost   func()      // before it is asked on another connection than the one that ended
}

// once puts a question whose connection nobody needs afterwards, and has every error but NONE for a refusal.
func (c *Client) once(ctx context.Context, q *question) error {
	conn, err := c.put(ctx, nil, q)
	if err != nil {
		return err
	}
	conn.Close()
	if code := q.got.GetError(); code != pb.Error_NONE {
		return &Refusal{code, q.got.GetMessage()}
	}
	return nil
}

// put asks until a node answers for good or ctx ends, and returns the connection that carried the answer. Another node
// is asked where one says NOT_SERVING, the same one again while UNAVAILABLE, any of Bootstrap where a connection ends.
func (c *Client) put(ctx context.Context, conn *Conn, q *question) (*Conn, error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		var err error
		if conn == nil {
			conn, err = c.anyNode(ctx)
		}
		if err == nil {
			err = conn.within(ctx, answeredWithin+time.Duration(q.waitMs)*time.Millisecond, q)
		}
		switch code := q.got.GetError(); {
		case errors.Is(err, ErrGone):
			conn = nil
			if q.lost != nil {
				q.lost()
			}
		case err != nil:
			return conn, err
		case code == pb.Error_NOT_SERVING:
			conn, err = c.follow(ctx, conn, q.about)
		case code == pb.Error_TIMED_OUT && q.again != nil && q.again():
			pause = shortestPause
		case code != pb.Error_UNAVAILABLE:
			return conn, nil
		}
		select {
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
			return nil, fmt.Errorf("%w; last: %s %s %v", ctx.Err(), q.got.GetError(), q.got.GetMessage(), err)
		case <-time.After(pause):
		}
	}
}

func (c *Conn) within(ctx context.Context, limit time.Duration, q *question) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	proto.Reset(q.got)
	return c.ask(limited, q.key, q.request, q.got)
}

// follow gives a connection up for one to the node that serves what is asked about, if another one does at this moment.
func (c *Client) follow(ctx context.Context, conn *Conn, about About) (*Conn, error) {
	if len(about.Resources) == 0 {
		return conn, nil
	}
	owners := &pb.DescribeOwnersResponse{}
	request := &pb.DescribeOwnersRequest{Group: about.Group, Resources: about.Resources}
	err := conn.within(ctx, answeredWithin, &question{key: describeOwnersKey, request: request, got: owners})
	if err != nil {
		return nil, err
	}
	nodes, err := conn.nodes(ctx)
	for _, each := range owners.Ownerships {
		if address, ok := nodes[each.ServingNode]; ok && address != conn.address {
			limited, cancel := context.WithTimeout(ctx, connectWithin)
			next, err := connect(limited, address, c.ClientID)
			cancel()
			if err != nil {
				return conn, err // that node has died; with its last connection a session would end
			}
			conn.Close()
			return next, nil
		}
	}
	return conn, err
}

func (c *Client) anyNode(ctx context.Context) (*Conn, error) {
	failure := ErrGone
	for _, address := range c.Bootstrap {
		limited, cancel := context.WithTimeout(ctx, connectWithin)
		conn, err := connect(limited, address, c.ClientID)
		cancel()
		if err == nil {
			return conn, nil
		}
		failure = err
	}
	return nil, failure
}

// NewToken makes the 16 random bytes that name one request, however often it is sent.
func NewToken() []byte {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	return token
}

// AboutClaims says what a request claims.
func AboutClaims(request *pb.OwnRequest) About {
	about := About{Group: request.Group}
	for _, claim := range request.Claims {
		about.Resources = append(about.Resources, claim.Resource)
	}
	return about
}
