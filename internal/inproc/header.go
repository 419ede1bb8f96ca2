package inproc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The error grpc-go gives for headers that come too late.
var errIllegalHeader = status.Error(codes.Internal, "transport: SendHeader called multiple times")

// setHeader merges md into the header, which must not have been sent.
func (c *call) setHeader(md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headerSent || c.ended {
		return errIllegalHeader
	}
	c.header = merge(c.header, md)
	return nil
}

// sendHeader merges md into the header and sends it.
func (c *call) sendHeader(md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return c.serverErr
	}
	if c.headerSent {
		return errIllegalHeader
	}
	c.header = merge(c.header, md)
	c.sendHeaderLocked()
	return nil
}

// flushHeader sends the header ahead of the first message.
func (c *call) flushHeader() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return c.serverErr
	}
	if !c.headerSent {
		c.sendHeaderLocked()
	}
	return nil
}

func (c *call) sendHeaderLocked() {
	c.headerSent = true
	close(c.settled)
}

func (c *call) setTrailer(md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errIllegalHeader
	}
	c.trailer = merge(c.trailer, md)
	return nil
}

// clientHeader returns a copy of the header, and false if none was sent. It
// does not wait.
func (c *call) clientHeader() (metadata.MD, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.headerSent {
		return nil, false
	}
	if c.header == nil {
		return metadata.MD{}, true
	}
	return c.header.Copy(), true
}

// clientTrailer returns a copy of the trailer, which is nil until the end.
func (c *call) clientTrailer() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		return nil
	}
	return c.trailer.Copy()
}
