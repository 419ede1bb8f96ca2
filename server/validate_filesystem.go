package server

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/gitignore"
)

// Limits of fields that no setting changes.
const (
	// maxHandleIDBytes is the longest id of a file handle.
	maxHandleIDBytes = 128
	// maxUploadIDBytes is the longest id of an upload.
	maxUploadIDBytes = 128
	// maxAwaitedPaths is how many paths one AwaitPaths may have.
	maxAwaitedPaths = 1000
	// maxSettle is the longest settle time.
	maxSettle = 10 * time.Second
	// maxVersionBytes is the longest version of a file; those of this server are
	// shorter.
	maxVersionBytes = 256
	// maxPermissions are all permission bits of a file.
	maxPermissions = 0o7777
)

// sandboxed is implemented by every request about files.
type sandboxed interface {
	GetSandbox() *execwirev1.SandboxPolicy
}

// handleReference is implemented by every request about one handle.
type handleReference interface {
	GetSessionId() string
	GetHandleId() string
}

// validateFiles validates a message of FileSystemService.
func validateFiles(m proto.Message) error {
	switch m := m.(type) {
	case *execwirev1.OpenFileRequest:
		return cmp.Or(validateHandle(m), validateOpenMode(m.GetMode()), validateFile(m))
	case *execwirev1.ReadBlockRequest:
		return cmp.Or(validateHandle(m), validateOffset("offset", m.GetOffset()),
			validatePositive("length", uint64(m.GetLength()), fsops.MaxBlockBytes))
	case *execwirev1.WriteBlockRequest:
		return cmp.Or(validateHandle(m), validateOffset("offset", m.GetOffset()), validateBlock(len(m.GetData())))
	case *execwirev1.CreateSymlinkRequest:
		return cmp.Or(validateTarget(m), validateFile(m))
	case *execwirev1.CreateDirectoryRequest:
		return cmp.Or(validatePermissions("permissions", m.GetPermissions()), validateFile(m))
	case *execwirev1.SetMetadataRequest:
		return cmp.Or(validateChanges(m), validateFile(m))
	case *execwirev1.UploadFileRequest:
		return validateUpload(m)
	case *execwirev1.SignFileURLRequest:
		return validateSignFileURL(m)
	case *execwirev1.GetUploadRequest:
		return validateName("upload_id", m.GetUploadId(), maxUploadIDBytes)
	case *execwirev1.WalkDirectoryRequest:
		return cmp.Or(validateMost("max_directories", uint64(m.GetMaxDirectories()), fsops.MaxWalkDirectories), validateFile(m))
	case *execwirev1.WatchDirectoryRequest:
		return cmp.Or(validateIgnore(m.GetIgnore()), validateSettle(m.GetSettle()), validateFile(m))
	case *execwirev1.AwaitPathsRequest:
		return validateAwait(m)
	case *execwirev1.DownloadFileRequest:
		return cmp.Or(validateOffset("offset", m.GetOffset()),
			validateLength("if_version", m.GetIfVersion(), maxVersionBytes), validateFile(m))
	case handleReference:
		return validateHandle(m)
	case twoPaths:
		return cmp.Or(validatePath("source_path", "raw_source_path", sourceOf{m}),
			validatePath("destination_path", "raw_destination_path", destinationOf{m}))
	case fileReference:
		return validateFile(m)
	}
	return nil
}

func validateFile(m fileReference) error { return validatePath("path", "raw_path", m) }

// validatePath checks that exactly one of the two forms of a path is given, and that
// it is absolute.
func validatePath(field, rawField string, m fileReference) error {
	if len(m.GetRawPath()) > 0 && m.GetPath() == "" {
		field = rawField
	}
	if path := pathOf(m); path != "" && path[0] != '/' {
		return invalidField(field, "is not an absolute path")
	}
	return validateForms(field, rawField, m.GetPath(), m.GetRawPath())
}

func validateChanges(m *execwirev1.SetMetadataRequest) error {
	if m.GetTouch() && m.GetModifyTime() != nil {
		return invalidField("touch", "and modify_time are both set: give one of them")
	}
	return cmp.Or(validateModifyTime("modify_time", m.GetModifyTime()), validatePermissions("permissions", m.GetPermissions()))
}

// validateModifyTime accepts an absent time.
func validateModifyTime(field string, at *timestamppb.Timestamp) error {
	if at != nil && at.CheckValid() != nil {
		return invalidField(field, "is not a time between the years 1 and 9999")
	}
	return nil
}

// validateTarget checks that exactly one of the two forms of a link's target is
// given.
func validateTarget(m *execwirev1.CreateSymlinkRequest) error {
	return validateForms("target", "raw_target", m.GetTarget(), m.GetRawTarget())
}

// validateForms checks that exactly one of the two forms of a path is given.
func validateForms(field, rawField, text string, raw []byte) error {
	if len(raw) > 0 {
		if text != "" {
			return invalidField(rawField, "and "+field+" are both set: give one of them")
		}
		field, text = rawField, string(raw)
	}
	switch {
	case text == "":
		return invalidField(field, "is empty: give a path")
	case strings.IndexByte(text, 0) >= 0:
		return invalidField(field, "has a NUL in it")
	}
	return nil
}

func validatePermissions(field string, bits uint32) error {
	if bits > maxPermissions {
		return invalidField(field, fmt.Sprintf("is %#o: use at most %#o", bits, maxPermissions))
	}
	return nil
}

func validateHandle(m handleReference) error {
	return cmp.Or(validateName("handle_id", m.GetHandleId(), maxHandleIDBytes), validateLength("session_id", m.GetSessionId(), maxIDBytes))
}

func validateOpenMode(mode execwirev1.OpenMode) error {
	if openModes[mode] == 0 {
		return invalidField("mode", fmt.Sprintf("cannot be %d: set OPEN_MODE_READ or OPEN_MODE_REPLACE", mode))
	}
	return nil
}

func validateBlock(length int) error {
	if length == 0 || length > fsops.MaxBlockBytes {
		return invalidField("data", fmt.Sprintf("has %d bytes: use 1 to %d", length, fsops.MaxBlockBytes))
	}
	return nil
}

func validateIgnore(patterns []string) error {
	if len(patterns) > gitignore.MaxPatterns {
		return invalidField("ignore", fmt.Sprintf("has %d patterns: use at most %d", len(patterns), gitignore.MaxPatterns))
	}
	for i, pattern := range patterns {
		if _, err := gitignore.Parse(pattern); err != nil {
			return invalidField(fmt.Sprintf("ignore[%d]", i), toValidUTF8(err.Error()))
		}
	}
	return nil
}

func validateSettle(d *durationpb.Duration) error {
	if settle := d.AsDuration(); settle > maxSettle {
		return invalidField("settle", fmt.Sprintf("is %v: use at most %v", settle, maxSettle))
	}
	return validateDuration("settle", d)
}

func validateAwait(m *execwirev1.AwaitPathsRequest) error {
	switch n := len(m.GetMissing()) + len(m.GetPresent()); {
	case n == 0:
		return invalidField("missing", "and present are both empty: give a path")
	case n > maxAwaitedPaths:
		return invalidField("missing", fmt.Sprintf("and present have %d paths: use at most %d", n, maxAwaitedPaths))
	}
	return cmp.Or(validateAwaited("missing", m.GetMissing()), validateAwaited("present", m.GetPresent()))
}

func validateAwaited(field string, paths []*execwirev1.AwaitedPath) error {
	for i, p := range paths {
		at := fmt.Sprintf("%s[%d].", field, i)
		if err := validatePath(at+"path", at+"raw_path", p); err != nil {
			return err
		}
	}
	return nil
}

func validateUpload(m *execwirev1.UploadFileRequest) error {
	switch message := m.GetMessage().(type) {
	case nil:
		return invalidField("message", "is missing: send a head, then data")
	case *execwirev1.UploadFileRequest_End:
		return validateDigest("end.sha256", message.End.GetSha256())
	case *execwirev1.UploadFileRequest_Head:
		head := message.Head
		validate := validateReplacement
		if head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE {
			validate = validateInPlace
		} else if head.GetMode() != execwirev1.UploadMode_UPLOAD_MODE_REPLACE {
			return invalidField("head.mode", fmt.Sprintf("cannot be %d: set UPLOAD_MODE_IN_PLACE or UPLOAD_MODE_REPLACE", head.GetMode()))
		}
		return cmp.Or(validate(head), validatePath("head.path", "head.raw_path", head))
	}
	return nil
}

// validateInPlace rejects options that writing in place does not support.
func validateInPlace(head *execwirev1.UploadHead) error {
	for _, member := range []struct {
		name  string
		given bool
	}{
		{"upload_id", head.GetUploadId() != ""},
		{"offset", head.GetOffset() != 0},
		{"if_match_sha256", len(head.GetIfMatchSha256()) > 0},
		{"if_match_version", head.GetIfMatchVersion() != ""},
		{"if_missing", head.GetIfMissing()},
		{"permissions", head.Permissions != nil},
		{"modify_time", head.GetModifyTime() != nil},
		{"sync", head.GetSync()},
	} {
		if member.given {
			return invalidField("head."+member.name, "is for files that are replaced: leave it out, or ask for mode replace")
		}
	}
	return nil
}

func validateReplacement(head *execwirev1.UploadHead) error {
	switch {
	case head.GetOffset() > 0 && head.GetUploadId() == "":
		return invalidField("head.offset", "is for uploads that go on: give the upload_id, or begin at 0")
	case head.GetIfMatchVersion() != "" && (head.GetIfMissing() || len(head.GetIfMatchSha256()) > 0):
		return invalidField("head.if_match_version", "and another condition on the existing file are both set: give one of them")
	case head.GetIfMissing() && len(head.GetIfMatchSha256()) > 0:
		return invalidField("head.if_missing", "and head.if_match_sha256 are both set: a file that is missing has no content")
	}
	return cmp.Or(validateModifyTime("head.modify_time", head.GetModifyTime()), validateLength("head.upload_id", head.GetUploadId(), maxUploadIDBytes),
		validateLength("head.if_match_version", head.GetIfMatchVersion(), maxVersionBytes),
		validateDigest("head.if_match_sha256", head.GetIfMatchSha256()),
		validateOffset("head.offset", head.GetOffset()), validatePermissions("head.permissions", head.GetPermissions()))
}

func validateDigest(field string, digest []byte) error {
	if n := len(digest); n != 0 && n != sha256.Size {
		return invalidField(field, fmt.Sprintf("has %d bytes: a SHA-256 has %d", n, sha256.Size))
	}
	return nil
}
