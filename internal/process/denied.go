package process

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

// denials are what programs say, in any case of letters, when a sandbox denied them something.
var denials = [][]byte{
	[]byte("operation not permitted"), []byte("permission denied"), []byte("read-only file system"),
	[]byte("seccomp"), []byte("sandbox"), []byte("landlock"), []byte("failed to write file"),
}

// Exit codes that say by themselves whether a sandbox denied something.
const (
	codeMisused       = 2
	codeNotExecutable = 126
	codeNotFound      = 127
	codeBadCall       = 128 + int(unix.SIGSYS)
)

// seemsDenied tells whether a confined program seems to have failed because of its sandbox, by how it ended and what
// is retained of what it said.
func seemsDenied(exit ExitRecord, log *eventlog.Log) bool {
	if exit.Signal == 0 && exit.Code == 0 || exit.Cause == CauseLost {
		return false
	}
	var streams [eventlog.Terminal + 1]denialSearch
	for e := range log.RetainedOutput() {
		if streams[e.Stream].finds(e.Data) {
			return true
		}
	}
	switch {
	case exit.Signal != 0:
		return exit.Signal == unix.SIGSYS
	case exit.Code == codeMisused, exit.Code == codeNotExecutable, exit.Code == codeNotFound:
		return false
	}
	return exit.Code == codeBadCall
}

// longestDenial is how many bytes the longest of the denials has.
var longestDenial = func() (longest int) {
	for _, denial := range denials {
		longest = max(longest, len(denial))
	}
	return longest
}()

// denialSearch looks for denials in one stream, as it comes.
type denialSearch struct {
	text []byte // what was searched last, in small letters, after the end of what was before
}

// finds tells whether a denial ends in data.
func (s *denialSearch) finds(data []byte) bool {
	kept := copy(s.text, s.text[max(0, len(s.text)-longestDenial+1):])
	s.text = append(s.text[:kept], data...)
	for i, c := range s.text[kept:] {
		if 'A' <= c && c <= 'Z' {
			s.text[kept+i] = c + 'a' - 'A'
		}
	}
	for _, denial := range denials {
		if bytes.Contains(s.text, denial) {
			return true
		}
	}
	return false
}
