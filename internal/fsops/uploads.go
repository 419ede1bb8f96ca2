package fsops

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Uploads is a store of uploads: files that are received in pieces and then put in place. All
// methods may be called concurrently.
type Uploads struct {
	retention time.Duration
	perOwner  int  // with a stream
	abandoned int  // without, of each owner
	named     bool // temporary files have names, as on file systems that require one
	commits   keyedMutex[location]

	mu       sync.Mutex
	byOwner  map[string]map[string]*storedUpload // guarded by mu; by owner, and id
	external map[string]int                      // guarded by mu; by owner; see Count
	closed   bool                                // guarded by mu
}

// location is a name in a directory, whatever its path.
type location struct {
	directory identity
	name      string
}

// storedUpload is what was received of an upload. With an id it is in the store, and outlives its
// stream.
type storedUpload struct {
	owner, id, path string
	// busy is empty while no call uses partial.
	busy     chan struct{}
	partial  *partial                 // used by the holder of busy; nil before it is made, and if the upload is completed
	received atomic.Int64             // bytes; changed by the holder of busy
	replaced atomic.Pointer[Replaced] // what a completed upload is answered with

	stream  *Upload     // guarded by Uploads.mu; the stream that writes it, or nil
	gone    bool        // guarded by Uploads.mu; dropped
	expires time.Time   // guarded by Uploads.mu; while no stream writes it
	expiry  *time.Timer // guarded by Uploads.mu
}

// NewUploads returns a store that retains uploads with an id for a while after their stream has
// ended. Each owner may have perOwner streams at once. Of the uploads without a stream the store
// retains at most abandoned unfinished and as many completed ones for each owner, and drops the
// oldest.
func NewUploads(retention time.Duration, perOwner, abandoned int) *Uploads {
	return &Uploads{retention: retention, perOwner: perOwner, abandoned: abandoned, byOwner: make(map[string]map[string]*storedUpload), external: make(map[string]int)}
}

// UploadState is what was received of an upload.
type UploadState struct {
	// Path is what it is for.
	Path string
	// Received is in bytes.
	Received int64
	// Complete reports whether the file was replaced.
	Complete bool
	// Expires is when it is dropped; zero while a stream goes on with it.
	Expires time.Time
}

// Find returns what was received of an upload, or UploadNotFound.
func (s *Uploads) Find(owner, id string) (UploadState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byOwner[owner][id]
	if k == nil {
		return UploadState{}, uploadNotFound(id)
	}
	return UploadState{Path: k.path, Received: k.received.Load(), Complete: k.replaced.Load() != nil, Expires: k.expires}, nil
}

func uploadNotFound(id string) error {
	return newError(UploadNotFound, "go on with the upload", id, "it is not there: begin it anew")
}

// Close drops all uploads that no stream goes on with. Those that streams still
// have are dropped when these leave them.
func (s *Uploads) Close() {
	s.mu.Lock()
	s.closed = true
	var left []*partial
	for _, uploads := range s.byOwner {
		for _, k := range uploads {
			if k.stream == nil {
				left = append(left, s.drop(k))
			}
		}
	}
	s.mu.Unlock()
	for _, p := range left {
		p.release()
	}
}

// drop forgets an upload, and returns what is to be released. It is called with
// mu held.
func (s *Uploads) drop(k *storedUpload) *partial {
	k.gone = true
	if k.expiry != nil {
		k.expiry.Stop()
	}
	delete(s.byOwner[k.owner], k.id)
	if len(s.byOwner[k.owner]) == 0 {
		delete(s.byOwner, k.owner)
	}
	return k.partial
}

// claim makes a stream the one that goes on with an upload, which is returned as
// busy. Offset 0 begins one, in the place of what is there.
func (s *Uploads) claim(ctx context.Context, u *Upload) (*storedUpload, error) {
	owner, id := u.request.Owner, u.request.ID
	if id == "" {
		return newStoredUpload(u), nil
	}
	for {
		s.mu.Lock()
		k := s.byOwner[owner][id]
		switch {
		case k == nil && u.request.Offset > 0:
			s.mu.Unlock()
			return nil, uploadNotFound(id)
		case k == nil:
			k, err := s.add(u)
			s.mu.Unlock()
			return k, err
		}
		s.mu.Unlock()
		select {
		case k.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		claimed, err := s.takeOver(k, u)
		if claimed {
			return k, nil
		}
		<-k.busy
		if err != nil {
			return nil, err
		}
	}
}

// newStoredUpload returns the upload of a stream, which is busy.
func newStoredUpload(u *Upload) *storedUpload {
	k := &storedUpload{owner: u.request.Owner, id: u.request.ID, path: u.request.Path, busy: make(chan struct{}, 1), stream: u}
	k.busy <- struct{}{}
	return k
}

// add begins an upload with an id. It is called with mu held.
func (s *Uploads) add(u *Upload) (*storedUpload, error) {
	owner := u.request.Owner
	if err := s.checkStreams(owner, u.request.Path); err != nil {
		return nil, err
	}
	if s.byOwner[owner] == nil {
		s.byOwner[owner] = make(map[string]*storedUpload)
	}
	k := newStoredUpload(u)
	s.byOwner[owner][k.id] = k
	return k, nil
}

// checkStreams fails if an owner has too many streams. It is called with mu held.
func (s *Uploads) checkStreams(owner, path string) error {
	streams := s.external[owner]
	for _, k := range s.byOwner[owner] {
		if k.stream != nil && k.replaced.Load() == nil {
			streams++
		}
	}
	if streams < s.perOwner {
		return nil
	}
	return newError(TooManyUploads, "write", path, "too many uploads are being received: try again when one has ended").withLimit(int64(s.perOwner))
}

// Count counts an unfinished upload that another process receives for an owner, until done is
// called, once. It fails as [Uploads.Begin] does if there are too many.
func (s *Uploads) Count(owner, path string) (done func(), err error) {
	if path, err = cleanPath("write", path); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkStreams(owner, path); err != nil {
		return nil, err
	}
	s.external[owner]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.external[owner]--; s.external[owner] == 0 {
			delete(s.external, owner)
		}
	}, nil
}

// takeOver makes a stream the one that goes on with an upload, in the place of an
// earlier one. It reports false if the upload is not there any more, or was dropped
// because it begins anew.
func (s *Uploads) takeOver(k *storedUpload, u *Upload) (bool, error) {
	path, offset := u.request.Path, u.request.Offset
	s.mu.Lock()
	switch {
	case k.gone:
		s.mu.Unlock()
		return false, nil
	case offset == 0:
		dropped := s.drop(k)
		s.mu.Unlock()
		dropped.release()
		return false, nil
	}
	defer s.mu.Unlock()
	switch received := k.received.Load(); {
	case k.path != path:
		return false, newError(UploadOtherPath, "write", path, "the upload is for another path: use another id")
	case offset > received:
		return false, newError(UploadOffsetInvalid, "write", path, "the upload has not come that far: go on from what was received").withLimit(received)
	}
	if k.stream == nil {
		if err := s.checkStreams(k.owner, path); err != nil {
			return false, err
		}
	}
	k.stream, k.expires = u, time.Time{}
	if k.expiry != nil {
		k.expiry.Stop()
	}
	return true, nil
}

// has reports whether an upload is still that of a stream.
func (s *Uploads) has(u *Upload) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !u.stored.gone && u.stored.stream == u
}

// leave retains the upload of a stream for a while, or drops it.
func (s *Uploads) leave(u *Upload, keep bool) {
	s.mu.Lock()
	k := u.stored
	if k.gone || k.stream != u {
		s.mu.Unlock()
		return
	}
	if keep && !s.closed {
		k.stream, k.expires = nil, time.Now().Add(s.retention)
		k.expiry = time.AfterFunc(s.retention, func() { s.expire(k) })
		excess := s.dropExcess(k.owner, k.replaced.Load() != nil)
		s.mu.Unlock()
		excess.release()
		return
	}
	dropped := s.drop(k)
	s.mu.Unlock()
	dropped.release()
}

// dropExcess drops the oldest of the uploads of an owner that no stream writes, if
// there is one too many that are completed, or unfinished, and returns what is to be
// released. It is called with mu held.
func (s *Uploads) dropExcess(owner string, completed bool) *partial {
	var oldest *storedUpload
	abandoned := 0
	for _, k := range s.byOwner[owner] {
		if k.stream != nil || (k.replaced.Load() != nil) != completed {
			continue
		}
		if abandoned++; oldest == nil || k.expires.Before(oldest.expires) {
			oldest = k
		}
	}
	if abandoned <= s.abandoned {
		return nil
	}
	return s.drop(oldest)
}

// complete replaces the received data by the result, which is retained in case the response was
// lost. The caller has exclusive use of the upload.
func (u *Upload) complete(replaced Replaced) {
	received := u.stored.partial
	u.stored.replaced.Store(&replaced)
	u.stored.partial = nil
	received.release()
}

// expire drops an upload when its time is over. A timer that was stopped too late
// finds a later time.
func (s *Uploads) expire(k *storedUpload) {
	s.mu.Lock()
	if k.gone || k.stream != nil || time.Now().Before(k.expires) {
		s.mu.Unlock()
		return
	}
	dropped := s.drop(k)
	s.mu.Unlock()
	dropped.release()
}
