package client

import (
	"context"
	"errors"
	"sync"
)

// leftUpload is an upload of a Push that ended early and that the server keeps under
// its ID.
type leftUpload struct {
	path, id string
	sent     int64
}

// left notes what err left of an upload.
func (t *transfer) left(ctx context.Context, upload leftUpload, err error) {
	if upload.id == "" || ctx.Err() == nil && !errors.As(err, new(*ReadError)) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupted = append(t.interrupted, upload)
}

// abortUploads aborts the uploads that were left, but the one of which most was sent:
// the next Push goes on with it. It blocks for a second at most.
func (t *transfer) abortUploads(ctx context.Context, c *Client) {
	t.mu.Lock()
	list := t.interrupted
	t.mu.Unlock()
	most := 0
	for i := range list {
		if list[i].sent > list[most].sent {
			most = i
		}
	}
	ctx, cancel := dropping(ctx)
	defer cancel()
	var aborting sync.WaitGroup
	for i, left := range list {
		if i == most {
			continue
		}
		aborting.Go(func() {
			u := &upload{client: c, path: left.path, id: left.id}
			_ = u.forget(ctx) // it expires
		})
	}
	aborting.Wait()
}
