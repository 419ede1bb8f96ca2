package fsops

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Uploads are the files that are being replaced by what comes in pieces. All
// methods may be called concurrently.
type Uploads struct {
	retention time.Duration
	perOwner  int  // with a stream
	abandoned int  // without, of each owner
	named     bool // has the content have a hidden name, as where a file system wants it
	turns     turns[location]

	mu        sync.Mutex
	kept      map[string]map[string]*keptUpload // guarded by mu; by owner, and id
	elsewhere map[string]int                    // guarded by mu; by owner; see Count
	closed    bool                              // guarded by mu
}

// location is a name in a directory, whatever its path.
type location struct {
	directory identity
	name      string
}

// keptUpload is an upload with an id, which outlives a stream.
type keptUpload struct {
	owner, id, path string
	// busy has room while nobody uses partial.
	busy     chan struct{}
	partial  *partial                 // used by who is in busy; nil of a completed upload
	received atomic.Int64             // of the partial
	replaced atomic.Pointer[Replaced] // what a completed upload is answered with

	stream  *Upload     // guarded by Uploads.mu; who goes on with it, or nil
	gone    bool        // guarded by Uploads.mu; dropped
	expires time.Time   // guarded by Uploads.mu; while nobody goes on with it
	expiry  *time.Timer // guarded by Uploads.mu
}

// NewUploads returns a store of uploads that keeps those with an id for a while
// after their stream has ended. Of each owner perOwner may have a stream at once, and
// further ones are refused. Of those that have none any more it keeps as many as
// abandoned that are unfinished, and as many that are completed: the oldest gives way.
func NewUploads(retention time.Duration, perOwner, abandoned int) *Uploads {
	return &Uploads{retention: retention, perOwner: perOwner, abandoned: abandoned, kept: make(map[string]map[string]*keptUpload), elsewhere: make(map[string]int)}
}

// UploadState is what was received of an upload.
type UploadState struct {
	// Path is what it is for.
	Path string
	// Received is in bytes.
	Received int64
	// Complete says that the file is in its place.
	Complete bool
	// Expires is when it is dropped; zero while a stream goes on with it.
	Expires time.Time
}

// Find returns what was received of an upload, or UploadNotFound.
func (s *Uploads) Find(owner, id string) (UploadState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[owner][id]
	if k == nil {
		return UploadState{}, uploadNotFound(id)
	}
	return UploadState{Path: k.path, Received: k.received.Load(), Complete: k.replaced.Load() != nil, Expires: k.expires}, nil
}

func uploadNotFound(id string) error {
	return refused(UploadNotFound, "go on with the upload", id, "it is not there: begin it anew")
}

// Close drops all uploads that no stream goes on with. Those that streams still
// have are dropped when these leave them.
func (s *Uploads) Close() {
	s.mu.Lock()
	s.closed = true
	var left []*partial
	for _, uploads := range s.kept {
		for _, k := range uploads {
			if k.stream == nil {
				left = append(left, s.drop(k))
			}
		}
	}
	s.mu.Unlock()
	for _, p := range left {
		release(p)
	}
}

// release drops what was received of an upload, if it has not been completed.
func release(p *partial) {
	if p != nil {
		p.release()
	}
}

// drop forgets an upload, and returns what is to be released. It is called with
// mu held.
func (s *Uploads) drop(k *keptUpload) *partial {
	k.gone = true
	if k.expiry != nil {
		k.expiry.Stop()
	}
	delete(s.kept[k.owner], k.id)
	if len(s.kept[k.owner]) == 0 {
		delete(s.kept, k.owner)
	}
	return k.partial
}

// claim makes a stream the one that goes on with an upload, which is returned as
// busy. Offset 0 begins one, in the place of what is there.
func (s *Uploads) claim(ctx context.Context, u *Upload) (*keptUpload, error) {
	owner, id := u.how.Owner, u.how.ID
	for {
		s.mu.Lock()
		k := s.kept[owner][id]
		switch {
		case k == nil && u.how.Offset > 0:
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

// add begins an upload. It is called with mu held.
func (s *Uploads) add(u *Upload) (*keptUpload, error) {
	owner, id, path := u.how.Owner, u.how.ID, u.how.Path
	if err := s.checkStreams(owner, path); err != nil {
		return nil, err
	}
	if s.kept[owner] == nil {
		s.kept[owner] = make(map[string]*keptUpload)
	}
	k := &keptUpload{owner: owner, id: id, path: path, busy: make(chan struct{}, 1), stream: u}
	k.busy <- struct{}{}
	s.kept[owner][id] = k
	return k, nil
}

// checkStreams refuses a stream to an owner who has too many. It is called with mu
// held.
func (s *Uploads) checkStreams(owner, path string) error {
	streams := s.elsewhere[owner]
	for _, k := range s.kept[owner] {
		if k.stream != nil && k.replaced.Load() == nil {
			streams++
		}
	}
	if streams < s.perOwner {
		return nil
	}
	err := refused(TooManyUploads, "write", path, "too many uploads are being received: try again when one has ended")
	err.Limit = int64(s.perOwner)
	return err
}

// Count counts an unfinished upload with an id among those of its owner that is
// received elsewhere, until done is called, once. It fails as [Uploads.Begin] does if
// there are too many.
func (s *Uploads) Count(owner, path string) (done func(), err error) {
	if path, err = cleaned("write", path); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkStreams(owner, path); err != nil {
		return nil, err
	}
	s.elsewhere[owner]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.elsewhere[owner]--; s.elsewhere[owner] == 0 {
			delete(s.elsewhere, owner)
		}
	}, nil
}

// takeOver makes a stream the one that goes on with an upload, by whoever else it
// was. It reports false if the upload is not there any more, or was dropped
// because it begins anew.
func (s *Uploads) takeOver(k *keptUpload, u *Upload) (bool, error) {
	path, offset := u.how.Path, u.how.Offset
	s.mu.Lock()
	switch {
	case k.gone:
		s.mu.Unlock()
		return false, nil
	case offset == 0:
		dropped := s.drop(k)
		s.mu.Unlock()
		release(dropped)
		return false, nil
	}
	defer s.mu.Unlock()
	switch received := k.received.Load(); {
	case k.path != path:
		return false, refused(UploadOtherPath, "write", path, "the upload is for another path: use another id")
	case offset > received:
		err := refused(UploadOffsetInvalid, "write", path, "the upload has not come that far: go on from what was received")
		err.Limit = received
		return false, err
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
	return !u.kept.gone && u.kept.stream == u
}

// leave keeps the upload of a stream for a while, or drops it.
func (s *Uploads) leave(u *Upload, keep bool) {
	s.mu.Lock()
	k := u.kept
	if k.gone || k.stream != u {
		s.mu.Unlock()
		return
	}
	if keep && !s.closed {
		k.stream, k.expires = nil, time.Now().Add(s.retention)
		var expiry *time.Timer
		expiry = time.AfterFunc(s.retention, func() { s.expire(k, &expiry) })
		k.expiry = expiry
		excess := s.dropExcess(k.owner)
		s.mu.Unlock()
		release(excess)
		return
	}
	dropped := s.drop(k)
	s.mu.Unlock()
	release(dropped)
}

// dropExcess drops the oldest unfinished upload of an owner that no stream goes on
// with, if there is one too many, and returns what is to be released. It is called
// with mu held.
func (s *Uploads) dropExcess(owner string) *partial {
	var oldest *keptUpload
	abandoned := 0
	for _, k := range s.kept[owner] {
		if k.stream != nil || k.replaced.Load() != nil {
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

// complete keeps of an upload what it is answered with, for a while, should the
// answer be lost. It is called by who uses the upload.
func (s *Uploads) complete(u *Upload, replaced Replaced) {
	k := u.kept
	received := k.partial
	k.replaced.Store(&replaced)
	k.partial = nil
	s.mu.Lock()
	var oldest *keptUpload
	completed := 0
	for _, other := range s.kept[k.owner] {
		if other.replaced.Load() == nil || other.stream != nil {
			continue
		}
		if completed++; oldest == nil || other.expires.Before(oldest.expires) {
			oldest = other
		}
	}
	if oldest != nil && completed >= s.abandoned {
		s.drop(oldest) // which has nothing to be released
	}
	s.mu.Unlock()
	received.release()
}

// expire drops an upload when its time is over. The timer is read under the lock
// that it was set under.
func (s *Uploads) expire(k *keptUpload, expiry **time.Timer) {
	s.mu.Lock()
	if k.gone || k.stream != nil || k.expiry != *expiry {
		s.mu.Unlock()
		return
	}
	dropped := s.drop(k)
	s.mu.Unlock()
	release(dropped)
}
