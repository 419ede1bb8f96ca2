package fsops

import (
	"crypto/sha256"
	"encoding"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// HeldUpload is an upload without a stream, as another program goes on with it.
type HeldUpload struct {
	// Owner and ID identify it; Path is what it is for.
	Owner, ID, Path string
	// Received is in bytes.
	Received int64
	// Expires is when it is dropped.
	Expires time.Time
	// Directory and File are the descriptors of the directory of its destination and of the file
	// that is written, if it is unfinished.
	Directory, File int
	// Name is that of the destination in its directory. TemporaryName is that of the file; empty
	// where it has none.
	Name, TemporaryName string
	// Digest is the state of the SHA-256 of what was received.
	Digest []byte
	// SHA256 is the digest of a completed upload; empty if it is unfinished. Created reports whether
	// there was no file before.
	SHA256  []byte
	Created bool
}

// Hold returns all uploads without a stream. They keep their descriptors, and none is dropped
// before resume is called, once.
func (s *Uploads) Hold() (held []HeldUpload, resume func(), err error) {
	s.mu.Lock()
	defer func() {
		if err != nil {
			s.mu.Unlock()
		}
	}()
	for _, uploads := range s.byOwner {
		for _, k := range uploads {
			if k.stream != nil {
				continue
			}
			h := HeldUpload{Owner: k.owner, ID: k.id, Path: k.path, Received: k.received.Load(), Expires: k.expires}
			if replaced := k.replaced.Load(); replaced != nil {
				h.SHA256, h.Created = replaced.SHA256, replaced.Created
			} else {
				p := k.partial
				h.Directory, h.File, h.Name, h.TemporaryName = int(p.dir), int(p.fd), p.name, p.tempName
				if h.Digest, err = p.digest.(encoding.BinaryMarshaler).MarshalBinary(); err != nil {
					return nil, nil, err
				}
			}
			held = append(held, h)
		}
	}
	return held, s.mu.Unlock, nil
}

// Restore adds the uploads that another program held, and owns their descriptors from then on.
// A completed one whose file was removed since is left out. It is called before the store is
// used. An error means that one is not an upload of [Uploads.Hold].
func (s *Uploads) Restore(held []HeldUpload) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range held {
		k := &storedUpload{owner: h.Owner, id: h.ID, path: h.Path, busy: make(chan struct{}, 1), expires: h.Expires}
		k.received.Store(h.Received)
		if len(h.SHA256) > 0 {
			metadata, err := statAt(unix.AT_FDCWD, h.Path, 0)
			if err != nil {
				continue
			}
			k.replaced.Store(&Replaced{Size: h.Received, SHA256: h.SHA256, Metadata: metadata, Created: h.Created})
		} else {
			p := &partial{
				destination: destination{place: place{dir: descriptor(h.Directory), name: h.Name, path: h.Path}},
				fd:          descriptor(h.File), tempName: h.TemporaryName, digest: sha256.New(),
			}
			unix.CloseOnExec(h.Directory)
			unix.CloseOnExec(h.File)
			if err := p.digest.(encoding.BinaryUnmarshaler).UnmarshalBinary(h.Digest); err != nil {
				return fmt.Errorf("failed to go on with the upload %q of %s: %w", h.ID, h.Path, err)
			}
			k.partial = p
		}
		k.expiry = time.AfterFunc(time.Until(h.Expires), func() { s.expire(k) })
		if s.byOwner[k.owner] == nil {
			s.byOwner[k.owner] = make(map[string]*storedUpload)
		}
		s.byOwner[k.owner][k.id] = k
	}
	return nil
}
