package client

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/execwire/execwire/client/internal/transfer"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// remoteSide is the server's end of a transfer.
type remoteSide struct {
	client *FileClient
	base   string
	// plain is whether directories are created without permission bits.
	plain bool
}

func (s *remoteSide) path(name string) string { return path.Join(s.base, name) }

// Follow ignores errors of servers that cannot resolve links if the base is none.
func (s *remoteSide) Follow(ctx context.Context) error {
	real, err := s.client.RealPath(ctx, s.base)
	if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		info, lstatErr := s.client.Lstat(ctx, s.base)
		switch {
		case lstatErr != nil:
			return lstatErr
		case info.Metadata.GetType() != transfer.Symlink:
			return nil
		}
	}
	if err == nil {
		s.base = real
	}
	return err
}

func (s *remoteSide) Lstat(ctx context.Context, name string) (transfer.Attributes, error) {
	info, err := s.client.Lstat(ctx, s.path(name))
	if err != nil {
		return transfer.Attributes{}, err
	}
	m := info.Metadata
	return transfer.Attributes{Kind: m.GetType(), Size: int64(m.GetSize()), Mode: m.GetMode(),
		ModifyTime: m.GetModifyTime().AsTime(), Target: info.LinkTarget}, nil
}

func (s *remoteSide) ReadDir(ctx context.Context, name string) (map[string]execwirev1.FileType, error) {
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

// Mkdir always includes the permissions of the owner, so that files can be created in
// it.
func (s *remoteSide) Mkdir(ctx context.Context, name string, mode uint32) (made bool, err error) {
	permissions := &mode
	if s.plain {
		permissions = nil
	}
	mode |= 0o700
	// A directory created without an answer is found by the next attempt, and merged
	// into.
	err = new(connState).repeat(ctx, func(ctx context.Context) error {
		return s.client.Mkdir(ctx, s.path(name), permissions)
	})
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	return false, s.client.MkdirAll(ctx, s.path(name), permissions)
}

func (s *remoteSide) Mark(ctx context.Context, name string) error {
	err := new(connState).repeat(ctx, func(ctx context.Context) error {
		return s.client.Mkdir(ctx, s.path(name), nil)
	})
	if errors.Is(err, fs.ErrExist) {
		return nil // created by an unanswered attempt: the name is unique
	}
	return err
}

func (s *remoteSide) LastName() string { return path.Base(s.base) }

func (s *remoteSide) RemoveAll(ctx context.Context, name string) error {
	return s.client.RemoveAll(ctx, s.path(name))
}

func (s *remoteSide) Digest(ctx context.Context, name string) ([]byte, error) {
	info, err := s.client.StatSHA256(ctx, s.path(name))
	return info.SHA256, err
}

func (s *remoteSide) Symlink(ctx context.Context, name, target string) error {
	err := new(connState).repeat(ctx, func(ctx context.Context) error {
		return s.client.Symlink(ctx, target, s.path(name))
	})
	if errors.Is(err, fs.ErrExist) {
		// An unanswered attempt may have created it.
		if facts, lstatErr := s.Lstat(ctx, name); lstatErr == nil && facts.Kind == transfer.Symlink && facts.Target == target {
			return nil
		}
	}
	return err
}
