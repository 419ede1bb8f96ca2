package fsops

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Replacement describes an upload: the file to replace, and conditions and attributes.
type Replacement struct {
	// Path is the file. Links are followed, also one to what is not there.
	Path string
	// NoSymlinks refuses a path with a link in it, also at its end.
	NoSymlinks bool
	// Owner and ID identify the upload, so that another stream can resume it. An upload without ID
	// ends with its stream.
	Owner, ID string
	// Offset is where the written data begins. 0 starts a new upload.
	Offset int64
	// IfMatch is the required SHA-256 of the file that is replaced. Nil: any.
	IfMatch []byte
	// IfMissing fails with AlreadyExists if the file exists.
	IfMissing bool
	// Permissions are the bits 07777 of the file. Nil: those of the file that is replaced, or 0666
	// without the bits of the umask.
	Permissions *uint32
	// ModifyTime is the modification time of the file. Zero: not set.
	ModifyTime time.Time
	// Sync writes content and name to the disk before Commit returns.
	Sync bool
}

// Upload is a file that is being replaced. It is for one goroutine, which calls
// [Upload.Leave] in the end.
type Upload struct {
	uploads *Uploads
	request Replacement
	stored  *storedUpload // nil without an id
	partial *partial      // of an upload that is kept, used while it is busy
	skip    int64         // bytes that were received before
	matched contentID     // what was found to match
	left    bool
}

// Begin begins or resumes an upload. The file does not change before [Upload.Commit].
func (s *Uploads) Begin(ctx context.Context, request Replacement) (*Upload, error) {
	path, err := cleanPath("write", request.Path)
	if err != nil {
		return nil, err
	}
	request.Path = path
	u := &Upload{uploads: s, request: request}
	release, err := u.claim(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if u.isCompleted() {
		return u, nil
	}
	if err := u.check(ctx); err != nil {
		if ctx.Err() != nil { // interrupted, not rejected
			u.Leave()
		} else {
			u.drop()
		}
		return nil, err
	}
	return u, nil
}

// claim makes u the one that writes its upload, which it alone uses until release
// is called.
func (u *Upload) claim(ctx context.Context) (release func(), err error) {
	if u.request.ID == "" {
		u.partial, err = u.open()
		return func() {}, err
	}
	k, err := u.uploads.claim(ctx, u)
	if err != nil {
		return nil, err
	}
	u.stored = k
	if u.isCompleted() {
		u.skip = k.received.Load() - u.request.Offset
		return func() { <-k.busy }, nil
	}
	if k.partial == nil {
		if k.partial, err = u.open(); err != nil {
			u.drop()
			<-k.busy
			return nil, err
		}
	} else if err := u.checkLinks(k.partial); err != nil {
		u.drop()
		<-k.busy
		return nil, err
	}
	u.partial = k.partial
	u.skip = u.partial.received - u.request.Offset
	return func() { <-k.busy }, nil
}

// isCompleted reports whether an earlier stream has completed the upload: then
// this one gets the same answer.
func (u *Upload) isCompleted() bool { return u.stored != nil && u.stored.replaced.Load() != nil }

// checkLinks refuses to go on with an upload that an earlier stream began by way of
// links, if none are to be followed.
func (u *Upload) checkLinks(p *partial) error {
	if !u.request.NoSymlinks {
		return nil
	}
	d, err := openDestination("write", u.request.Path, true)
	if err != nil {
		return err
	}
	defer d.dir.release()
	now, err := d.dir.stat()
	var then Metadata
	if err == nil {
		then, err = p.dir.stat()
	}
	if err == nil && (now.identity != then.identity || d.name != p.name) {
		err = unix.ELOOP
	}
	if err != nil {
		return target{d.place, true}.failed("write", err)
	}
	return nil
}

// open makes the file that is written.
func (u *Upload) open() (*partial, error) {
	if err := checkFDBudget(handleBudget); err != nil {
		return nil, failed("write", u.request.Path, err)
	}
	d, err := openDestination("write", u.request.Path, u.request.NoSymlinks)
	if err != nil {
		return nil, err
	}
	if err := replaceable("write", d.path, d.found); err != nil {
		d.dir.release()
		return nil, err
	}
	mode := uint32(createMode)
	if d.found.Type == Regular { // whose group the file does not have yet
		mode &= d.found.Mode & 0o600
	}
	if u.request.Permissions != nil {
		mode &= *u.request.Permissions
	}
	return newPartial(d, mode, u.uploads.named)
}

// check refuses what is not to be replaced.
func (u *Upload) check(ctx context.Context) error {
	p := u.partial
	found, err := statAt(p.dir, p.name, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && err != unix.ENOENT {
		return failed("write", p.path, err)
	}
	if err := replaceable("write", p.path, found); err != nil {
		return err
	}
	p.found = found
	switch {
	case u.request.IfMissing && found.Type != 0:
		return failed("write", p.path, unix.EEXIST)
	case u.request.IfMatch == nil:
		return nil
	case found.Type != Regular:
		return notMatched(p.path)
	case u.matched.version == found.Version():
		return nil
	}
	if u.matched, err = readContent(ctx, p.place, found); err != nil {
		return err
	}
	if !bytes.Equal(u.matched.digest, u.request.IfMatch) {
		return notMatched(p.path)
	}
	return nil
}

func notMatched(path string) error {
	return newError(ContentNotMatched, "write", path, "it has not the content that was to be replaced: read it again")
}

// use has the caller alone use what was received, until release is called.
func (u *Upload) use(ctx context.Context) (release func(), err error) {
	if u.stored == nil {
		return func() {}, nil
	}
	select {
	case u.stored.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if !u.uploads.has(u) {
		<-u.stored.busy
		return nil, newError(UploadTakenOver, "write", u.request.Path, "another stream goes on with the upload: this one has ended")
	}
	return func() { <-u.stored.busy }, nil
}

// Write appends data to the upload. If it fails the upload is dropped.
func (u *Upload) Write(ctx context.Context, data []byte) error {
	release, err := u.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	known := min(u.skip, int64(len(data)))
	u.skip -= known
	switch {
	case known == int64(len(data)):
		return nil
	case u.isCompleted():
		err := newError(UploadOffsetInvalid, "write", u.request.Path, "the upload is complete: use another id")
		err.Limit = u.stored.received.Load()
		return err
	}
	if err := u.partial.write(data[known:]); err != nil {
		u.drop()
		return err
	}
	if u.stored != nil {
		u.stored.received.Store(u.partial.received)
	}
	return nil
}

// Replaced is a file that was replaced.
type Replaced struct {
	// Size is how much was received, in bytes, and SHA256 its digest.
	Size   int64
	SHA256 []byte
	// Metadata is that of the file now.
	Metadata Metadata
}

// Commit replaces the file by the received data, if that has the given SHA-256; nil: not checked. If
// it fails the file is unchanged, unless only the sync failed. It waits for other commits of the
// same file.
func (u *Upload) Commit(ctx context.Context, sha256 []byte) (Replaced, error) {
	release, err := u.use(ctx)
	if err != nil {
		return Replaced{}, err
	}
	defer release()
	if u.isCompleted() {
		replaced := *u.stored.replaced.Load()
		return replaced, u.verify(replaced, sha256)
	}
	replaced, err := u.commit(ctx, sha256)
	switch {
	case err == nil && u.stored != nil:
		u.complete(replaced)
	case err == nil, ctx.Err() == nil:
		u.drop() // there is nothing to go on with
	}
	return replaced, err
}

// verify refuses what is not what was announced.
func (u *Upload) verify(received Replaced, sha256 []byte) error {
	switch {
	case u.skip > 0:
		return newError(DigestMismatch, "write", u.request.Path, "it ended before what was received of it: upload it anew")
	case sha256 != nil && !bytes.Equal(sha256, received.SHA256):
		return newError(DigestMismatch, "write", u.request.Path,
			"the "+strconv.FormatInt(received.Size, 10)+" bytes that came have another SHA-256 than was announced: upload it anew")
	}
	return nil
}

func (u *Upload) commit(ctx context.Context, sha256 []byte) (Replaced, error) {
	p := u.partial
	done := Replaced{Size: p.received, SHA256: p.digest.Sum(nil)}
	if ctx.Err() != nil {
		return Replaced{}, context.Cause(ctx)
	}
	if err := u.verify(done, sha256); err != nil {
		return Replaced{}, err
	}
	directory, err := p.dir.stat()
	if err != nil {
		return Replaced{}, failed("write", p.path, err)
	}
	unlock, err := u.uploads.commits.lock(ctx, location{directory.identity, p.name})
	if err != nil {
		return Replaced{}, err
	}
	defer unlock()
	if err := u.check(ctx); err != nil {
		return Replaced{}, err
	}
	if err := p.moveIntoPlace(&u.request); err != nil {
		return Replaced{}, err
	}
	if done.Metadata, err = p.fd.stat(); err != nil {
		return Replaced{}, failed("write", p.path, err)
	}
	return done, nil
}

// drop ends the upload and discards the received data. The caller has exclusive use of it.
func (u *Upload) drop() {
	u.left = true
	if u.stored != nil {
		u.uploads.leave(u, false)
		return
	}
	u.partial.release()
}

// Leave ends the stream of the upload, also after Commit. With an id, the received data or the
// result of Commit is retained for a while, so that the upload can be resumed. It may be called
// again.
func (u *Upload) Leave() {
	switch {
	case u.left:
	case u.stored != nil:
		u.left = true
		u.uploads.leave(u, true)
	default:
		u.drop()
	}
}
