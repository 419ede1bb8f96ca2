package integration

import "fmt"

// start starts a process.
func (c *rpcClient) start(id string, argv []string, more rpcParams) {
	c.Helper()
	c.result("process/start", startOf(id, argv, more), nil)
}

// write writes to a process's stdin and wants this status.
func (c *rpcClient) write(id, data, want string) {
	c.Helper()
	var result struct{ Status string }
	c.result("process/write", writeOf(id, data), &result)
	if result.Status != want {
		c.Fatalf("writing to %s has the status %q, want %q", id, result.Status, want)
	}
}

// readProcess calls process/read.
func (c *rpcClient) readProcess(id string, more rpcParams) rpcRead {
	c.Helper()
	params := rpcParams{"processId": id}
	for name, value := range more {
		params[name] = value
	}
	var result rpcRead
	c.result("process/read", params, &result)
	return result
}

// terminate terminates a process and tells if it was running.
func (c *rpcClient) terminate(id string) bool {
	c.Helper()
	var result struct{ Running bool }
	c.result("process/terminate", rpcParams{"processId": id}, &result)
	return result.Running
}

// awaitOutput waits until a process has said this on a stream, in all.
func (c *rpcClient) awaitOutput(id, stream, want string) {
	c.Helper()
	c.until(fmt.Sprintf("%s says %q", id, want), func(frames []rpcFrame) bool {
		return len(outputOf(frames, id, stream)) >= len(want)
	})
	if got := outputOf(c.record(), id, stream); got != want {
		c.Fatalf("%s said %q on %s, want %q", id, got, stream, want)
	}
}

// awaitEvent waits for the notification about the process.
func (c *rpcClient) awaitEvent(method, id string) rpcEvent {
	c.Helper()
	var found rpcEvent
	c.until(method+" of "+id, func(frames []rpcFrame) bool {
		for _, e := range eventsOf(frames, id) {
			if e.method == method {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// expectEnd waits for the end of a process and wants this exit code, and
// sequence numbers without a gap since the beginning.
func (c *rpcClient) expectEnd(id string, code int) {
	c.Helper()
	closed := c.awaitEvent("process/closed", id)
	if exited := c.awaitEvent("process/exited", id); exited.ExitCode != code {
		c.Errorf("%s exited with %d, want %d", id, exited.ExitCode, code)
	}
	events := eventsOf(c.record(), id)
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			c.Errorf("event %d of %s has the sequence number %d", i+1, id, e.Seq)
		}
	}
	if closed.Seq != uint64(len(events)) {
		c.Errorf("%s closed with %d, after %d events", id, closed.Seq, len(events))
	}
}
