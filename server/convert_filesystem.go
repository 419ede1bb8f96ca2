package server

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// fileReference is what every request about one path has.
type fileReference interface {
	GetPath() string
	GetRawPath() []byte
}

// twoPaths is what requests about two paths have.
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

// howOf returns what a request asks of its path.
func howOf(m interface{ GetNoSymlinks() bool }) []fsops.How {
	if m.GetNoSymlinks() {
		return []fsops.How{fsops.NoSymlinks}
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

// toText returns a name as text, and its bytes if the text is not all.
func toText(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, string(utf8.RuneError)), []byte(name)
}

func toFileType(t fsops.Type) execwirev1.FileType {
	switch t {
	case fsops.Regular:
		return execwirev1.FileType_FILE_TYPE_REGULAR
	case fsops.Directory:
		return execwirev1.FileType_FILE_TYPE_DIRECTORY
	case fsops.Symlink:
		return execwirev1.FileType_FILE_TYPE_SYMLINK
	case fsops.FIFO:
		return execwirev1.FileType_FILE_TYPE_FIFO
	case fsops.Socket:
		return execwirev1.FileType_FILE_TYPE_SOCKET
	case fsops.CharacterDevice:
		return execwirev1.FileType_FILE_TYPE_CHARACTER_DEVICE
	case fsops.BlockDevice:
		return execwirev1.FileType_FILE_TYPE_BLOCK_DEVICE
	default:
		return execwirev1.FileType_FILE_TYPE_UNSPECIFIED
	}
}

func toMetadata(m fsops.Metadata) *execwirev1.FileMetadata {
	return &execwirev1.FileMetadata{
		Type:       toFileType(m.Type),
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

// toTime leaves out a time that is not known.
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
		m.Name, m.RawName = toText(e.Name)
		m.Type, m.TargetType = toFileType(e.Type), toFileType(e.Target)
		messages[i] = m
	}
	return messages
}
