package server

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// sandboxed is what every request about files has.
type sandboxed interface {
	GetSandbox() *execwirev1.SandboxPolicy
}

// validateFiles checks a message of FileSystemService; handled is false for
// another one.
func validateFiles(m proto.Message) (err error, handled bool) {
	switch m := m.(type) {
	case twoPaths:
		if err := validatePath("source_path", "raw_source_path", sourceOf{m}); err != nil {
			return err, true
		}
		if err := validatePath("destination_path", "raw_destination_path", destinationOf{m}); err != nil {
			return err, true
		}
		return validateFileSandbox("", m.(sandboxed)), true
	case *execwirev1.CreateSymlinkRequest:
		if err := validateTarget(m); err != nil {
			return err, true
		}
	case *execwirev1.CreateDirectoryRequest:
		if m.Permissions != nil {
			if err := validatePermissions("permissions", m.GetPermissions()); err != nil {
				return err, true
			}
		}
	case *execwirev1.UploadFileRequest:
		return validateUpload(m), true
	case *execwirev1.GetUploadRequest:
		if m.GetUploadId() == "" {
			return invalidField("upload_id", "is empty: name the upload"), true
		}
		return validateLength("upload_id", m.GetUploadId(), MaxUploadIDBytes), true
	case *execwirev1.WalkDirectoryRequest:
		return validateWalk(m), true
	case *execwirev1.WatchDirectoryRequest:
		return validateWatch(m), true
	case *execwirev1.AwaitPathsRequest:
		return validateAwait(m), true
	case *execwirev1.DownloadFileRequest:
		if m.GetOffset() > math.MaxInt64 {
			return invalidField("offset", fmt.Sprintf("is %d: use at most %d", m.GetOffset(), math.MaxInt64)), true
		}
		if err := validateLength("if_version", m.GetIfVersion(), maxVersionBytes); err != nil {
			return err, true
		}
	}
	file, ok := m.(fileReference)
	if !ok {
		return nil, false
	}
	return validateFile("", file), true
}

// validateFile checks what every request about one path has.
func validateFile(prefix string, m fileReference) error {
	if err := validatePath(prefix+"path", prefix+"raw_path", m); err != nil {
		return err
	}
	if m, ok := m.(sandboxed); ok {
		return validateFileSandbox(prefix, m)
	}
	return nil
}

// validatePath checks that exactly one of the two forms of a path is given.
func validatePath(field, rawField string, m fileReference) error {
	path := m.GetPath()
	if raw := m.GetRawPath(); len(raw) > 0 {
		if path != "" {
			return invalidField(rawField, "and "+field+" are both set: give one of them")
		}
		field, path = rawField, string(raw)
	}
	switch {
	case path == "":
		return invalidField(field, "is empty: give an absolute path")
	case path[0] != '/':
		return invalidField(field, "is not an absolute path")
	case strings.IndexByte(path, 0) >= 0:
		return invalidField(field, "has a NUL in it")
	}
	return nil
}

// validateTarget checks that exactly one of the two forms of a link's target is
// given.
func validateTarget(m *execwirev1.CreateSymlinkRequest) error {
	field, target := "target", m.GetTarget()
	if raw := m.GetRawTarget(); len(raw) > 0 {
		if target != "" {
			return invalidField("raw_target", "and target are both set: give one of them")
		}
		field, target = "raw_target", string(raw)
	}
	switch {
	case target == "":
		return invalidField(field, "is empty: say where the link leads")
	case strings.IndexByte(target, 0) >= 0:
		return invalidField(field, "has a NUL in it")
	}
	return nil
}

// validateFileSandbox refuses a policy that says nothing; what else may be malformed
// in it is found when it is translated.
func validateFileSandbox(prefix string, m sandboxed) error {
	policy := m.GetSandbox()
	if policy == nil {
		return nil
	}
	field := prefix + "sandbox"
	switch {
	case policy.GetPolicy() == nil:
		return invalidField(field+".policy", "is missing: say managed, disabled or external")
	case policy.GetManaged() != nil && policy.GetManaged().GetFileSystem().GetPolicy() == nil:
		return invalidField(field+".managed.file_system.policy", "is missing: say restricted or unrestricted")
	}
	return nil
}
