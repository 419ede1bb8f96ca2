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
	// IfVersion is the required version of the file that is replaced. Empty: any.
	IfVersion string
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
	stored  *storedUpload
	skip    int64     // bytes that were received before
	matched contentID // what was found to match
}

// Begin begins or resumes an upload. The file does not change before [Upload.Commit].
func (s *Uploads) Begin(ctx context.Context, request Replacement) (*Upload, error) {
	path, err := cleanPath("write", request.Path)
	if err != nil {
		return nil, err
	}
	request.Path = path
	u := &Upload{uploads: s, request: request}
	if u.stored, err = s.claim(ctx, u); err != nil {
		return nil, err
	}
	defer u.release()
	if err := u.prepare(ctx); err != nil {
		// Interrupted, unless it was rejected.
		s.leave(u, request.ID != "" && u.stored.partial != nil && ctx.Err() != nil)
		return nil, err
	}
	return u, nil
}

// prepare makes the file that is written, unless an earlier stream has, and checks
// what would be replaced. The upload is busy.
func (u *Upload) prepare(ctx context.Context) (err error) {
	k := u.stored
	u.skip = k.received.Load() - u.request.Offset
	switch {
	case u.isCompleted():
		return nil
	case k.partial == nil:
		k.partial, err = u.open()
	default:
		err = u.checkLinks(k.partial)
	}
	if err != nil {
		return err
	}
	return u.check(ctx)
}

// isCompleted reports whether an earlier stream has completed the upload: then
// this one gets the same answer.
func (u *Upload) isCompleted() bool { return u.stored.replaced.Load() != nil }

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
	p := u.stored.partial
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
	case u.request.IfVersion != "" && (found.Type == 0 || found.Version() != u.request.IfVersion):
		return notMatched(p.path)
	case u.request.IfMatch == nil:
		return nil
	case found.Type != Regular:
		return notMatched(p.path)
	case u.matched.version == found.Version():
		return nil
	}
	if u.matched, err = readContent(ctx, p.place); err != nil {
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

// use waits until no other call uses what was received. The caller calls release.
func (u *Upload) use(ctx context.Context) error {
	select {
	case u.stored.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !u.uploads.has(u) {
		u.release()
		return newError(UploadTakenOver, "write", u.request.Path, "another stream goes on with the upload: this one has ended")
	}
	return nil
}

func (u *Upload) release() { <-u.stored.busy }

// Write appends data to the upload. If it fails the upload is dropped.
func (u *Upload) Write(ctx context.Context, data []byte) error {
	if err := u.use(ctx); err != nil {
		return err
	}
	defer u.release()
	known := min(u.skip, int64(len(data)))
	u.skip -= known
	switch {
	case known == int64(len(data)):
		return nil
	case u.isCompleted():
		return newError(UploadOffsetInvalid, "write", u.request.Path, "the upload is complete: use another id").withLimit(u.stored.received.Load())
	}
	if err := u.stored.partial.write(data[known:]); err != nil {
		u.uploads.leave(u, false)
		return err
	}
	u.stored.received.Add(int64(len(data)) - known)
	return nil
}

// Replaced is a file that was replaced.
type Replaced struct {
	// Size is how much was received, in bytes, and SHA256 its digest.
	Size   int64
	SHA256 []byte
	// Metadata is that of the file now.
	Metadata Metadata
	// Created reports whether there was no file before.
	Created bool
}

// Commit replaces the file by the received data, if that has the given SHA-256; nil: not checked. If
// it fails the file is unchanged, unless only the sync failed. It waits for other commits of the
// same file.
func (u *Upload) Commit(ctx context.Context, sha256 []byte) (Replaced, error) {
	if err := u.use(ctx); err != nil {
		return Replaced{}, err
	}
	defer u.release()
	if u.isCompleted() {
		replaced := *u.stored.replaced.Load()
		return replaced, u.verify(replaced, sha256)
	}
	replaced, err := u.commit(ctx, sha256)
	switch {
	case err == nil:
		u.complete(replaced)
	case ctx.Err() == nil:
		u.uploads.leave(u, false) // there is nothing to go on with
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
	p := u.stored.partial
	done := Replaced{Size: u.stored.received.Load(), SHA256: p.digest.Sum(nil)}
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
	done.Created = p.found.Type == 0
	if done.Metadata, err = p.fd.stat(); err != nil {
		return Replaced{}, failed("write", p.path, err)
	}
	return done, nil
}

// Leave ends the stream of the upload, also after Commit. With an id, the received data or the
// result of Commit is retained for a while, so that the upload can be resumed. It may be called
// again.
func (u *Upload) Leave() { u.uploads.leave(u, u.request.ID != "") }
