package gateway

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"slices"
	"sync"
	"testing"
)

// A response precedes the notifications it causes, and those of a process are in order, even
// if a client sends many requests at once.
func TestOrder_ResponsePrecedesItsNotifications(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 40
	}
	server := harness.NewServer(t, nil)
	var connections sync.WaitGroup
	for range 4 {
		connections.Go(func() {
			for range runs / 40 {
				c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
				for i := range 10 {
					recordOrder(c, fmt.Sprint("p", i))
				}
				c.Shut()
			}
		})
	}
	connections.Wait()
}

// recordOrder starts, writes to and terminates a process without waiting for responses, and
// checks the frames.
func recordOrder(c *harness.RPCClient, id string) {
	c.Helper()
	start := c.Post("process/start", harness.StartOf(id, harness.Shell("read line; echo $line; exec sleep 1000"), harness.RPCParams{"pipeStdin": true}))
	write := c.Post("process/write", harness.WriteOf(id, "hello\n"))
	c.AwaitOutput(id, "stdout", "hello\n")
	terminate := c.Post("process/terminate", harness.RPCParams{"processId": id})
	c.ExpectEnd(id, 128+9)
	for _, request := range []int{start, write, terminate} {
		if answer := c.Reply(request); answer.Error != nil {
			c.Errorf("request %d of %s was refused with %+v", request, id, answer.Error)
		}
	}

	frames := c.Record()
	place := func(method string) int {
		return slices.IndexFunc(frames, func(f harness.RPCFrame) bool {
			return f.Event != nil && f.Event.ProcessID == id && f.Event.Method == method
		})
	}
	for _, pair := range []struct {
		request int
		causes  string
	}{{start, "process/output"}, {write, "process/output"}, {terminate, "process/exited"}, {terminate, "process/closed"}} {
		if response, caused := harness.ReplyTo(frames, pair.request), place(pair.causes); response > caused {
			c.Errorf("%s of %s is frame %d, before the response that caused it, frame %d", pair.causes, id, caused, response)
		}
	}
}

// The same holds for a process that ends immediately, whose notifications could overtake the
// response to its start.
func TestOrder_StartResponsePrecedesTheExit(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 30
	}
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	requests := map[string]int{}
	for i := range runs {
		id := fmt.Sprint("p", i)
		requests[id] = c.Post("process/start", harness.StartOf(id, []string{"/bin/echo", id}, nil))
	}
	for id, request := range requests {
		c.Decode("process/start", c.Reply(request), nil)
		c.ExpectEnd(id, 0)
		c.AwaitOutput(id, "stdout", id+"\n")
	}
	frames := c.Record()
	seen := map[string]bool{}
	for i, frame := range frames {
		if frame.Event == nil || seen[frame.Event.ProcessID] {
			continue
		}
		id := frame.Event.ProcessID
		seen[id] = true
		if response := harness.ReplyTo(frames, requests[id]); response > i {
			c.Errorf("%s of %s is frame %d, the answer to its start frame %d", frame.Method, id, i, response)
		}
	}
	if len(seen) != runs {
		c.Errorf("there were notifications of %d processes, want %d", len(seen), runs)
	}
}

// A long poll, a full stdin and an observer that does not read do not delay other requests on
// their connection.
func TestOrder_RequestsDoNotWaitForEachOther(t *testing.T) {
	server := harness.NewServer(t, nil)
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c.Start("silent", harness.Program("sleep"), nil)
	c.Start("deaf", harness.Program("never-read"), harness.RPCParams{"pipeStdin": true})
	c.Start("chatty", harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)), nil)
	observed := harness.NewScenario(t, server, harness.TCPTransport)
	observed.Session = c.Session
	observed.Watch("chatty", 0).Step() // and no more

	poll := c.Post("process/read", harness.RPCParams{"processId": "silent", "waitMs": 3_600_000})
	var stuck []int
	full := string(make([]byte, 1<<20))
	for range 4 { // more than the queue and the pipe hold
		stuck = append(stuck, c.Post("process/write", harness.WriteOf("deaf", full)))
	}
	last := stuck[len(stuck)-1]
	for i := range 50 {
		id := fmt.Sprint("p", i)
		c.Start(id, []string{"/bin/cat"}, harness.RPCParams{"pipeStdin": true})
		c.Write(id, "x", "accepted")
		c.AwaitOutput(id, "stdout", "x")
		if !c.Terminate(id) {
			c.Errorf("%s was not running", id)
		}
		c.ExpectEnd(id, 128+9)
	}
	if c.ReadProcess("silent", nil).Exited {
		c.Error("the silent process has exited")
	}
	for name, request := range map[string]int{"long poll": poll, "write to a full stdin": last} {
		if harness.ReplyTo(c.Record(), request) >= 0 {
			c.Errorf("the %s was answered: %+v", name, c.Reply(request))
		}
	}
	c.Terminate("deaf")
	c.Reply(last)
	c.Terminate("silent")
	var polled harness.RPCRead
	c.Decode("process/read", c.Reply(poll), &polled)
	if !polled.Exited {
		c.Errorf("the end of the process woke the poll with %+v", polled)
	}
}
