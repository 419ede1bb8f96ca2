package client

import (
	"context"
	"errors"
	"io/fs"
	"path"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// remoteSide is the server's end of a transfer.
type remoteSide struct {
	client *Client
	base   string
	// plain is whether directories get no permission bits.
	plain bool
}

func (s *remoteSide) path(name string) string { return path.Join(s.base, name) }

// follow leaves a base that is no link as it is where the server cannot say where it
// leads.
func (s *remoteSide) follow(ctx context.Context) error {
	real, err := s.client.RealPath(ctx, s.base)
	if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		info, lstatErr := s.client.Lstat(ctx, s.base)
		switch {
		case lstatErr != nil:
			return lstatErr
		case info.Metadata.GetType() != symlink:
			return nil
		}
	}
	if err == nil {
		s.base = real
	}
	return err
}

func (s *remoteSide) lstat(ctx context.Context, name string) (fileFacts, error) {
	info, err := s.client.Lstat(ctx, s.path(name))
	if err != nil {
		return fileFacts{}, err
	}
	m := info.Metadata
	return fileFacts{kind: m.GetType(), size: int64(m.GetSize()), mode: m.GetMode(),
		modifyTime: m.GetModifyTime().AsTime(), target: info.LinkTarget}, nil
}

func (s *remoteSide) readDir(ctx context.Context, name string) (map[string]execwirev1.FileType, error) {
	entries, err := s.client.ReadDir(ctx, s.path(name))
	if err != nil {
		return nil, err
	}
	kinds := make(map[string]execwirev1.FileType, len(entries))
	for _, entry := range entries {
		kinds[entry.Name] = entry.Type
	}
	return kinds, nil
}

// mkdir gives the directory its owner's permissions in any case, so that it can be
// filled.
func (s *remoteSide) mkdir(ctx context.Context, name string, mode uint32) (made bool, err error) {
	permissions := &mode
	if s.plain {
		permissions = nil
	}
	mode |= 0o700
	// One that was made and not answered is found at the next attempt, and merged
	// into: it is as good.
	_, err = repeat(ctx, s.client, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.client.Mkdir(ctx, s.path(name), permissions)
	})
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	return false, s.client.MkdirAll(ctx, s.path(name), permissions)
}

func (s *remoteSide) mark(ctx context.Context, name string) error {
	_, err := repeat(ctx, s.client, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.client.Mkdir(ctx, s.path(name), nil)
	})
	if errors.Is(err, fs.ErrExist) {
		return nil // by an attempt that was not answered: nobody else has the name
	}
	return err
}

func (s *remoteSide) lastName() string { return path.Base(s.base) }

func (s *remoteSide) removeAll(ctx context.Context, name string) error {
	return s.client.RemoveAll(ctx, s.path(name))
}

func (s *remoteSide) digest(ctx context.Context, name string) ([]byte, error) {
	info, err := s.client.StatSHA256(ctx, s.path(name))
	return info.SHA256, err
}

func (s *remoteSide) symlink(ctx context.Context, name, target string) error {
	_, err := repeat(ctx, s.client, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.client.Symlink(ctx, target, s.path(name))
	})
	if errors.Is(err, fs.ErrExist) {
		// It may have been made and not answered.
		if facts, lstatErr := s.lstat(ctx, name); lstatErr == nil && facts.kind == symlink && facts.target == target {
			return nil
		}
	}
	return err
}
