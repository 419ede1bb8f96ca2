package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// DownloadOptions say what part of a file to download. The zero value is all of
// it.
type DownloadOptions struct {
	// Offset is where to begin, in bytes from the start.
	Offset int64
	// Length is how many bytes to get at most; nil is up to the end.
	Length *int64
	// IfVersion is the version that the file has to have, of the metadata that was
	// told before; another one is FILE_CHANGED. Empty takes any.
	IfVersion string
	// OnHead is called once, before the first byte, with what the file is. An
	// error of it ends the download.
	OnHead func(*execwirev1.FileMetadata) error
	// OnProgress is called after each piece with how many bytes were written.
	OnProgress func(written int64)
}

// Downloaded is what was downloaded.
type Downloaded struct {
	// Size is how many bytes were written.
	Size int64
	// Metadata is what the file was at first; nil if it was not told.
	Metadata *execwirev1.FileMetadata
	// Changed is whether the file was changed while it was read, so that what was
	// written may be a mixture.
	Changed bool
}

// Download writes a file of the server to a writer. A lost connection is resumed
// for a minute and a quarter; nothing is written twice, and a file that was changed
// by then is FILE_CHANGED. The calls of to and of the callbacks are made by the
// caller's goroutine.
//
// Errors are [*Error] when the server refused, [*WriteError] when to did,
// [*DigestError], or wrap the cause of ctx. What was written until then stays; how
// much that is, is returned.
func (c *Client) Download(ctx context.Context, path string, to io.Writer, options DownloadOptions) (Downloaded, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	d := &download{client: c, path: path, to: to, options: options}
	for connection := (link{}); ; {
		before := d.written
		err := d.attempt(ctx)
		if err == nil {
			return d.result(), nil
		}
		if d.written > before {
			connection = link{}
		}
		if err := connection.again(ctx, err); err != nil {
			return d.result(), err
		}
	}
}

func (d *download) result() Downloaded {
	return Downloaded{Size: d.written, Metadata: d.head, Changed: d.changed}
}

// ReadFile returns the content of a file, of any size.
func (c *Client) ReadFile(ctx context.Context, path string) ([]byte, error) {
	var content bytes.Buffer
	_, err := c.Download(ctx, path, &content, DownloadOptions{OnHead: func(m *execwirev1.FileMetadata) error {
		content.Grow(int(min(m.GetSize(), readAhead)))
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// readAhead is the memory for content that is taken before it is there.
const readAhead = 16 << 20

// download is one Download.
type download struct {
	client  *Client
	path    string
	to      io.Writer
	options DownloadOptions
	head    *execwirev1.FileMetadata // nil until it is known
	written int64
	changed bool
	ended   bool // whether the stream has told the end
	// digest is of what the stream has brought.
	digest hash.Hash
}

// attempt downloads what is not written yet.
func (d *download) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the download is over"))
	request := &execwirev1.DownloadFileRequest{
		Offset: uint64(d.options.Offset + d.written), WantSha256: true, IfVersion: d.options.IfVersion}
	if d.written > 0 {
		request.IfVersion = d.head.GetVersion()
	}
	d.digest = sha256.New()
	request.Path, request.RawPath = pathFields(d.path)
	if d.options.Length != nil {
		left := uint64(*d.options.Length - d.written)
		request.Length = &left
	}
	stream, err := d.client.files.DownloadFile(ctx, request)
	if err != nil {
		return err
	}
	d.ended = false
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) && !d.ended {
			return d.brokeContract("it did not say that the file is whole")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.take(message); err != nil {
			return err
		}
		if ctx.Err() != nil && !d.ended { // what has come already could be all that is left
			return context.Cause(ctx)
		}
	}
}

func (d *download) brokeContract(how string) error {
	return fmt.Errorf("failed to download %s: the server broke the contract: %s", d.path, how)
}

func (d *download) take(message *execwirev1.DownloadFileResponse) error {
	if head := message.GetHead(); head != nil && d.head == nil {
		d.head = head.GetMetadata()
		if d.options.OnHead != nil {
			return d.options.OnHead(d.head)
		}
		return nil
	}
	if end := message.GetEnd(); end != nil {
		d.ended = true
		d.changed = d.changed || end.GetChanged()
		if !bytes.Equal(end.GetSha256(), d.digest.Sum(nil)) {
			return &DigestError{Path: d.path}
		}
		return nil
	}
	data := message.GetData()
	if len(data) == 0 {
		return nil
	}
	switch {
	case d.head == nil, d.ended:
		return d.brokeContract("it sent data before the head or after the end")
	case d.options.Length != nil && d.written+int64(len(data)) > *d.options.Length:
		return d.brokeContract("it sent more than it was asked for")
	}
	d.digest.Write(data)
	n, err := d.to.Write(data)
	d.written += int64(n)
	if err != nil {
		return &WriteError{Path: d.path, Err: err}
	}
	if d.options.OnProgress != nil {
		d.options.OnProgress(d.written)
	}
	return nil
}

// DigestError says that what was downloaded is not what the server had sent.
type DigestError struct {
	// Path is the file of the server.
	Path string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("failed to download %s: what has arrived has another SHA-256 than what was sent: download it again", e.Path)
}

// WriteError says that what was downloaded could not be passed on.
type WriteError struct {
	// Path is the file of the server.
	Path string
	// Err is what the writer returned.
	Err error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("failed to write what %s has: %v", e.Path, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }
