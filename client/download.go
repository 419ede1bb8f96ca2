package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// DownloadOptions select the part of a file to download. The zero value is the whole
// file.
type DownloadOptions struct {
	// Offset is where to begin, in bytes.
	Offset int64
	// Length is how many bytes to download at most; nil is up to the end.
	Length *int64
	// IfVersion is the required version of the file, from earlier metadata; for another
	// one Download fails with FILE_CHANGED. Empty accepts any.
	IfVersion string
	// OnHead is called once, before the first byte, with the metadata of the file. An
	// error ends the download.
	OnHead func(*execwirev1.FileMetadata) error
	// OnProgress is called after each piece with the number of bytes written.
	OnProgress func(written int64)
}

// Downloaded is the result of a download.
type Downloaded struct {
	// Size is the number of bytes written.
	Size int64
	// Metadata describes the file at the start; nil if unknown.
	Metadata *execwirev1.FileMetadata
	// Changed is whether the file changed during the download, so that the content may
	// be a mixture.
	Changed bool
}

// Download writes a file of the server to a writer. It resumes after lost connections
// for 75 seconds and writes nothing twice; if the file has changed by then, it fails
// with FILE_CHANGED. The writer and the callbacks are called by the caller's goroutine.
//
// Errors are [*Error] from the server, [*WriteError] from to, [*DigestError], or wrap
// the cause of ctx. They come with the number of bytes already written.
func (c *FileClient) Download(ctx context.Context, path string, to io.Writer, options DownloadOptions) (Downloaded, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	d := &download{client: c, path: path, to: to, options: options}
	var connection connState
	err := connection.repeat(ctx, func(ctx context.Context) error {
		before := d.written
		err := d.attempt(ctx)
		if d.written > before {
			connection.progressed()
		}
		return err
	})
	return d.result(), err
}

func (d *download) result() Downloaded {
	return Downloaded{Size: d.written, Metadata: d.head, Changed: d.changed}
}

// ReadFile returns the content of a file, of any size.
func (c *FileClient) ReadFile(ctx context.Context, path string) ([]byte, error) {
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

// readAhead is the receive window of a download.
const readAhead = 16 << 20

// download is one Download.
type download struct {
	client  *FileClient
	path    string
	to      io.Writer
	options DownloadOptions
	head    *execwirev1.FileMetadata // nil until it is known
	written int64
	changed bool
	ended   bool // whether the stream has sent the end
	// digest is the digest of the received content.
	digest hash.Hash
}

// attempt downloads the part that is not written yet.
func (d *download) attempt(ctx context.Context) error {
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
	d.ended = false
	err := receiveAll(ctx, d.client.files.DownloadFile, request, func(message *execwirev1.DownloadFileResponse) error {
		if err := d.take(message); err != nil {
			return err
		}
		if ctx.Err() != nil && !d.ended { // the received messages may be all that is left
			return context.Cause(ctx)
		}
		return nil
	})
	if err == nil && !d.ended {
		err = d.brokeContract("it did not confirm that the file is complete")
	}
	return err
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

// DigestError reports that the downloaded content has another digest than the server
// sent.
type DigestError struct {
	// Path is the file on the server.
	Path string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("failed to download %s: the received content does not match the SHA-256 of the server: download it again", e.Path)
}

// WriteError reports that downloaded content could not be written.
type WriteError struct {
	// Path is the file on the server.
	Path string
	// Err is what the writer returned.
	Err error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("failed to write the content of %s: %v", e.Path, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }
