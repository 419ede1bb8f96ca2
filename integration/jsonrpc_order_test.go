package integration

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// A response comes before the notifications it causes, and those of a process
// in the order of their numbers, however much of it a client sends at once.
func TestAResponsePrecedesWhatItCauses(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 40
	}
	server := newServer(t, nil)
	var connections sync.WaitGroup
	for range 4 {
		connections.Go(func() {
			for range runs / 40 {
				c := websocketClient(t, server.address(websocketDoor)).initialize("")
				for i := range 10 {
					c.recordOrder(fmt.Sprint("p", i))
				}
				c.shut()
			}
		})
	}
	connections.Wait()
}

// recordOrder starts, feeds and terminates a process without waiting for
// answers, and looks at the frames.
func (c *rpcClient) recordOrder(id string) {
	c.Helper()
	start := c.post("process/start", startOf(id, shell("read line; echo $line; exec sleep 1000"), rpcParams{"pipeStdin": true}))
	write := c.post("process/write", writeOf(id, "hello\n"))
	c.awaitOutput(id, "stdout", "hello\n")
	terminate := c.post("process/terminate", rpcParams{"processId": id})
	c.expectEnd(id, 128+9)
	for _, request := range []int{start, write, terminate} {
		if answer := c.reply(request); answer.Error != nil {
			c.Errorf("request %d of %s was refused with %+v", request, id, answer.Error)
		}
	}

	frames := c.record()
	place := func(method string) int {
		return slices.IndexFunc(frames, func(f rpcFrame) bool {
			return f.news != nil && f.news.ProcessID == id && f.news.method == method
		})
	}
	for _, pair := range []struct {
		request int
		causes  string
	}{{start, "process/output"}, {write, "process/output"}, {terminate, "process/exited"}, {terminate, "process/closed"}} {
		if response, caused := replyTo(frames, pair.request), place(pair.causes); response > caused {
			c.Errorf("%s of %s is frame %d, before the response that caused it, frame %d", pair.causes, id, caused, response)
		}
	}
}

// So it is for a process that ends at once, whose news could overtake the
// answer to its start.
func TestTheAnswerToAStartPrecedesTheEndOfTheProcess(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 30
	}
	c := websocketClient(t, newServer(t, nil).address(websocketDoor)).initialize("")
	requests := map[string]int{}
	for i := range runs {
		id := fmt.Sprint("p", i)
		requests[id] = c.post("process/start", startOf(id, []string{"/bin/echo", id}, nil))
	}
	for id, request := range requests {
		c.decode("process/start", c.reply(request), nil)
		c.expectEnd(id, 0)
		c.awaitOutput(id, "stdout", id+"\n")
	}
	frames := c.record()
	seen := map[string]bool{}
	for i, frame := range frames {
		if frame.news == nil || seen[frame.news.ProcessID] {
			continue
		}
		id := frame.news.ProcessID
		seen[id] = true
		if response := replyTo(frames, requests[id]); response > i {
			c.Errorf("%s of %s is frame %d, the answer to its start frame %d", frame.Method, id, i, response)
		}
	}
	if len(seen) != runs {
		c.Errorf("there was news of %d processes, want %d", len(seen), runs)
	}
}

// A long poll, a full stdin and an observer that does not read delay no other
// request on their connection.
func TestNothingOnAConnectionWaitsForSomethingElse(t *testing.T) {
	server := newServer(t, nil)
	c := websocketClient(t, server.address(websocketDoor)).initialize("")
	c.start("silent", program("sleep"), nil)
	c.start("deaf", program("never-read"), rpcParams{"pipeStdin": true})
	c.start("chatty", program("flood", "-bytes", fmt.Sprint(floodBytes)), nil)
	observed := newStory(t, server, tcpDoor)
	observed.session = c.session
	observed.watch("chatty", 0).step() // and no more

	poll := c.post("process/read", rpcParams{"processId": "silent", "waitMs": 3_600_000})
	var stuck []int
	full := string(make([]byte, 1<<20))
	for range 4 { // more than the queue and the pipe hold
		stuck = append(stuck, c.post("process/write", writeOf("deaf", full)))
	}
	last := stuck[len(stuck)-1]
	for i := range 50 {
		id := fmt.Sprint("p", i)
		c.start(id, []string{"/bin/cat"}, rpcParams{"pipeStdin": true})
		c.write(id, "x", "accepted")
		c.awaitOutput(id, "stdout", "x")
		if !c.terminate(id) {
			c.Errorf("%s was not running", id)
		}
		c.expectEnd(id, 128+9)
	}
	if c.readProcess("silent", nil).Exited {
		c.Error("the silent process has exited")
	}
	for name, request := range map[string]int{"long poll": poll, "write to a full stdin": last} {
		if replyTo(c.record(), request) >= 0 {
			c.Errorf("the %s was answered: %+v", name, c.reply(request))
		}
	}
	c.terminate("deaf")
	c.reply(last)
	c.terminate("silent")
	var polled rpcRead
	c.decode("process/read", c.reply(poll), &polled)
	if !polled.Exited {
		c.Errorf("the end of the process woke the poll with %+v", polled)
	}
}
