package fsops

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Replacement says which file is replaced, and how.
type Replacement struct {
	// Path is the file. Links are followed, also one to what is not there.
	Path string
	// NoSymlinks refuses a path with a link in it, also at its end.
	NoSymlinks bool
	// Owner and ID name the upload, so that another stream can go on with it. An
	// upload without ID ends with its stream.
	Owner, ID string
	// Offset is where what is written begins; 0 begins anew.
	Offset int64
	// IfMatch is the SHA-256 that the file has to have. Nil matches everything.
	IfMatch []byte
	// IfMissing has the file be there already be AlreadyExists.
	IfMissing bool
	// Permissions are the bits 07777 of the file. Nil are those of the file that is
	// replaced, or 0666 without the bits of the umask.
	Permissions *uint32
	// ModifyTime is when the file was changed. Zero leaves it as it is.
	ModifyTime time.Time
	// Sync has content and name be on the disk when it is in its place.
	Sync bool
}

// Upload is a file that is being replaced. It is for one goroutine, which calls
// [Upload.Leave] in the end.
type Upload struct {
	uploads *Uploads
	how     Replacement
	kept    *keptUpload // nil without an id
	partial *partial    // of an upload that is kept, used while it is busy
	skip    int64       // bytes that were received before
	matched content     // what was found to match
	left    bool
}

// Begin begins to replace a file, or goes on. Nothing of the file changes before
// [Upload.Commit].
func (s *Uploads) Begin(ctx context.Context, how Replacement) (*Upload, error) {
	path, err := cleaned("write", how.Path)
	if err != nil {
		return nil, err
	}
	how.Path = path
	u := &Upload{uploads: s, how: how}
	release, err := u.claim(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if u.isCompleted() {
		return u, nil
	}
	if err := u.check(ctx); err != nil {
		if ctx.Err() != nil { // cut, and not refused
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
	if u.how.ID == "" {
		u.partial, err = u.open()
		return func() {}, err
	}
	k, err := u.uploads.claim(ctx, u)
	if err != nil {
		return nil, err
	}
	u.kept = k
	if u.isCompleted() {
		u.skip = k.received.Load() - u.how.Offset
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
	u.skip = u.partial.received - u.how.Offset
	return func() { <-k.busy }, nil
}

// isCompleted reports whether an earlier stream has completed the upload: then
// this one gets the same answer.
func (u *Upload) isCompleted() bool { return u.kept != nil && u.kept.replaced.Load() != nil }

// checkLinks refuses to go on with an upload that an earlier stream began by way of
// links, if none are to be followed.
func (u *Upload) checkLinks(p *partial) error {
	if !u.how.NoSymlinks {
		return nil
	}
	d, err := openDestination("write", u.how.Path, true)
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
	if err := hasRoom(keptShare); err != nil {
		return nil, failed("write", u.how.Path, err)
	}
	d, err := openDestination("write", u.how.Path, u.how.NoSymlinks)
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
	if u.how.Permissions != nil {
		mode &= *u.how.Permissions
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
	case u.how.IfMissing && found.Type != 0:
		return failed("write", p.path, unix.EEXIST)
	case u.how.IfMatch == nil:
		return nil
	case found.Type != Regular:
		return notMatched(p.path)
	case u.matched.version == found.Version():
		return nil
	}
	if u.matched, err = contentAt(ctx, p.place, found); err != nil {
		return err
	}
	if !bytes.Equal(u.matched.digest, u.how.IfMatch) {
		return notMatched(p.path)
	}
	return nil
}

func notMatched(path string) error {
	return refused(ContentNotMatched, "write", path, "it has not the content that was to be replaced: read it again")
}

// use has the caller alone use what was received, until release is called.
func (u *Upload) use(ctx context.Context) (release func(), err error) {
	if u.kept == nil {
		return func() {}, nil
	}
	select {
	case u.kept.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if !u.uploads.has(u) {
		<-u.kept.busy
		return nil, refused(UploadTakenOver, "write", u.how.Path, "another stream goes on with the upload: this one has ended")
	}
	return func() { <-u.kept.busy }, nil
}

// Write takes the bytes that follow those of the last call. It takes all or
// fails, and then there is nothing to go on with.
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
		err := refused(UploadOffsetInvalid, "write", u.how.Path, "the upload is complete: use another id")
		err.Limit = u.kept.received.Load()
		return err
	}
	if err := u.partial.write(data[known:]); err != nil {
		u.drop()
		return err
	}
	if u.kept != nil {
		u.kept.received.Store(u.partial.received)
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

// Commit puts what was received in the place of the file, if it has the SHA-256
// that is given; nil checks nothing. If it fails the file is as it was, unless it
// was only to be written to the disk. It waits for others that replace the file.
func (u *Upload) Commit(ctx context.Context, sha256 []byte) (Replaced, error) {
	release, err := u.use(ctx)
	if err != nil {
		return Replaced{}, err
	}
	defer release()
	if u.isCompleted() {
		replaced := *u.kept.replaced.Load()
		return replaced, u.verify(replaced, sha256)
	}
	replaced, err := u.commit(ctx, sha256)
	switch {
	case err == nil && u.kept != nil:
		u.uploads.complete(u, replaced)
	case err == nil, ctx.Err() == nil:
		u.drop() // there is nothing to go on with
	}
	return replaced, err
}

// verify refuses what is not what was announced.
func (u *Upload) verify(received Replaced, sha256 []byte) error {
	switch {
	case u.skip > 0:
		return refused(DigestMismatch, "write", u.how.Path, "it ended before what was received of it: upload it anew")
	case sha256 != nil && !bytes.Equal(sha256, received.SHA256):
		return refused(DigestMismatch, "write", u.how.Path,
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
	give, err := u.uploads.turns.take(ctx, location{directory.identity, p.name})
	if err != nil {
		return Replaced{}, err
	}
	defer give()
	if err := u.check(ctx); err != nil {
		return Replaced{}, err
	}
	if err := p.put(&u.how); err != nil {
		return Replaced{}, err
	}
	if done.Metadata, err = p.fd.stat(); err != nil {
		return Replaced{}, failed("write", p.path, err)
	}
	return done, nil
}

// drop ends the upload with nothing to go on with. It is called by who uses what
// was received.
func (u *Upload) drop() {
	u.left = true
	if u.kept != nil {
		u.uploads.leave(u, false)
		return
	}
	u.partial.release()
}

// Leave ends the upload, also one that was committed. With an id what was received,
// or what Commit returned, is kept for a while if it can be gone on with. Calling it
// again does nothing.
func (u *Upload) Leave() {
	switch {
	case u.left:
	case u.kept != nil:
		u.left = true
		u.uploads.leave(u, true)
	default:
		u.drop()
	}
}
