package process

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

// denialMessages are what programs print when a sandbox denied an operation. Case is ignored.
var denialMessages = [][]byte{
	[]byte("operation not permitted"), []byte("permission denied"), []byte("read-only file system"),
	[]byte("seccomp"), []byte("sandbox"), []byte("landlock"), []byte("failed to write file"),
}

// Exit codes with a conventional meaning.
const (
	exitCodeUsage         = 2
	exitCodeNotExecutable = 126
	exitCodeNotFound      = 127
	exitCodeSIGSYS        = 128 + int(unix.SIGSYS)
)

// isLikelyDenial reports whether a confined process probably failed because of its sandbox, judged
// by its exit and its retained output.
func isLikelyDenial(exit ExitRecord, log *eventlog.Log) bool {
	if exit.Signal == 0 && exit.Code == 0 || exit.Cause == CauseLost {
		return false
	}
	var streams [eventlog.Terminal + 1]denialScanner
	for e := range log.RetainedOutput() {
		if streams[e.Stream].scan(e.Data) {
			return true
		}
	}
	switch {
	case exit.Signal != 0:
		return exit.Signal == unix.SIGSYS
	case exit.Code == exitCodeUsage, exit.Code == exitCodeNotExecutable, exit.Code == exitCodeNotFound:
		return false
	}
	return exit.Code == exitCodeSIGSYS
}

// longestDenial is the length of the longest message.
var longestDenial = func() (longest int) {
	for _, denial := range denialMessages {
		longest = max(longest, len(denial))
	}
	return longest
}()

// denialScanner searches one stream for messages, chunk by chunk.
type denialScanner struct {
	tail []byte // the last chunk in lower case, preceded by the end of the one before
}

// scan reports whether a message ends in data.
func (s *denialScanner) scan(data []byte) bool {
	overlap := copy(s.tail, s.tail[max(0, len(s.tail)-longestDenial+1):])
	s.tail = append(s.tail[:overlap], data...)
	for i, c := range s.tail[overlap:] {
		if 'A' <= c && c <= 'Z' {
			s.tail[overlap+i] = c + 'a' - 'A'
		}
	}
	return slices.ContainsFunc(denialMessages, func(denial []byte) bool { return bytes.Contains(s.tail, denial) })
}
