package inproc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// errHeaderSent is the error of grpc-go for a header after the header.
var errHeaderSent = status.Error(codes.Internal, "transport: SendHeader called multiple times")

// setHeader adds md to the header, unless that was sent.
func (c *call) setHeader(md metadata.MD) error { return c.changeHeader(md, false) }

// sendHeader adds md to the header and sends it.
func (c *call) sendHeader(md metadata.MD) error { return c.changeHeader(md, true) }

func (c *call) changeHeader(md metadata.MD, send bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headerSent.Load() || c.ended {
		return errHeaderSent
	}
	if len(md) > 0 {
		c.header = metadata.Join(c.header, md) // a copy
	}
	if send {
		c.sendHeaderLocked()
	}
	return nil
}

// beginResponse sends the header before the first message.
func (c *call) beginResponse() {
	if !c.headerSent.Load() {
		_ = c.sendHeader(nil) // the call has ended, or it was sent just now
	}
}

func (c *call) sendHeaderLocked() {
	c.headerSent.Store(true)
	if c.headerWait != nil {
		close(c.headerWait)
		c.headerWait = nil
	}
}

// awaitHeader blocks until the header was sent or the call has ended. It returns nil if
// the call has ended without.
func (c *call) awaitHeader() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.headerSent.Load() && !c.ended {
		if c.headerWait == nil {
			c.headerWait = make(chan struct{})
		}
		sent := c.headerWait
		c.mu.Unlock()
		select {
		case <-sent:
		case <-c.done:
		}
		c.mu.Lock()
	}
	if !c.headerSent.Load() {
		return nil
	}
	return c.header.Copy()
}

// setTrailer adds md to the trailer. It has no effect once the call has ended.
func (c *call) setTrailer(md metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && len(md) > 0 {
		c.trailer = metadata.Join(c.trailer, md)
	}
}

// receivedTrailer returns the trailer that came with the handler's status.
func (c *call) receivedTrailer() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		return nil
	}
	return c.trailer.Copy()
}

// report sets the results of a unary call that its caller has asked for by call options.
func (c *call) report(opts []grpc.CallOption) {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = c.awaitHeader()
		case grpc.TrailerCallOption:
			*o.TrailerAddr = c.receivedTrailer()
		}
	}
}
