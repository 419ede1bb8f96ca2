package wsconn

import "context"

// deadChecks is how many checks for a dead peer there are per DeadAfter.
const deadChecks = 4

// watch starts the checks of a connection.
func (c *Conn) watch() *Conn {
	dead := startTicker(c.options.DeadAfter/deadChecks, c.deadPeerCheck())
	c.out.beforeWrite = dead.resume
	c.tickers = []*ticker{startTicker(c.options.PingInterval, c.pinger()), dead}
	return c
}

// Prove blocks until the peer has read everything that was sent before, as shown
// by its pong. Another goroutine must be receiving meanwhile. It may be called
// concurrently with all other methods. It returns the cause of ctx if that ends,
// or the error that ended the connection.
func (c *Conn) Prove(ctx context.Context) error {
	p := c.pings
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended.Done():
		return c.endedError("prove")
	}
	number, answered, err := p.send(c.out)
	if err != nil {
		return c.wrapError("ping", err)
	}
	defer p.remove(number)
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended.Done():
		return c.endedError("prove")
	}
}

// pinger returns a function that sends a ping if the previous one was answered.
func (c *Conn) pinger() func() (again bool) {
	retransmits := make(<-chan struct{})
	first := true
	return func() bool {
		if !first {
			select {
			case <-retransmits:
			default:
				return true
			}
		}
		if _, next, err := c.pings.send(c.out); err == nil {
			retransmits, first = next, false
		}
		return true
	}
}
