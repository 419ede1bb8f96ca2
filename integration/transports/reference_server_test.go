package transports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/wsconn"
)

// referenceServer is a server that does exactly what its contract has, in the way of the
// reference, with our server as upstream. It handles one request at a time on each connection,
// and output may overtake the response to a start.
type referenceServer struct {
	contract
	t        testing.TB
	upstream string
	listener net.Listener
	serving  sync.WaitGroup
	ctx      context.Context
	stop     context.CancelCauseFunc

	mu         sync.Mutex
	unforeseen []string // guarded by mu; what clients should not have sent
}

// newReferenceServer serves until the test ends.
func newReferenceServer(t testing.TB, c contract, upstream string) *referenceServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &referenceServer{contract: c, t: t, upstream: upstream, listener: listener}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	server := &http.Server{Handler: http.HandlerFunc(r.accept)}
	r.serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		r.stop(harness.ErrStop)
		_ = server.Close()
		r.serving.Wait()
	})
	return r
}

// blame records a request that clients should not send.
func (r *referenceServer) blame(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unforeseen = append(r.unforeseen, fmt.Sprintf(format, args...))
}

// blamed returns what was recorded since the last call.
func (r *referenceServer) blamed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.unforeseen
	r.unforeseen = nil
	return said
}

func (r *referenceServer) accept(w http.ResponseWriter, request *http.Request) {
	r.serving.Add(1)
	defer r.serving.Done()
	client, err := wsconn.Accept(w, request, wsconn.Options{})
	if err != nil {
		return
	}
	upstream, err := wsconn.Dial(r.ctx, r.upstream, wsconn.DialOptions{Options: wsconn.Options{CloseTimeout: time.Second}})
	if err != nil {
		_ = client.Close(0, "")
		return
	}
	c := &referenceClient{referenceServer: r, client: client, upstream: upstream,
		answered: make(chan struct{}), over: make(chan struct{}), outgoing: make(chan []byte)}
	c.serve()
}

// referenceClient is one connection.
type referenceClient struct {
	*referenceServer
	client, upstream *wsconn.Conn
	// answered receives a value when the request in flight has its response.
	answered chan struct{}
	// outgoing has the messages to the client.
	outgoing chan []byte
	over     chan struct{}
	once     sync.Once

	mu     sync.Mutex
	method string // guarded by mu; of the request in flight
}

// envelope is any message.
type envelope struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params any             `json:"params,omitempty"`
	Result any             `json:"result,omitempty"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// readEnvelope keeps numbers unchanged.
func readEnvelope(message []byte) (e envelope, err error) {
	decoder := json.NewDecoder(bytes.NewReader(message))
	decoder.UseNumber()
	return e, decoder.Decode(&e)
}

// serve ends with the connection. It drops the upstream's connection, so the session survives
// whatever the client has sent.
func (c *referenceClient) serve() {
	var running sync.WaitGroup
	running.Go(func() { c.end(c.requests()) })
	running.Go(func() { c.end(c.answers()) })
	running.Go(func() { c.end(c.write()) })
	select {
	case <-c.over:
	case <-c.ctx.Done():
	}
	c.end(nil)
	running.Wait()
}

func (c *referenceClient) end(error) {
	c.once.Do(func() {
		close(c.over)
		_ = c.upstream.Close(0, "")
		_ = c.client.Close(0, "")
	})
}

var errRefused = errors.New("the reference would end the connection")

// requests forwards the client's requests one after the other.
func (c *referenceClient) requests() error {
	for {
		message, err := c.client.Receive()
		if err != nil {
			return err
		}
		e, err := readEnvelope(message)
		switch {
		case err != nil:
			c.blame("%.200q is no JSON", message)
			return errRefused
		case e.ID == nil && e.Method == "initialized":
			if err := c.upstream.Send([]byte(`{"method":"initialized"}`)); err != nil {
				return err
			}
			continue
		case e.ID == nil || e.Method == "":
			c.blame("%.200q is neither a request nor initialized", message)
			return errRefused
		}
		params, _ := e.Params.(map[string]any)
		if refused := c.check(e.Method, params); refused != nil {
			if refused.unforeseen {
				c.blame("%s with %v is refused: %s", e.Method, params, refused.message)
			}
			if err := c.tell(envelope{ID: e.ID, Error: &struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			}{refused.code, refused.message}}); err != nil {
				return err
			}
			continue
		}
		if err := c.ask(e); err != nil {
			return err
		}
	}
}

// ask sends a request to the upstream, and waits for the response.
func (c *referenceClient) ask(e envelope) error {
	c.mu.Lock()
	c.method = e.Method
	c.mu.Unlock()
	message, err := json.Marshal(e)
	if err == nil {
		err = c.upstream.Send(message)
	}
	if err != nil {
		return err
	}
	select {
	case <-c.answered:
		return nil
	case <-c.over:
		return io.EOF
	}
}

// tell sends a message to the client.
func (c *referenceClient) tell(e envelope) error {
	message, err := json.Marshal(e)
	if err != nil {
		return err
	}
	select {
	case c.outgoing <- message:
		return nil
	case <-c.over:
		return io.EOF
	}
}

// answers forwards the upstream's messages.
func (c *referenceClient) answers() error {
	for {
		message, err := c.upstream.Receive()
		if err != nil {
			return err
		}
		e, err := readEnvelope(message)
		if err != nil {
			return err
		}
		if e.ID == nil {
			below, is := c.notifications[e.Method]
			if !is {
				continue
			}
			e.Params = below.keep(e.Params)
			if object, is := e.Params.(map[string]any); is {
				c.reportDeath(object)
			}
			if err := c.tell(e); err != nil {
				return err
			}
			continue
		}
		c.mu.Lock()
		method := c.method
		c.mu.Unlock()
		if e.Error == nil {
			e.Result = c.answer(method, e.Result)
		}
		if err := c.tell(e); err != nil {
			return err
		}
		select {
		case c.answered <- struct{}{}:
		case <-c.over:
			return io.EOF
		}
	}
}

// overtaking is how long the response to a start may be overtaken.
const overtaking = 2 * time.Millisecond

// write writes messages to the client; the response to a start after the messages that follow
// it immediately.
func (c *referenceClient) write() error {
	for {
		var message []byte
		select {
		case message = <-c.outgoing:
		case <-c.over:
			return io.EOF
		}
		if bytes.Contains(message, []byte(`"result":{"processId"`)) {
			select {
			case earlier := <-c.outgoing:
				if err := c.client.Send(earlier); err != nil {
					return err
				}
			case <-time.After(overtaking):
			}
		}
		if err := c.client.Send(message); err != nil {
			return err
		}
	}
}
