package gateway

import (
	"context"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// maxBulk is how many large answers of one kind are prepared at once for one
// connection. They are said one after the other anyway, and wait in memory
// for a client that does not read.
const maxBulk = 8

// bulk bounds the answers of a connection that can be large. The zero value is
// ready.
type bulk struct {
	once  sync.Once
	slots chan struct{}
}

// enter waits until an answer may be prepared. leave is to be called when it was
// said or there is none; calls but the first do nothing.
func (b *bulk) enter(ctx context.Context) (leave func(), failed *jsonrpc.Error) {
	b.once.Do(func() { b.slots = make(chan struct{}, maxBulk) })
	select {
	case b.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-b.slots }), nil
	case <-ctx.Done():
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the connection is being closed")
	}
}
