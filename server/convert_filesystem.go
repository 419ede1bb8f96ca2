package server

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// fileReference is implemented by every request about one path.
type fileReference interface {
	GetPath() string
	GetRawPath() []byte
}

// twoPaths is implemented by requests about two paths.
type twoPaths interface {
	GetSourcePath() string
	GetRawSourcePath() []byte
	GetDestinationPath() string
	GetRawDestinationPath() []byte
}

// sourceOf and destinationOf are the two paths of a request.
type (
	sourceOf      struct{ twoPaths }
	destinationOf struct{ twoPaths }
)

func (s sourceOf) GetPath() string         { return s.GetSourcePath() }
func (s sourceOf) GetRawPath() []byte      { return s.GetRawSourcePath() }
func (d destinationOf) GetPath() string    { return d.GetDestinationPath() }
func (d destinationOf) GetRawPath() []byte { return d.GetRawDestinationPath() }

// pathOptions returns how a request wants its path to be resolved.
func pathOptions(m interface{ GetNoSymlinks() bool }) []fsops.PathOption {
	if m.GetNoSymlinks() {
		return []fsops.PathOption{fsops.NoSymlinks}
	}
	return nil
}

// pathOf returns the path of a request that passed validation.
func pathOf(m fileReference) string {
	if raw := m.GetRawPath(); len(raw) > 0 {
		return string(raw)
	}
	return m.GetPath()
}

// toUTF8 returns a name as UTF-8, and its bytes if it is not valid UTF-8.
func toUTF8(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, string(utf8.RuneError)), []byte(name)
}

// fileTypes translates types of files.
var fileTypes = [...]execwirev1.FileType{
	fsops.Regular:         execwirev1.FileType_FILE_TYPE_REGULAR,
	fsops.Directory:       execwirev1.FileType_FILE_TYPE_DIRECTORY,
	fsops.Symlink:         execwirev1.FileType_FILE_TYPE_SYMLINK,
	fsops.FIFO:            execwirev1.FileType_FILE_TYPE_FIFO,
	fsops.Socket:          execwirev1.FileType_FILE_TYPE_SOCKET,
	fsops.CharacterDevice: execwirev1.FileType_FILE_TYPE_CHARACTER_DEVICE,
	fsops.BlockDevice:     execwirev1.FileType_FILE_TYPE_BLOCK_DEVICE,
}

func toMetadata(m fsops.Metadata) *execwirev1.FileMetadata {
	return &execwirev1.FileMetadata{
		Type:       fileTypes[m.Type],
		IsSymlink:  m.IsSymlink,
		Size:       uint64(m.Size),
		Mode:       m.Mode,
		UserId:     m.UID,
		GroupId:    m.GID,
		LinkCount:  m.Links,
		ModifyTime: toTime(m.ModifyTime),
		AccessTime: toTime(m.AccessTime),
		ChangeTime: toTime(m.ChangeTime),
		BirthTime:  toTime(m.BirthTime),
		Version:    m.Version(),
	}
}

// toTime translates a time; an unknown one is absent.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func toEntries(entries []fsops.Entry) []*execwirev1.DirectoryEntry {
	slab := make([]execwirev1.DirectoryEntry, len(entries))
	messages := make([]*execwirev1.DirectoryEntry, len(entries))
	for i, e := range entries {
		m := &slab[i]
		m.Name, m.RawName = toUTF8(e.Name)
		m.Type, m.TargetType = fileTypes[e.Type], fileTypes[e.Target]
		messages[i] = m
	}
	return messages
}
