package server

import (
	"crypto/sha256"
	"fmt"
	"math"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// MaxUploadIDBytes is the longest id of an upload.
	MaxUploadIDBytes = 128
	// maxVersionBytes is the longest version of a file; those of this server are
	// shorter.
	maxVersionBytes = 256
	// maxPermissions are all bits that a file may be given.
	maxPermissions = 0o7777
)

func validateUpload(m *execwirev1.UploadFileRequest) error {
	if m.GetMessage() == nil {
		return invalidField("message", "is missing: send a head, then data")
	}
	if end := m.GetEnd(); end != nil {
		return validateDigest("end.sha256", end.GetSha256())
	}
	head := m.GetHead()
	if head == nil {
		return nil
	}
	var err error
	switch mode := head.GetMode(); mode {
	case execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE:
		err = validateInPlace(head)
	case execwirev1.UploadMode_UPLOAD_MODE_REPLACE:
		err = validateReplacement(head)
	default:
		err = invalidField("head.mode", fmt.Sprintf("cannot be %d: use %d, in place, or %d, replace", mode,
			execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE, execwirev1.UploadMode_UPLOAD_MODE_REPLACE))
	}
	if err != nil {
		return err
	}
	return validateFile("head.", head)
}

// validateInPlace refuses what a file that is written in place cannot have.
func validateInPlace(head *execwirev1.UploadHead) error {
	for _, member := range []struct {
		name  string
		given bool
	}{
		{"upload_id", head.GetUploadId() != ""},
		{"offset", head.GetOffset() != 0},
		{"if_match_sha256", len(head.GetIfMatchSha256()) > 0},
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
	if err := validateLength("head.upload_id", head.GetUploadId(), MaxUploadIDBytes); err != nil {
		return err
	}
	if err := validateDigest("head.if_match_sha256", head.GetIfMatchSha256()); err != nil {
		return err
	}
	switch {
	case head.GetOffset() > math.MaxInt64:
		return invalidField("head.offset", fmt.Sprintf("is %d: use at most %d", head.GetOffset(), math.MaxInt64))
	case head.GetOffset() > 0 && head.GetUploadId() == "":
		return invalidField("head.offset", "is for uploads that go on: give the upload_id, or begin at 0")
	case head.GetIfMissing() && len(head.GetIfMatchSha256()) > 0:
		return invalidField("head.if_missing", "and head.if_match_sha256 are both set: a file that is missing has no content")
	}
	if head.Permissions != nil {
		if err := validatePermissions("head.permissions", head.GetPermissions()); err != nil {
			return err
		}
	}
	if head.GetModifyTime() != nil && head.GetModifyTime().CheckValid() != nil {
		return invalidField("head.modify_time", "is not a time between the years 1 and 9999")
	}
	return nil
}

func validateDigest(field string, digest []byte) error {
	if n := len(digest); n != 0 && n != sha256.Size {
		return invalidField(field, fmt.Sprintf("has %d bytes: a SHA-256 has %d", n, sha256.Size))
	}
	return nil
}

func validatePermissions(field string, bits uint32) error {
	if bits > maxPermissions {
		return invalidField(field, fmt.Sprintf("is %#o: use at most %#o", bits, maxPermissions))
	}
	return nil
}
