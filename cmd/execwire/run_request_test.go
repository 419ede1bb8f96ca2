package main

import (
	"math"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestParseLimit(t *testing.T) {
	const (
		openFiles = execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES
		fileBytes = execwirev1.LimitedResource_LIMITED_RESOURCE_FILE_BYTES
	)
	for text, want := range map[string]struct {
		resource   execwirev1.LimitedResource
		soft, hard uint64 // hard 0: absent
	}{
		"open-files=100":              {openFiles, 100, 0},
		"open-files=100:200":          {openFiles, 100, 200},
		"file-bytes=64KiB":            {fileBytes, 64 << 10, 0},
		"file-bytes=1:1MiB":           {fileBytes, 1, 1 << 20},
		"file-bytes=5:unlimited":      {fileBytes, 5, math.MaxUint64},
		"address-space-bytes=1GiB":    {execwirev1.LimitedResource_LIMITED_RESOURCE_ADDRESS_SPACE_BYTES, 1 << 30, 0},
		"cpu-seconds=unlimited":       {execwirev1.LimitedResource_LIMITED_RESOURCE_CPU_SECONDS, math.MaxUint64, 0},
		"user-processes=10:unlimited": {execwirev1.LimitedResource_LIMITED_RESOURCE_USER_PROCESSES, 10, math.MaxUint64},
	} {
		got, err := parseLimit(text)
		if err != nil || got.GetResource() != want.resource || got.GetSoft() != want.soft || got.GetHard() != want.hard || (got.Hard == nil) != (want.hard == 0) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for text, wantText := range map[string]string{
		"open-files": "open-files, stack-bytes", "unspecified=1": "NAME is one of", "": "NAME is one of",
		"open-files=1KiB": "not a number", "open-files=-1": "not a number", "open-files=": "not a number",
		"file-bytes=x": "not a size", "file-bytes=1:": "not a size", "open-files=1:2:3": "not a number",
	} {
		if got, err := parseLimit(text); err == nil || !strings.Contains(err.Error(), wantText) {
			t.Errorf("%q is %v, %v; want an error with %q", text, got, err, wantText)
		}
	}
}
